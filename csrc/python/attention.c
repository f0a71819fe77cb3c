/* attention.c: attention_forward and attention_backward of one instruction set: the dict
 * becomes an rp_attention or rp_gradients, and the kernel runs without the interpreter's
 * lock. */
#include "module.h"

/* Offsets that differ: while memory is counted they stand for those of all batch items. */
static const ptrdiff_t apart[] = {0, 1};

/* Whether items of the first batch_ndim axes lie apart. */
static int
batch_moves(PyArrayObject *array, int batch_ndim)
{
    int moves = 0;
    for (int axis = 0; axis < batch_ndim; axis++)
        moves |= PyArray_DIM(array, axis) > 1 && PyArray_STRIDE(array, axis) != 0;
    return moves;
}

int
batch_offsets(PyArrayObject *array, int batch_ndim, ptrdiff_t *offsets)
{
    int64_t filled = 1;
    offsets[0] = 0;
    for (int axis = batch_ndim - 1; axis >= 0; axis--) {
        /* what is filled belongs to the axes behind; repeat it along this one */
        npy_intp length = PyArray_DIM(array, axis),
                 stride = PyArray_STRIDE(array, axis);
        for (npy_intp i = 1; i < length; i++)
            for (int64_t j = 0; j < filled; j++)
                offsets[i * filled + j] = offsets[j] + i * stride;
        filled *= length;
    }
    return batch_moves(array, batch_ndim);
}

/* An earlier operand whose batch items lie as far apart as those of operand `index`, or
 * `index` itself. */
static int
same_offsets(const attention_call *call, int index)
{
    size_t bytes = (size_t)call->batch_ndim * sizeof(npy_intp);
    const npy_intp *strides = PyArray_STRIDES(call->arrays[index]);
    for (int i = 0; i < index; i++)
        if (call->arrays[i] != NULL &&
            memcmp(PyArray_STRIDES(call->arrays[i]), strides, bytes) == 0)
            return i;
    return index;
}

/* Byte offset of every flattened batch item; NULL stays where all are zero. Operands
 * share them where they can: of many tiny items they are most of the memory. */
static void
fill_offsets(attention_call *call, int index)
{
    PyArrayObject *array = call->arrays[index];
    if (array == NULL)
        return;
    int same = same_offsets(call, index);
    const ptrdiff_t **batch = &FIELD(call, rp_array, operand_rows[index].array).batch;
    if (same != index) {
        *batch = FIELD(call, rp_array, operand_rows[same].array).batch;
    } else if (call->counts) {
        call->rows_used++;
        *batch = batch_moves(array, call->batch_ndim) ? apart : NULL;
    } else {
        ptrdiff_t *offsets = call->offsets + index * call->problem.forward.B;
        if (batch_offsets(array, call->batch_ndim, offsets))
            *batch = offsets;
    }
}

/* One integer per batch item, none of which may lead out of memory. */
static int
check_items(attention_call *call, int index)
{
    const rp_attention *p = &call->problem.forward;
    const char *name = item_rows[index].entry.name;
    PyArrayObject *array = call->items[index];
    size_t field = item_rows[index].field;
    int is_lengths = field == offsetof(rp_gradients, forward.sight.key_lengths);
    int is_offset = field == offsetof(rp_gradients, forward.sight.query_offset);
    int64_t lowest = is_offset ? -RP_FARTHEST : 0;
    int64_t highest = is_lengths ? p->Lk : RP_FARTHEST;
    if (array == NULL)
        return 0;
    if (PyArray_NDIM(array) != 1 || PyArray_DIM(array, 0) != p->B)
        return reject(call, PyExc_ValueError, name,
                      "must have one entry per batch item");
    const int64_t *items = PyArray_DATA(array);
    for (int64_t b = 0; b < p->B; b++)
        if (items[b] < lowest || items[b] > highest)
            return reject(call, PyExc_ValueError, name, "is out of range");
    FIELD(call, const int64_t *, item_rows[index].field) = items;
    return 0;
}

static int
fill_batch(attention_call *call)
{
    size_t offsets;
    if (!call->counts &&
        (!rp_multiply((size_t)call->problem.forward.B, OPERANDS, &offsets) ||
         (call->offsets = rp_alloc(offsets, sizeof *call->offsets)) == NULL)) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < OPERANDS; i++)
        fill_offsets(call, i);
    for (int i = 0; i < ITEM_VECTORS; i++)
        if (check_items(call, i) < 0)
            return -1;
    return 0;
}

static void
release_call(attention_call *call)
{
    rp_free(call->offsets);
    for (int i = 0; i < OPERANDS; i++)
        Py_XDECREF(call->arrays[i]);
    for (int i = 0; i < ITEM_VECTORS; i++)
        Py_XDECREF(call->items[i]);
    for (int i = 0; i < EDGE_VECTORS; i++)
        Py_XDECREF(call->edges[i]);
}

#define HAS_ELEMENTS(array) ((array) != NULL && PyArray_SIZE(array) > 0)

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
            HAS_ELEMENTS(call->arrays[i]))
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

/* Runs the problem or, with `bytes`, counts what memory that would take. */
static rp_status
run_kernel(const rp_isa *isa, const attention_call *call, size_t *bytes)
{
    const rp_kernels *kernels =
        isa->kernels[call->typenum == NPY_FLOAT ? RP_F32 : RP_F64];
    if (call->edges[INDPTR] != NULL)
        return run_graph(kernels, call, bytes);
    if (call->direction == FORWARD)
        return kernels->attention_forward(&call->problem.forward, bytes);
    return kernels->attention_backward(&call->problem, bytes);
}

/* Everything the dict says, checked; memory that depends on B is not filled yet. */
static int
take_problem(attention_call *call, PyObject *operands)
{
    if (take_operands(call, operands) < 0 || take_edge_vectors(call, operands) < 0)
        return -1;
    if (call->used != PyDict_GET_SIZE(operands))
        return reject(call, PyExc_TypeError, "operands", "has a key that is not known");
    return take_dimensions(call) < 0 ? -1 : check_edges(call);
}

/* capsule is that of an rp_isa. Runs the problem or, with `bytes`, counts: 0 where there is
 * nothing to compute. */
static int
run_attention(PyObject *capsule, PyObject *operands, int direction, size_t *bytes)
{
    const rp_isa *isa = PyCapsule_GetPointer(capsule, ISA_CAPSULE);
    attention_call call = {
        .direction = direction, .typenum = NPY_NOTYPE, .counts = bytes != NULL};
    rp_status status = RP_OK;
    if (isa == NULL)
        return -1;
    if (!PyDict_Check(operands))
        return reject(&call, PyExc_TypeError, "operands", "must be a dict");
    memset(call.dims, -1, sizeof call.dims);
    for (int digit = '1'; digit <= '3'; digit++)
        call.dims[digit] = digit - '0';
    if (take_problem(&call, operands) == 0 && has_work(&call) &&
        fill_batch(&call) == 0) {
        Py_BEGIN_ALLOW_THREADS
        status = run_kernel(isa, &call, bytes);
        if (!status && bytes)
            status = add_offsets(&call, bytes);
        Py_END_ALLOW_THREADS
        raise_status(status);
    }
    release_call(&call);
    return PyErr_Occurred() ? -1 : 0;
}

PyObject *
py_attention_forward(PyObject *self, PyObject *operands)
{
    if (run_attention(self, operands, FORWARD, NULL) < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *
py_attention_backward(PyObject *self, PyObject *operands)
{
    if (run_attention(self, operands, BACKWARD, NULL) < 0)
        return NULL;
    Py_RETURN_NONE;
}

PyObject *
py_attention_bytes(PyObject *self, PyObject *args)
{
    PyObject *operands;
    int backward;
    size_t bytes = 0;
    if (!PyArg_ParseTuple(args, "Op:attention_bytes", &operands, &backward) ||
        run_attention(self, operands, backward ? BACKWARD : FORWARD, &bytes) < 0)
        return NULL;
    return PyLong_FromSize_t(bytes);
}
