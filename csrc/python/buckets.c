/* buckets.c: tables whose rows are listed by relative position, for direct.c. The rows that
 * the pairs of a call can use are gathered into tables of one row for each position. */
#include "rules.h"

/* Takes a copy, because another thread may write to the rows after they were checked. */
int
take_buckets(direct_call *d, PyObject *value)
{
    array_view view = {0};
    PyObject *array = plain_array(d, value), *copy = NULL;
    if (array != NULL && take_view(array, &view) && d->rules.buckets.owner == NULL &&
        view.kind == KIND_I64 && view.is_behaved && view.ndim == 1 && view.shape[0] > 0)
        copy = PyArray_NewCopy((PyArrayObject *)array, NPY_CORDER);
    Py_XDECREF(array);
    return copy != NULL && take_view(copy, &d->rules.buckets);
}

/* The axis of a table's rows. */
static int
row_axis(int index, const array_view *view)
{
    return view->ndim - (operand_rows[index].shape[2] == '1' ? 1 : 2);
}

/* Copies the rows that the buckets list along an axis, the last one or that before it. */
static void
copy_rows(const array_view *from, int axis, const array_view *buckets, char *to)
{
    const int64_t *rows = (const int64_t *)buckets->data;
    int is_vector = axis + 1 < from->ndim;
    npy_intp columns = is_vector ? from->shape[axis + 1] : 1, size = from->itemsize;
    npy_intp step = is_vector ? from->strides[axis + 1] : size;
    npy_intp items = PyArray_MultiplyList(from->shape, axis);
    for (npy_intp item = 0; item < items; item++) {
        npy_intp offset = 0, rest = item;
        for (int i = axis - 1; i >= 0; i--) {
            offset += rest % from->shape[i] * from->strides[i];
            rest /= from->shape[i];
        }
        for (npy_intp n = 0; n < buckets->shape[0]; n++) {
            const char *row = from->data + offset + rows[n] * from->strides[axis];
            if (step == size)
                memcpy(to, row, (size_t)(columns * size));
            else
                for (npy_intp c = 0; c < columns; c++)
                    memcpy(to + c * size, row + c * step, (size_t)size);
            to += columns * size;
        }
    }
}

/* Puts the rows that the buckets list in the place of a table. */
static int
gather_table(attention_call *call, int index, const array_view *buckets)
{
    array_view *view = &call->views[index];
    int axis = row_axis(index, view);
    npy_intp shape[NPY_MAXDIMS];
    memcpy(shape, view->shape, (size_t)view->ndim * sizeof *shape);
    shape[axis] = buckets->shape[0];
    PyArray_Descr *dtype = PyArray_DESCR((PyArrayObject *)view->owner);
    PyObject *array = PyArray_SimpleNewFromDescr(
        view->ndim, shape, (PyArray_Descr *)Py_NewRef((PyObject *)dtype));
    if (array == NULL)
        return 0;
    if (PyArray_SIZE((PyArrayObject *)array) > 0)
        copy_rows(view, axis, buckets, PyArray_BYTES((PyArrayObject *)array));
    Py_DECREF(view->owner);
    take_view(array, view);
    FIELD(call, rp_array, operand_rows[index].array).data = view->data;
    call->dims[(int)operand_rows[index].shape[1]] = buckets->shape[0];
    return 1;
}

/* Whether a table's rows can be copied as bytes: objects cannot. */
static int
can_copy(const array_view *view)
{
    return view->is_behaved && view->kind != KIND_OTHER;
}

int
gather_tables(direct_call *d)
{
    array_view *buckets = &d->rules.buckets;
    for (int i = 0; i < TABLES; i++) {
        array_view *view = &d->call.views[tables[i]];
        if (!is_gathered(&d->call, &d->rules, i))
            continue;
        if (buckets->owner == NULL || !can_copy(view))
            return 0;
        if (d->rows.owner == NULL) {
            PyObject *rows = list_rows(&d->rules, i);
            if (rows == NULL || !take_view(rows, &d->rows))
                return 0;
        }
        if (!gather_table(&d->call, tables[i], &d->rows))
            return 0;
    }
    return 1;
}
