/* checksum.c: whether arrays hold the same bytes as before. */
#include "module.h"

enum { CHECKSUM_BYTES = 2 * sizeof(uint64_t) };

/* self is the capsule of an rp_isa. */
PyObject *
py_checksums(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    const rp_isa *isa = PyCapsule_GetPointer(self, ISA_CAPSULE);
    if (isa == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < count; i++)
        if (!PyArray_Check(args[i]) ||
            !PyArray_IS_C_CONTIGUOUS((PyArrayObject *)args[i]) ||
            PyDataType_REFCHK(PyArray_DESCR((PyArrayObject *)args[i]))) {
            PyErr_SetString(PyExc_TypeError,
                            "checksums: expected C-contiguous arrays of numbers");
            return NULL;
        }
    PyObject *result = PyBytes_FromStringAndSize(NULL, count * CHECKSUM_BYTES);
    if (result == NULL)
        return NULL;
    char *at = PyBytes_AS_STRING(result);
    for (Py_ssize_t i = 0; i < count; i++, at += CHECKSUM_BYTES) {
        const char *bytes = PyArray_BYTES((PyArrayObject *)args[i]);
        size_t length = (size_t)PyArray_NBYTES((PyArrayObject *)args[i]);
        uint64_t sums[2];
        Py_BEGIN_ALLOW_THREADS
        isa->kernels[RP_F32]->checksum(bytes, length, sums);
        Py_END_ALLOW_THREADS
        memcpy(at, sums, sizeof sums);
    }
    return result;
}
