/* encodings.c: encodings by one instruction set. A gufunc's loop is called as it is here:
 * NumPy's way to it takes longer than a small table. */
#include "module.h"

/* What is read, rows of the table or gradients of them, and where: references of its own. */
typedef struct {
    PyArrayObject *from, *positions;
    int dtype; /* of the computation: float16 is computed in float32 */
} table_call;

static void
release_table(table_call *call)
{
    Py_XDECREF(call->from);
    Py_XDECREF(call->positions);
}

/* Converts both arrays, which may run Python code where they are of subclasses: shapes are those
 * of the converted ones. */
static int
take_table(table_call *call, PyArrayObject *from, PyArrayObject *positions)
{
    enum { READABLE = NPY_ARRAY_ALIGNED | NPY_ARRAY_NOTSWAPPED };
    int given = PyArray_TYPE(from), type = given == NPY_HALF ? NPY_FLOAT : given;
    if (type != NPY_FLOAT && type != NPY_DOUBLE) {
        PyErr_SetString(PyExc_TypeError, "the array must be floating");
        return -1;
    }
    if (PyArray_TYPE(positions) != NPY_INT64) {
        PyErr_SetString(PyExc_TypeError, "positions must be int64");
        return -1;
    }
    call->dtype = type == NPY_FLOAT ? RP_F32 : RP_F64;
    call->from = (PyArrayObject *)PyArray_FROM_OTF((PyObject *)from, type, READABLE);
    call->positions = (PyArrayObject *)PyArray_FROM_OF(
        (PyObject *)positions, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_NOTSWAPPED);
    return call->from == NULL || call->positions == NULL ? -1 : 0;
}

/* The loops look again: another thread may write to the positions meanwhile. */
static int
check_positions(const table_call *call, npy_intp rows, const char *name)
{
    const int64_t *at = PyArray_DATA(call->positions);
    npy_intp count = PyArray_SIZE(call->positions);
    uint64_t signs =
        0; /* the first bit is set where a position or what is left is negative */
    for (npy_intp i = 0; i < count; i++)
        signs |= (uint64_t)at[i] | ((uint64_t)rows - 1 - (uint64_t)at[i]);
    for (npy_intp i = 0; signs >> 63 && i < count; i++) {
        int64_t position = at[i];
        if (position >= 0 && position < rows)
            continue;
        PyErr_Format(
            PyExc_IndexError,
            "%s: position %lld is outside the table of R = %zd row%s; expected "
            "0 to %zd",
            name, (long long)position, rows, rows == 1 ? "" : "s", rows - 1);
        return -1;
    }
    return 0;
}

/* The first `batch` axes of `array`, then `middle`, then the last axis, as a new array of the
 * computation's type, C-contiguous. */
static PyArrayObject *
new_result(const table_call *call, int batch, int axes, const npy_intp *middle)
{
    npy_intp shape[NPY_MAXDIMS];
    const npy_intp *from = PyArray_DIMS(call->from);
    if (batch + axes + 1 > NPY_MAXDIMS) {
        PyErr_SetString(PyExc_ValueError, "the result has too many axes");
        return NULL;
    }
    memcpy(shape, from, (size_t)batch * sizeof *shape);
    memcpy(shape + batch, middle, (size_t)axes * sizeof *shape);
    shape[batch + axes] = from[PyArray_NDIM(call->from) - 1];
    return (PyArrayObject *)PyArray_SimpleNew(
        batch + axes + 1, shape, call->dtype == RP_F32 ? NPY_FLOAT : NPY_DOUBLE);
}

/* Runs a gufunc's loop, (m,d),(n)->(k,d), over the batch axes that `from` begins with: what
 * is read along the last of them and beyond lies in steps, `to` is C-contiguous. */
static void
run_loop(rp_loop loop, const table_call *call, int batch, PyArrayObject *to,
         npy_intp rows)
{
    const npy_intp *shape = PyArray_DIMS(call->from);
    const npy_intp *strides = PyArray_STRIDES(call->from);
    npy_intp size = PyArray_ITEMSIZE(to), row = shape[batch + 1] * size;
    npy_intp items = batch ? shape[batch - 1] : 1;
    npy_intp outer = batch ? PyArray_MultiplyList(shape, batch - 1) : 1;
    const npy_intp dims[] = {items, shape[batch], shape[batch + 1], rows};
    const npy_intp steps[] = {batch ? strides[batch - 1] : 0,
                              0,
                              rows * row,
                              strides[batch],
                              strides[batch + 1],
                              sizeof(int64_t),
                              row,
                              size};
    for (npy_intp n = 0; n < outer; n++) {
        npy_intp offset = 0, rest = n;
        for (int axis = batch - 2; axis >= 0; axis--) {
            offset += rest % shape[axis] * strides[axis];
            rest /= shape[axis];
        }
        char *args[] = {PyArray_BYTES(call->from) + offset,
                        PyArray_BYTES(call->positions),
                        PyArray_BYTES(to) + n * items * rows * row};
        loop(args, dims, steps, NULL);
    }
}

/* Checks positions, makes the result, whose axes `middle` take the place of the rows of
 * `from`, and runs the loop. */
static PyObject *
run_table(PyObject *self, int index, const table_call *call, npy_intp table_rows,
          const char *name, int axes, const npy_intp *middle)
{
    const rp_isa *isa = PyCapsule_GetPointer(self, ISA_CAPSULE);
    int batch = PyArray_NDIM(call->from) - 2;
    PyArrayObject *to = NULL;
    if (isa == NULL || check_positions(call, table_rows, name) < 0 ||
        (to = new_result(call, batch, axes, middle)) == NULL)
        return NULL;
    if (PyArray_SIZE(to) > 0) {
        npy_intp rows = PyArray_MultiplyList(middle, axes);
        Py_BEGIN_ALLOW_THREADS
        run_loop(isa->kernels[call->dtype]->loops[index], call, batch, to, rows);
        Py_END_ALLOW_THREADS
        if (PyErr_Occurred())
            Py_CLEAR(to);
    }
    return (PyObject *)to;
}

PyObject *
py_learned_rows(PyObject *self, PyObject *args)
{
    PyArrayObject *table, *positions;
    const char *name;
    table_call call = {NULL, NULL, 0};
    PyObject *found = NULL;
    if (!PyArg_ParseTuple(args, "O!O!s:learned_rows", &PyArray_Type, &table,
                          &PyArray_Type, &positions, &name))
        return NULL;
    if (take_table(&call, table, positions) == 0) {
        int axes = PyArray_NDIM(call.from);
        if (axes < 2)
            PyErr_SetString(PyExc_ValueError, "learned_rows: the table has no rows");
        else
            found = run_table(
                self, RP_UFUNC_learned, &call, PyArray_DIM(call.from, axes - 2), name,
                PyArray_NDIM(call.positions), PyArray_DIMS(call.positions));
    }
    release_table(&call);
    return found;
}

PyObject *
py_learned_sums(PyObject *self, PyObject *args)
{
    PyArrayObject *grad, *positions;
    Py_ssize_t rows;
    table_call call = {NULL, NULL, 0};
    PyObject *sums = NULL;
    if (!PyArg_ParseTuple(args, "O!O!n:learned_sums", &PyArray_Type, &grad,
                          &PyArray_Type, &positions, &rows))
        return NULL;
    if (take_table(&call, grad, positions) == 0) {
        int axes = PyArray_NDIM(call.from);
        if (rows < 0 || axes < 2 ||
            PyArray_DIM(call.from, axes - 2) != PyArray_SIZE(call.positions))
            PyErr_SetString(PyExc_ValueError, "learned_sums: shapes do not fit");
        else
            sums = run_table(self, RP_UFUNC_learned_backward, &call, rows, "positions",
                             1, &rows);
    }
    release_table(&call);
    return sums;
}

PyObject *
py_index_rows(PyObject *self, PyObject *args)
{
    const rp_isa *isa = PyCapsule_GetPointer(self, ISA_CAPSULE);
    npy_intp shape[2];
    int type;
    double divisor;
    if (isa == NULL || !PyArg_ParseTuple(args, "nnCd:index_rows", &shape[0], &shape[1],
                                         &type, &divisor))
        return NULL;
    if (type != 'f' && type != 'd') {
        PyErr_SetString(PyExc_ValueError, "index_rows: dtype must be 'f' or 'd'");
        return NULL;
    }
    PyObject *index = PyArray_SimpleNew(2, shape, type == 'f' ? NPY_FLOAT : NPY_DOUBLE);
    if (index != NULL && PyArray_SIZE((PyArrayObject *)index) > 0) {
        void *rows = PyArray_DATA((PyArrayObject *)index);
        rp_status status;
        Py_BEGIN_ALLOW_THREADS
        status = isa->kernels[type == 'f' ? RP_F32 : RP_F64]->index_rows(
            rows, shape[0], shape[1], divisor);
        Py_END_ALLOW_THREADS
        raise_status(status);
        if (PyErr_Occurred())
            Py_CLEAR(index);
    }
    return index;
}
