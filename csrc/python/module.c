/* module.c: the extension module relpos._core, what it has.
 *
 *   by_isa   {"base": namespace, ..}: per instruction set that this CPU can run, every gufunc
 *            of ufuncs.h, attention_forward, attention_backward, fma_loop
 *   isa      name of the best of them
 *   operands {"query": ("HqD", role forward, role backward), ..}: the rows of operands.c */
#define RELPOS_IMPORTS_NUMPY
#include "module.h"

#include <stdatomic.h>

/* ---- the instruction sets ----------------------------------------------------- */

static PyObject *
py_fma_loop(PyObject *self, PyObject *args)
{
    const rp_isa *isa = PyCapsule_GetPointer(self, ISA_CAPSULE);
    int type;
    long long rounds;
    double flops;
    if (isa == NULL || !PyArg_ParseTuple(args, "CL:fma_loop", &type, &rounds))
        return NULL;
    if (type != 'f' && type != 'd') {
        PyErr_SetString(PyExc_ValueError, "fma_loop: dtype must be 'f' or 'd'");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    flops = isa->kernels[type == 'f' ? RP_F32 : RP_F64]->fma_loop(rounds);
    Py_END_ALLOW_THREADS
    return PyFloat_FromDouble(flops);
}

static PyMethodDef isa_methods[] = {
    {"attention_forward", py_attention_forward, METH_O,
     "attention_forward(operands): fills out, lse and weights of the dict in place"},
    {"attention_backward", py_attention_backward, METH_O,
     "attention_backward(operands): adds to the zeros in grad_* of the dict in place"},
    {"attend", (PyCFunction)(void (*)(void))py_attend, METH_FASTCALL,
     "attend(args, keywords, threads, of_tensors, keeps, follows): results of a call "
     "of "
     "attention, or None of one that has to be prepared"},
    {"attend_backward", (PyCFunction)(void (*)(void))py_attend_backward, METH_FASTCALL,
     "attend_backward(names, tensors, wanted, grads, values, threads, follows): "
     "gradients of the wanted tensors, after out, row_max and row_sum; None of a call "
     "as above"},
    {"attend_tensors", (PyCFunction)(void (*)(void))py_attend_tensors, METH_FASTCALL,
     "attend_tensors(args, keywords, threads, record): what a call of tensors returns, "
     "recorded by record(call, results, *tensors) if one of them requires a gradient; "
     "None of a call as above"},
    {"attend_gradients", (PyCFunction)(void (*)(void))py_attend_gradients,
     METH_FASTCALL,
     "attend_gradients(context, grad_out, grad_lse, threads): gradients of all that "
     "was "
     "given to record; None of a call as above"},
    {"attention_bytes", py_attention_bytes, METH_VARARGS,
     "attention_bytes(operands, backward): memory that attention_forward or _backward "
     "would take beside the arrays; reads only vectors of integers"},
    {"apply_rotary", py_apply_rotary, METH_VARARGS,
     "apply_rotary(x, out, positions, high, low, magnitude, interleaved, threads): "
     "fills "
     "out, which may be x"},
    {"indexer_top_k", py_indexer_top_k, METH_VARARGS,
     "indexer_top_k(query, key, weights, ranges, mask, keys, threads): fills keys; the "
     "mask may be None"},
    {"learned_rows", py_learned_rows, METH_VARARGS,
     "learned_rows(table, positions, name): of the positions; errors call them name"},
    {"learned_sums", py_learned_sums, METH_VARARGS,
     "learned_sums(grad, positions, rows): gradient of a table of so many rows"},
    {"index_rows", py_index_rows, METH_VARARGS,
     "index_rows(length, dim, dtype, divisor): row n is filled with n / divisor"},
    {"has_zeros_and_ones", py_has_zeros_and_ones, METH_O,
     "has_zeros_and_ones(array): whether both are there, no other number, and at most "
     "65536 of them in memory"},
    {"checksums", (PyCFunction)(void (*)(void))py_checksums, METH_FASTCALL,
     "checksums: 16 bytes for each C-contiguous array, which change with its bytes"},
    {"gemm_tiles", py_gemm_tiles, METH_VARARGS,
     "gemm_tiles(a, b, threads): a @ b by this instruction set's own tiles"},
    {"fma_loop", py_fma_loop, METH_VARARGS,
     "fma_loop(dtype, rounds): flops done by multiply-adds in registers"},
    {NULL, NULL, 0, NULL},
};

static int
add_methods(PyObject *entries, int isa)
{
    PyObject *capsule = PyCapsule_New((void *)&rp_isas[isa], ISA_CAPSULE, NULL);
    int status = capsule == NULL ? -1 : 0;
    for (PyMethodDef *method = isa_methods; status == 0 && method->ml_name != NULL;
         method++) {
        PyObject *function = PyCFunction_New(method, capsule);
        status = function == NULL
                     ? -1
                     : PyObject_SetAttrString(entries, method->ml_name, function);
        Py_XDECREF(function);
    }
    Py_XDECREF(capsule);
    return status;
}

static PyObject *
new_namespace(int isa)
{
    PyObject *types = PyImport_ImportModule("types"), *entries = NULL;
    if (types != NULL)
        entries = PyObject_CallMethod(types, "SimpleNamespace", NULL);
    Py_XDECREF(types);
    if (entries != NULL &&
        (add_methods(entries, isa) < 0 || add_ufuncs(entries, isa) < 0))
        Py_CLEAR(entries);
    return entries;
}

static int
add_isas(PyObject *module)
{
    const char *best = NULL;
    PyObject *by_isa = PyDict_New();
    if (by_isa == NULL)
        return -1;
    for (int i = 0; i < RP_ISAS; i++) {
        if (!rp_isas[i].supported())
            continue;
        best = rp_isas[i].name;
        PyObject *entries = new_namespace(i);
        int status = entries == NULL ? -1 : PyDict_SetItemString(by_isa, best, entries);
        Py_XDECREF(entries);
        if (status < 0) {
            Py_DECREF(by_isa);
            return -1;
        }
    }
    int status = PyModule_AddObjectRef(module, "by_isa", by_isa);
    Py_DECREF(by_isa);
    return status < 0 ? -1 : PyModule_AddStringConstant(module, "isa", best);
}

/* ---- module-wide functions --------------------------------------------------- */

/* The function of relpos/_settings.py that answers how many threads a call gets. One that
 * another takes the place of is not freed: a thread may be on its way to call it. */
static PyObject *_Atomic ask_threads_callable;

/* Asks Python for the number of threads. A gufunc's loop may call it after it has raised:
 * then the answer is 0, and the exception is kept. */
static int
ask_threads(void)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    PyObject *callable = atomic_load(&ask_threads_callable);
    PyObject *number = PyErr_Occurred() ? NULL : PyObject_CallNoArgs(callable);
    int n = number == NULL ? 0 : (int)PyLong_AsLong(number);
    Py_XDECREF(number);
    PyGILState_Release(gil);
    return n;
}

static PyObject *
set_threads_hook(PyObject *Py_UNUSED(module), PyObject *callable)
{
    atomic_store(&ask_threads_callable, Py_NewRef(callable));
    rp_set_threads_hook(ask_threads);
    Py_RETURN_NONE;
}

static PyObject *
always_ask_threads(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    rp_always_ask_threads();
    Py_RETURN_NONE;
}

static PyObject *
get_num_threads(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    int threads = rp_get_num_threads();
    return PyErr_Occurred() ? NULL : PyLong_FromLong(threads);
}

static PyObject *
count_cpus(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    int limited, cpus = rp_count_cpus(&limited);
    return Py_BuildValue("is", cpus, limited ? "cgroup" : "affinity");
}

static PyObject *
set_num_threads(PyObject *Py_UNUSED(module), PyObject *args)
{
    int threads;
    if (!PyArg_ParseTuple(args, "i:set_num_threads", &threads))
        return NULL;
    rp_set_num_threads(threads);
    Py_RETURN_NONE;
}

/* What resizing an array changes: where its numbers lie, where those of the array lie that
 * it is a view of, and how many bytes that one has. */
static PyObject *
memory_of(PyObject *Py_UNUSED(module), PyObject *value)
{
    if (!PyArray_Check(value)) {
        PyErr_SetString(PyExc_TypeError, "memory_of: array must be an ndarray");
        return NULL;
    }
    PyArrayObject *array = (PyArrayObject *)value, *owner = array;
    while (PyArray_BASE(owner) != NULL && PyArray_Check(PyArray_BASE(owner)))
        owner = (PyArrayObject *)PyArray_BASE(owner);
    return Py_BuildValue("nnn", (Py_ssize_t)(intptr_t)PyArray_DATA(array),
                         (Py_ssize_t)(intptr_t)PyArray_DATA(owner),
                         (Py_ssize_t)PyArray_NBYTES(owner));
}

/* Fills lengths and strides of an array repeated to a shape; 0 where it does not fit. */
static int
repeat_axes(PyArrayObject *array, PyObject *shape, npy_intp *lengths, npy_intp *strides)
{
    Py_ssize_t axes = PyTuple_GET_SIZE(shape), added = axes - PyArray_NDIM(array);
    if (added < 0 || axes > NPY_MAXDIMS)
        return 0;
    for (Py_ssize_t axis = 0; axis < axes; axis++) {
        npy_intp own = axis < added ? 1 : PyArray_DIM(array, (int)(axis - added));
        lengths[axis] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, axis));
        strides[axis] = 0;
        if (lengths[axis] < 0 || (own != 1 && own != lengths[axis]))
            return 0;
        if (axis >= added && own == lengths[axis])
            strides[axis] = PyArray_STRIDE(array, (int)(axis - added));
    }
    return 1;
}

/* In a tenth of the time of numpy.broadcast_to, where a call of attention has many. */
static PyObject *
broadcast_to(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *value, *shape, *view = NULL;
    npy_intp lengths[NPY_MAXDIMS], strides[NPY_MAXDIMS];
    if (!PyArg_ParseTuple(args, "OO!:broadcast_to", &value, &PyTuple_Type, &shape))
        return NULL;
    PyArrayObject *array = (PyArrayObject *)PyArray_FROM_O(value); /* or a scalar */
    if (array == NULL)
        return NULL;
    if (repeat_axes(array, shape, lengths, strides)) {
        Py_INCREF(PyArray_DESCR(array));
        view = PyArray_NewFromDescr(&PyArray_Type, PyArray_DESCR(array),
                                    (int)PyTuple_GET_SIZE(shape), lengths, strides,
                                    PyArray_DATA(array), PyArray_FLAGS(array), NULL);
        if (view != NULL &&
            PyArray_SetBaseObject((PyArrayObject *)view, Py_NewRef(array)) < 0)
            Py_CLEAR(view);
    } else if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "broadcast_to: the shape does not fit");
    }
    Py_DECREF(array);
    return view;
}

static PyObject *
fail_at(PyObject *Py_UNUSED(module), PyObject *args)
{
    long long n;
    int forever;
    if (!PyArg_ParseTuple(args, "Lp:fail_at", &n, &forever))
        return NULL;
    return PyLong_FromLongLong(rp_fail_at(n, forever));
}

static PyObject *
live_blocks(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return PyLong_FromLongLong(rp_live_blocks());
}

static PyMethodDef module_methods[] = {
    {"get_num_threads", get_num_threads, METH_NOARGS, NULL},
    {"set_num_threads", set_num_threads, METH_VARARGS,
     "set_num_threads(n): for the process; 0: ask the hook, once"},
    {"set_threads_hook", set_threads_hook, METH_O,
     "set_threads_hook(callable): it returns the number of threads of a call"},
    {"always_ask_threads", always_ask_threads, METH_NOARGS,
     "always_ask_threads(): from now on, for every call"},
    {"count_cpus", count_cpus, METH_NOARGS,
     "count_cpus(): those this process may use, and what says so"},
    {"blas_info", py_blas_info, METH_NOARGS, NULL},
    {"use_team", py_use_team, METH_O,
     "use_team(path): runs calls on the OpenMP threads of a library that is loaded, "
     "unless they need more; raises OSError where it has none"},
    {"gemm", py_gemm, METH_VARARGS, "gemm(a, b, threads): a @ b by rp_gemm"},
    {"memory_of", memory_of, METH_O,
     "memory_of(array): its address, that of what it is a view of, the bytes there"},
    {"broadcast_to", broadcast_to, METH_VARARGS,
     "broadcast_to(array, shape): as numpy's; writable where the array is"},
    {"read_operands", (PyCFunction)(void (*)(void))py_read_operands, METH_FASTCALL,
     "read_operands(arguments, read, groups, is_part): the arrays of a call of "
     "attention, and what their shapes say"},
    {"apply_rules", (PyCFunction)(void (*)(void))py_apply_rules, METH_FASTCALL,
     "apply_rules(inputs, numbers): what follows for a call, or the rule that it "
     "breaks"},
    {"know_tensors", (PyCFunction)(void (*)(void))py_know_tensors, METH_FASTCALL,
     "know_tensors(tensor, parameter): the types of torch; whether C can read them"},
    {"read_tensors", (PyCFunction)(void (*)(void))py_read_tensors, METH_FASTCALL,
     "read_tensors(names, values, read): arrays over the memory of tensors, by name; "
     "read(name, value) gives those of other values, and None has none"},
    {"keep_call", (PyCFunction)(void (*)(void))py_keep_call, METH_FASTCALL,
     "keep_call(context, call, results, *tensors): keeps what the backward of a call "
     "needs; returns what the call does"},
    {"fail_at", fail_at, METH_VARARGS,
     "fail_at(n, forever): test hook, the n-th allocation from now fails; 0 for none. "
     "Returns what was left of the count before"},
    {"live_blocks", live_blocks, METH_NOARGS, "allocations not yet freed"},
    {NULL, NULL, 0, NULL},
};

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* Writes what the process has once, in the first load alone: from then on threads read it
 * without a lock. The import system lets one thread load a module at a time. */
static int
fill_tables(PyObject *module)
{
    static int filled;
    if (filled)
        return 0;
    if (_import_array() < 0 || _import_umath() < 0 || set_blas_path(module) < 0 ||
        make_keys() < 0 || make_argument_keys() < 0 || make_recorded_keys() < 0 ||
        fill_ufuncs() < 0)
        return -1;
    install_hooks();
    filled = 1;
    return 0;
}

static int
execute(PyObject *module)
{
    /* gufuncs and the pool are one per process */
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError,
                        "relpos does not support subinterpreters: import it in the "
                        "main one");
        return -1;
    }
    if (fill_tables(module) < 0 ||
        PyModule_AddStringConstant(module, "compiler", COMPILER) < 0 ||
        PyModule_AddIntConstant(module, "max_threads", RP_MAX_THREADS) < 0 ||
        add_operands(module) < 0 || add_bfloat16(module) < 0)
        return -1;
    return add_isas(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil /* from 3.13 on; tests/runtime/test_free_threading.py */
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "relpos._core",
    .m_doc = "C kernels of relpos. Private: use the functions of relpos.",
    .m_methods = module_methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__core(void)
{
    return PyModuleDef_Init(&definition);
}
