/* attention.c: attention_forward and attention_backward of one instruction set: the dict
 * becomes an rp_attention or rp_gradients, and the kernel runs without the interpreter's
 * lock. */
#include "module.h"

enum { LITTLE_WORK = 4000000 }; /* measured on Zen 3: 8 heads of 48 queries and keys */

/* Offsets that differ: while memory is counted they stand for those of all batch items. */
static const ptrdiff_t apart[] = {0, 1};

/* Byte stride of an operand along the batch axis that comes `back` from their end. */
static ptrdiff_t
batch_stride(const attention_call *call, int index, int back)
{
    const array_view *view = &call->views[index];
    return stride_along(view, view->ndim - own_axes(&operand_rows[index]) - back,
                        call->batch_shape[call->batch_ndim - back]);
}

/* An earlier operand whose batch items lie as far apart as those of operand `index`, or
 * `index` itself. */
static int
same_offsets(const attention_call *call, int index)
{
    for (int i = 0; i < index; i++) {
        int back = 1;
        while (call->views[i].owner != NULL && back <= call->batch_ndim &&
               batch_stride(call, i, back) == batch_stride(call, index, back))
            back++;
        if (call->views[i].owner != NULL && back > call->batch_ndim)
            return i;
    }
    return index;
}

/* Whether batch items of an operand lie apart. */
static int
batch_moves(const attention_call *call, int index)
{
    int moves = 0;
    for (int back = 1; back <= call->batch_ndim; back++)
        moves |= call->batch_shape[call->batch_ndim - back] > 1 &&
                 batch_stride(call, index, back) != 0;
    return moves;
}

/* Byte offset of every flattened batch item; NULL stays where all are zero. Operands
 * share them where they can: of many tiny items they are most of the memory. */
static void
fill_offsets(attention_call *call, int index)
{
    const array_view *view = &call->views[index];
    if (view->owner == NULL)
        return;
    int same = same_offsets(call, index);
    const ptrdiff_t **batch = &FIELD(call, rp_array, operand_rows[index].array).batch;
    if (same != index) {
        *batch = FIELD(call, rp_array, operand_rows[same].array).batch;
    } else if (call->counts) {
        call->rows_used++;
        *batch = batch_moves(call, index) ? apart : NULL;
    } else {
        ptrdiff_t *offsets = call->offsets + index * call->problem.forward.B;
        if (spread_offsets(view, call->batch_shape, call->batch_ndim,
                           own_axes(&operand_rows[index]), offsets))
            *batch = offsets;
    }
}

/* One integer per batch item, copied, none of which may lead out of memory. */
static int
fill_items(attention_call *call, int index)
{
    const rp_attention *p = &call->problem.forward;
    const char *name = item_rows[index].entry.name;
    const array_view *view = &call->items[index];
    int64_t *items = call->item_numbers + index * p->B;
    int64_t lowest = index == QUERY_OFFSET ? -RP_FARTHEST : 0;
    int64_t highest = index == KEY_LENGTHS ? p->Lk : RP_FARTHEST;
    int is_flat = index == PART_ITEMS;
    if (view->owner == NULL)
        return 0;
    if (is_flat && (view->ndim != 1 || view->shape[0] != p->B))
        return reject(call, PyExc_ValueError, name,
                      "must have one entry per batch item");
    for (int64_t b = 0; b < p->B; b++) {
        ptrdiff_t offset = item_offset(view, is_flat ? view->shape : call->batch_shape,
                                       is_flat ? 1 : call->batch_ndim, 0, b);
        items[b] = *(const int64_t *)(view->data + offset);
        if (items[b] < lowest || items[b] > highest)
            return reject(call, PyExc_ValueError, name, "is out of range");
    }
    FIELD(call, const int64_t *, item_rows[index].field) = items;
    return 0;
}

static int
has_items(const attention_call *call)
{
    int found = 0;
    for (int i = 0; i < ITEM_VECTORS; i++)
        found |= call->items[i].owner != NULL;
    return found;
}

static int
fill_batch(attention_call *call)
{
    size_t batch = (size_t)call->problem.forward.B, offsets, numbers;
    if (!rp_multiply(batch, OPERANDS, &offsets) ||
        !rp_multiply(batch, ITEM_VECTORS, &numbers) ||
        (!call->counts &&
         (call->offsets = rp_alloc(offsets, sizeof *call->offsets)) == NULL) ||
        (has_items(call) && (call->item_numbers = rp_alloc(
                                 numbers, sizeof *call->item_numbers)) == NULL)) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < OPERANDS; i++)
        fill_offsets(call, i);
    for (int i = 0; i < ITEM_VECTORS; i++)
        if (fill_items(call, i) < 0)
            return -1;
    return 0;
}

void
release_call(attention_call *call)
{
    rp_free(call->offsets);
    rp_free(call->item_numbers);
    rp_free(call->index_copy);
    Py_XDECREF(call->buckets.owner);
    for (int i = 0; i < OPERANDS; i++)
        Py_XDECREF(call->views[i].owner);
    for (int i = 0; call->gives_tensors && i < OPERANDS; i++)
        rp_free(call->blocks[i]);
    for (int i = 0; i < ITEM_VECTORS; i++)
        Py_XDECREF(call->items[i].owner);
    for (int i = 0; i < EDGE_VECTORS; i++)
        Py_XDECREF(call->edges[i]);
}

/* Whether there is anything to compute: an output with an element and, for gradients,
 * a pair (without one they stay the zeros that they are) or a sink. */
static int
has_work(const attention_call *call)
{
    const rp_attention *p = &call->problem.forward;
    int sinks = call->problem.grad_sinks.data != NULL;
    if (call->direction == BACKWARD && (p->Lq == 0 || (p->Lk == 0 && !sinks)))
        return 0;
    for (int i = 0; i < OPERANDS; i++)
        if (operand_rows[i].roles[call->direction] >= OUTPUT &&
            has_elements(&call->views[i]))
            return 1;
    return 0;
}

/* Adds the offsets of the batch items, of which only the rows in use are ever touched. */
static rp_status
add_offsets(const attention_call *call, size_t *bytes)
{
    size_t entries, offsets;
    if (!rp_multiply((size_t)call->problem.forward.B, (size_t)call->rows_used,
                     &entries) ||
        !rp_multiply(entries, sizeof *call->offsets, &offsets) ||
        offsets > PTRDIFF_MAX || *bytes > PTRDIFF_MAX)
        return RP_NO_MEMORY;
    *bytes += offsets;
    return RP_OK;
}

/* How many threads a call is worth. To wake another takes 20 to 50 us, so that a call that
 * would take less than some 120 stays on its own: work is in products, and as many for each
 * pair and each key as their other costs are worth. */
static int
useful_threads(const attention_call *call)
{
    const rp_attention *p = &call->problem.forward;
    int tables = (p->rel_key.array.data != NULL) + (p->rel_query.array.data != NULL) +
                 (p->rel_value.array.data != NULL);
    double rows = (double)p->B * (double)(p->H * p->Lq + 2 * p->Hk);
    double work = rows * (double)p->Lk * (double)(p->D + p->Dv + 32) * (2 + tables) / 2;
    if (call->direction == BACKWARD)
        work *= 2.5;
    return work < LITTLE_WORK && !is_graph(call) ? 1 : p->threads;
}

/* Runs the problem or, with `bytes`, counts what memory that would take. */
static rp_status
run_kernel(const rp_isa *isa, const attention_call *call, size_t *bytes)
{
    const rp_kernels *kernels = isa->kernels[call->kind == KIND_F32 ? RP_F32 : RP_F64];
    if (is_graph(call))
        return run_graph(kernels, call, bytes);
    if (call->direction == FORWARD)
        return kernels->attention_forward(&call->problem.forward, bytes);
    return kernels->attention_backward(&call->problem, bytes);
}

/* Whether every array of 16 bits is one that its kernel reads, or writes, so. */
static int
check_storage(const attention_call *call)
{
    const rp_gradients *g = &call->problem;
    const rp_attention *p = &g->forward;
    const rp_array *added[] = {&g->grad_query, &g->grad_key, &g->grad_value,
                               &g->grad_position_query};
    if (p->results.kept.data && p->results.out.kind == RP_OWN)
        return reject(call, PyExc_TypeError, "kept", "must go with an out of 16 bits");
    if (call->direction == BACKWARD && p->results.out.kind != RP_OWN)
        return reject(call, PyExc_TypeError, "out", "must be float32");
    for (int i = 0; i < 4; i++)
        if (added[i]->kind != RP_OWN && (p->labels.count > 0 || is_graph(call)))
            return reject(call, PyExc_TypeError, "gradients",
                          "that labels or edges add to must be float32");
    return 0;
}

/* Everything the dict says, checked; memory that depends on B is not filled yet. */
static int
take_problem(attention_call *call, PyObject *operands)
{
    if (take_operands(call, operands) < 0)
        return -1;
    if (call->used != PyDict_Size(operands))
        return reject(call, PyExc_TypeError, "operands", "has a key that is not known");
    if (check_storage(call) < 0 || check_memory(call) < 0 || take_dimensions(call) < 0)
        return -1;
    return check_edges(call);
}

int
run_call(const rp_isa *isa, attention_call *call, size_t *bytes)
{
    rp_status status = RP_OK;
    call->problem.forward.threads = useful_threads(call);
    if (!has_work(call))
        return 0;
    /* views that repeat one number may be longer than what anybody has the memory for */
    if (rp_longest(&call->problem.forward) > RP_LONGEST) {
        PyErr_NoMemory();
        return -1;
    }
    if (fill_batch(call) == 0 && check_numbers(call) == 0) {
        Py_BEGIN_ALLOW_THREADS
        status = run_kernel(isa, call, bytes);
        if (!status && bytes)
            status = add_offsets(call, bytes);
        Py_END_ALLOW_THREADS
        raise_status(status);
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* capsule is that of an rp_isa. Runs the problem of a dict. */
static PyObject *
run_attention(PyObject *capsule, PyObject *operands, int direction, size_t *bytes)
{
    const rp_isa *isa = PyCapsule_GetPointer(capsule, ISA_CAPSULE);
    attention_call call = {.direction = direction, .counts = bytes != NULL};
    PyObject *made = NULL;
    if (isa == NULL)
        return NULL;
    if (!PyDict_Check(operands)) {
        reject(&call, PyExc_TypeError, "operands", "must be a dict");
        return NULL;
    }
    if (take_problem(&call, operands) == 0)
        made = run_call(isa, &call, bytes) < 0 ? NULL : list_results(&call);
    release_call(&call);
    return made;
}

PyObject *
py_attention_forward(PyObject *self, PyObject *operands)
{
    return run_attention(self, operands, FORWARD, NULL);
}

PyObject *
py_attention_backward(PyObject *self, PyObject *operands)
{
    return run_attention(self, operands, BACKWARD, NULL);
}

PyObject *
py_attention_bytes(PyObject *self, PyObject *args)
{
    PyObject *operands, *made;
    int backward;
    size_t bytes = 0;
    if (!PyArg_ParseTuple(args, "Op:attention_bytes", &operands, &backward))
        return NULL;
    made = run_attention(self, operands, backward ? BACKWARD : FORWARD, &bytes);
    Py_XDECREF(made);
    return made == NULL ? NULL : PyLong_FromSize_t(bytes);
}
