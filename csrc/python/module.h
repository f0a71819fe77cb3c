/* module.h: what the C files that know Python share. Each of them includes this first, or the
 * rules of a call (rules.h), which include this. */
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

/* ---- views.c ------------------------------------------------------------------------ */

enum {
    KIND_OTHER,
    KIND_F16,
    KIND_BF16,
    KIND_F32,
    KIND_F64,
    KIND_BOOL,
    KIND_I8,
    KIND_I16,
    KIND_I32,
    KIND_I64
};

/* An array as it lies in memory. Shape and strides are its owner's. */
typedef struct {
    char *data; /* NULL in a view of nothing */
    const npy_intp *shape, *strides;
    int ndim, kind, itemsize;
    int is_behaved; /* aligned, in native byte order */
    int is_writeable;
    PyObject *owner; /* a reference that the caller has */
} array_view;

/* Makes the dtype of arrays whose 16 bits are a bfloat16 where NumPy has none:
 * `_core.bfloat16`. */
int add_bfloat16(PyObject *module);
/* The dtype of a type number, a new reference; NPY_VOID is that bfloat16's. */
PyArray_Descr *descr_of(int type);
/* How kernels read numbers of a kind. */
int storage_of(int kind);
/* Views an ndarray; returns 0 for any other object. What it says holds until Python code runs,
 * which may resize the array: views are taken when every argument has been read. */
int take_view(PyObject *value, array_view *view);
/* The ndarray that a value is, or the one over a plain tensor, and takes over the reference;
 * NULL: neither. */
PyObject *as_owner(PyObject *value);
/* Copies an array of 16 bits to float32, and views that; -1, with or without an error, where it
 * does not, as of one that repeats an item. */
int widen_view(array_view *view);
/* Whether two arrays may share memory: whether one begins before the other ends. */
int may_overlap(const array_view *a, const array_view *b);
/* Whether items of an array may share memory. */
int overlaps_itself(const array_view *view);
/* Whether a view is of an array with an element. */
int has_elements(const array_view *view);
/* Byte stride along an axis of the view where an operand has `length` items: 0 where the
 * view repeats one item, or lacks the axis (a negative one). */
ptrdiff_t stride_along(const array_view *view, int axis, npy_intp length);
/* Byte offset of a batch item, flattened, of a view that has `own` axes behind the batch
 * axes, whose shape is given. */
ptrdiff_t item_offset(const array_view *view, const npy_intp *shape, int ndim, int own,
                      int64_t item);
/* Writes these offsets of all items; returns whether any differs from 0. */
int spread_offsets(const array_view *view, const npy_intp *shape, int ndim, int own,
                   ptrdiff_t *offsets);

/* ---- tensors.c -------------------------------------------------------------------- */

/* A new reference to an array over the memory of a plain tensor; NULL without an error for
 * all else. It calls methods of the tensor, which may run Python code. */
PyObject *view_tensor(PyObject *value);
/* Whether an array that lies in the memory of a plain tensor lies there still: of others 1.
 * Runs no Python code. */
int is_current(PyObject *array);

/* ---- blocks.c ----------------------------------------------------------------------- */

/* Memory of a result that becomes a tensor, and the view of it; NULL without an error where there
 * is none. In memory the axes of heads and rows may be exchanged. rp_free frees it. */
void *new_block(int ndim, const npy_intp *shape, int kind, int is_exchanged,
                array_view *view);
/* Fills it with zeros. */
void clear_block(void *block);
/* The tensor that has the block from now on. */
PyObject *give_tensor(void *block);
/* Whether torch takes such memory, as the table of its tensors says. */
int can_give_tensors(void);

/* ---- operands.c: the dict of attention_forward and attention_backward -------------- */

enum { FORWARD, BACKWARD, DIRECTIONS };
/* What an operand is to a direction; from OUTPUT on it is written. */
enum { UNKNOWN, OPTIONAL, REQUIRED, OUTPUT, REQUIRED_OUTPUT };
/* What an array may have: numbers of the computation; these or, where it is one of float32,
 * numbers of 16 bits; or others. */
enum { OF_T, OF_16, OF_F64, OF_I64, OF_MASK, OF_LABELS, OF_BOOL };
/* Which axes an array may lack, or have once where the operand repeats them: those of the
 * batch; of the batch and the heads; any. WHOLE has all of them. HEADS has the axis of heads
 * alone, or at least two, of which it may have the last once. */
enum { TOKENS, SHARED, PAIRS, WHOLE, HEADS };

/* An entry of the dict: its name, and that name as a string that Python made once. */
typedef struct {
    const char *name;
    PyObject *key;
} dict_entry;

typedef struct {
    dict_entry entry;
    size_t array; /* offset of its rp_array in rp_gradients */
    const char *shape;
    int of_kind, fit;
    int roles[DIRECTIONS];
    size_t of; /* of a gradient: offset of the operand it needs; 0: none */
} operand_row;

typedef struct {
    dict_entry entry;
    size_t field; /* offset in rp_gradients of the pointer to it */
} item_row;

/* The rows: those of operands and results, then those of gradients. */
enum {
#define OPERAND(row, ...) row,
#define OTHER(row, ...) row,
#include "rows.h"
#define OPERAND(row, name, field, shape, numbers, axes, role, gradient, ...) gradient,
#include "rows.h"
    OPERANDS
};
/* Those with rows for relative positions, in the order of their rows; the kernels take all
 * with columns as if they began at one position. */
enum {
    TABLES = 0
#define TABLE(...) +1
#include "rows.h"
};
enum { ITEM_VECTORS = 3, MOST_BATCH_AXES = 29 };
enum { QUERY_OFFSET, KEY_LENGTHS, PART_ITEMS };
enum { INDPTR, INDICES, EDGE_LABELS, EDGE_VECTORS };

extern operand_row operand_rows[OPERANDS];
extern const int tables[TABLES];         /* rows */
extern item_row item_rows[ITEM_VECTORS]; /* int64, broadcast to the batch items */
extern dict_entry edge_entries[EDGE_VECTORS];

/* Makes the keys of all entries, or of one. */
int make_keys(void);
int make_key(dict_entry *entry);
/* Tells Python of the operands: `_core.operands`. */
int add_operands(PyObject *module);

/* What one call holds: references that keep the arrays alive while the interpreter's
 * lock is released. Vectors of edges are read where they lie: relpos hands over copies of
 * its own, that no caller can write to. */
typedef struct {
    rp_gradients problem;
    int direction;
    int kind;     /* of the computation */
    int out_kind; /* of `out`, which the rules of a call say */
    int batch_ndim;
    npy_intp batch_shape[MOST_BATCH_AXES];
    int64_t dims[128]; /* by letter; -1: not met yet */
    array_view views[OPERANDS], items[ITEM_VECTORS];
    int given[OPERANDS],
        count; /* rows that had a view when views were taken, in order */
    PyArrayObject *edges[EDGE_VECTORS];
    array_view buckets; /* of the dict */
    const int64_t
        *index; /* the table row of each position; NULL: tables have one for each */
    int64_t index_count, *index_copy; /* that is freed */
    ptrdiff_t *offsets;               /* OPERANDS rows of B */
    int64_t *item_numbers;            /* ITEM_VECTORS rows of B, copies */
    int counts; /* memory is counted, and nothing that has an entry for each item,
                           query or edge is looked at: there need be no memory behind it */
    int64_t rows_used;    /* of offsets, while it counts */
    Py_ssize_t used;      /* entries of the dict that were known */
    char makes[OPERANDS]; /* results that the call makes */
    int follows; /* whether heads lie inside of rows in results, as in their operands */
    int gives_tensors;      /* whether results become tensors */
    void *blocks[OPERANDS]; /* their memory, until they are */
} attention_call;

#define FIELD(call, type, offset) (*(type *)((char *)&(call)->problem + (offset)))

/* Sets an exception that names the operand; returns -1. */
int reject(const attention_call *call, PyObject *type, const char *operand,
           const char *what);
/* The numbers of the call's problem that the rules make, as a dict of the entries of a call. */
PyObject *list_numbers(const attention_call *call);
/* Arrays, vectors and scalars, checked; memory that depends on B is not filled yet. */
int take_operands(attention_call *call, PyObject *operands);

/* ---- arrays.c: those of a call ------------------------------------------------------- */

/* The entry as a new reference; NULL without an error when it is absent or None. */
PyObject *take_entry(attention_call *call, PyObject *operands, const dict_entry *entry,
                     int required);
/* Reads all arrays of the dict. */
int take_owners(attention_call *call, PyObject *operands);
/* Sets the exception of an array whose memory is another one than when it was read. */
void refuse_moved(const char *name);
/* View the operands, and the integers of batch items, once all arguments have been read. */
int take_views(attention_call *call);
int take_item_views(attention_call *call);
/* Check one array that has a view: its kind, and whether it can be read or written. */
int check_operand(attention_call *call, const operand_row *row, const array_view *view);
/* Call check_operand for all arrays of the dict. */
int check_arrays(attention_call *call);

/* ---- conditions.c ------------------------------------------------------------------- */

/* Whether each result of the dict has memory of its own, unless memory is only counted. */
int check_memory(const attention_call *call);
/* Whether the numbers that problems.h limits are within these limits, once the offsets of all
 * batch items are there. It does not look where memory is only counted. */
int check_numbers(const attention_call *call);

/* ---- shapes.c -------------------------------------------------------------------------- */

/* What may be wrong with the shape of an operand. */
enum {
    FITS,
    LACKS_AXES,   /* it has too few */
    OTHER_LENGTH, /* along the axis of a letter */
    HAS_NO_ROWS,
    NO_GROUPS, /* query heads cannot share the key heads */
    TOO_MANY_AXES,
    OTHER_BATCH, /* its batch axes do not broadcast */
    SOME_ITEMS,  /* a gradient that some batch items share, and not all */
    TOO_LARGE    /* bytes, repeated along all axes */
};

typedef struct {
    const dict_entry *operand;
    int rule, letter;
} misfit;

/* How shapes have to fit: heads may form groups, t may be longer than the keys. */
typedef struct {
    int groups, is_part;
} shape_rules;

/* Reads the letters and the batch axes off the views; returns what does not fit. */
misfit fit_shapes(attention_call *call, shape_rules rules);
/* Makes the results that the call has to make, and stores the strides of all arrays; -1,
 * with or without an error, where it does not. */
int lay_out(attention_call *call);
/* Axes of an operand behind those of the batch. */
int own_axes(const operand_row *row);

/* ---- buckets.c ------------------------------------------------------------------------ */

extern dict_entry buckets_entry;
/* Read the entry; then, once all arguments have been read, copy what it has. */
int take_buckets_entry(attention_call *call, PyObject *operands);
int copy_buckets(attention_call *call);
/* Gives the rows of all positions to the tables, and checks each. */
int list_tables(attention_call *call);

/* ---- results.c ------------------------------------------------------------------------ */

/* Makes a result, or checks the one that the caller gave; -1, with or without an error, where it
 * does not. */
int take_result(attention_call *call, int index);
/* A result that was made, as a new reference: once, where it is a tensor. */
PyObject *made_result(attention_call *call, int index);
/* Lists all of them, in the order of the rows. */
PyObject *list_results(attention_call *call);

/* ---- dimensions.c ---------------------------------------------------------------------- */

/* Letters and table rows into the problem's own fields; B from the batch shape. Cuts the
 * window to what can matter. */
int take_dimensions(attention_call *call);

/* ---- attention.c, direct.c, mask.c ----------------------------------------------------- */

/* Runs the problem or, with `bytes`, counts what memory it takes; -1 with an error. */
int run_call(const rp_isa *isa, attention_call *call, size_t *bytes);
/* Gives up what the call holds. */
void release_call(attention_call *call);
/* Whether a mask of numbers looks like one of booleans. */
int has_zeros_and_ones(const rp_isa *isa, const array_view *view);

/* ---- read.c -------------------------------------------------------------------------- */

/* Whether numbers are of a kind that an operand may have. */
int has_kind(const operand_row *row, const array_view *view);

/* ---- arguments.c, recorded.c ------------------------------------------------------------- */

/* Make the keys of the arguments that are no arrays, and those of torch's attributes. */
int make_argument_keys(void);
int make_recorded_keys(void);

/* ---- graph.c: the edges of a graph in that dict -------------------------------------- */

/* Reads the vectors; then, once all arguments have been read, checks what they are. */
int take_edge_vectors(attention_call *call, PyObject *operands);
int check_edge_vectors(const attention_call *call);
/* Whether the call goes along edges. */
int is_graph(const attention_call *call);
/* Looks at every edge of the vectors, unless memory is only counted. */
int check_edges(const attention_call *call);
/* Looks at every number of key_indices, once the offsets of all batch items are there. */
int check_picked_keys(const attention_call *call);
/* Runs the call's problem over its edges or, with `bytes`, counts. */
rp_status run_graph(const rp_kernels *kernels, const attention_call *call,
                    size_t *bytes);

/* ---- what module.c offers to Python --------------------------------------------------- */

PyObject *py_attention_forward(PyObject *self, PyObject *operands);
PyObject *py_attention_backward(PyObject *self, PyObject *operands);
PyObject *py_attend(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *py_attend_backward(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *py_attend_tensors(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *py_attend_gradients(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *py_keep_call(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *py_attention_bytes(PyObject *self, PyObject *args);
PyObject *py_read_operands(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *py_apply_rules(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *py_know_tensors(PyObject *module, PyObject *const *types, Py_ssize_t count);
PyObject *py_read_tensors(PyObject *module, PyObject *const *args, Py_ssize_t count);
PyObject *py_apply_rotary(PyObject *self, PyObject *args);
PyObject *py_indexer_top_k(PyObject *self, PyObject *args);
PyObject *py_learned_rows(PyObject *self, PyObject *args);
PyObject *py_learned_sums(PyObject *self, PyObject *args);
PyObject *py_index_rows(PyObject *self, PyObject *args);
PyObject *py_has_zeros_and_ones(PyObject *self, PyObject *array);
PyObject *py_checksums(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *py_gemm_tiles(PyObject *self, PyObject *args);
PyObject *py_gemm(PyObject *module, PyObject *args);
PyObject *py_blas_info(PyObject *module, PyObject *none);

/* ---- team.c ------------------------------------------------------------------------ */

PyObject *py_use_team(PyObject *module, PyObject *value);

/* Writes what all gufuncs point to. */
int fill_ufuncs(void);
/* One attribute per gufunc. */
int add_ufuncs(PyObject *entries, int isa);
/* Tells the runtime where the bundled OpenBLAS lies: beside the extension's own file. */
int set_blas_path(PyObject *module);

#endif
