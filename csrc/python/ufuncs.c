/* ufuncs.c: real np.ufunc objects, one per row of ufuncs.h and instruction set. */
#include "module.h"

typedef struct {
    const char *name, *signature, *types, *doc;
    int nin, nout;
} ufunc_row;

static const ufunc_row ufunc_rows[] = {
#define RP_UFUNC(name, signature, nin, nout, types, doc)                               \
    {#name, signature, types, doc, nin, nout},
#include "../ufuncs.h"
#undef RP_UFUNC
    {NULL, NULL, NULL, NULL, 0, 0},
};

enum { MAX_OPERANDS = 16 };

_Static_assert(sizeof(npy_intp) == sizeof(ptrdiff_t), "rp_loop must fit NumPy's loops");

/* NumPy keeps pointers to these for as long as the ufunc lives; fill_ufuncs writes them. */
static PyUFuncGenericFunction ufunc_loops[RP_ISAS][RP_UFUNCS + 1][RP_DTYPES];
static char ufunc_types[RP_UFUNCS + 1][RP_DTYPES * MAX_OPERANDS];
static void *ufunc_data[RP_DTYPES];

static int
typenum_of(char type, int dtype)
{
    switch (type) {
    case 'T':
        return dtype == RP_F32 ? NPY_FLOAT : NPY_DOUBLE;
    case 'd':
        return NPY_DOUBLE;
    case 'l':
        return NPY_INT64;
    default:
        return -1;
    }
}

static int
fill_types(const ufunc_row *row, char *types)
{
    int operands = row->nin + row->nout;
    if (operands > MAX_OPERANDS || strlen(row->types) != (size_t)operands)
        return -1;
    for (int dtype = 0; dtype < RP_DTYPES; dtype++)
        for (int i = 0; i < operands; i++) {
            int type = typenum_of(row->types[i], dtype);
            if (type < 0)
                return -1;
            types[dtype * operands + i] = (char)type;
        }
    return 0;
}

int
fill_ufuncs(void)
{
    for (int index = 0; index < RP_UFUNCS; index++) {
        if (fill_types(&ufunc_rows[index], ufunc_types[index]) < 0) {
            PyErr_Format(PyExc_SystemError, "relpos: bad types in the row of %s",
                         ufunc_rows[index].name);
            return -1;
        }
        for (int isa = 0; isa < RP_ISAS; isa++)
            for (int dtype = 0; dtype < RP_DTYPES; dtype++)
                ufunc_loops[isa][index][dtype] =
                    (PyUFuncGenericFunction)rp_isas[isa].kernels[dtype]->loops[index];
    }
    return 0;
}

static PyObject *
new_ufunc(int isa, int index)
{
    const ufunc_row *row = &ufunc_rows[index];
    return PyUFunc_FromFuncAndDataAndSignature(
        ufunc_loops[isa][index], ufunc_data, ufunc_types[index], RP_DTYPES, row->nin,
        row->nout, PyUFunc_None, row->name, row->doc, 0, row->signature);
}

int
add_ufuncs(PyObject *entries, int isa)
{
    for (int i = 0; i < RP_UFUNCS; i++) {
        PyObject *ufunc = new_ufunc(isa, i);
        if (ufunc == NULL)
            return -1;
        int status = PyObject_SetAttrString(entries, ufunc_rows[i].name, ufunc);
        Py_DECREF(ufunc);
        if (status < 0)
            return -1;
    }
    return 0;
}
