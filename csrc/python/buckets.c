/* buckets.c: the row of a table that each relative position has, where `buckets` list it. The
 * kernels get a copy: another thread may write to an array after its rows were checked. */
#include "rules.h"

dict_entry buckets_entry = {"buckets", NULL};

/* ---- of a direct call ------------------------------------------------------------------ */

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

/* ---- of the dict of a call ------------------------------------------------------------- */

int
take_buckets_entry(attention_call *call, PyObject *operands)
{
    PyObject *value = take_entry(call, operands, &buckets_entry, 0);
    if (value == NULL)
        return PyErr_Occurred() ? -1 : 0;
    call->buckets.owner = as_owner(value);
    if (call->buckets.owner == NULL)
        return reject(call, PyExc_TypeError, buckets_entry.name, "must be an ndarray");
    return 0;
}

int
copy_buckets(attention_call *call)
{
    array_view *view = &call->buckets;
    if (view->owner == NULL)
        return 0;
    if (!take_view(view->owner, view) || view->ndim != 1 || view->shape[0] == 0 ||
        view->kind != KIND_I64 || !view->is_behaved)
        return reject(call, PyExc_TypeError, buckets_entry.name,
                      "must be a vector of int64");
    call->index = (const int64_t *)view->data;
    call->index_count = view->shape[0];
    if (call->counts)
        return 0;
    int64_t *rows = rp_alloc((size_t)call->index_count, sizeof *rows);
    if (rows == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int64_t n = 0; n < call->index_count; n++)
        rows[n] = *(const int64_t *)(view->data + n * view->strides[0]);
    call->index = call->index_copy = rows;
    return 0;
}

/* ---- the tables that have them --------------------------------------------------------- */

static int
check_rows(const attention_call *call, int64_t rows)
{
    for (int64_t n = 0; n < call->index_count; n++)
        if (call->index[n] < 0 || call->index[n] >= rows)
            return reject(call, PyExc_ValueError, buckets_entry.name,
                          "is out of range");
    return 0;
}

static int
list_rows_of(attention_call *call, rp_table *table)
{
    if (!table->array.data)
        return 0;
    table->listed = table->rows;
    table->rows = call->index_count;
    table->index = call->index;
    return call->counts ? 0 : check_rows(call, table->listed);
}

int
list_tables(attention_call *call)
{
    rp_attention *p = &call->problem.forward;
    int status = 0;
    if (call->index == NULL)
        return 0;
    if (is_labelled(call) || call->edges[INDPTR] != NULL)
        return reject(call, PyExc_ValueError, buckets_entry.name,
                      "cannot go with labels or edges");
#define TABLE(row, name, table, ...) status |= list_rows_of(call, &p->table);
#include "rows.h"
    return status;
}
