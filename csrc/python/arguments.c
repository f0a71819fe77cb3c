/* arguments.c: arguments of attention as their caller gave them, one at a time, for direct.c:
 * flags, numbers, and plain arrays or tensors. Each function returns whether it took the
 * value. None raises: what is not taken is left to Python. */
#include "rules.h"

#include <math.h>

static PyObject *requires_grad; /* the name */

/* ---- flags and numbers --------------------------------------------------------------- */

static int
take_flag(PyObject *value, int *flag)
{
    *flag = value == Py_True;
    return value == Py_True || value == Py_False;
}

/* An int of fewer than 60 bits. */
static int
take_int(PyObject *value, int64_t *number)
{
    int overflow = 0;
    if (!PyLong_CheckExact(value))
        return 0;
    *number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow && *number < RP_FARTHEST / 4 && *number > -RP_FARTHEST / 4;
}

static int
take_real(PyObject *value, int *has, double *number)
{
    if (!PyFloat_CheckExact(value))
        return 0;
    *has = 1;
    *number = PyFloat_AsDouble(value);
    return isfinite(*number);
}

/* An integer for all batch items. */
static int
take_item(PyObject *value, direct_call *d, int index, int64_t *number)
{
    d->call.items[index] = (array_view){.data = (char *)number,
                                        .kind = KIND_I64,
                                        .is_behaved = 1,
                                        .owner = Py_NewRef(value)};
    return take_int(value, number);
}

static int
take_window(direct_call *d, PyObject *value)
{
    int64_t *sides[] = {&d->rules.left, &d->rules.right};
    if (!PyTuple_CheckExact(value) || PyTuple_Size(value) != 2)
        return 0;
    for (int i = 0; i < 2; i++) {
        PyObject *side = PyTuple_GetItem(value, i);
        if (side != Py_None && (!take_int(side, sides[i]) || *sides[i] < 0))
            return 0;
    }
    return 1;
}

static int
take_beyond(direct_call *d, PyObject *value)
{
    static const char *const words[] = {
        [RP_CLIP] = "clip", [RP_ZERO] = "zero", [RAISE_BEYOND] = "raise"};
    for (int i = RP_CLIP; PyUnicode_CheckExact(value) && i <= RAISE_BEYOND; i++)
        if (PyUnicode_CompareWithASCIIString(value, words[i]) == 0) {
            d->rules.beyond = i;
            d->call.problem.forward.beyond = i == RP_ZERO ? RP_ZERO : RP_CLIP;
            return 1;
        }
    return 0;
}

enum {
    DROPOUT,
    CAUSAL,
    GQA,
    BEYOND,
    RETURN_LSE,
    RETURN_WEIGHTS,
    RETURN_CONTEXT,
    SCALE,
    OFFSET,
    LENGTHS,
    FIRST,
    WINDOW,
    SOFTCAP,
    THREADS,
    OTHERS
};

static dict_entry others[] = {
    [DROPOUT] = {"dropout_p", NULL},
    [CAUSAL] = {"is_causal", NULL},
    [GQA] = {"enable_gqa", NULL},
    [BEYOND] = {"beyond", NULL},
    [RETURN_LSE] = {"return_lse", NULL},
    [RETURN_WEIGHTS] = {"return_weights", NULL},
    [RETURN_CONTEXT] = {"return_context", NULL},
    [SCALE] = {"scale", NULL},
    [OFFSET] = {"query_offset", NULL},
    [LENGTHS] = {"key_lengths", NULL},
    [FIRST] = {"min_relative_position", NULL},
    [WINDOW] = {"window", NULL},
    [SOFTCAP] = {"softcap", NULL},
    [THREADS] = {"num_threads", NULL},
};

/* Arguments that are left to Python, unless they are None: callers hand them on as None, as
 * the attention function of transformers does with cu_seqlens. */
static dict_entry left_to_python[] = {
    {"block_size", NULL}, {"cu_seqlens", NULL}, {"key_blocks", NULL},
    {"key_ranges", NULL}, {"labels", NULL},     {"log_decay", NULL},
    {"rng", NULL},
};

enum { LEFT_TO_PYTHON = sizeof left_to_python / sizeof *left_to_python };

static int
take_other(direct_call *d, int index, PyObject *value)
{
    call_rules *rules = &d->rules;
    int64_t threads;
    switch (index) {
    case DROPOUT:
        return PyFloat_CheckExact(value) && PyFloat_AsDouble(value) == 0;
    case CAUSAL:
        return take_flag(value, &rules->is_causal);
    case GQA:
        return take_flag(value, &d->groups);
    case BEYOND:
        return take_beyond(d, value);
    case RETURN_LSE:
        return take_flag(value, &d->has_lse);
    case SCALE:
        return take_real(value, &rules->has_scale, &rules->scale);
    case OFFSET:
        return take_item(value, d, QUERY_OFFSET, &d->offset);
    case LENGTHS:
        return take_item(value, d, KEY_LENGTHS, &d->length);
    case FIRST:
        rules->has_first = 1;
        return take_int(value, &rules->first);
    case WINDOW:
        return take_window(d, value);
    case SOFTCAP:
        return take_real(value, &rules->has_softcap, &rules->softcap);
    case THREADS:
        if (!take_int(value, &threads) || threads < 1 || threads > RP_MAX_THREADS)
            return 0;
        d->call.problem.forward.threads = (int)threads;
        return 1;
    default: /* weights are made in Python, and contexts, which tensors do not have */
        return value == Py_False && !(d->of_tensors && index == RETURN_CONTEXT);
    }
}

/* ---- arrays and tensors ------------------------------------------------------------- */

/* The array of an argument, over the memory of a tensor; NULL leaves the call to Python.
 * Notes whether autograd has to record the call: one tensor that requires a gradient is
 * enough. */
PyObject *
plain_array(direct_call *d, PyObject *value)
{
    if (!d->of_tensors)
        return PyArray_CheckExact(value) ? Py_NewRef(value) : NULL;
    PyObject *array = view_tensor(value);
    if (array != NULL && d->records && !d->requires_grad) {
        PyObject *flag = PyObject_GetAttr(value, requires_grad);
        d->requires_grad = flag != Py_False;
        Py_XDECREF(flag);
    }
    return array;
}

/* Whether an operand is one that C reads from the arguments. */
static int
can_read(const operand_row *row, int direction)
{
    int role = row->roles[direction];
    return role != UNKNOWN && role < OUTPUT && row->of_kind <= OF_MASK &&
           row->of_kind != OF_F64 && row->of_kind != OF_I64 && row->shape[1] != 't';
}

int
take_operand(direct_call *d, int index, PyObject *value)
{
    PyObject **owner = &d->call.views[index].owner;
    if (*owner == NULL && can_read(&operand_rows[index], d->call.direction))
        return (*owner = plain_array(d, value)) != NULL;
    return 0;
}

/* Takes the array that the result is written to. */
static int
take_out(direct_call *d, PyObject *value)
{
    PyObject **owner = &d->call.views[OUT].owner;
    if (*owner == NULL && !d->of_tensors && PyArray_CheckExact(value))
        return (*owner = Py_NewRef(value)) != NULL;
    return 0;
}

/* Whether the result may be written over an argument. */
static int
may_overwrite(const attention_call *call)
{
    const array_view *views = call->views;
    if (call->direction == BACKWARD || views[OUT].owner == NULL)
        return 0;
    for (int i = 0; i < OPERANDS; i++)
        if (i != OUT && views[i].owner != NULL && may_overlap(&views[OUT], &views[i]))
            return 1;
    return 0;
}

int
may_be_none(const PyObject *name)
{
    for (int i = 0; i < LEFT_TO_PYTHON; i++)
        if (left_to_python[i].key == name)
            return 1;
    for (int i = 0; i < OPERANDS; i++)
        if (operand_rows[i].entry.key == name)
            return can_read(&operand_rows[i], FORWARD);
    for (int i = SCALE; i < OTHERS; i++)
        if (others[i].key == name)
            return 1;
    return name == buckets_entry.key;
}

int
take_argument(direct_call *d, PyObject *name, PyObject *value)
{
    for (int i = 0; i < OPERANDS; i++)
        if (operand_rows[i].entry.key == name)
            return i == OUT ? take_out(d, value) : take_operand(d, i, value);
    for (int i = 0; i < OTHERS; i++)
        if (others[i].key == name && !(d->given & 1u << i)) {
            d->given |= 1u << i;
            return take_other(d, i, value);
        }
    return name == buckets_entry.key && take_buckets(d, value);
}

/* Whether no row of a backward is one of nan, which may have to be left out. */
static int
are_sums_numbers(const attention_call *call)
{
    const array_view *sums = &call->views[ROW_SUM];
    PyArrayObject *array = (PyArrayObject *)sums->owner;
    if (call->direction == FORWARD)
        return 1;
    if (!PyArray_ISCARRAY_RO(array))
        return 0;
    for (npy_intp i = 0; i < PyArray_SIZE(array); i++)
        if (sums->kind == KIND_F32 ? isnan(((const float *)sums->data)[i])
                                   : isnan(((const double *)sums->data)[i]))
            return 0;
    return 1;
}

/* Checks an array. Its copy in float32 takes the place of one of 16 bits that no kernel
 * reads. */
static int
check_array(attention_call *call, int index)
{
    const operand_row *row = &operand_rows[index];
    array_view *view = &call->views[index];
    if (view->owner == NULL)
        return row->roles[call->direction] != REQUIRED;
    if (row->of_kind == OF_T && storage_of(view->kind) != RP_OWN &&
        row->roles[call->direction] == OPTIONAL) {
        if (widen_view(view) < 0)
            return 0;
        FIELD(call, rp_array, row->array).data = view->data;
    }
    return check_operand(call, row, view) == 0;
}

/* Kinds of all arrays, the query's first, and what the call makes. */
static int
check_arguments(direct_call *d)
{
    attention_call *call = &d->call;
    for (int i = 0; i < OPERANDS; i++)
        if (!check_array(call, i))
            return 0;
    if (call->direction == BACKWARD) /* no head would write the zeros of the keys */
        return call->views[OUT].kind == call->kind && call->dims['H'] > 0;
    call->makes[OUT] = 1;
    call->makes[LSE] |= (char)d->has_lse;
    call->makes[ROW_MAX] = call->makes[ROW_SUM] = (char)(d->requires_grad || d->keeps);
    call->makes[KEPT] = call->makes[ROW_MAX] && storage_of(call->out_kind) != RP_OWN;
    return 1;
}

/* ---- what they say together ---------------------------------------------------------- */

/* Whether Python has to gather a table. */
static int
gathers(const direct_call *d)
{
    for (int i = 0; i < TABLES; i++)
        if (is_gathered(&d->call, &d->rules, i))
            return 1;
    return 0;
}

int
fit_arguments(direct_call *d)
{
    attention_call *call = &d->call;
    shape_rules rules = {.groups = d->groups};
    /* no Python code runs from here on until the kernel has returned */
    if (take_views(call) < 0 || fit_shapes(call, rules).rule != FITS ||
        may_overwrite(call) || !apply_rules(call, &d->rules) || gathers(d) ||
        !check_arguments(d) || lay_out(call) < 0)
        return 0;
    store_facts(call, &d->rules);
    if (d->rules.buckets.owner != NULL) {
        call->index = used_buckets(&d->rules);
        call->index_count = d->rules.used.count;
    }
    return take_dimensions(call) == 0 && are_sums_numbers(call);
}

int
is_other_argument(const PyObject *name)
{
    for (int i = 0; i < OTHERS; i++)
        if (others[i].key == name)
            return 1;
    return 0;
}

PyObject *
name_at(Py_ssize_t position)
{
    static const dict_entry *const entries[] = {
        &operand_rows[QUERY].entry, &operand_rows[KEY].entry,
        &operand_rows[VALUE].entry, &operand_rows[ATTN_MASK].entry,
        &others[DROPOUT],           &others[CAUSAL],
    };
    return position < (Py_ssize_t)(sizeof entries / sizeof *entries)
               ? entries[position]->key
               : NULL;
}

int
make_argument_keys(void)
{
    int status = 0;
    requires_grad = PyUnicode_InternFromString("requires_grad");
    for (int i = 0; i < OTHERS; i++)
        status |= make_key(&others[i]);
    for (int i = 0; i < LEFT_TO_PYTHON; i++)
        status |= make_key(&left_to_python[i]);
    return requires_grad == NULL ? -1 : status;
}
