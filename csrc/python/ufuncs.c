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

enum { MAX_OPERANDS = 16, MAX_DIMS = 26 };

_Static_assert(sizeof(npy_intp) == sizeof(ptrdiff_t), "rp_loop must fit NumPy's loops");

/* An operand's core dimensions: which of the call's, a bit each; where their strides are
 * among the core strides, and how many. */
typedef struct {
    unsigned dims;
    int first, count;
} core_t;

typedef struct {
    const ufunc_row *row;
    const core_t *core; /* of each operand */
    rp_loop run;
} ufunc_loop;

/* NumPy keeps pointers to these for as long as the ufunc lives; fill_ufuncs writes them. */
static core_t ufunc_core[RP_UFUNCS + 1][MAX_OPERANDS];
static ufunc_loop ufunc_loops[RP_ISAS][RP_UFUNCS + 1][RP_DTYPES];
static void *ufunc_data[RP_ISAS][RP_UFUNCS + 1][RP_DTYPES];
static char ufunc_types[RP_UFUNCS + 1][RP_DTYPES * MAX_OPERANDS];

static int
has_cells(const core_t *core, const npy_intp *dims)
{
    for (int i = 0; i < MAX_DIMS; i++)
        if (core->dims >> i & 1 && dims[1 + i] == 0)
            return 0;
    return dims[0] > 0;
}

/* Whether an input that starts where an output does must not. NumPy has copied inputs that
 * overlap an output, but for those that are the same view, and does not look at axes=. */
static int
is_refused(const ufunc_loop *loop, int in, int out, const npy_intp *dims,
           const npy_intp *steps)
{
    const core_t *from = &loop->core[in], *to = &loop->core[out];
    const npy_intp *core = steps + loop->row->nin + loop->row->nout;
    if (!has_cells(from, dims) || !has_cells(to, dims))
        return 0;
    return strchr("tD", loop->row->types[in]) == NULL || from->count != to->count ||
           memcmp(core + from->first, core + to->first,
                  (size_t)to->count * sizeof *core) != 0;
}

/* The loop that NumPy calls. */
static void
run_ufunc(char **args, const npy_intp *dims, const npy_intp *steps, void *data)
{
    const ufunc_loop *loop = data;
    const ufunc_row *row = loop->row;
    for (int in = 0; in < row->nin; in++)
        for (int out = row->nin; out < row->nin + row->nout; out++)
            if (args[in] == args[out] && is_refused(loop, in, out, dims, steps)) {
                char message[128];
                snprintf(message, sizeof message,
                         "%s: out is an input; expected memory of its own", row->name);
                rp_loop_error(message);
                return;
            }
    loop->run(args, dims, steps, NULL);
}

static int
typenum_of(char type, int dtype)
{
    switch (type) {
    case 'T':
    case 't':
        return dtype == RP_F32 ? NPY_FLOAT : NPY_DOUBLE;
    case 'd':
    case 'D':
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

/* The names of dimensions are one letter each. NumPy counts them as they first appear. */
static void
fill_core(const char *signature, core_t *core)
{
    char seen[MAX_DIMS + 1] = "";
    int operand = -1, strides = 0;
    for (; *signature; signature++)
        if (*signature == '(') {
            core[++operand] = (core_t){.first = strides};
        } else if (*signature >= 'a' && *signature <= 'z') {
            size_t dim = strcspn(seen, (char[]){*signature, 0});
            seen[dim] = *signature;
            core[operand].dims |= 1u << dim;
            core[operand].count++;
            strides++;
        }
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
        fill_core(ufunc_rows[index].signature, ufunc_core[index]);
        for (int isa = 0; isa < RP_ISAS; isa++)
            for (int dtype = 0; dtype < RP_DTYPES; dtype++) {
                ufunc_loop *loop = &ufunc_loops[isa][index][dtype];
                *loop = (ufunc_loop){&ufunc_rows[index], ufunc_core[index],
                                     rp_isas[isa].kernels[dtype]->loops[index]};
                ufunc_data[isa][index][dtype] = loop;
            }
    }
    return 0;
}

static PyObject *
new_ufunc(int isa, int index)
{
    static PyUFuncGenericFunction loops[RP_DTYPES] = {run_ufunc, run_ufunc};
    const ufunc_row *row = &ufunc_rows[index];
    return PyUFunc_FromFuncAndDataAndSignature(
        loops, ufunc_data[isa][index], ufunc_types[index], RP_DTYPES, row->nin,
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
