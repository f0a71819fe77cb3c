/* gemm.c: rp_gemm for tests and layers. */
#include "module.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "../config.h"

int
set_blas_path(PyObject *module)
{
#ifdef RELPOS_BLAS_FILE
    PyObject *file = PyModule_GetFilenameObject(module), *bytes = NULL;
    if (file == NULL || !PyUnicode_FSConverter(file, &bytes)) {
        Py_XDECREF(file);
        return -1;
    }
    const char *own = PyBytes_AS_STRING(bytes), *slash = strrchr(own, '/');
    char path[PATH_MAX];
    int folder = slash == NULL ? 0 : (int)(slash - own) + 1;
    int length = snprintf(path, sizeof path, "%.*s%s", folder, own, RELPOS_BLAS_FILE);
    if (length < (int)sizeof path) /* a longer path cannot be opened anyway */
        rp_blas_set_path(path);
    Py_DECREF(bytes);
    Py_DECREF(file);
#else
    (void)module;
#endif
    return 0;
}

PyObject *
py_blas_info(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none))
{
    return PyUnicode_DecodeFSDefault(rp_blas_info());
}

static int
check_factors(PyArrayObject *a, PyArrayObject *b)
{
    int type = PyArray_TYPE(a);
    if (PyArray_NDIM(a) != 2 || PyArray_NDIM(b) != 2 ||
        PyArray_DIM(a, 1) != PyArray_DIM(b, 0)) {
        PyErr_SetString(PyExc_ValueError, "gemm: expected a (m, k) and b (k, n)");
        return -1;
    }
    if ((type != NPY_FLOAT && type != NPY_DOUBLE) || PyArray_TYPE(b) != type ||
        !PyArray_ISBEHAVED_RO(a) || !PyArray_ISBEHAVED_RO(b)) {
        PyErr_SetString(PyExc_TypeError, "gemm: a and b must both be float32, or both "
                                         "float64, aligned and in native byte order");
        return -1;
    }
    return 0;
}

/* a @ b as a new array, by the tiles of `isa` or, when that is NULL, by rp_gemm. */
static PyObject *
multiply(const rp_isa *isa, PyObject *args)
{
    PyArrayObject *a, *b;
    int threads;
    rp_status status;
    if (!PyArg_ParseTuple(args, "O!O!i:gemm", &PyArray_Type, &a, &PyArray_Type, &b,
                          &threads) ||
        check_factors(a, b) < 0)
        return NULL;
    if (threads < 1 || threads > RP_MAX_THREADS) {
        PyErr_SetString(PyExc_ValueError, "gemm: threads is out of range");
        return NULL;
    }
    npy_intp shape[2] = {PyArray_DIM(a, 0), PyArray_DIM(b, 1)};
    PyArrayObject *c = (PyArrayObject *)PyArray_SimpleNew(2, shape, PyArray_TYPE(a));
    if (c == NULL)
        return NULL;
    int dtype = PyArray_TYPE(a) == NPY_FLOAT ? RP_F32 : RP_F64;
    const npy_intp *as = PyArray_STRIDES(a), *bs = PyArray_STRIDES(b);
    rp_product p = {.m = shape[0],
                    .n = shape[1],
                    .k = PyArray_DIM(a, 1),
                    .alpha = 1,
                    .a = PyArray_DATA(a),
                    .a_row = as[0],
                    .a_col = as[1],
                    .b = PyArray_DATA(b),
                    .b_row = bs[0],
                    .b_col = bs[1],
                    .c = PyArray_DATA(c),
                    .c_row = shape[1]};
    Py_BEGIN_ALLOW_THREADS
    status = isa != NULL ? rp_gemm_tiles(isa, dtype, &p, threads)
                         : rp_gemm(&p, dtype, threads);
    Py_END_ALLOW_THREADS
    raise_status(status);
    if (PyErr_Occurred())
        Py_CLEAR(c);
    return (PyObject *)c;
}

PyObject *
py_gemm(PyObject *Py_UNUSED(module), PyObject *args)
{
    return multiply(NULL, args);
}

/* self is the capsule of an rp_isa. */
PyObject *
py_gemm_tiles(PyObject *self, PyObject *args)
{
    const rp_isa *isa = PyCapsule_GetPointer(self, ISA_CAPSULE);
    return isa == NULL ? NULL : multiply(isa, args);
}
