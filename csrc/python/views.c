/* views.c: an array becomes plain C. Nothing behind it knows who made the array. */
#include "module.h"

#include <stdlib.h>

static PyArray_Descr *bfloat16;

PyArray_Descr *
descr_of(int type)
{
    return type == NPY_VOID ? (PyArray_Descr *)Py_NewRef((PyObject *)bfloat16)
                            : PyArray_DescrFromType(type);
}

int
add_bfloat16(PyObject *module)
{
    PyObject *fields = Py_BuildValue("[(ss)(ss)]", "low", "u1", "high", "u1");
    if (fields == NULL ||
        (bfloat16 == NULL && PyArray_DescrConverter(fields, &bfloat16) == NPY_FAIL)) {
        Py_XDECREF(fields);
        return -1;
    }
    Py_DECREF(fields);
    return PyModule_AddObjectRef(module, "bfloat16", (PyObject *)bfloat16);
}

int
storage_of(int kind)
{
    return kind == KIND_F16 ? RP_F16 : kind == KIND_BF16 ? RP_BF16 : RP_OWN;
}

/* Whether a type of another package is the bfloat16 of ml_dtypes, which has that name. The
 * attribute `name` of its dtype says the same, but asking for it would run Python code. */
static int
is_named_bfloat16(PyArrayObject *array)
{
    const char *name = PyArray_DESCR(array)->typeobj->tp_name;
    const char *dot = strrchr(name, '.');
    return strcmp(dot == NULL ? name : dot + 1, "bfloat16") == 0;
}

static int
kind_of(PyArrayObject *array)
{
    static const char integers[] = {0, KIND_I8, KIND_I16, 0,       KIND_I32,
                                    0, 0,       0,        KIND_I64};
    int type = PyArray_TYPE(array);
    switch (type) {
    case NPY_HALF:
        return KIND_F16;
    case NPY_FLOAT:
        return KIND_F32;
    case NPY_DOUBLE:
        return KIND_F64;
    case NPY_BOOL:
        return KIND_BOOL;
    case NPY_VOID:
        return PyArray_EquivTypes(PyArray_DESCR(array), bfloat16) ? KIND_BF16
                                                                  : KIND_OTHER;
    default:
        if (PyTypeNum_ISUSERDEF(type))
            return is_named_bfloat16(array) ? KIND_BF16 : KIND_OTHER;
        return PyTypeNum_ISSIGNED(type) && PyArray_ITEMSIZE(array) <= 8
                   ? integers[PyArray_ITEMSIZE(array)]
                   : KIND_OTHER;
    }
}

int
take_view(PyObject *value, array_view *view)
{
    PyArrayObject *array = (PyArrayObject *)value;
    if (!PyArray_Check(value))
        return 0;
    *view = (array_view){.data = PyArray_BYTES(array),
                         .shape = PyArray_DIMS(array),
                         .strides = PyArray_STRIDES(array),
                         .ndim = PyArray_NDIM(array),
                         .kind = kind_of(array),
                         .itemsize = (int)PyArray_ITEMSIZE(array),
                         .is_behaved = PyArray_ISBEHAVED_RO(array),
                         .is_writeable = PyArray_ISWRITEABLE(array),
                         .owner = value};
    return 1;
}

PyObject *
as_owner(PyObject *value)
{
    if (PyArray_Check(value))
        return value;
    PyObject *array = view_tensor(value);
    Py_DECREF(value);
    return array;
}

int
widen_view(array_view *view)
{
    PyArrayObject *given = (PyArrayObject *)view->owner, *array;
    int repeats = 0;
    for (int axis = 0; axis < view->ndim; axis++)
        repeats |= view->strides[axis] == 0 && view->shape[axis] > 1;
    if (repeats || !view->is_behaved)
        return -1;
    if (view->kind == KIND_F16)
        array = (PyArrayObject *)PyArray_Cast(given, NPY_FLOAT);
    else {
        PyArrayObject *copy = (PyArrayObject *)PyArray_NewCopy(given, NPY_CORDER);
        array = (PyArrayObject *)PyArray_SimpleNew(view->ndim, view->shape, NPY_FLOAT);
        for (npy_intp i = 0; copy && array && i < PyArray_SIZE(copy); i++)
            ((uint32_t *)PyArray_DATA(array))[i] =
                (uint32_t)((const uint16_t *)PyArray_DATA(copy))[i] << 16;
        if (copy == NULL)
            Py_CLEAR(array);
        Py_XDECREF(copy);
    }
    if (array == NULL)
        return -1;
    Py_DECREF(view->owner);
    take_view((PyObject *)array, view);
    return 0;
}

/* The first byte of an array, and the one behind its last; of one without elements, two
 * addresses that mean nothing, so that it may seem to overlap. */
static void
find_bytes(const array_view *view, uintptr_t ends[2])
{
    ends[0] = (uintptr_t)view->data;
    ends[1] = ends[0] + (uintptr_t)view->itemsize;
    for (int axis = 0; axis < view->ndim; axis++) {
        ptrdiff_t reach = (view->shape[axis] - 1) * view->strides[axis];
        ends[reach > 0] += (uintptr_t)reach;
    }
}

int
may_overlap(const array_view *a, const array_view *b)
{
    uintptr_t of_a[2], of_b[2];
    find_bytes(a, of_a);
    find_bytes(b, of_b);
    return of_a[0] < of_b[1] && of_b[0] < of_a[1];
}

int
has_elements(const array_view *view)
{
    for (int axis = 0; axis < view->ndim; axis++)
        if (view->shape[axis] == 0)
            return 0;
    return view->owner != NULL;
}

int
overlaps_itself(const array_view *view)
{
    if (!has_elements(view)) /* whose strides may be anything */
        return 0;
    for (int axis = 0; axis < view->ndim; axis++) {
        ptrdiff_t step = labs(view->strides[axis]), extent = view->itemsize;
        for (int i = 0; i < view->ndim; i++) {
            ptrdiff_t finer = labs(view->strides[i]);
            if (view->shape[i] > 1 && (finer < step || (finer == step && i < axis)))
                extent += (view->shape[i] - 1) * finer;
        }
        if (view->shape[axis] > 1 && step < extent)
            return 1;
    }
    return 0;
}

ptrdiff_t
stride_along(const array_view *view, int axis, npy_intp length)
{
    return axis < 0 || view->shape[axis] != length ? 0 : view->strides[axis];
}

ptrdiff_t
item_offset(const array_view *view, const npy_intp *shape, int ndim, int own,
            int64_t item)
{
    ptrdiff_t offset = 0;
    for (int back = 1; back <= ndim; back++) {
        npy_intp length = shape[ndim - back];
        offset += item % length * stride_along(view, view->ndim - own - back, length);
        item /= length;
    }
    return offset;
}

int
spread_offsets(const array_view *view, const npy_intp *shape, int ndim, int own,
               ptrdiff_t *offsets)
{
    int64_t filled = 1;
    int moves = 0;
    offsets[0] = 0;
    for (int back = 1; back <= ndim; back++) {
        /* what is filled belongs to the axes behind; repeat it along this one */
        npy_intp length = shape[ndim - back];
        ptrdiff_t stride = stride_along(view, view->ndim - own - back, length);
        for (npy_intp i = 1; i < length; i++)
            for (int64_t j = 0; j < filled; j++)
                offsets[i * filled + j] = offsets[j] + i * stride;
        filled *= length;
        moves |= length > 1 && stride != 0;
    }
    return moves;
}
