/* facts.c: the rules of a call for Python, which has made arrays and numbers of its arguments:
 * what follows from them, or the rule that is broken, which Python words. */
#include "rules.h"

/* ---- what the call says ---------------------------------------------------------------- */

/* Where the owner of an operand or of integers of batch items is kept, by the key of its entry;
 * NULL: the call of a forward takes none of this key. */
static PyObject **
owner_at(attention_call *call, const PyObject *key)
{
    for (int i = 0; i < OPERANDS; i++) {
        int role = operand_rows[i].roles[FORWARD];
        if (operand_rows[i].entry.key == key)
            return role == UNKNOWN || role >= OUTPUT ? NULL : &call->views[i].owner;
    }
    for (int i = 0; i < PART_ITEMS; i++)
        if (item_rows[i].entry.key == key)
            return &call->items[i].owner;
    return NULL;
}

static int
check_integers(const attention_call *call, const dict_entry *entry,
               const array_view *view)
{
    if (view->owner == NULL || (view->kind == KIND_I64 && view->is_behaved))
        return 0;
    return reject(call, PyExc_TypeError, entry->name,
                  "must be int64, aligned and in native byte order");
}

static int
check_kinds(const attention_call *call)
{
    for (int i = 0; i < OPERANDS; i++)
        if (call->views[i].owner != NULL &&
            !has_kind(&operand_rows[i], &call->views[i]))
            return reject(call, PyExc_TypeError, operand_rows[i].entry.name,
                          "has another dtype");
    for (int i = 0; i < PART_ITEMS; i++)
        if (check_integers(call, &item_rows[i].entry, &call->items[i]) < 0)
            return -1;
    return check_integers(call, &operand_rows[KEY_RANGES].entry,
                          &call->views[KEY_RANGES]);
}

/* Takes the arrays that read_operands gave, under its keys, and views of them. */
static int
take_inputs(attention_call *call, PyObject *inputs)
{
    PyObject *key, *value, **owner;
    for (Py_ssize_t at = 0; PyDict_Next(inputs, &at, &key, &value);) {
        if ((owner = owner_at(call, key)) == NULL) {
            PyErr_Format(PyExc_TypeError, "apply_rules: %R is no operand", key);
            return -1;
        }
        if (!PyArray_Check(value)) {
            PyErr_Format(PyExc_TypeError, "%U: must be an ndarray", key);
            return -1;
        }
        *owner = Py_NewRef(value);
    }
    if (take_views(call) < 0 || take_item_views(call) < 0)
        return -1;
    if (check_kinds(call) < 0)
        return -1;
    misfit found = fit_shapes(call, (shape_rules){.groups = 1, .is_part = 1});
    if (found.rule != FITS)
        return reject(call, PyExc_ValueError, found.operand->name,
                      "does not fit the other shapes");
    return 0;
}

/* A vector of integers, which may be none. */
static int
take_rows(const attention_call *call, call_rules *rules, PyObject *value)
{
    if (value == Py_None)
        return 0;
    if (!take_view(value, &rules->buckets) || rules->buckets.ndim != 1 ||
        rules->buckets.shape[0] == 0 || !PyArray_ISCARRAY_RO((PyArrayObject *)value))
        return reject(call, PyExc_TypeError, buckets_entry.name,
                      "must be a vector of int64");
    return check_integers(call, &buckets_entry, &rules->buckets);
}

/* A float, or None. */
static int
take_number(const attention_call *call, const char *name, PyObject *value, int *has,
            double *number)
{
    *has = value != Py_None;
    if (*has && !PyFloat_Check(value))
        return reject(call, PyExc_TypeError, name, "must be a float");
    if (*has)
        *number = PyFloat_AsDouble(value);
    return PyErr_Occurred() ? -1 : 0;
}

static int
take_first(const attention_call *call, call_rules *rules, PyObject *value)
{
    int overflow = 0;
    rules->has_first = value != Py_None;
    if (rules->has_first && !PyLong_Check(value))
        return reject(call, PyExc_TypeError, "first", "must be an int");
    if (rules->has_first)
        rules->first = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow || rules->first < -RP_FARTHEST || rules->first > RP_FARTHEST)
        return reject(call, PyExc_ValueError, "first", "is out of range");
    return 0;
}

/* None, or of FIRE's bias the heads, the units, and whether its parameters are float64. */
static int
take_fire(call_rules *rules, PyObject *value)
{
    long long heads, units;
    if (value == Py_None)
        return 0;
    if (!PyTuple_Check(value) ||
        !PyArg_ParseTuple(value, "LLp", &heads, &units, &rules->is_wide)) {
        PyErr_SetString(PyExc_TypeError, "apply_rules: fire must be three numbers");
        return -1;
    }
    rules->has_fire = 1;
    rules->fire_heads = heads;
    rules->fire_units = units;
    return 0;
}

/* None, or the queries and the keys of a block. */
static int
take_block_size(const attention_call *call, call_rules *rules, PyObject *value)
{
    long long queries, keys;
    if (value == Py_None)
        return 0;
    if (!PyTuple_Check(value) || !PyArg_ParseTuple(value, "LL", &queries, &keys)) {
        PyErr_SetString(PyExc_TypeError, "apply_rules: block_size must be two numbers");
        return -1;
    }
    if (queries < 1 || queries > RP_LONGEST || keys < 1 || keys > RP_LONGEST)
        return reject(call, PyExc_ValueError, "block_size", "is out of range");
    rules->has_blocks = 1;
    rules->block_queries = queries;
    rules->block_keys = keys;
    return 0;
}

/* Numbers first: their methods may run Python code. */
static int
take_call(attention_call *call, call_rules *rules, PyObject *inputs, PyObject *numbers)
{
    PyObject *first, *buckets, *scale, *softcap, *fire, *block_size;
    long long left, right;
    if (!PyArg_ParseTuple(numbers, "ipLLOOOOOpO:apply_rules", &rules->beyond,
                          &rules->is_causal, &left, &right, &first, &buckets, &scale,
                          &softcap, &fire, &rules->is_graph, &block_size))
        return -1;
    rules->left = left;
    rules->right = right;
    if (left < 0 || right < 0)
        return reject(call, PyExc_ValueError, "window", "is out of range");
    if (take_first(call, rules, first) < 0 || take_fire(rules, fire) < 0 ||
        take_block_size(call, rules, block_size) < 0 ||
        take_number(call, "scale", scale, &rules->has_scale, &rules->scale) < 0 ||
        take_number(call, "softcap", softcap, &rules->has_softcap, &rules->softcap) < 0)
        return -1;
    /* from here on no Python code runs */
    return take_inputs(call, inputs) < 0 ? -1 : take_rows(call, rules, buckets);
}

/* ---- what follows ------------------------------------------------------------------------ */

/* Whether the kernels can read an array where it lies. */
static int
is_taken(const operand_row *row, const array_view *view, int kind)
{
    int is_short = kind == KIND_F32 && storage_of(view->kind) != RP_OWN;
    if (!view->is_behaved)
        return 0;
    switch (row->of_kind) {
    case OF_T:
        return view->kind == kind;
    case OF_16:
        return view->kind == kind || is_short;
    case OF_MASK:
        return view->kind >= KIND_F32 || is_short;
    default:
        return 1;
    }
}

/* Names of the operands that have to be copied. */
static PyObject *
list_copied(const attention_call *call, int kind)
{
    PyObject *names = PyList_New(0);
    for (int i = 0; names != NULL && i < OPERANDS; i++)
        if (call->views[i].owner != NULL &&
            !is_taken(&operand_rows[i], &call->views[i], kind) &&
            PyList_Append(names, operand_rows[i].entry.key) < 0)
            Py_CLEAR(names);
    return names;
}

/* {name: rows, ..} of the tables that have to be gathered. */
static PyObject *
list_gathered(const attention_call *call, const call_rules *rules)
{
    PyObject *gathered = PyDict_New();
    for (int i = 0; gathered != NULL && i < TABLES; i++) {
        if (!is_gathered(call, rules, i))
            continue;
        PyObject *rows = list_rows(rules, i);
        if (rows == NULL ||
            PyDict_SetItem(gathered, operand_rows[tables[i]].entry.key, rows) < 0)
            Py_CLEAR(gathered);
        Py_XDECREF(rows);
    }
    return gathered;
}

/* The rows that buckets list for those positions, as a new array of int64, or None. */
static PyObject *
list_buckets(const call_rules *rules)
{
    npy_intp count = (npy_intp)rules->used.count;
    if (rules->buckets.owner == NULL)
        return Py_NewRef(Py_None);
    PyObject *array = PyArray_SimpleNew(1, &count, NPY_INT64);
    if (array != NULL)
        memcpy(PyArray_DATA((PyArrayObject *)array), used_buckets(rules),
               (size_t)count * sizeof(int64_t));
    return array;
}

/* The dtype of the computation. */
static PyArray_Descr *
computed_dtype(const call_rules *rules)
{
    return descr_of(rules->kind == KIND_F64 ? NPY_DOUBLE : NPY_FLOAT);
}

/* The dtype of the result: one of 16 bits is the query's, in native byte order. */
static PyArray_Descr *
result_dtype(const attention_call *call)
{
    if (storage_of(call->out_kind) == RP_OWN)
        return descr_of(call->out_kind == KIND_F64 ? NPY_DOUBLE : NPY_FLOAT);
    PyArrayObject *query = (PyArrayObject *)call->views[QUERY].owner;
    return PyArray_DescrNewByteorder(PyArray_DESCR(query), NPY_NATIVE);
}

static PyObject *
tell_broken(const call_rules *rules)
{
    const broken_rule *broken = &rules->broken;
    const int64_t *numbers = broken->numbers;
    return Py_BuildValue("ssz(LLLL)N", name_of_rule(broken->rule), broken->operand,
                         broken->other, (long long)numbers[0], (long long)numbers[1],
                         (long long)numbers[2], (long long)numbers[3],
                         computed_dtype(rules));
}

static PyObject *
tell_facts(attention_call *call, const call_rules *rules)
{
    store_facts(call, rules);
    return Py_BuildValue("NNNNNN", computed_dtype(rules), result_dtype(call),
                         list_copied(call, rules->kind), list_gathered(call, rules),
                         list_buckets(rules), list_numbers(call));
}

/* args: the arrays by name, and the numbers and flags that `Numbers` of
 * relpos/_attention/rules.py lists. Returns the items of its `Facts` or, of which the first is
 * a str, the rule that is broken, its names and numbers, and the dtype of the computation. */
PyObject *
py_apply_rules(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    attention_call call = {.direction = FORWARD};
    call_rules rules = {0};
    PyObject *told = NULL;
    if (count != 2 || !PyDict_Check(args[0]) || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "apply_rules: expected a dict and a tuple");
        return NULL;
    }
    if (take_call(&call, &rules, args[0], args[1]) == 0) {
        int holds = apply_rules(&call, &rules);
        told = holds ? tell_facts(&call, &rules) : tell_broken(&rules);
    }
    release_call(&call);
    return told;
}
