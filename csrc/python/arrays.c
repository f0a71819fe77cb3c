/* arrays.c: the arrays of a call. All of them are read before any is looked at: reading an
 * argument may run Python code, which may resize an array that was read before. */
#include "module.h"

/* ---- read ------------------------------------------------------------------------ */

PyObject *
take_entry(attention_call *call, PyObject *operands, const dict_entry *entry,
           int required)
{
    PyObject *value;
#if PY_VERSION_HEX >= 0x030D0000
    PyDict_GetItemRef(operands, entry->key, &value);
#else
    value = Py_XNewRef(PyDict_GetItemWithError(operands, entry->key));
#endif
    if (value != NULL)
        call->used++;
    if (value == Py_None)
        Py_CLEAR(value);
    if (value == NULL && required && !PyErr_Occurred())
        reject(call, PyExc_TypeError, entry->name, "is missing");
    return value;
}

/* Reads an array of the dict; *owner stays NULL where there is none. */
static int
take_owner(attention_call *call, PyObject *operands, const dict_entry *entry,
           int required, PyObject **owner)
{
    PyObject *value = take_entry(call, operands, entry, required);
    if (value == NULL)
        return PyErr_Occurred() ? -1 : 0;
    *owner = as_owner(value);
    if (*owner == NULL)
        return reject(call, PyExc_TypeError, entry->name, "must be an ndarray");
    return 0;
}

int
take_owners(attention_call *call, PyObject *operands)
{
    int labels = 0;
    for (int i = 0; i < OPERANDS; i++) {
        const operand_row *row = &operand_rows[i];
        int role = row->roles[call->direction];
        int required = role == REQUIRED || role == REQUIRED_OUTPUT;
        int is_label = row->of_kind == OF_LABELS;
        if (role == UNKNOWN || /* most calls have no labels: no look at the rest */
            (is_label &&
             row->array != offsetof(rp_gradients, forward.labels.of[labels].array)))
            continue;
        if (take_owner(call, operands, &row->entry, required, &call->views[i].owner) <
            0)
            return -1;
        labels += is_label && call->views[i].owner != NULL;
    }
    for (int i = 0; i < ITEM_VECTORS; i++)
        if (take_owner(call, operands, &item_rows[i].entry, 0, &call->items[i].owner) <
            0)
            return -1;
    if (take_buckets_entry(call, operands) < 0)
        return -1;
    return take_edge_vectors(call, operands);
}

/* ---- looked at ------------------------------------------------------------------- */

void
refuse_moved(const char *name)
{
    PyErr_Format(
        PyExc_ValueError,
        "%s: its memory was replaced while other arguments were read; expected "
        "an argument that keeps its memory",
        name);
}

static int
look_at(array_view *view, const char *name)
{
    if (view->owner == NULL)
        return 0;
    take_view(view->owner, view);
    if (is_current(view->owner))
        return 0;
    refuse_moved(name);
    return -1;
}

int
take_views(attention_call *call)
{
    call->count = 0;
    for (int i = 0; i < OPERANDS; i++) {
        if (call->views[i].owner == NULL)
            continue;
        if (look_at(&call->views[i], operand_rows[i].entry.name) < 0)
            return -1;
        /* two rows of labels have one field */
        FIELD(call, rp_array, operand_rows[i].array).data = call->views[i].data;
        call->given[call->count++] = i;
    }
    return 0;
}

int
take_item_views(attention_call *call)
{
    for (int i = 0; i < ITEM_VECTORS; i++)
        if (look_at(&call->items[i], item_rows[i].entry.name) < 0)
            return -1;
    return 0;
}

/* ---- checked ----------------------------------------------------------------------- */

static int
check_kind(attention_call *call, const operand_row *row, const array_view *view)
{
    const char *name = row->entry.name;
    rp_array *array = &FIELD(call, rp_array, row->array);
    int kind = view->kind, is_short;
    array->kind = storage_of(kind);
    is_short = array->kind != RP_OWN && call->kind == KIND_F32;
    if (row == operand_rows) {
        if (kind < KIND_F16 || kind > KIND_F64)
            return reject(call, PyExc_TypeError, name, "must be floating");
        call->kind = array->kind == RP_OWN ? kind : KIND_F32;
    } else if (row->of_kind <= OF_16 && kind != call->kind &&
               (row->of_kind == OF_T || !is_short)) {
        return reject(call, PyExc_TypeError, name, "must have query's dtype");
    } else if (row->of_kind == OF_F64 && kind != KIND_F64) {
        return reject(call, PyExc_TypeError, name, "must be float64");
    } else if (row->of_kind == OF_I64 && kind != KIND_I64) {
        return reject(call, PyExc_TypeError, name, "must be int64");
    } else if (row->of_kind == OF_BOOL && kind != KIND_BOOL) {
        return reject(call, PyExc_TypeError, name, "must be bool");
    } else if (row->of_kind == OF_MASK) {
        rp_sight *sight = &call->problem.forward.sight;
        sight->mask_type = kind == KIND_BOOL              ? RP_MASK_BOOL
                           : kind == KIND_F32 || is_short ? RP_MASK_F32
                           : kind == KIND_F64             ? RP_MASK_F64
                                                          : RP_MASK_NONE;
        if (sight->mask_type == RP_MASK_NONE)
            return reject(call, PyExc_TypeError, name,
                          "must be bool, float32 or float64");
    } else if (row->of_kind == OF_LABELS) {
        rp_labels *labels = &call->problem.forward.labels;
        if (kind < KIND_I8)
            return reject(call, PyExc_TypeError, name, "must be int8, .., int64");
        labels->of[labels->count++].size = view->itemsize;
    }
    return 0;
}

int
check_operand(attention_call *call, const operand_row *row, const array_view *view)
{
    const char *name = row->entry.name;
    int is_written = row->roles[call->direction] >= OUTPUT;
    if (!view->is_behaved)
        return reject(call, PyExc_ValueError, name,
                      "must be aligned and in native byte order");
    if (is_written && !view->is_writeable)
        return reject(call, PyExc_ValueError, name, "is read-only");
    if (is_written && overlaps_itself(view))
        return reject(call, PyExc_ValueError, name,
                      "has items that share memory; each needs its own");
    if (row->of != 0 && FIELD(call, rp_array, row->of).data == NULL)
        return reject(call, PyExc_ValueError, name, "has no operand");
    return check_kind(call, row, view);
}

static int
check_items(const attention_call *call, int index)
{
    const array_view *view = &call->items[index];
    if (view->owner != NULL && (view->kind != KIND_I64 || !view->is_behaved))
        return reject(call, PyExc_TypeError, item_rows[index].entry.name,
                      "must be int64, aligned and in native byte order");
    return 0;
}

int
check_arrays(attention_call *call)
{
    for (int i = 0; i < OPERANDS; i++)
        if (call->views[i].owner != NULL &&
            check_operand(call, &operand_rows[i], &call->views[i]) < 0)
            return -1;
    for (int i = 0; i < ITEM_VECTORS; i++)
        if (check_items(call, i) < 0)
            return -1;
    return check_edge_vectors(call);
}
