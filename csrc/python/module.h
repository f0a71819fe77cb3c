/* module.h: what the C files that know Python share. Each of them includes this first. */
#ifndef RELPOS_MODULE_H
#define RELPOS_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_1_23_API_VERSION
#define NPY_TARGET_VERSION NPY_1_23_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL relpos_array_api
#define PY_UFUNC_UNIQUE_SYMBOL relpos_ufunc_api
#ifndef RELPOS_IMPORTS_NUMPY /* module.c alone */
#define NO_IMPORT_ARRAY
#define NO_IMPORT_UFUNC
#endif
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include "../isa/isa.h"

/* self of the functions of one instruction set */
#define ISA_CAPSULE "relpos._core.isa"

/* ---- errors.c ------------------------------------------------------------------- */

/* Sets the exception of a status; none for RP_OK. */
void raise_status(rp_status status);
/* Lets loops report errors, and long calls hear signals. */
void install_hooks(void);

/* ---- operands.c: the dict of attention_forward and attention_backward -------------- */

enum { FORWARD, BACKWARD, DIRECTIONS };
/* What an operand is to a direction; from OUTPUT on it is written. */
enum { UNKNOWN, OPTIONAL, REQUIRED, OUTPUT, REQUIRED_OUTPUT };

/* An entry of the dict: its name, and that name as a string that Python made once. */
typedef struct {
    const char *name;
    PyObject *key;
} dict_entry;

typedef struct {
    dict_entry entry;
    size_t array; /* offset of its rp_array in rp_gradients */
    const char *shape;
    int kind;
    int roles[DIRECTIONS];
    size_t of; /* of a gradient: offset of the operand it needs; 0: none */
} operand_row;

typedef struct {
    dict_entry entry;
    size_t field; /* offset in rp_gradients of the pointer to it */
} item_row;

enum { OPERANDS = 48, ITEM_VECTORS = 3 };
enum { INDPTR, INDICES, EDGE_LABELS, EDGE_VECTORS };

extern operand_row operand_rows[OPERANDS];
extern item_row item_rows[ITEM_VECTORS]; /* int64, one per batch item */
extern dict_entry edge_entries[EDGE_VECTORS];

/* Makes the keys of all entries. */
int make_keys(void);
/* Tells Python of the operands: `_core.operands`. */
int add_operands(PyObject *module);

/* What one call holds: references that keep the arrays alive while the interpreter's
 * lock is released. Vectors of integers are read where they lie: relpos hands over
 * copies of its own, that no caller can write to. */
typedef struct {
    rp_gradients problem;
    int direction;
    int typenum; /* of query */
    int batch_ndim;
    npy_intp batch_shape[NPY_MAXDIMS];
    int64_t dims[128]; /* by letter; -1: not met yet */
    PyArrayObject *arrays[OPERANDS], *items[ITEM_VECTORS], *edges[EDGE_VECTORS];
    ptrdiff_t *offsets; /* OPERANDS rows of B */
    int counts; /* memory is counted, and nothing that has an entry for each item,
                           query or edge is looked at: there need be no memory behind it */
    int64_t rows_used; /* of offsets, while it counts */
    Py_ssize_t used;   /* entries of the dict that were known */
} attention_call;

#define FIELD(call, type, offset) (*(type *)((char *)&(call)->problem + (offset)))

/* Sets an exception that names the operand; returns -1. */
int reject(const attention_call *call, PyObject *type, const char *operand,
           const char *what);
/* The entry as a new reference; NULL without an error when it is absent or None. */
PyObject *take_entry(attention_call *call, PyObject *operands, const dict_entry *entry,
                     int required);
/* Arrays, vectors and scalars, checked; memory that depends on B is not filled yet. */
int take_operands(attention_call *call, PyObject *operands);

/* ---- dimensions.c ---------------------------------------------------------------------- */

/* Letters and table rows into the problem's own fields; B from the batch shape. */
int take_dimensions(attention_call *call);

/* ---- graph.c: the edges of a graph in that dict -------------------------------------- */

int take_edge_vectors(attention_call *call, PyObject *operands);
/* Looks at every edge, unless memory is only counted. */
int check_edges(const attention_call *call);
/* Runs the call's problem over its edges or, with `bytes`, counts. */
rp_status run_graph(const rp_kernels *kernels, const attention_call *call,
                    size_t *bytes);

/* ---- attention.c --------------------------------------------------------------------- */

/* Writes the byte offset of every item of the first batch_ndim axes, flattened; returns
 * whether any differs from 0. */
int batch_offsets(PyArrayObject *array, int batch_ndim, ptrdiff_t *offsets);

/* ---- what module.c offers to Python --------------------------------------------------- */

PyObject *py_attention_forward(PyObject *self, PyObject *operands);
PyObject *py_attention_backward(PyObject *self, PyObject *operands);
PyObject *py_attention_bytes(PyObject *self, PyObject *args);
PyObject *py_apply_rotary(PyObject *self, PyObject *args);
PyObject *py_learned_rows(PyObject *self, PyObject *args);
PyObject *py_learned_sums(PyObject *self, PyObject *args);
PyObject *py_index_rows(PyObject *self, PyObject *args);
PyObject *py_has_zeros_and_ones(PyObject *self, PyObject *array);
PyObject *py_gemm_tiles(PyObject *self, PyObject *args);
PyObject *py_gemm(PyObject *module, PyObject *args);
PyObject *py_blas_info(PyObject *module, PyObject *none);

/* Writes what all gufuncs point to. */
int fill_ufuncs(void);
/* One attribute per gufunc. */
int add_ufuncs(PyObject *entries, int isa);
/* Tells the runtime where the bundled OpenBLAS lies: beside the extension's own file. */
int set_blas_path(PyObject *module);

#endif
