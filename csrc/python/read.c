/* read.c: the arrays of a call of attention as its caller gave them: what they are, and how
 * their shapes fit, before anything is computed. */
#include "module.h"

static const char *const rules[] = {
    [LACKS_AXES] = "axes",  [OTHER_LENGTH] = "length",     [HAS_NO_ROWS] = "rows",
    [NO_GROUPS] = "groups", [TOO_MANY_AXES] = "most axes", [OTHER_BATCH] = "batch",
};

int
has_kind(const operand_row *row, const array_view *view)
{
    int is_float = view->kind >= KIND_F16 && view->kind <= KIND_F64;
    switch (row->of_kind) {
    case OF_T:
    case OF_16:
        return is_float;
    case OF_MASK:
        return is_float || view->kind == KIND_BOOL;
    case OF_LABELS:
        return view->kind >= KIND_I8;
    case OF_BOOL:
        return view->kind == KIND_BOOL;
    default: /* copied where it was read */
        return 1;
    }
}

/* Whether an array can be taken as it is. Others, and arrays whose numbers have to be looked
 * at or copied, are read by Python. */
static int
is_read(const operand_row *row, const array_view *view)
{
    switch (row->of_kind) {
    case OF_T:
    case OF_16: /* rows of t have to be finite, which Python checks */
        return has_kind(row, view) && row->shape[1] != 't';
    case OF_MASK:
    case OF_BOOL:
        return has_kind(row, view);
    case OF_LABELS:
        return has_kind(row, view) && view->ndim > 1;
    default:
        return 0;
    }
}

/* Reads an entry of the arguments, if it is there, into `inputs`: *owner is its array. */
static int
read_entry(attention_call *call, PyObject *const *args, const operand_row *row,
           const dict_entry *entry, PyObject **owner, PyObject *inputs)
{
    PyObject *value = take_entry(call, args[0], entry, 0);
    array_view view;
    if (value == NULL && (PyErr_Occurred() || row->roles[FORWARD] != REQUIRED))
        return PyErr_Occurred() ? -1 : 0;
    if (value == NULL)
        value = Py_NewRef(Py_None);
    if (PyArray_CheckExact(value) && take_view(value, &view) && is_read(row, &view)) {
        *owner = value;
        return PyDict_SetItem(inputs, entry->key, value);
    }
    *owner = PyObject_CallFunctionObjArgs(args[1], entry->key, value, NULL);
    Py_DECREF(value);
    if (*owner == NULL)
        return -1;
    if (!PyArray_Check(*owner))
        return reject(call, PyExc_TypeError, entry->name, "was not read as an ndarray");
    return PyDict_SetItem(inputs, entry->key, *owner);
}

/* Takes the views of the arrays that were read. Code that ran meanwhile may have given one of
 * them another dtype. */
static int
take_read_views(attention_call *call)
{
    if (take_views(call) < 0 || take_item_views(call) < 0)
        return -1;
    for (int i = 0; i < OPERANDS; i++)
        if (call->views[i].owner != NULL &&
            !has_kind(&operand_rows[i], &call->views[i])) {
            PyErr_Format(PyExc_TypeError,
                         "%s: its dtype was replaced while other arguments were read; "
                         "expected an argument that keeps its dtype",
                         operand_rows[i].entry.name);
            return -1;
        }
    return 0;
}

/* Reads all arrays. The function that reads other objects runs code of theirs, which may resize
 * an array that was read before: only then is the view of any taken. */
static int
read_entries(attention_call *call, PyObject *const *args, PyObject *inputs)
{
    static const operand_row item = {.of_kind = OF_I64}; /* copied, as all of them */
    for (int i = 0; i < OPERANDS; i++) {
        const operand_row *row = &operand_rows[i];
        /* most calls have no labels: no look at the rest of them */
        if (row->fit == WHOLE || row->of_kind == OF_F64 ||
            row->roles[FORWARD] == UNKNOWN ||
            (row->of_kind == OF_LABELS && i > LABELS + 1 &&
             call->views[i - 1].owner == NULL))
            continue;
        if (read_entry(call, args, row, &row->entry, &call->views[i].owner, inputs) < 0)
            return -1;
    }
    for (int i = 0; i < PART_ITEMS; i++)
        if (read_entry(call, args, &item, &item_rows[i].entry, &call->items[i].owner,
                       inputs) < 0)
            return -1;
    return take_read_views(call);
}

static PyObject *
new_shape(const npy_intp *lengths, int ndim)
{
    PyObject *shape = PyTuple_New(ndim);
    for (int axis = 0; shape != NULL && axis < ndim; axis++) {
        PyObject *length = PyLong_FromSsize_t(lengths[axis]);
        if (length == NULL || PyTuple_SetItem(shape, axis, length) < 0)
            Py_CLEAR(shape);
    }
    return shape;
}

/* Makes the answer of read_operands: what was read, or the rule that an operand breaks. */
static PyObject *
tell(const attention_call *call, PyObject *inputs, misfit found)
{
    const char *letters = "HKqkDVP";
    npy_intp sizes[7];
    for (int i = 0; i < 7; i++)
        sizes[i] = (npy_intp)call->dims[(int)letters[i]];
    PyObject *wrong =
        found.rule == FITS
            ? Py_NewRef(Py_None)
            : Py_BuildValue("Osi", found.operand->key, rules[found.rule], found.letter);
    return Py_BuildValue("ONNN", inputs, new_shape(sizes, 7),
                         new_shape(call->batch_shape, call->batch_ndim), wrong);
}

/* args: the arguments by name, the function that reads other objects, two flags. */
PyObject *
py_read_operands(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    attention_call call = {.direction = FORWARD};
    PyObject *inputs, *told = NULL;
    if (count != 4 || !PyDict_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError,
                        "read_operands: expected a dict, a function and two flags");
        return NULL;
    }
    shape_rules how = {.groups = args[2] == Py_True, .is_part = args[3] == Py_True};
    if ((inputs = PyDict_New()) == NULL)
        return NULL;
    if (read_entries(&call, args, inputs) == 0)
        told = tell(&call, inputs, fit_shapes(&call, how));
    Py_DECREF(inputs);
    release_call(&call);
    return told;
}
