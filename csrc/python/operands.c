/* operands.c: reads and checks the dict of attention_forward or attention_backward.
 *
 * One row per operand. Its shape is written in letters: after the batch axes come three
 * of H heads, K key heads, q queries, k keys, D, V (value head_dim), P (columns of rel_key),
 * 1, 2, 3, A, C, W, B, t for the rows of rel_key, rel_query, rel_value, rel_bias and
 * log_decay, and o, F, G for the q + k offsets, the ranges of FIRE's bias and one more than
 * these. shapes.c says what arrays may have of these axes. */

#include "module.h"

static const char *const direction_names[] = {"attention_forward",
                                              "attention_backward"};

#define ROW(key, field, shape, kind, fit, forward_role, backward_role)                 \
    {{key, NULL}, offsetof(rp_gradients, field), shape, kind,                          \
     fit,         {forward_role, backward_role}, 0}
#define GRADIENT(key, grad, field, shape, kind, fit)                                   \
    {{"grad_" key, NULL}, offsetof(rp_gradients, grad),         shape, kind, fit,      \
     {UNKNOWN, OUTPUT},   offsetof(rp_gradients, forward.field)}
#define LABEL_ROW(key, n)                                                              \
    ROW(key, forward.labels.of[n].array, "1qk", OF_LABELS, PAIRS, OPTIONAL, OPTIONAL)

operand_row operand_rows[] = {
    ROW("query", forward.query, "HqD", OF_16, TOKENS, REQUIRED, REQUIRED),
    ROW("key", forward.key, "KkD", OF_16, TOKENS, REQUIRED, REQUIRED),
    ROW("value", forward.value, "KkV", OF_16, TOKENS, REQUIRED, REQUIRED),
    ROW("out", forward.results.out, "HqV", OF_16, WHOLE, REQUIRED_OUTPUT, REQUIRED),
    ROW("kept", forward.results.kept, "HqV", OF_T, WHOLE, OUTPUT, UNKNOWN),
    ROW("lse", forward.results.lse, "Hq1", OF_T, WHOLE, OUTPUT, UNKNOWN),
    ROW("row_max", forward.results.row_max, "Hq1", OF_T, WHOLE, OUTPUT, REQUIRED),
    ROW("row_sum", forward.results.row_sum, "Hq1", OF_T, WHOLE, OUTPUT, REQUIRED),
    ROW("weights", forward.results.weights, "Hqk", OF_T, WHOLE, OUTPUT, UNKNOWN),
    ROW("attn_mask", forward.sight.mask, "Hqk", OF_MASK, PAIRS, OPTIONAL, OPTIONAL),
    ROW("rel_key", forward.rel_key.array, "HAP", OF_16, SHARED, OPTIONAL, OPTIONAL),
    ROW("rel_query", forward.rel_query.array, "HCD", OF_16, SHARED, OPTIONAL, OPTIONAL),
    ROW("rel_value", forward.rel_value.array, "HWV", OF_16, SHARED, OPTIONAL, OPTIONAL),
    ROW("rel_bias", forward.rel_bias.array, "HB1", OF_T, SHARED, OPTIONAL, OPTIONAL),
    ROW("pos_bias_u", forward.pos_bias_u, "H1D", OF_T, SHARED, OPTIONAL, OPTIONAL),
    ROW("pos_bias_v", forward.pos_bias_v, "H1P", OF_T, SHARED, OPTIONAL, OPTIONAL),
    ROW("position_query", forward.position_query, "HqP", OF_16, TOKENS, OPTIONAL,
        OPTIONAL),
    ROW("sinks", forward.sinks, "H11", OF_T, ALONE, OPTIONAL, OPTIONAL),
    ROW("log_decay", forward.log_decay.array, "Ht1", OF_T, TOKENS, OPTIONAL, OPTIONAL),
    LABEL_ROW("labels", 0), /* or the first of several */
    LABEL_ROW("labels[0]", 0),
    LABEL_ROW("labels[1]", 1),
    LABEL_ROW("labels[2]", 2),
    LABEL_ROW("labels[3]", 3),
    LABEL_ROW("labels[4]", 4),
    LABEL_ROW("labels[5]", 5),
    LABEL_ROW("labels[6]", 6),
    LABEL_ROW("labels[7]", 7),
    ROW("key_ranges", forward.sight.key_ranges, "1q2", OF_I64, PAIRS, OPTIONAL,
        OPTIONAL),
    ROW("fire_lines", forward.fire.lines, "HF3", OF_F64, TOKENS, OPTIONAL, OPTIONAL),
    ROW("fire_offsets", forward.fire.offsets, "1o1", OF_F64, TOKENS, OPTIONAL,
        OPTIONAL),
    ROW("fire_queries", forward.fire.queries, "1q1", OF_F64, TOKENS, OPTIONAL,
        OPTIONAL),
    ROW("fire_offset_slopes", fire_offset_slopes, "1o1", OF_F64, TOKENS, UNKNOWN,
        OPTIONAL),
    ROW("fire_query_slopes", fire_query_slopes, "1q2", OF_F64, TOKENS, UNKNOWN,
        OPTIONAL),
    ROW("grad_out", grad_out, "HqV", OF_16, WHOLE, UNKNOWN, OPTIONAL),
    ROW("grad_lse", grad_lse, "Hq1", OF_T, WHOLE, UNKNOWN, OPTIONAL),
    GRADIENT("query", grad_query, query, "HqD", OF_16, WHOLE),
    GRADIENT("key", grad_key, key, "KkD", OF_16, WHOLE),
    GRADIENT("value", grad_value, value, "KkV", OF_16, WHOLE),
    GRADIENT("attn_mask", grad_mask, sight.mask, "Hqk", OF_T, WHOLE),
    GRADIENT("rel_key", grad_rel_key, rel_key.array, "HAP", OF_T, SHARED),
    GRADIENT("rel_query", grad_rel_query, rel_query.array, "HCD", OF_T, SHARED),
    GRADIENT("rel_value", grad_rel_value, rel_value.array, "HWV", OF_T, SHARED),
    GRADIENT("rel_bias", grad_rel_bias, rel_bias.array, "HB1", OF_T, SHARED),
    GRADIENT("pos_bias_u", grad_pos_bias_u, pos_bias_u, "H1D", OF_T, SHARED),
    GRADIENT("pos_bias_v", grad_pos_bias_v, pos_bias_v, "H1P", OF_T, SHARED),
    GRADIENT("position_query", grad_position_query, position_query, "HqP", OF_16,
             WHOLE),
    /* of these a unit of work adds up one head */
    GRADIENT("sinks", grad_sinks, sinks, "H11", OF_T, TOKENS),
    GRADIENT("log_decay", grad_log_decay, log_decay.array, "Ht1", OF_T, TOKENS),
    ROW("grad_fire", grad_fire, "HG2", OF_F64, TOKENS, UNKNOWN, OUTPUT),
};

#undef ROW
#undef GRADIENT
#undef LABEL_ROW

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
    char type; /* d double, p probability below 1, l int64, i int, Q uint64 */
    int required;
    int64_t lowest, highest, initial; /* of l and i */
} scalar_rows[] = {
#define SCALAR(key, field, ...)                                                        \
    {{key, NULL}, offsetof(rp_gradients, forward.field), __VA_ARGS__},
    /* clang-format off */
    /* name, field, type, required, lowest, highest, initial */
    SCALAR("scale",                 scale,              'd', 1, 0,            0,              0)
    SCALAR("softcap",               softcap,            'd', 0, 0,            0,              0)
    SCALAR("dropout_p",             dropout.p,          'p', 0, 0,            0,              0)
    SCALAR("seed",                  dropout.seed,       'Q', 0, 0,            0,              0)
    SCALAR("part_query",            part.query,         'l', 0, 0,            RP_FARTHEST,    0)
    SCALAR("part_key",              part.key,           'l', 0, 0,            RP_FARTHEST,    0)
    SCALAR("part_head",             part.head,          'l', 0, 0,            RP_FARTHEST,    0)
    SCALAR("part_key_heads",        part.key_heads,     'l', 0, 0,            RP_FARTHEST,    0)
    SCALAR("part_has_more_keys",    part.has_more_keys, 'i', 0, 0,            1,              0)
    SCALAR("min_relative_position", rel_key.first,      'l', 0, -RP_FARTHEST, RP_FARTHEST,    0)
    SCALAR("min_bias_position",     rel_bias.first,     'l', 0, -RP_FARTHEST, RP_FARTHEST,    0)
    SCALAR("window_left",           sight.window_left,  'l', 0, 0,            RP_UNBOUNDED,   RP_UNBOUNDED)
    SCALAR("window_right",          sight.window_right, 'l', 0, -RP_FARTHEST, RP_UNBOUNDED,   RP_UNBOUNDED)
    SCALAR("fire_signed",           fire.is_signed,     'i', 0, 0,            1,              0)
    SCALAR("beyond",                beyond,             'i', 0, RP_CLIP,      RP_ZERO,        RP_CLIP)
    SCALAR("weigh_all",             weigh_all,          'i', 0, 0,            1,              0)
    SCALAR("num_threads",           threads,            'i', 1, 1,            RP_MAX_THREADS, 1)
    /* clang-format on */
};

#undef SCALAR

enum { SCALARS = sizeof scalar_rows / sizeof scalar_rows[0] };

int
reject(const attention_call *call, PyObject *type, const char *operand,
       const char *what)
{
    PyErr_Format(type, "%s: %s %s", direction_names[call->direction], operand, what);
    return -1;
}

/* Letters and batch axes, and strides from them. */
static int
take_shapes(attention_call *call)
{
    static const char *const texts[] = {
        [LACKS_AXES] = "must have as many axes as its shape and query's batch",
        [OTHER_LENGTH] = "does not fit the other shapes",
        [HAS_NO_ROWS] = "has no rows",
        [NO_GROUPS] = "heads must divide query heads",
        [TOO_MANY_AXES] = "has too many batch axes",
        [OTHER_BATCH] = "must have query's batch shape",
        [SOME_ITEMS] =
            "is shared by some batch items; expected one for each, or for all",
    };
    misfit found = fit_shapes(call, (shape_rules){.groups = 1, .is_part = 1});
    if (found.rule != FITS)
        return reject(call, PyExc_ValueError, found.operand->name, texts[found.rule]);
    return lay_out(call);
}

/* A product with a probability of 1 or more, or with NaN, would be no uint32. */
static int
store_double(attention_call *call, int index, double number)
{
    if (scalar_rows[index].type == 'p' && !(number >= 0 && number < 1))
        return reject(call, PyExc_ValueError, scalar_rows[index].entry.name,
                      "is out of range");
    FIELD(call, double, scalar_rows[index].field) = number;
    return 0;
}

static int
store_integer(attention_call *call, int index, int64_t number)
{
    if (number < scalar_rows[index].lowest || number > scalar_rows[index].highest)
        return reject(call, PyExc_ValueError, scalar_rows[index].entry.name,
                      "is out of range");
    if (scalar_rows[index].type == 'i')
        FIELD(call, int, scalar_rows[index].field) = (int)number;
    else
        FIELD(call, int64_t, scalar_rows[index].field) = number;
    return 0;
}

/* What Python says of an object that is no number, or too large a one, does not name it. */
static int
refuse_number(const attention_call *call, int index)
{
    const char *name = scalar_rows[index].entry.name;
    if (PyErr_ExceptionMatches(PyExc_TypeError))
        return reject(call, PyExc_TypeError, name, "must be a number");
    if (PyErr_ExceptionMatches(PyExc_OverflowError))
        return reject(call, PyExc_ValueError, name, "is out of range");
    return -1; /* raised by a method of the object */
}

static int
store_scalar(attention_call *call, int index, PyObject *value)
{
    char type = scalar_rows[index].type;
    double real = 0;
    uint64_t seed = 0;
    int64_t integer = 0;
    if (type == 'd' || type == 'p')
        real = PyFloat_AsDouble(value);
    else if (type == 'Q')
        seed = PyLong_AsUnsignedLongLong(value);
    else
        integer = PyLong_AsLongLong(value);
    if (PyErr_Occurred())
        return refuse_number(call, index);
    if (type == 'd' || type == 'p')
        return store_double(call, index, real);
    if (type != 'Q')
        return store_integer(call, index, integer);
    FIELD(call, uint64_t, scalar_rows[index].field) = seed;
    return 0;
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

/* Numbers come first: their methods may run Python code, and so may those of tensors. */
int
take_operands(attention_call *call, PyObject *operands)
{
    for (int i = 0; i < SCALARS; i++)
        if (take_scalar(call, i, operands) < 0)
            return -1;
    if (take_owners(call, operands) < 0)
        return -1;
    /* from here on no Python code runs until the kernel has returned */
    if (take_views(call) < 0 || take_item_views(call) < 0 || check_arrays(call) < 0)
        return -1;
    return take_shapes(call);
}

int
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
