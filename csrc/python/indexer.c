/* indexer.c: indexer_top_k of one instruction set: its arguments become an rp_indexer, and the
 * kernel runs without the interpreter's lock. */
#include "module.h"

enum { INDEXER_ARRAYS = 6, PICKED_KEYS = 5, INDEXER_MASK = 4, LETTERS = 128 };

/* The arguments that are arrays, and the letters of their axes behind those of the batch, which
 * all have alike: H heads, q queries, k keys, D columns, n keys that are picked. */
static const struct {
    const char *name, *letters;
    size_t field;
    int lowest, highest; /* kinds */
} indexer_rows[INDEXER_ARRAYS] = {
    {"query", "HqD", offsetof(rp_indexer, query), KIND_F16, KIND_F64},
    {"key", "kD", offsetof(rp_indexer, key), KIND_F16, KIND_F64},
    {"weights", "Hq", offsetof(rp_indexer, weights), KIND_F16, KIND_F64},
    {"ranges", "q2", offsetof(rp_indexer, ranges), KIND_I64, KIND_I64},
    {"mask", "qk", offsetof(rp_indexer, mask), KIND_F16, KIND_BOOL},
    {"keys", "qn", offsetof(rp_indexer, keys), KIND_I32, KIND_I32},
};

/* A call: its views, those of absent arrays empty, and the lengths of letters, -1: not met. */
typedef struct {
    rp_indexer problem;
    array_view views[INDEXER_ARRAYS];
    int64_t lengths[LETTERS];
    int batch_ndim, dtype;
} indexer_call;

static int
reject_indexer(PyObject *type, int index, const char *what)
{
    PyErr_Format(type, "indexer_top_k: %s %s", indexer_rows[index].name, what);
    return -1;
}

/* Whether the kernels take numbers of a kind: their own, and of 16 bits where they compute in
 * float32. A mask may have any. */
static int
check_indexer_kind(const indexer_call *call, int index)
{
    const array_view *view = &call->views[index];
    int kind = view->kind;
    int is_short = kind == KIND_F16 || kind == KIND_BF16;
    if (kind < indexer_rows[index].lowest || kind > indexer_rows[index].highest ||
        (is_short && call->dtype == RP_F64) ||
        (index < 3 && !is_short && (kind == KIND_F64) != (call->dtype == RP_F64)))
        return reject_indexer(PyExc_TypeError, index, "has the wrong dtype");
    if (!view->is_behaved)
        return reject_indexer(PyExc_ValueError, index,
                              "must be aligned and in native byte order");
    return 0;
}

static int
check_indexer_shape(indexer_call *call, int index)
{
    const array_view *view = &call->views[index], *first = &call->views[0];
    const char *letters = indexer_rows[index].letters;
    int own = (int)strlen(letters), batch = view->ndim - own;
    int fits = batch >= 0 && batch == call->batch_ndim;
    for (int axis = 0; fits && axis < batch; axis++)
        fits = view->shape[axis] == first->shape[axis];
    for (int axis = 0; fits && axis < own; axis++) {
        int64_t *length = &call->lengths[(int)letters[axis]];
        if (*length < 0)
            *length = view->shape[batch + axis];
        fits = *length == view->shape[batch + axis] && *length <= RP_LONGEST;
    }
    return fits ? 0 : reject_indexer(PyExc_ValueError, index, "has the wrong shape");
}

/* Whether the picks have memory of their own. */
static int
check_keys_array(const indexer_call *call)
{
    const array_view *keys = &call->views[PICKED_KEYS];
    if (!keys->is_writeable)
        return reject_indexer(PyExc_ValueError, PICKED_KEYS, "is read-only");
    if (overlaps_itself(keys))
        return reject_indexer(PyExc_ValueError, PICKED_KEYS,
                              "has items that share memory; each needs its own");
    for (int i = 0; i < PICKED_KEYS; i++)
        if (has_elements(&call->views[i]) && may_overlap(keys, &call->views[i]))
            return reject_indexer(PyExc_ValueError, PICKED_KEYS,
                                  "overlaps another array");
    return 0;
}

static int
check_indexer_call(indexer_call *call)
{
    const array_view *query = &call->views[0];
    call->batch_ndim = query->ndim - 3;
    call->dtype = query->kind == KIND_F64 ? RP_F64 : RP_F32;
    for (int letter = 0; letter < LETTERS; letter++)
        call->lengths[letter] = -1;
    call->lengths['2'] = 2;
    for (int i = 0; i < INDEXER_ARRAYS; i++)
        if (call->views[i].owner != NULL &&
            (check_indexer_kind(call, i) < 0 || check_indexer_shape(call, i) < 0))
            return -1;
    if (call->lengths['k'] > INT32_MAX)
        return reject_indexer(PyExc_ValueError, 1, "has keys that int32 cannot name");
    if (call->lengths['n'] > call->lengths['k'])
        return reject_indexer(PyExc_ValueError, PICKED_KEYS,
                              "has more entries than there are keys");
    return check_keys_array(call);
}

/* The problem of a checked call; *offsets is memory behind its pointers. */
static int
fill_indexer(indexer_call *call, ptrdiff_t **offsets)
{
    rp_indexer *p = &call->problem;
    const int batch = call->batch_ndim;
    size_t count;
    p->B = PyArray_MultiplyList(call->views[0].shape, batch);
    p->H = call->lengths['H'];
    p->Lq = call->lengths['q'];
    p->Lk = call->lengths['k'];
    p->D = call->lengths['D'];
    p->picked = call->lengths['n'];
    if (!rp_multiply((size_t)p->B, INDEXER_ARRAYS, &count) ||
        (*offsets = rp_alloc(count, sizeof **offsets)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < INDEXER_ARRAYS; i++) {
        const array_view *view = &call->views[i];
        const char *letters = indexer_rows[i].letters;
        rp_array *array = (rp_array *)((char *)p + indexer_rows[i].field);
        ptrdiff_t *item_offsets = *offsets + i * p->B;
        int row = batch + (letters[0] == 'H');
        if (view->owner == NULL)
            continue;
        *array = (rp_array){.data = view->data,
                            .head = letters[0] == 'H' ? view->strides[batch] : 0,
                            .row = view->strides[row],
                            .col = row + 1 < view->ndim ? view->strides[row + 1] : 0,
                            .kind = storage_of(view->kind)};
        if (spread_offsets(view, view->shape, batch, view->ndim - batch, item_offsets))
            array->batch = item_offsets;
    }
    int mask = call->views[INDEXER_MASK].kind;
    p->mask_type = call->views[INDEXER_MASK].owner == NULL ? RP_MASK_NONE
                   : mask == KIND_BOOL                     ? RP_MASK_BOOL
                   : mask == KIND_F64                      ? RP_MASK_F64
                                                           : RP_MASK_F32;
    return 0;
}

/* Runs a checked call, if it has something to write. */
static int
run_indexer(const rp_isa *isa, indexer_call *call)
{
    ptrdiff_t *offsets = NULL;
    if (!has_elements(&call->views[PICKED_KEYS]))
        return 0;
    if (fill_indexer(call, &offsets) == 0) {
        rp_status status;
        Py_BEGIN_ALLOW_THREADS
        status = isa->kernels[call->dtype]->indexer_top_k(&call->problem);
        Py_END_ALLOW_THREADS
        raise_status(status);
    }
    rp_free(offsets);
    return PyErr_Occurred() ? -1 : 0;
}

/* self is the capsule of an rp_isa. */
PyObject *
py_indexer_top_k(PyObject *self, PyObject *args)
{
    const rp_isa *isa = PyCapsule_GetPointer(self, ISA_CAPSULE);
    indexer_call call = {0};
    PyObject *values[INDEXER_ARRAYS];
    if (isa == NULL || !PyArg_ParseTuple(args, "OOOOOOi:indexer_top_k", &values[0],
                                         &values[1], &values[2], &values[3], &values[4],
                                         &values[5], &call.problem.threads))
        return NULL;
    for (int i = 0; i < INDEXER_ARRAYS; i++) {
        if (i == INDEXER_MASK && values[i] == Py_None)
            continue;
        if (!take_view(values[i], &call.views[i])) {
            reject_indexer(PyExc_TypeError, i, "must be an ndarray");
            return NULL;
        }
    }
    if (call.problem.threads < 1 || call.problem.threads > RP_MAX_THREADS) {
        PyErr_SetString(PyExc_ValueError, "indexer_top_k: threads is out of range");
        return NULL;
    }
    if (check_indexer_call(&call) < 0 || run_indexer(isa, &call) < 0)
        return NULL;
    Py_RETURN_NONE;
}
