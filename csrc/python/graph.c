/* graph.c: the edges of a graph in the dict of attention_forward and attention_backward:
 * indptr (q + 1,), indices (e,) and, if there are labels, edge_labels (e,), all int64; or the
 * rows KEY_INDICES and KEY_LABELS in their place. */
#include "module.h"

dict_entry edge_entries[] = {
    {"indptr", NULL}, {"indices", NULL}, {"edge_labels", NULL}};

int
take_edge_vectors(attention_call *call, PyObject *operands)
{
    for (int i = 0; i < EDGE_VECTORS; i++) {
        call->edges[i] =
            (PyArrayObject *)take_entry(call, operands, &edge_entries[i], 0);
        if (call->edges[i] == NULL && PyErr_Occurred())
            return -1;
    }
    return 0;
}

int
check_edge_vectors(const attention_call *call)
{
    for (int i = 0; i < EDGE_VECTORS; i++) {
        PyArrayObject *array = call->edges[i];
        if (array == NULL)
            continue;
        if (!PyArray_Check(array) || PyArray_TYPE(array) != NPY_INT64 ||
            !PyArray_ISCARRAY_RO(array) || PyArray_NDIM(array) != 1)
            return reject(call, PyExc_TypeError, edge_entries[i].name,
                          "must be a C-contiguous int64 vector");
        if (call->edges[INDPTR] == NULL)
            return reject(call, PyExc_TypeError, edge_entries[i].name,
                          "came without indptr");
    }
    return 0;
}

int
is_graph(const attention_call *call)
{
    return call->edges[INDPTR] != NULL || call->views[KEY_INDICES].owner != NULL;
}

/* Whether the call has an operand that edges have no term of. */
static int
has_other_operands(const attention_call *call)
{
    static const char goes_along[OPERANDS] = {
        [QUERY] = 1,   [KEY] = 1,         [VALUE] = 1,
        [REL_KEY] = 1, [REL_VALUE] = 1,   [POSITION_QUERY] = 1,
        [SINKS] = 1,   [KEY_INDICES] = 1, [KEY_LABELS] = 1,
    };
    for (int i = 0; i < OPERANDS; i++) {
        int role = operand_rows[i].roles[FORWARD];
        if (call->views[i].owner != NULL && !goes_along[i] &&
            (role == REQUIRED || role == OPTIONAL))
            return 1;
    }
    return 0;
}

/* Whether the call has a number or an array that edges do not go with. */
static int
has_other_arguments(const attention_call *call)
{
    const rp_attention *p = &call->problem.forward;
    return has_other_operands(call) || p->results.weights.data || p->dropout.p > 0 ||
           call->items[QUERY_OFFSET].owner || call->items[KEY_LENGTHS].owner ||
           call->items[PART_ITEMS].owner || p->sight.window_left != RP_UNBOUNDED ||
           p->sight.window_right != RP_UNBOUNDED;
}

/* The lengths of the vectors. */
static int
check_vector_lengths(const attention_call *call)
{
    const rp_attention *p = &call->problem.forward;
    PyArrayObject *const *given = call->edges;
    if (given[INDICES] == NULL)
        return reject(call, PyExc_TypeError, edge_entries[INDICES].name, "is missing");
    if (PyArray_DIM(given[INDPTR], 0) - 1 != p->Lq)
        return reject(call, PyExc_ValueError, edge_entries[INDPTR].name,
                      "must have one entry more than query has rows");
    if (given[EDGE_LABELS] != NULL &&
        PyArray_DIM(given[EDGE_LABELS], 0) != PyArray_DIM(given[INDICES], 0))
        return reject(call, PyExc_ValueError, edge_entries[EDGE_LABELS].name,
                      "must be as long as indices");
    return 0;
}

/* Nobody has looked at all the numbers yet, so what is wrong with one is said here, in the
 * words of graph_attention. */
static int
check_indptr(const int64_t *indptr, int64_t queries)
{
    for (int64_t i = 0; i < queries; i++)
        if (indptr[i + 1] < indptr[i]) {
            PyErr_Format(PyExc_ValueError,
                         "indptr: falls from %lld to %lld at query %lld; expected "
                         "numbers that never fall",
                         (long long)indptr[i], (long long)indptr[i + 1], (long long)i);
            return -1;
        }
    return 0;
}

static int
check_indices(const int64_t *indices, int64_t edges, int64_t keys)
{
    for (int64_t e = 0; e < edges; e++)
        if (indices[e] < 0 || indices[e] >= keys) {
            PyErr_Format(PyExc_IndexError,
                         "indices: indices[%lld] is %lld, outside the %lld keys; "
                         "expected 0 to %lld",
                         (long long)e, (long long)indices[e], (long long)keys,
                         (long long)keys - 1);
            return -1;
        }
    return 0; /* labels are looked at edge by edge */
}

/* That key_indices came alone; its numbers are looked at once the offsets of batch items are
 * there. */
static int
check_rows_of_keys(const attention_call *call)
{
    if (call->edges[INDPTR] != NULL)
        return reject(call, PyExc_ValueError, operand_rows[KEY_INDICES].entry.name,
                      "came together with indptr");
    if (has_other_arguments(call))
        return reject(call, PyExc_ValueError, operand_rows[KEY_INDICES].entry.name,
                      "goes with rel_key, rel_value, position_query and sinks only");
    return 0;
}

int
check_edges(const attention_call *call)
{
    const rp_attention *p = &call->problem.forward;
    PyArrayObject *const *given = call->edges;
    if (call->views[KEY_INDICES].owner != NULL)
        return check_rows_of_keys(call);
    if (call->views[KEY_LABELS].owner != NULL)
        return reject(call, PyExc_TypeError, operand_rows[KEY_LABELS].entry.name,
                      "came without key_indices");
    if (given[INDPTR] == NULL)
        return 0;
    if (check_vector_lengths(call) < 0)
        return -1;
    if (has_other_arguments(call))
        return reject(call, PyExc_ValueError, edge_entries[INDPTR].name,
                      "goes with rel_key, rel_value, position_query and sinks only");
    if (call->counts)
        return 0;
    const int64_t *indptr = PyArray_DATA(given[INDPTR]);
    int64_t edges = PyArray_DIM(given[INDICES], 0);
    if (indptr[0] != 0 || indptr[p->Lq] != edges)
        return reject(call, PyExc_ValueError, edge_entries[INDPTR].name,
                      "must run from 0 to the number of edges");
    if (check_indptr(indptr, p->Lq) < 0)
        return -1;
    return check_indices(PyArray_DATA(given[INDICES]), edges, p->Lk);
}

int
check_picked_keys(const attention_call *call)
{
    const rp_attention *p = &call->problem.forward;
    const rp_array *keys = &p->picks.keys;
    /* numbers that are repeated are looked at once: there may be any number of them */
    const int64_t items = keys->batch ? p->B : 1,
                  groups = keys->head ? p->picks.groups : 1;
    const int64_t rows = keys->row ? p->Lq : 1, count = keys->col ? p->picks.count : 1;
    if (p->H == 0 || p->Lq == 0 || p->picks.count == 0)
        return 0;
    for (int64_t n = 0; n < items * groups * rows; n++) {
        const char *row = keys->data +
                          (keys->batch ? keys->batch[n / rows / groups] : 0) +
                          n / rows % groups * keys->head + n % rows * keys->row;
        for (int64_t k = 0; k < count; k++) {
            int64_t key = *(const int64_t *)(row + k * keys->col);
            if (key < p->Lk)
                continue;
            PyErr_Format(PyExc_IndexError,
                         "key_indices: number %lld of query %lld is %lld, outside the "
                         "%lld keys; expected at most %lld (negative: no key)",
                         (long long)k, (long long)(n % rows), (long long)key,
                         (long long)p->Lk, (long long)p->Lk - 1);
            return -1;
        }
    }
    return 0;
}

/* Adds the edges of the call; returns 0 if there are more of them than fit any memory. */
static int
take_graph(const attention_call *call, rp_graph *graph)
{
    PyArrayObject *labels = call->edges[EDGE_LABELS];
    size_t edges;
    if (graph->picks.keys.data == NULL) {
        graph->edges = PyArray_DIM(call->edges[INDICES], 0);
        graph->indptr = PyArray_DATA(call->edges[INDPTR]);
        graph->indices = PyArray_DATA(call->edges[INDICES]);
        graph->labels = labels == NULL ? NULL : PyArray_DATA(labels);
        return 1;
    }
    int fits = rp_multiply((size_t)graph->Lq, (size_t)graph->picks.count, &edges) &&
               edges <= (size_t)RP_LONGEST;
    graph->edges = fits ? (int64_t)edges : 0;
    return fits;
}

rp_status
run_graph(const rp_kernels *kernels, const attention_call *call, size_t *bytes)
{
    rp_graph_gradients graph = rp_along_edges(&call->problem);
    if (!take_graph(call, &graph.forward))
        return RP_NO_MEMORY;
    if (call->direction == FORWARD)
        return kernels->graph_forward(&graph.forward, bytes);
    return kernels->graph_backward(&graph, bytes);
}
