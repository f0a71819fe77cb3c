/* rotary.c: apply_rotary of one instruction set: its arguments become an rp_rotary, and the
 * kernel runs without the interpreter's lock. Unlike the gufunc it works in place. */
#include "module.h"

enum {
    ROTARY_X,
    ROTARY_OUT,
    ROTARY_POSITION,
    ROTARY_HIGH,
    ROTARY_LOW,
    ROTARY_MAGNITUDE,
    ROTARY_ARRAYS
};

static const char *const rotary_names[] = {"x",    "out", "positions",
                                           "high", "low", "magnitude"};

static int
reject_rotary(PyObject *type, int index, const char *what)
{
    PyErr_Format(type, "apply_rotary: %s %s", rotary_names[index], what);
    return -1;
}

/* Kind of an array of floating numbers. */
static int
number_kind(PyArrayObject *array)
{
    array_view view;
    int known = take_view((PyObject *)array, &view);
    return known && view.kind >= KIND_F16 && view.kind <= KIND_F64 ? view.kind
                                                                   : KIND_OTHER;
}

/* All have x's axes but for the last, of D, D, 1, h, h and h columns. */
static int
check_rotary(PyArrayObject *const *arrays, int index)
{
    PyArrayObject *x = arrays[ROTARY_X], *array = arrays[index];
    int last = PyArray_NDIM(x) - 1, kind = number_kind(array);
    int wanted = index <= ROTARY_OUT ? number_kind(x) : KIND_F64;
    if (kind == KIND_OTHER || kind != wanted)
        return reject_rotary(PyExc_TypeError, index, "has the wrong dtype");
    if (!PyArray_ISBEHAVED_RO(array))
        return reject_rotary(PyExc_ValueError, index,
                             "must be aligned and in native byte order");
    if (index == ROTARY_OUT && !PyArray_ISWRITEABLE(array))
        return reject_rotary(PyExc_ValueError, index, "is read-only");
    if (last < 1 || PyArray_NDIM(array) != last + 1 ||
        !PyArray_CompareLists(PyArray_DIMS(array), PyArray_DIMS(x), last))
        return reject_rotary(PyExc_ValueError, index, "does not have x's axes");
    npy_intp columns = PyArray_DIM(array, last),
             pairs = PyArray_DIM(arrays[ROTARY_HIGH], last);
    npy_intp expected = index <= ROTARY_OUT        ? PyArray_DIM(x, last)
                        : index == ROTARY_POSITION ? 1
                                                   : pairs;
    int is_wide = index == ROTARY_HIGH && pairs > PyArray_DIM(x, last) / 2;
    if (columns != expected || is_wide)
        return reject_rotary(PyExc_ValueError, index, "has the wrong last axis");
    return 0;
}

/* Whether two arrays are views of the same items in the same order. */
static int
are_same(const array_view *a, const array_view *b)
{
    for (int axis = 0; axis < a->ndim; axis++)
        if (a->shape[axis] > 1 && a->strides[axis] != b->strides[axis])
            return 0;
    return a->data == b->data;
}

/* Whether out has memory of its own, or is x. */
static int
check_rotary_memory(PyArrayObject *const *arrays)
{
    array_view out, other;
    take_view((PyObject *)arrays[ROTARY_OUT], &out);
    if (overlaps_itself(&out))
        return reject_rotary(PyExc_ValueError, ROTARY_OUT,
                             "has items that share memory; each needs its own");
    for (int i = 0; i < ROTARY_ARRAYS; i++) {
        take_view((PyObject *)arrays[i], &other);
        if (i == ROTARY_OUT || !has_elements(&other) || !may_overlap(&out, &other) ||
            (i == ROTARY_X && are_same(&out, &other)))
            continue;
        return reject_rotary(
            PyExc_ValueError, ROTARY_OUT,
            "overlaps another array; expected memory of its own, or x");
    }
    return 0;
}

/* The problem of checked arrays; *offsets is memory behind its pointers. */
static int
fill_rotary(rp_rotary *p, PyArrayObject *const *arrays, ptrdiff_t **offsets)
{
    rp_array *places[] = {&p->x,    &p->out, &p->position,
                          &p->high, &p->low, &p->magnitude};
    int batch_ndim = PyArray_NDIM(arrays[ROTARY_X]) - 2;
    size_t count;
    p->N = PyArray_MultiplyList(PyArray_DIMS(arrays[ROTARY_X]), batch_ndim);
    p->L = PyArray_DIM(arrays[ROTARY_X], batch_ndim);
    p->D = PyArray_DIM(arrays[ROTARY_X], batch_ndim + 1);
    p->h = PyArray_DIM(arrays[ROTARY_HIGH], batch_ndim + 1);
    if (!rp_multiply((size_t)p->N, ROTARY_ARRAYS, &count) ||
        (*offsets = rp_alloc(count, sizeof **offsets)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < ROTARY_ARRAYS; i++) {
        ptrdiff_t *own = *offsets + i * p->N;
        *places[i] = (rp_array){.data = PyArray_BYTES(arrays[i]),
                                .row = PyArray_STRIDE(arrays[i], batch_ndim),
                                .col = PyArray_STRIDE(arrays[i], batch_ndim + 1),
                                .kind = storage_of(number_kind(arrays[i]))};
        array_view view;
        if (take_view((PyObject *)arrays[i], &view) &&
            spread_offsets(&view, view.shape, batch_ndim, 2, own))
            places[i]->batch = own;
    }
    return 0;
}

/* self is the capsule of an rp_isa. */
PyObject *
py_apply_rotary(PyObject *self, PyObject *args)
{
    const rp_isa *isa = PyCapsule_GetPointer(self, ISA_CAPSULE);
    PyArrayObject *arrays[ROTARY_ARRAYS];
    rp_rotary problem = {0};
    ptrdiff_t *offsets = NULL;
    if (isa == NULL ||
        !PyArg_ParseTuple(args, "O!O!O!O!O!O!pi:apply_rotary", &PyArray_Type,
                          &arrays[0], &PyArray_Type, &arrays[1], &PyArray_Type,
                          &arrays[2], &PyArray_Type, &arrays[3], &PyArray_Type,
                          &arrays[4], &PyArray_Type, &arrays[5], &problem.interleaved,
                          &problem.threads))
        return NULL;
    if (PyArray_NDIM(arrays[ROTARY_HIGH]) != PyArray_NDIM(arrays[ROTARY_X])) {
        reject_rotary(PyExc_ValueError, ROTARY_HIGH, "does not have x's axes");
        return NULL;
    }
    for (int i = 0; i < ROTARY_ARRAYS; i++)
        if (check_rotary(arrays, i) < 0)
            return NULL;
    if (problem.threads < 1 || problem.threads > RP_MAX_THREADS) {
        PyErr_SetString(PyExc_ValueError, "apply_rotary: threads is out of range");
        return NULL;
    }
    if (PyArray_SIZE(arrays[ROTARY_X]) > 0 && check_rotary_memory(arrays) == 0 &&
        fill_rotary(&problem, arrays, &offsets) == 0) {
        int dtype = number_kind(arrays[ROTARY_X]) == KIND_F64 ? RP_F64 : RP_F32;
        rp_status status;
        Py_BEGIN_ALLOW_THREADS
        status = isa->kernels[dtype]->apply_rotary(&problem);
        Py_END_ALLOW_THREADS
        raise_status(status);
    }
    rp_free(offsets);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}
