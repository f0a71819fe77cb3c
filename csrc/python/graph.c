/* graph.c: the edges of a graph in the dict of attention_forward and attention_backward:
 * indptr (q + 1,), indices (e,) and, if there are labels, edge_labels (e,), all int64. */
#include "module.h"

static const char *const edge_names[] = {"indptr", "indices", "edge_labels"};

int
take_edges(attention_call *call, PyObject *operands)
{
    for (int i = 0; i < EDGE_VECTORS; i++) {
        PyObject *value = take(call, operands, edge_names[i], 0);
        if (value == NULL && PyErr_Occurred())
            return -1;
        PyArrayObject *array = call->edges[i] = (PyArrayObject *)value;
        if (array == NULL)
            continue;
        if (!PyArray_Check(value) || PyArray_TYPE(array) != NPY_INT64 ||
            !PyArray_ISCARRAY_RO(array) || PyArray_NDIM(array) != 1)
            return reject(call, PyExc_TypeError, edge_names[i],
                          "must be a C-contiguous int64 vector");
        if (call->edges[INDPTR] == NULL)
            return reject(call, PyExc_TypeError, edge_names[i], "came without indptr");
    }
    return 0;
}

/* Lengths, and that nothing came which the edges do not go with. */
static int
check_edges(const attention_call *call)
{
    const rp_attention *p = &call->problem.forward;
    PyArrayObject *const *given = call->edges;
    if (given[INDICES] == NULL)
        return reject(call, PyExc_TypeError, edge_names[INDICES], "is missing");
    if (PyArray_DIM(given[INDPTR], 0) - 1 != p->Lq)
        return reject(call, PyExc_ValueError, edge_names[INDPTR],
                      "must have one entry more than query has rows");
    if (given[EDGE_LABELS] != NULL &&
        PyArray_DIM(given[EDGE_LABELS], 0) != PyArray_DIM(given[INDICES], 0))
        return reject(call, PyExc_ValueError, edge_names[EDGE_LABELS],
                      "must be as long as indices");
    if (p->H != p->Hk || p->mask.data || p->rel_query.data || p->rel_bias.data ||
        p->pos_bias_u.data || p->pos_bias_v.data || p->labels.data || p->weights.data ||
        call->problem.grad_mask.data || p->dropout_p > 0 || p->key_lengths ||
        p->window_left != RP_UNBOUNDED || p->window_right != RP_UNBOUNDED)
        return reject(call, PyExc_ValueError, edge_names[INDPTR],
                      "goes with rel_key and rel_value only");
    return 0;
}

static int
check_copied_edges(const attention_call *call, int64_t edges)
{
    const rp_attention *p = &call->problem.forward;
    int64_t before = 0;
    for (int64_t i = 0; i <= p->Lq; i++) {
        if (p->indptr[i] < before || (i == 0 && p->indptr[i] != 0))
            return reject(call, PyExc_ValueError, edge_names[INDPTR],
                          "must rise from 0");
        before = p->indptr[i];
    }
    if (before != edges)
        return reject(call, PyExc_ValueError, edge_names[INDPTR],
                      "must end at the number of edges");
    for (int64_t e = 0; e < edges; e++)
        if (p->indices[e] < 0 || p->indices[e] >= p->Lk)
            return reject(call, PyExc_ValueError, edge_names[INDICES],
                          "is out of range");
    return 0; /* labels are looked at edge by edge */
}

int
fill_edges(attention_call *call)
{
    rp_attention *p = &call->problem.forward;
    const int64_t **const fields[] = {&p->indptr, &p->indices, &p->edge_labels};
    size_t total = 0;
    if (call->edges[INDPTR] == NULL)
        return 0;
    if (check_edges(call) < 0)
        return -1;
    for (int i = 0; i < EDGE_VECTORS; i++)
        if (call->edges[i] != NULL)
            total += (size_t)PyArray_DIM(call->edges[i], 0);
    int64_t *copy = call->edge_copies = rp_alloc(total, sizeof *copy);
    if (copy == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < EDGE_VECTORS; i++) {
        if (call->edges[i] == NULL)
            continue;
        size_t length = (size_t)PyArray_DIM(call->edges[i], 0);
        memcpy(copy, PyArray_DATA(call->edges[i]), length * sizeof *copy);
        *fields[i] = copy;
        copy += length;
    }
    return check_copied_edges(call, PyArray_DIM(call->edges[INDICES], 0));
}
