/* results.c: what a call makes: arrays or, where torch takes memory of others, tensors over
 * blocks of it. */
#include "module.h"

enum { MOST_MADE = 1 << 20 }; /* numbers: larger gradients have memory of huge pages */

/* The operand that a gradient is of, NULL of a result. */
static const array_view *
operand_of(const attention_call *call, const operand_row *row)
{
    for (int i = 0; i < OPERANDS; i++)
        if (row->of != 0 && operand_rows[i].array == row->of)
            return &call->views[i];
    return NULL;
}

/* Writes the shape of what a call makes: all axes, or those of a shared operand; -1 for a
 * gradient that is a sum over some axes of what the kernel writes. */
static int
shape_of(const attention_call *call, const operand_row *row, npy_intp *shape)
{
    const array_view *of = operand_of(call, row);
    int ndim = call->batch_ndim, own = of ? of->ndim - own_axes(row) : 0;
    npy_intp items = 1;
    memcpy(shape, call->batch_shape, (size_t)ndim * sizeof *shape);
    for (int letter = 0; letter < 3; letter++)
        if (row->shape[letter] != '1')
            shape[ndim++] = (npy_intp)call->dims[(int)row->shape[letter]];
    if (of == NULL)
        return ndim;
    if (row->fit == WHOLE)
        return of->ndim == ndim && PyArray_CompareLists(of->shape, shape, ndim) ? ndim
                                                                                : -1;
    for (int axis = 0; axis < own; axis++)
        items *= of->shape[axis];
    if (items != 1 && (own != call->batch_ndim ||
                       !PyArray_CompareLists(of->shape, call->batch_shape, own)))
        return -1;
    memcpy(shape, of->shape, (size_t)of->ndim * sizeof *shape);
    return of->ndim;
}

/* The array of 16 bits that a result has the dtype of, a gradient's operand, or the query;
 * NULL of others, which have the computation's: sums over several units are not rounded. */
static const array_view *
typed_like(const attention_call *call, int index)
{
    const array_view *of = operand_of(call, &operand_rows[index]);
    if (index == OUT && storage_of(call->out_kind) != RP_OWN)
        of = &call->views[QUERY];
    else if (operand_rows[index].of_kind != OF_16)
        of = NULL;
    return of != NULL && storage_of(of->kind) != RP_OWN ? of : NULL;
}

static PyArray_Descr *
dtype_of(const attention_call *call, int index)
{
    const array_view *like = typed_like(call, index);
    if (like == NULL)
        return descr_of(call->kind == KIND_F32 ? NPY_FLOAT : NPY_DOUBLE);
    return (PyArray_Descr *)Py_NewRef(
        (PyObject *)PyArray_DESCR((PyArrayObject *)like->owner));
}

/* Whether the numbers of a row of all heads lie together, as layers cut their columns into
 * heads: in the operand of a gradient, or in the query. */
static int
has_rows_of_heads(const attention_call *call, int index, int ndim)
{
    const operand_row *row = &operand_rows[index];
    const array_view *like = index == OUT ? &call->views[QUERY] : operand_of(call, row);
    if (!call->follows || like == NULL || row->fit != WHOLE || own_axes(row) != 3 ||
        like->ndim != ndim)
        return 0;
    npy_intp head = like->strides[ndim - 3];
    return head > 0 && head < like->strides[ndim - 2];
}

/* An array of zeros or, if all is written, of any numbers; in memory the axes of heads and rows
 * may be exchanged. */
static PyObject *
alloc_result(int ndim, npy_intp *shape, PyArray_Descr *dtype, int is_written,
             int is_exchanged)
{
    if (is_exchanged) {
        npy_intp rows = shape[ndim - 2];
        shape[ndim - 2] = shape[ndim - 3];
        shape[ndim - 3] = rows;
    }
    PyObject *array = is_written ? PyArray_SimpleNewFromDescr(ndim, shape, dtype)
                                 : PyArray_Zeros(ndim, shape, dtype, 0);
    if (array == NULL || !is_exchanged)
        return array;
    PyObject *view = PyArray_SwapAxes((PyArrayObject *)array, ndim - 3, ndim - 2);
    Py_DECREF(array);
    return view;
}

/* The same as a block of memory, which has no object until it is full. */
static int
alloc_block(attention_call *call, int index, int ndim, const npy_intp *shape,
            int is_written, int is_exchanged)
{
    const array_view *like = typed_like(call, index);
    int kind = like == NULL ? call->kind : like->kind;
    void *block = new_block(ndim, shape, kind, is_exchanged, &call->views[index]);
    call->blocks[index] = block;
    if (block != NULL && !is_written)
        clear_block(block);
    return block == NULL ? -1 : 0;
}

/* Makes a result: of zeros where it is added to, or no pair writes to it. */
static int
make_result(attention_call *call, int index)
{
    const operand_row *row = &operand_rows[index];
    array_view *view = &call->views[index];
    npy_intp shape[NPY_MAXDIMS];
    int ndim = shape_of(call, row, shape);
    int is_written = call->direction == FORWARD ||
                     (row->of_kind == OF_16 && call->dims['q'] && call->dims['k']);
    if (ndim < 0 || (row->of && PyArray_MultiplyList(shape, ndim) > MOST_MADE))
        return -1;
    int is_exchanged = has_rows_of_heads(call, index, ndim);
    if (call->gives_tensors) {
        if (alloc_block(call, index, ndim, shape, is_written, is_exchanged) < 0)
            return -1;
    } else {
        PyArray_Descr *dtype = dtype_of(call, index);
        PyObject *array = alloc_result(ndim, shape, dtype, is_written, is_exchanged);
        if (array == NULL)
            return -1;
        take_view(array, view);
    }
    FIELD(call, rp_array, row->array).data = view->data;
    FIELD(call, rp_array, row->array).kind = storage_of(view->kind);
    return 0;
}

/* Whether a result that the caller gave has the dtype of one that is made. */
static int
check_result(const attention_call *call, int index)
{
    PyArrayObject *given = (PyArrayObject *)call->views[index].owner;
    PyArray_Descr *made = dtype_of(call, index);
    int same = made != NULL && PyArray_EquivTypes(made, PyArray_DESCR(given));
    Py_XDECREF(made);
    return same ? 0 : -1;
}

int
take_result(attention_call *call, int index)
{
    return call->views[index].owner ? check_result(call, index)
                                    : make_result(call, index);
}

PyObject *
made_result(attention_call *call, int index)
{
    void *block = call->blocks[index];
    if (block == NULL)
        return Py_NewRef(call->views[index].owner);
    call->blocks[index] = NULL;
    return give_tensor(block);
}

PyObject *
list_results(attention_call *call)
{
    PyObject *made = PyList_New(0);
    for (int i = 0; made != NULL && i < OPERANDS; i++) {
        if (!call->makes[i])
            continue;
        PyObject *result = made_result(call, i);
        if (result == NULL || PyList_Append(made, result) < 0)
            Py_CLEAR(made);
        Py_XDECREF(result);
    }
    return made;
}
