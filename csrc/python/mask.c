/* mask.c: whether a mask of numbers looks like one of booleans. */
#include "module.h"

enum { MASK_ENTRIES = 65536 }; /* the most that are looked at */

/* The axes along which an array moves, as steps forward, the shortest first; axes that
 * follow each other in memory are one. Returns how many there are. */
static int
memory_axes(PyArrayObject *array, const char **first, npy_intp *lengths,
            npy_intp *steps)
{
    int axes = 0, merged = 0;
    for (int axis = PyArray_NDIM(array) - 1; axis >= 0; axis--) {
        npy_intp length = PyArray_DIM(array, axis), step = PyArray_STRIDE(array, axis);
        if (length == 1 || step == 0)
            continue;
        if (step < 0) {
            *first += (length - 1) * step;
            step = -step;
        }
        int at = axes++;
        for (; at > 0 && steps[at - 1] > step; at--) {
            lengths[at] = lengths[at - 1];
            steps[at] = steps[at - 1];
        }
        lengths[at] = length;
        steps[at] = step;
    }
    for (int at = 1; at < axes; at++) {
        if (steps[at] == steps[merged] * lengths[merged]) {
            lengths[merged] *= lengths[at];
        } else {
            lengths[++merged] = lengths[at];
            steps[merged] = steps[at];
        }
    }
    return axes ? merged + 1 : 0;
}

/* What a line of 16-bit numbers holds, as `mask_numbers` of the kernels. */
static int
short_numbers(const char *at, ptrdiff_t step, npy_intp count, int one)
{
    int found = 0;
    for (; count > 0 && !(found & RP_OTHERS); count--, at += step) {
        uint16_t bits;
        memcpy(&bits, at, sizeof bits);
        found |= (bits & 0x7fff) == 0 ? RP_ZEROS : bits == one ? RP_ONES : RP_OTHERS;
    }
    return found;
}

static int
mask_line(const rp_isa *isa, int kind, const char *at, ptrdiff_t step, npy_intp count)
{
    int dtype = kind == KIND_F32 ? RP_F32 : RP_F64;
    if (kind == KIND_F16 || kind == KIND_BF16)
        return short_numbers(at, step, count, kind == KIND_F16 ? 0x3c00 : 0x3f80);
    return isa->kernels[dtype]->mask_numbers(at, step, count);
}

static int
array_numbers(const rp_isa *isa, const array_view *view)
{
    PyArrayObject *array = (PyArrayObject *)view->owner;
    npy_intp lengths[NPY_MAXDIMS] = {1}, steps[NPY_MAXDIMS] = {0};
    const char *first = PyArray_BYTES(array);
    int axes = memory_axes(array, &first, lengths, steps), found = 0;
    npy_intp lines = axes > 1 ? PyArray_MultiplyList(lengths + 1, axes - 1) : 1;
    if (lines > MASK_ENTRIES || lengths[0] > MASK_ENTRIES / lines)
        return RP_OTHERS;
    for (npy_intp n = 0; n < lines && !(found & RP_OTHERS); n++) {
        npy_intp offset = 0, rest = n;
        for (int axis = 1; axis < axes; axis++) {
            offset += rest % lengths[axis] * steps[axis];
            rest /= lengths[axis];
        }
        found |= mask_line(isa, view->kind, first + offset, steps[0], lengths[0]);
    }
    return found;
}

int
has_zeros_and_ones(const rp_isa *isa, const array_view *view)
{
    return PyArray_SIZE((PyArrayObject *)view->owner) > 0 &&
           array_numbers(isa, view) == (RP_ZEROS | RP_ONES);
}

/* self is the capsule of an rp_isa. */
PyObject *
py_has_zeros_and_ones(PyObject *self, PyObject *value)
{
    const rp_isa *isa = PyCapsule_GetPointer(self, ISA_CAPSULE);
    if (isa == NULL)
        return NULL;
    array_view view;
    if (!take_view(value, &view) || !view.is_behaved || view.kind < KIND_F16 ||
        view.kind > KIND_F64) {
        PyErr_SetString(PyExc_TypeError,
                        "has_zeros_and_ones: array must be floating, aligned and in "
                        "native byte order");
        return NULL;
    }
    return PyBool_FromLong(has_zeros_and_ones(isa, &view));
}
