/* operands.c: reads and checks the dict of attention_forward or attention_backward.
 *
 * One row per operand. Its shape is written in letters: after the batch axes come three
 * of H heads, K key heads, q queries, k keys, D, V (value head_dim), P (columns of rel_key),
 * 1, 2, 3, A, C, W, B, t for the rows of rel_key, rel_query, rel_value, rel_bias and
 * log_decay, and o, F, G for the q + k offsets, the ranges of FIRE's bias and one more than
 * these. A letter takes the first length it meets and must meet the same one from then on,
 * so the order of the rows matters: query, key and value first. */

#include "module.h"

enum { KIND_T, KIND_F64, KIND_I64, KIND_MASK, KIND_LABELS };
static const char *const direction_names[] = {"attention_forward",
                                              "attention_backward"};

#define ROW(key, field, shape, kind, forward_role, backward_role)                      \
    {{key, NULL}, offsetof(rp_gradients, field), shape,                                \
     kind,        {forward_role, backward_role}, 0}
#define GRADIENT(key, grad, field, shape)                                              \
    {{"grad_" key, NULL}, offsetof(rp_gradients, grad),         shape, KIND_T,         \
     {UNKNOWN, OUTPUT},   offsetof(rp_gradients, forward.field)}
#define LABELS(key, n)                                                                 \
    ROW(key, forward.labels.of[n].array, "1qk", KIND_LABELS, OPTIONAL, OPTIONAL)

operand_row operand_rows[] = {
    ROW("query", forward.query, "HqD", KIND_T, REQUIRED, REQUIRED),
    ROW("key", forward.key, "KkD", KIND_T, REQUIRED, REQUIRED),
    ROW("value", forward.value, "KkV", KIND_T, REQUIRED, REQUIRED),
    ROW("out", forward.results.out, "HqV", KIND_T, REQUIRED_OUTPUT, REQUIRED),
    ROW("lse", forward.results.lse, "Hq1", KIND_T, OUTPUT, UNKNOWN),
    ROW("row_max", forward.results.row_max, "Hq1", KIND_T, OUTPUT, REQUIRED),
    ROW("row_sum", forward.results.row_sum, "Hq1", KIND_T, OUTPUT, REQUIRED),
    ROW("weights", forward.results.weights, "Hqk", KIND_T, OUTPUT, UNKNOWN),
    ROW("attn_mask", forward.sight.mask, "Hqk", KIND_MASK, OPTIONAL, OPTIONAL),
    ROW("rel_key", forward.rel_key.array, "HAP", KIND_T, OPTIONAL, OPTIONAL),
    ROW("rel_query", forward.rel_query.array, "HCD", KIND_T, OPTIONAL, OPTIONAL),
    ROW("rel_value", forward.rel_value.array, "HWV", KIND_T, OPTIONAL, OPTIONAL),
    ROW("rel_bias", forward.rel_bias.array, "HB1", KIND_T, OPTIONAL, OPTIONAL),
    ROW("pos_bias_u", forward.pos_bias_u, "H1D", KIND_T, OPTIONAL, OPTIONAL),
    ROW("pos_bias_v", forward.pos_bias_v, "H1P", KIND_T, OPTIONAL, OPTIONAL),
    ROW("position_query", forward.position_query, "HqP", KIND_T, OPTIONAL, OPTIONAL),
    ROW("sinks", forward.sinks, "H11", KIND_T, OPTIONAL, OPTIONAL),
    ROW("log_decay", forward.log_decay.array, "Ht1", KIND_T, OPTIONAL, OPTIONAL),
    LABELS("labels", 0),
    LABELS("labels[1]", 1),
    LABELS("labels[2]", 2),
    LABELS("labels[3]", 3),
    LABELS("labels[4]", 4),
    LABELS("labels[5]", 5),
    LABELS("labels[6]", 6),
    LABELS("labels[7]", 7),
    ROW("key_ranges", forward.sight.key_ranges, "1q2", KIND_I64, OPTIONAL, OPTIONAL),
    ROW("fire_lines", forward.fire.lines, "HF3", KIND_F64, OPTIONAL, OPTIONAL),
    ROW("fire_offsets", forward.fire.offsets, "1o1", KIND_F64, OPTIONAL, OPTIONAL),
    ROW("fire_queries", forward.fire.queries, "1q1", KIND_F64, OPTIONAL, OPTIONAL),
    ROW("fire_offset_slopes", fire_offset_slopes, "1o1", KIND_F64, UNKNOWN, OPTIONAL),
    ROW("fire_query_slopes", fire_query_slopes, "1q2", KIND_F64, UNKNOWN, OPTIONAL),
    ROW("grad_out", grad_out, "HqV", KIND_T, UNKNOWN, OPTIONAL),
    ROW("grad_lse", grad_lse, "Hq1", KIND_T, UNKNOWN, OPTIONAL),
    GRADIENT("query", grad_query, query, "HqD"),
    GRADIENT("key", grad_key, key, "KkD"),
    GRADIENT("value", grad_value, value, "KkV"),
    GRADIENT("attn_mask", grad_mask, sight.mask, "Hqk"),
    GRADIENT("rel_key", grad_rel_key, rel_key.array, "HAP"),
    GRADIENT("rel_query", grad_rel_query, rel_query.array, "HCD"),
    GRADIENT("rel_value", grad_rel_value, rel_value.array, "HWV"),
    GRADIENT("rel_bias", grad_rel_bias, rel_bias.array, "HB1"),
    GRADIENT("pos_bias_u", grad_pos_bias_u, pos_bias_u, "H1D"),
    GRADIENT("pos_bias_v", grad_pos_bias_v, pos_bias_v, "H1P"),
    GRADIENT("position_query", grad_position_query, position_query, "HqP"),
    GRADIENT("sinks", grad_sinks, sinks, "H11"),
    GRADIENT("log_decay", grad_log_decay, log_decay.array, "Ht1"),
    ROW("grad_fire", grad_fire, "HG2", KIND_F64, UNKNOWN, OUTPUT),
};

#undef ROW
#undef GRADIENT
#undef LABELS

_Static_assert(sizeof operand_rows / sizeof *operand_rows == OPERANDS, "module.h");

item_row item_rows[] = {
    {{"query_offset", NULL}, offsetof(rp_gradients, forward.sight.query_offset)},
    {{"key_lengths", NULL}, offsetof(rp_gradients, forward.sight.key_lengths)},
    {{"part_items", NULL}, offsetof(rp_gradients, forward.part.items)},
};

_Static_assert(sizeof item_rows / sizeof *item_rows == ITEM_VECTORS, "module.h");

static struct {
    dict_entry entry;
    size_t field;
    char type; /* d double, l int64, i int, Q uint64 */
    int required;
    int64_t lowest, highest, initial; /* of l and i */
} scalar_rows[] = {
#define SCALAR(key, field, ...)                                                        \
    {{key, NULL}, offsetof(rp_gradients, forward.field), __VA_ARGS__},
#define POSITION -RP_FARTHEST, RP_FARTHEST, 0
#define PLACE 0, RP_FARTHEST, 0
#define WINDOW INT64_MIN, RP_UNBOUNDED, RP_UNBOUNDED
    /* clang-format off */
    SCALAR("scale", scale, 'd', 1, 0, 0, 0)
    SCALAR("softcap", softcap, 'd', 0, 0, 0, 0)
    SCALAR("dropout_p", dropout.p, 'd', 0, 0, 0, 0)
    SCALAR("seed", dropout.seed, 'Q', 0, 0, 0, 0)
    SCALAR("part_query", part.query, 'l', 0, PLACE)
    SCALAR("part_key", part.key, 'l', 0, PLACE)
    SCALAR("part_head", part.head, 'l', 0, PLACE)
    SCALAR("part_key_heads", part.key_heads, 'l', 0, PLACE)
    SCALAR("part_has_more_keys", part.has_more_keys, 'i', 0, 0, 1, 0)
    SCALAR("min_relative_position", rel_key.first, 'l', 0, POSITION)
    SCALAR("min_bias_position", rel_bias.first, 'l', 0, POSITION)
    SCALAR("window_left", sight.window_left, 'l', 0, WINDOW)
    SCALAR("window_right", sight.window_right, 'l', 0, WINDOW)
    SCALAR("fire_signed", fire.is_signed, 'i', 0, 0, 1, 0)
    SCALAR("beyond", beyond, 'i', 0, RP_CLIP, RP_ZERO, RP_CLIP)
    SCALAR("weigh_all", weigh_all, 'i', 0, 0, 1, 0)
    SCALAR("num_threads", threads, 'i', 1, 1, RP_MAX_THREADS, 1)
    /* clang-format on */
};

#undef SCALAR
#undef POSITION
#undef PLACE
#undef WINDOW

enum { SCALARS = sizeof scalar_rows / sizeof scalar_rows[0] };

int
reject(const attention_call *call, PyObject *type, const char *operand,
       const char *what)
{
    PyErr_Format(type, "%s: %s %s", direction_names[call->direction], operand, what);
    return -1;
}

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

static int
check_dtype(attention_call *call, const operand_row *row, PyArrayObject *array)
{
    int type = PyArray_TYPE(array);
    if (row == operand_rows) {
        call->typenum = type;
        if (type != NPY_FLOAT && type != NPY_DOUBLE)
            return reject(call, PyExc_TypeError, row->entry.name,
                          "must be float32 or float64");
    } else if (row->kind == KIND_T && type != call->typenum) {
        return reject(call, PyExc_TypeError, row->entry.name,
                      "must have query's dtype");
    } else if (row->kind == KIND_F64 && type != NPY_DOUBLE) {
        return reject(call, PyExc_TypeError, row->entry.name, "must be float64");
    } else if (row->kind == KIND_I64 && type != NPY_INT64) {
        return reject(call, PyExc_TypeError, row->entry.name, "must be int64");
    } else if (row->kind == KIND_MASK) {
        call->problem.forward.sight.mask_type = type == NPY_BOOL     ? RP_MASK_BOOL
                                                : type == NPY_FLOAT  ? RP_MASK_F32
                                                : type == NPY_DOUBLE ? RP_MASK_F64
                                                                     : RP_MASK_NONE;
        if (call->problem.forward.sight.mask_type == RP_MASK_NONE)
            return reject(call, PyExc_TypeError, row->entry.name,
                          "must be bool, float32 or float64");
    } else if (row->kind == KIND_LABELS) {
        if (!PyTypeNum_ISSIGNED(type) || PyArray_ITEMSIZE(array) > 8)
            return reject(call, PyExc_TypeError, row->entry.name,
                          "must be int8, .., int64");
        rp_labels *labels = &call->problem.forward.labels;
        labels->of[labels->count++].size = (int)PyArray_ITEMSIZE(array);
    }
    return 0;
}

/* Matches the array's shape with the letters of its row. */
static int
check_shape(attention_call *call, const operand_row *row, PyArrayObject *array)
{
    int ndim = PyArray_NDIM(array);
    const npy_intp *shape = PyArray_DIMS(array);
    if (row == operand_rows) {
        if (ndim < 3)
            return reject(call, PyExc_ValueError, row->entry.name,
                          "needs at least 3 axes");
        call->batch_ndim = ndim - 3;
        memcpy(call->batch_shape, shape, (size_t)call->batch_ndim * sizeof *shape);
    }
    if (ndim != call->batch_ndim + 3)
        return reject(call, PyExc_ValueError, row->entry.name,
                      "must have as many axes as query");
    for (int axis = 0; axis < call->batch_ndim; axis++)
        if (shape[axis] != call->batch_shape[axis])
            return reject(call, PyExc_ValueError, row->entry.name,
                          "must have query's batch shape");
    for (int axis = 0; axis < 3; axis++) {
        int64_t length = shape[call->batch_ndim + axis];
        int letter = row->shape[axis];
        if (call->dims[letter] < 0)
            call->dims[letter] = length;
        else if (call->dims[letter] != length)
            return reject(call, PyExc_ValueError, row->entry.name,
                          "does not fit the other shapes");
    }
    return 0;
}

static int
check_operand(attention_call *call, const operand_row *row, PyArrayObject *array)
{
    if (!PyArray_ISBEHAVED_RO(array))
        return reject(call, PyExc_ValueError, row->entry.name,
                      "must be aligned and in native byte order");
    if (row->roles[call->direction] >= OUTPUT && !PyArray_ISWRITEABLE(array))
        return reject(call, PyExc_ValueError, row->entry.name, "is read-only");
    if (row->of != 0 && FIELD(call, rp_array, row->of).data == NULL)
        return reject(call, PyExc_ValueError, row->entry.name, "has no operand");
    if (check_dtype(call, row, array) < 0)
        return -1;
    return check_shape(call, row, array);
}

static int
take_array(attention_call *call, int index, PyObject *operands)
{
    const operand_row *row = &operand_rows[index];
    int role = row->roles[call->direction];
    const rp_labels *labels = &call->problem.forward.labels;
    if (role == UNKNOWN)
        return 0;
    if (row->kind ==
            KIND_LABELS && /* most calls have none of them: no look at the rest */
        row->array != offsetof(rp_gradients, forward.labels.of[labels->count].array))
        return 0;
    PyObject *value = take_entry(call, operands, &row->entry,
                                 role == REQUIRED || role == REQUIRED_OUTPUT);
    if (value == NULL)
        return PyErr_Occurred() ? -1 : 0;
    if (!PyArray_Check(value)) {
        Py_DECREF(value);
        return reject(call, PyExc_TypeError, row->entry.name, "must be an ndarray");
    }
    PyArrayObject *array = call->arrays[index] = (PyArrayObject *)value;
    if (check_operand(call, row, array) < 0)
        return -1;
    const npy_intp *strides = PyArray_STRIDES(array) + call->batch_ndim;
    rp_array *view = &FIELD(call, rp_array, row->array);
    view->data = PyArray_BYTES(array);
    view->head = strides[0];
    view->row = strides[1];
    view->col = strides[2];
    return 0;
}

static int
take_items(attention_call *call, int index, PyObject *operands)
{
    PyObject *value = take_entry(call, operands, &item_rows[index].entry, 0);
    if (value == NULL)
        return PyErr_Occurred() ? -1 : 0;
    call->items[index] = (PyArrayObject *)value;
    if (!PyArray_Check(value) || PyArray_TYPE(call->items[index]) != NPY_INT64 ||
        !PyArray_ISCARRAY_RO(call->items[index])) {
        return reject(call, PyExc_TypeError, item_rows[index].entry.name,
                      "must be a C-contiguous int64 ndarray");
    }
    return 0;
}

static int
store_scalar(attention_call *call, int index, PyObject *value)
{
    const char *name = scalar_rows[index].entry.name;
    size_t field = scalar_rows[index].field;
    char type = scalar_rows[index].type;
    if (type == 'd')
        FIELD(call, double, field) = PyFloat_AsDouble(value);
    else if (type == 'Q')
        FIELD(call, uint64_t, field) = PyLong_AsUnsignedLongLong(value);
    else {
        int64_t number = PyLong_AsLongLong(value);
        if (PyErr_Occurred())
            return -1;
        if (number < scalar_rows[index].lowest || number > scalar_rows[index].highest)
            return reject(call, PyExc_ValueError, name, "is out of range");
        if (type == 'i')
            FIELD(call, int, field) = (int)number;
        else
            FIELD(call, int64_t, field) = number;
    }
    return PyErr_Occurred() ? -1 : 0;
}

static int
take_scalar(attention_call *call, int index, PyObject *operands)
{
    PyObject *value = take_entry(call, operands, &scalar_rows[index].entry,
                                 scalar_rows[index].required);
    if (PyErr_Occurred())
        return -1;
    if (value == NULL) {
        if (scalar_rows[index].type == 'l')
            FIELD(call, int64_t, scalar_rows[index].field) = scalar_rows[index].initial;
        return 0; /* the others start as zero */
    }
    int status = store_scalar(call, index, value);
    Py_DECREF(value);
    return status;
}

int
take_operands(attention_call *call, PyObject *operands)
{
    for (int i = 0; i < OPERANDS; i++)
        if (take_array(call, i, operands) < 0)
            return -1;
    for (int i = 0; i < ITEM_VECTORS; i++)
        if (take_items(call, i, operands) < 0)
            return -1;
    for (int i = 0; i < SCALARS; i++)
        if (take_scalar(call, i, operands) < 0)
            return -1;
    return 0;
}

static int
make_key(dict_entry *entry)
{
    entry->key = PyUnicode_InternFromString(entry->name);
    return entry->key == NULL ? -1 : 0;
}

/* {name: (shape, role forward, role backward), ..} */
static PyObject *
describe_operands(void)
{
    static const char *const roles[] = {"", "optional", "required", "output",
                                        "required output"};
    PyObject *described = PyDict_New();
    for (int i = 0; described != NULL && i < OPERANDS; i++) {
        const operand_row *row = &operand_rows[i];
        PyObject *value = Py_BuildValue("sss", row->shape, roles[row->roles[FORWARD]],
                                        roles[row->roles[BACKWARD]]);
        if (value == NULL || PyDict_SetItem(described, row->entry.key, value) < 0)
            Py_CLEAR(described);
        Py_XDECREF(value);
    }
    return described;
}

int
make_keys(void)
{
    int status = 0;
    for (int i = 0; i < OPERANDS; i++)
        status |= make_key(&operand_rows[i].entry);
    for (int i = 0; i < ITEM_VECTORS; i++)
        status |= make_key(&item_rows[i].entry);
    for (int i = 0; i < SCALARS; i++)
        status |= make_key(&scalar_rows[i].entry);
    for (int i = 0; i < EDGE_VECTORS; i++)
        status |= make_key(&edge_entries[i]);
    return status;
}

int
add_operands(PyObject *module)
{
    PyObject *described = describe_operands();
    if (described == NULL)
        return -1;
    int status = PyModule_AddObjectRef(module, "operands", described);
    Py_DECREF(described);
    return status;
}
