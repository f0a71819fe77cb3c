/* direct.c: calls of attention that C reads from their caller's arguments, and whose results
 * it makes. A short sequence takes less time to compute than to prepare in Python.
 *
 * Read are plain arrays, or plain tensors, flags, and numbers. All else, and whatever does not
 * fit, is left to relpos/_attention/problem.py, which has the words of errors: nothing is
 * raised here before the kernel runs. */
#include "rules.h"

/* Whether a mask of numbers is one that Python warns of. */
static int
looks_hidden(const direct_call *d, const rp_isa *isa)
{
    const array_view *mask = &d->call.views[ATTN_MASK];
    return d->call.direction == FORWARD && mask->owner != NULL &&
           mask->kind != KIND_BOOL && has_zeros_and_ones(isa, mask);
}

int
next_argument(PyObject *const *args, Py_ssize_t *at, PyObject **name, PyObject **value)
{
    Py_ssize_t positional = PyTuple_Size(args[0]), rest;
    while (*at < positional) {
        *name = name_at(*at);
        *value = PyTuple_GetItem(args[0], (*at)++);
        if (*value != Py_None || !may_be_none(*name))
            return 1;
    }
    for (rest = *at - positional; PyDict_Next(args[1], &rest, name, value);) {
        *at = positional + rest;
        if (*value != Py_None || !may_be_none(*name))
            return 1;
    }
    return 0;
}

direct_call
new_call(int direction)
{
    return (direct_call){.call.direction = direction,
                         .rules.left = RP_UNBOUNDED,
                         .rules.right = RP_UNBOUNDED};
}

int
take_threads(direct_call *d, PyObject *number)
{
    long threads = PyLong_AsLong(number);
    d->call.problem.forward.threads = threads ? (int)threads : rp_get_num_threads();
    return threads >= 0 && threads <= RP_MAX_THREADS && !PyErr_Occurred();
}

/* Whether an argument is given by position and by name, one of them perhaps as None: Python
 * refuses that. */
static int
repeats_argument(PyObject *const *args)
{
    PyObject *name, *value;
    Py_ssize_t count = PyTuple_Size(args[0]);
    for (Py_ssize_t at = 0; PyDict_Next(args[1], &at, &name, &value);)
        for (Py_ssize_t i = 0; i < count; i++)
            if (name_at(i) == name)
                return 1;
    return 0;
}

int
take_arguments(direct_call *d, PyObject *const *args)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    int is_taken = !repeats_argument(args);
    while (is_taken && next_argument(args, &at, &name, &value)) {
        Py_INCREF(value); /* Python code that it runs may drop it from the dict */
        is_taken = name != NULL && take_argument(d, name, value);
        Py_DECREF(value);
    }
    return is_taken;
}

int
run_direct(direct_call *d, const rp_isa *isa, int is_taken)
{
    if (is_taken && !looks_hidden(d, isa))
        return run_call(isa, &d->call, NULL) < 0 ? -1 : 1;
    PyErr_Clear();
    return 0;
}

void
release_direct(direct_call *d)
{
    Py_XDECREF(d->rules.buckets.owner);
    release_call(&d->call);
}

PyObject *
refuse_call(const char *function, const char *expected)
{
    if (!PyErr_Occurred())
        PyErr_Format(PyExc_TypeError, "%s: expected %s", function, expected);
    return NULL;
}

/* args: the arguments by position, those by name, the number of threads of calls without one
 * (0: relpos's own), whether arrays are tensors, whether what a backward needs is made, and
 * whether results lie in memory as operands. Returns a list of the results. */
PyObject *
py_attend(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    const rp_isa *isa = PyCapsule_GetPointer(self, ISA_CAPSULE);
    direct_call d = new_call(FORWARD);
    if (isa == NULL || count != 6 || !PyTuple_Check(args[0]) ||
        !PyDict_Check(args[1]) || !take_threads(&d, args[2]))
        return refuse_call("attend", "a tuple, a dict, a number and three flags");
    d.of_tensors = args[3] == Py_True;
    d.keeps = args[4] == Py_True;
    d.call.follows = args[5] == Py_True;
    d.call.gives_tensors = d.of_tensors && can_give_tensors();
    PyObject *made = NULL;
    int ran = run_direct(&d, isa, take_arguments(&d, args) && fit_arguments(&d));
    if (ran == 0)
        made = Py_NewRef(Py_None);
    else if (ran > 0)
        made = list_results(&d.call);
    release_direct(&d);
    return made;
}

/* Row of the gradient of the operand of a name; 0: there is none. */
static int
gradient_row(const PyObject *name)
{
    int operand = 0, row = 0;
    while (operand < OPERANDS && operand_rows[operand].entry.key != name)
        operand++;
    while (operand < OPERANDS && row < OPERANDS &&
           operand_rows[row].of != operand_rows[operand].array)
        row++;
    return row < OPERANDS ? row : 0;
}

/* The tensors of a forward, and the rows of the gradients that are wanted; -1 of others. */
static int
take_operands_of(direct_call *d, const backward_request *asked, int *rows)
{
    for (Py_ssize_t n = 0; n < PyTuple_Size(asked->names); n++) {
        PyObject *name = PyTuple_GetItem(asked->names, n);
        PyObject *tensor = PyTuple_GetItem(asked->saved, KEPT_TENSORS + n);
        if (!take_argument(d, name, tensor))
            return 0;
        rows[n] = -1;
        if (PyTuple_GetItem(asked->wanted, asked->first_wanted + n) != Py_True)
            continue;
        if ((rows[n] = gradient_row(name)) == 0)
            return 0;
        d->call.makes[rows[n]] = 1;
    }
    return 1;
}

/* Whether tuples and dict are there, and as long as the names say. */
static int
is_request(const backward_request *asked)
{
    PyObject *const tuples[] = {asked->names, asked->saved, asked->wanted};
    for (int i = 0; i < 3; i++)
        if (tuples[i] == NULL || !PyTuple_Check(tuples[i]))
            return 0;
    Py_ssize_t names = PyTuple_Size(asked->names);
    return names <= OPERANDS && PyTuple_Size(asked->saved) == names + KEPT_TENSORS &&
           PyTuple_Size(asked->wanted) == names + asked->first_wanted &&
           asked->values != NULL && PyDict_Check(asked->values);
}

int
take_backward(direct_call *d, const backward_request *asked, int *rows)
{
    static const int kept[] = {OUT, ROW_MAX, ROW_SUM}, given[] = {GRAD_OUT, GRAD_LSE};
    PyObject *name, *value;
    Py_ssize_t at = 0;
    int is_given = 0;
    if (!is_request(asked))
        return -1;
    for (int i = 0; i < KEPT_TENSORS; i++)
        if (!take_operand(d, kept[i], PyTuple_GetItem(asked->saved, i)))
            return 0;
    for (int i = 0; i < 2; i++) {
        value = asked->grads[i];
        if (value != Py_None && !take_operand(d, given[i], value))
            return 0;
        is_given |= value != Py_None;
    }
    while (PyDict_Next(asked->values, &at, &name, &value))
        if (!take_argument(d, name, value))
            return 0;
    return is_given && take_operands_of(d, asked, rows);
}

static PyObject *
list_gradients(direct_call *d, const int *rows, Py_ssize_t count)
{
    PyObject *found = PyList_New(0);
    for (Py_ssize_t n = 0; found != NULL && n < count; n++) {
        PyObject *of =
            rows[n] < 0 ? Py_NewRef(Py_None) : made_result(&d->call, rows[n]);
        if (of == NULL || PyList_Append(found, of) < 0)
            Py_CLEAR(found);
        Py_XDECREF(of);
    }
    return found;
}

/* args: names of the tensors; out, row_max, row_sum and the tensors; which of the latter need
 * a gradient; gradients of out and lse; the other arguments; the number of threads; whether
 * gradients lie in memory as operands. Returns a list of gradients, None where none is needed.
 * */
PyObject *
py_attend_backward(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    static const char *const expected = "four tuples, a dict, a number and a flag";
    const rp_isa *isa = PyCapsule_GetPointer(self, ISA_CAPSULE);
    direct_call d = new_call(BACKWARD);
    int rows[OPERANDS], is_taken;
    if (isa == NULL || count != 7 || !PyTuple_Check(args[3]) ||
        PyTuple_Size(args[3]) != 2 || !take_threads(&d, args[5]))
        return refuse_call("attend_backward", expected);
    backward_request asked = {
        .names = args[0],
        .saved = args[1],
        .wanted = args[2],
        .values = args[4],
        .grads = {PyTuple_GetItem(args[3], 0), PyTuple_GetItem(args[3], 1)}};
    d.of_tensors = 1;
    d.call.follows = args[6] == Py_True;
    d.call.gives_tensors = can_give_tensors();
    if ((is_taken = take_backward(&d, &asked, rows)) < 0) {
        release_direct(&d);
        return refuse_call("attend_backward", expected);
    }
    PyObject *made = NULL;
    int ran = run_direct(&d, isa, is_taken && fit_arguments(&d));
    if (ran == 0)
        made = Py_NewRef(Py_None);
    else if (ran > 0)
        made = list_gradients(&d, rows, PyTuple_Size(asked.names));
    release_direct(&d);
    return made;
}
