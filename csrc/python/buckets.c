/* buckets.c: tables whose rows are listed by relative position, for direct.c. The rows that
 * the pairs of a call can use are gathered into tables of one row for each position. */
#include "module.h"

static const int tables[] = {REL_KEY, REL_QUERY, REL_VALUE, REL_BIAS};

enum { TABLES = sizeof tables / sizeof *tables };

/* Takes a copy, because another thread may write to the rows after they were checked. */
int
take_buckets(direct_call *d, PyObject *value)
{
    array_view view = {0};
    PyObject *array = plain_array(d, value), *copy = NULL;
    if (array != NULL && take_view(array, &view) && d->buckets.owner == NULL &&
        view.kind == KIND_I64 && view.is_behaved && view.ndim == 1 && view.shape[0] > 0)
        copy = PyArray_NewCopy((PyArrayObject *)array, NPY_CORDER);
    Py_XDECREF(array);
    return copy != NULL && take_view(copy, &d->buckets);
}

static int64_t
clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* The axis of a table's rows. */
static int
row_axis(int index, const array_view *view)
{
    return view->ndim - (operand_rows[index].shape[2] == '1' ? 1 : 2);
}

/* Keeps as many buckets as the queries and keys can use. Their number decides how a table is
 * read, and with it the bits of results, so that it does not depend on the offset. The buckets
 * at the ends serve the positions beyond them. */
static int
use_visible(direct_call *d)
{
    int64_t queries = d->call.dims['q'], keys = d->call.dims['k'];
    int64_t count = d->buckets.shape[0], first = d->has_first ? d->first : -(count / 2);
    int64_t used = clamp(queries + keys - 1, 1, count);
    if (d->raises || (!d->has_first && count % 2 == 0) ||
        (queries != keys && d->call.items[QUERY_OFFSET].owner == NULL))
        return 0;
    d->has_first = 1;
    d->first = first;
    if (queries > 0 && keys > 0)
        d->first = clamp(1 - queries - d->offset, first, first + count - used);
    else
        used = count;
    npy_intp length = (npy_intp)used;
    PyObject *part = PyArray_SimpleNew(1, &length, NPY_INT64);
    if (part == NULL)
        return 0;
    memcpy(PyArray_DATA((PyArrayObject *)part),
           (const int64_t *)d->buckets.data + (d->first - first),
           (size_t)used * sizeof(int64_t));
    Py_DECREF(d->buckets.owner);
    return take_view(part, &d->buckets);
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

/* Whether all tables have equally many rows, and each bucket is one of them. */
static int
check_rows(const direct_call *d)
{
    const int64_t *rows = (const int64_t *)d->buckets.data;
    int64_t count = -1;
    for (int i = 0; i < TABLES; i++) {
        const array_view *view = &d->call.views[tables[i]];
        if (view->owner == NULL)
            continue;
        npy_intp length = view->shape[row_axis(tables[i], view)];
        if (!view->is_behaved || view->kind == KIND_OTHER ||
            (count >= 0 && length != count))
            return 0;
        count = length;
    }
    for (npy_intp n = 0; count >= 0 && n < d->buckets.shape[0]; n++)
        if (rows[n] < 0 || rows[n] >= count)
            return 0;
    return 1;
}

int
gather_tables(direct_call *d)
{
    if (d->buckets.owner == NULL)
        return 1;
    if (!check_rows(d) || !use_visible(d))
        return 0;
    for (int i = 0; i < TABLES; i++)
        if (d->call.views[tables[i]].owner != NULL &&
            !gather_table(&d->call, tables[i], &d->buckets))
            return 0;
    return 1;
}
