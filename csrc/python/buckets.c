/* buckets.c: tables whose rows are listed by relative position, for direct.c. The rows that
 * the pairs of a call can use are gathered, so that the tables are as any others. */
#include "module.h"

static const int tables[] = {REL_KEY, REL_QUERY, REL_VALUE, REL_BIAS};

enum { TABLES = sizeof tables / sizeof *tables };

int
take_buckets(direct_call *d, PyObject *value)
{
    array_view *view = &d->buckets;
    PyObject *array = d->of_tensors
                          ? view_tensor(value)
                          : (PyArray_CheckExact(value) ? Py_NewRef(value) : NULL);
    if (array == NULL || view->owner != NULL) {
        Py_XDECREF(array);
        return 0;
    }
    take_view(array, view);
    return view->kind == KIND_I64 && view->ndim == 1 && view->shape[0] > 0 &&
           PyArray_ISCARRAY_RO((PyArrayObject *)array);
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

/* The part of the buckets that pairs of so many queries and keys can use, those at the ends
 * for what lies beyond; it takes the place of the whole. */
static int
use_visible(direct_call *d)
{
    const array_view *query = &d->call.views[QUERY], *key = &d->call.views[KEY];
    int64_t count = d->buckets.shape[0], first = d->has_first ? d->first : -(count / 2);
    int64_t last = first + count - 1;
    if (query->owner == NULL || key->owner == NULL || query->ndim < 3 ||
        key->ndim < 3 || d->raises || (!d->has_first && count % 2 == 0))
        return 0;
    int64_t queries = query->shape[query->ndim - 2], keys = key->shape[key->ndim - 2];
    if (queries != keys && d->call.items[QUERY_OFFSET].owner == NULL)
        return 0;
    int64_t low = 1 - queries - d->offset, high = keys - 1 - d->offset;
    low = clamp(low < -d->left ? -d->left : low, first, last);
    high = d->is_causal && high > 0 ? 0 : high;
    high = clamp(high > d->right ? d->right : high, low, last);
    npy_intp length = (npy_intp)(high - low + 1);
    PyObject *part = PyArray_SimpleNew(1, &length, NPY_INT64);
    if (part == NULL)
        return 0;
    memcpy(PyArray_DATA((PyArrayObject *)part),
           (const int64_t *)d->buckets.data + (low - first),
           (size_t)length * sizeof(int64_t));
    Py_DECREF(d->buckets.owner);
    take_view(part, &d->buckets);
    d->has_first = 1;
    d->first = low;
    return 1;
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
    copy_rows(view, axis, buckets, PyArray_BYTES((PyArrayObject *)array));
    Py_DECREF(view->owner);
    take_view(array, view);
    FIELD(call, rp_array, operand_rows[index].array).data = view->data;
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
        int axis = view->owner == NULL ? 0 : row_axis(tables[i], view);
        if (view->owner == NULL)
            continue;
        if (axis < 0 || !view->is_behaved || (count >= 0 && view->shape[axis] != count))
            return 0;
        count = view->shape[axis];
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
