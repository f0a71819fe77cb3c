/* operands.c: reads and checks the dict of attention_forward or attention_backward. rows.h
 * lists the arrays. */

#include "module.h"

static const char *const direction_names[] = {"attention_forward",
                                              "attention_backward"};

operand_row operand_rows[] = {
#define ROW(row, name, field, shape, numbers, axes, in_forward, in_backward, of)       \
    [row] = {{name, NULL}, offsetof(rp_gradients, field), shape, numbers,              \
             axes,         {in_forward, in_backward},     of},
#define OPERAND(row, name, field, shape, numbers, axes, role, of_gradient, gradient,   \
                its_numbers, its_axes)                                                 \
    ROW(row, name, forward.field, shape, numbers, axes, role, role, 0)                 \
    ROW(of_gradient, "grad_" name, gradient, shape, its_numbers, its_axes, UNKNOWN,    \
        OUTPUT, offsetof(rp_gradients, forward.field))
#define OTHER(row, name, field, shape, numbers, axes, in_forward, in_backward)         \
    ROW(row, name, field, shape, numbers, axes, in_forward, in_backward, 0)
#include "rows.h"
#undef ROW
};

const int tables[] = {
#define TABLE(row, ...) row,
#include "rows.h"
};

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
    int required, follows;            /* from the rules of a call */
    int64_t lowest, highest, initial; /* of l and i */
} scalar_rows[] = {
#define SCALAR(key, field, ...)                                                        \
    {{key, NULL}, offsetof(rp_gradients, forward.field), __VA_ARGS__},
    /* clang-format off */
    /* name, field, type, required, follows, lowest, highest, initial */
    SCALAR("scale",                 scale,              'd', 1, 1, 0,            0,              0)
    SCALAR("softcap",               softcap,            'd', 0, 0, 0,            0,              0)
    SCALAR("dropout_p",             dropout.p,          'p', 0, 0, 0,            0,              0)
    SCALAR("seed",                  dropout.seed,       'Q', 0, 0, 0,            0,              0)
    SCALAR("part_query",            part.query,         'l', 0, 0, 0,            RP_FARTHEST,    0)
    SCALAR("part_key",              part.key,           'l', 0, 0, 0,            RP_FARTHEST,    0)
    SCALAR("part_head",             part.head,          'l', 0, 0, 0,            RP_FARTHEST,    0)
    SCALAR("part_key_heads",        part.key_heads,     'l', 0, 0, 0,            RP_FARTHEST,    0)
    SCALAR("part_has_more_keys",    part.has_more_keys, 'i', 0, 0, 0,            1,              0)
    SCALAR("min_relative_position", rel_key.first,      'l', 0, 1, -RP_FARTHEST, RP_FARTHEST,    0)
    SCALAR("min_bias_position",     rel_bias.first,     'l', 0, 1, -RP_FARTHEST, RP_FARTHEST,    0)
    SCALAR("window_left",           sight.window_left,  'l', 0, 1, 0,            RP_UNBOUNDED,   RP_UNBOUNDED)
    SCALAR("window_right",          sight.window_right, 'l', 0, 1, -RP_FARTHEST, RP_UNBOUNDED,   RP_UNBOUNDED)
    SCALAR("block_heads",           sight.block_heads,  'l', 0, 1, 1,            RP_LONGEST,     1)
    SCALAR("block_queries",         sight.block_queries,'l', 0, 1, 1,            RP_LONGEST,     1)
    SCALAR("block_keys",            sight.block_keys,   'l', 0, 1, 1,            RP_LONGEST,     1)
    SCALAR("fire_signed",           fire.is_signed,     'i', 0, 0, 0,            1,              0)
    SCALAR("beyond",                beyond,             'i', 0, 0, RP_CLIP,      RP_ZERO,        RP_CLIP)
    SCALAR("weigh_all",             weigh_all,          'i', 0, 0, 0,            1,              0)
    SCALAR("num_threads",           threads,            'i', 1, 0, 1,            RP_MAX_THREADS, 1)
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
    if (take_views(call) < 0 || take_item_views(call) < 0 || check_arrays(call) < 0 ||
        copy_buckets(call) < 0)
        return -1;
    return take_shapes(call);
}

int
make_key(dict_entry *entry)
{
    entry->key = PyUnicode_InternFromString(entry->name);
    return entry->key == NULL ? -1 : 0;
}

PyObject *
list_numbers(const attention_call *call)
{
    PyObject *listed = PyDict_New();
    for (int i = 0; listed != NULL && i < SCALARS; i++) {
        if (!scalar_rows[i].follows)
            continue;
        size_t field = scalar_rows[i].field;
        PyObject *number = scalar_rows[i].type == 'd'
                               ? PyFloat_FromDouble(FIELD(call, double, field))
                               : PyLong_FromLongLong(FIELD(call, int64_t, field));
        if (number == NULL ||
            PyDict_SetItem(listed, scalar_rows[i].entry.key, number) < 0)
            Py_CLEAR(listed);
        Py_XDECREF(number);
    }
    return listed;
}

/* {name: (shape, role forward, role backward, numbers, axes), ..} */
static PyObject *
describe_operands(void)
{
    static const char *const roles[] = {"", "optional", "required", "output",
                                        "required output"};
    static const char *const numbers[] = {
        [OF_T] = "computed", [OF_16] = "short",  [OF_F64] = "float64",
        [OF_I64] = "int64",  [OF_MASK] = "mask", [OF_LABELS] = "labels",
        [OF_BOOL] = "bool"};
    static const char *const axes[] = {[TOKENS] = "tokens",
                                       [SHARED] = "shared",
                                       [PAIRS] = "pairs",
                                       [WHOLE] = "whole",
                                       [HEADS] = "heads"};
    PyObject *described = PyDict_New();
    for (int i = 0; described != NULL && i < OPERANDS; i++) {
        const operand_row *row = &operand_rows[i];
        PyObject *value = Py_BuildValue("sssss", row->shape, roles[row->roles[FORWARD]],
                                        roles[row->roles[BACKWARD]],
                                        numbers[row->of_kind], axes[row->fit]);
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
    return status | make_key(&buckets_entry);
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
