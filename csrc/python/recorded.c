/* recorded.c: calls of tensors from their arguments to the node of autograd, and back: what
 * Python would do for each call takes longer than a short sequence does.
 *
 * relpos/torch/_recorded.py has the node, a Function of torch. Its context keeps what the
 * backward of a call needs: the tensors, and `call`, which has their names and the other
 * arguments. */
#include "rules.h"

/* Attributes of the context. From the first two torch takes what methods of it would set. */
static dict_entry to_save = {"to_save", NULL},
                  materialize = {"materialize_grads", NULL}, called = {"call", NULL},
                  saved_tensors = {"saved_tensors", NULL},
                  needs_input_grad = {"needs_input_grad", NULL};
/* Names of tensors, and of their method that converts. */
static dict_entry dtype = {"dtype", NULL}, to = {"to", NULL};

/* The node takes these arguments before the tensors: the call, and its results. */
enum { OTHER_ARGUMENTS = 2, MOST_TENSORS = OPERANDS + 1 };

int
make_recorded_keys(void)
{
    dict_entry *const entries[] = {
        &to_save,          &materialize, &called, &saved_tensors,
        &needs_input_grad, &dtype,       &to};
    int status = 0;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        status |= make_key(entries[i]);
    return status;
}

/* ---- forward ------------------------------------------------------------------------------ */

/* A tuple of new references to objects. */
static PyObject *
pack_objects(PyObject *const *objects, Py_ssize_t count)
{
    PyObject *packed = PyTuple_New(count);
    for (Py_ssize_t i = 0; packed != NULL && i < count; i++)
        if (PyTuple_SetItem(packed, i, Py_NewRef(objects[i])) < 0)
            Py_CLEAR(packed);
    return packed;
}

/* Tells the tensors of a call, borrowed, and a tuple of their names and a dict of the other
 * arguments. */
static PyObject *
tell_call(PyObject *const *args, PyObject **tensors, Py_ssize_t *count)
{
    PyObject *names[MOST_TENSORS], *values = PyDict_New(), *name, *value;
    Py_ssize_t at = 0;
    int status = values == NULL ? -1 : 0;
    *count = 0;
    while (status == 0 && next_argument(args, &at, &name, &value)) {
        if (is_other_argument(name)) {
            status = PyDict_SetItem(values, name, value);
        } else {
            names[*count] = name;
            tensors[(*count)++] = value;
        }
    }
    PyObject *of_tensors = status ? NULL : pack_objects(names, *count);
    PyObject *told = of_tensors ? PyTuple_Pack(2, of_tensors, values) : NULL;
    Py_XDECREF(of_tensors);
    Py_XDECREF(values);
    return told;
}

/* What the caller gets: out, or out and lse. Steals both references; NULL is one that is not
 * there, or an error. */
static PyObject *
pack_output(PyObject *out, PyObject *lse, int has_lse)
{
    PyObject *both = NULL;
    if (!has_lse)
        return out;
    if (out != NULL && lse != NULL)
        both = PyTuple_Pack(2, out, lse);
    Py_XDECREF(out);
    Py_XDECREF(lse);
    return both;
}

static PyObject *
make_output(direct_call *d)
{
    PyObject *out = made_result(&d->call, OUT);
    PyObject *lse = d->has_lse && out != NULL ? made_result(&d->call, LSE) : NULL;
    return pack_output(out, lse, d->has_lse);
}

/* Tells what is kept for a backward: out, before it was rounded where it is, row_max, row_sum
 * and the tensors. */
static PyObject *
tell_kept(direct_call *d, PyObject *output, PyObject *const *tensors, Py_ssize_t count)
{
    PyObject *kept[KEPT_TENSORS + MOST_TENSORS] = {NULL}, *packed = NULL;
    PyObject *out = d->has_lse ? PyTuple_GetItem(output, 0) : output;
    kept[0] = d->call.makes[KEPT] ? made_result(&d->call, KEPT) : Py_NewRef(out);
    kept[1] = kept[0] == NULL ? NULL : made_result(&d->call, ROW_MAX);
    kept[2] = kept[1] == NULL ? NULL : made_result(&d->call, ROW_SUM);
    memcpy(kept + KEPT_TENSORS, tensors, (size_t)count * sizeof *kept);
    if (kept[2] != NULL)
        packed = pack_objects(kept, KEPT_TENSORS + count);
    for (int i = 0; i < KEPT_TENSORS; i++)
        Py_XDECREF(kept[i]);
    return packed;
}

/* Lets autograd record a call that has run; returns what the caller gets. */
static PyObject *
record_call(direct_call *d, PyObject *const *args, PyObject *record)
{
    PyObject *given[OTHER_ARGUMENTS + MOST_TENSORS],
        **tensors = given + OTHER_ARGUMENTS;
    PyObject *kept = NULL, *results = NULL, *recorded = NULL;
    Py_ssize_t count;
    PyObject *call = tell_call(args, tensors, &count);
    PyObject *output = call == NULL ? NULL : make_output(d);
    if (output != NULL)
        kept = tell_kept(d, output, tensors, count);
    if (kept != NULL)
        results = PyTuple_Pack(2, kept, output);
    if (results != NULL) {
        given[0] = call;
        given[1] = results;
        recorded =
            PyObject_Vectorcall(record, given, (size_t)(OTHER_ARGUMENTS + count), NULL);
    }
    Py_XDECREF(call);
    Py_XDECREF(output);
    Py_XDECREF(kept);
    Py_XDECREF(results);
    return recorded;
}

/* args: the arguments by position, those by name, the number of threads of calls without one,
 * and what records a call of tensors that require gradients; None where autograd is off.
 * Returns out, or out and lse. */
PyObject *
py_attend_tensors(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    const rp_isa *isa = PyCapsule_GetPointer(self, ISA_CAPSULE);
    direct_call d = new_call(FORWARD);
    if (isa == NULL || count != 4 || !PyTuple_Check(args[0]) ||
        !PyDict_Check(args[1]) || !take_threads(&d, args[2]))
        return refuse_call("attend_tensors",
                           "a tuple, a dict, a number and a function");
    d.of_tensors = d.call.follows = 1;
    d.call.gives_tensors = can_give_tensors();
    d.records = args[3] != Py_None;
    PyObject *made = NULL;
    int is_taken = d.call.gives_tensors && take_arguments(&d, args);
    int ran = run_direct(&d, isa, is_taken && fit_arguments(&d));
    if (ran == 0)
        made = Py_NewRef(Py_None);
    else if (ran > 0)
        made = d.requires_grad ? record_call(&d, args, args[3]) : make_output(&d);
    release_direct(&d);
    return made;
}

/* The forward of the node. args: its context, the call, and its results, which are what is
 * kept and what the caller gets; then the tensors. */
PyObject *
py_keep_call(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count < OTHER_ARGUMENTS + 1 || !PyTuple_Check(args[2]) ||
        PyTuple_Size(args[2]) != 2)
        return refuse_call("keep_call", "a context, a call and its results");
    if (PyObject_SetAttr(args[0], called.key, args[1]) < 0 ||
        PyObject_SetAttr(args[0], to_save.key, PyTuple_GetItem(args[2], 0)) < 0 ||
        PyObject_SetAttr(args[0], materialize.key, Py_False) < 0)
        return NULL;
    return Py_NewRef(PyTuple_GetItem(args[2], 1));
}

/* ---- backward ----------------------------------------------------------------------------- */

/* A gradient, whose reference it steals, in the dtype of its tensor. */
static PyObject *
convert_gradient(PyObject *gradient, PyObject *tensor)
{
    PyObject *made = PyObject_GetAttr(gradient, dtype.key);
    PyObject *wanted = made == NULL ? NULL : PyObject_GetAttr(tensor, dtype.key);
    PyObject *converted = NULL;
    if (wanted != NULL && made == wanted) /* `to` takes a microsecond in any case */
        converted = Py_NewRef(gradient);
    else if (wanted != NULL)
        converted = PyObject_CallMethodObjArgs(gradient, to.key, wanted, NULL);
    Py_XDECREF(made);
    Py_XDECREF(wanted);
    Py_DECREF(gradient);
    return converted;
}

/* Gradients of all arguments of the node, None where one is not needed. */
static PyObject *
pack_gradients(direct_call *d, const backward_request *asked, const int *rows)
{
    Py_ssize_t count = PyTuple_Size(asked->names);
    PyObject *packed = PyTuple_New(OTHER_ARGUMENTS + count);
    for (Py_ssize_t n = -OTHER_ARGUMENTS; packed != NULL && n < count; n++) {
        PyObject *gradient =
            n < 0 || rows[n] < 0 ? Py_NewRef(Py_None) : made_result(&d->call, rows[n]);
        if (gradient != NULL && gradient != Py_None)
            gradient = convert_gradient(
                gradient, PyTuple_GetItem(asked->saved, KEPT_TENSORS + n));
        if (gradient == NULL ||
            PyTuple_SetItem(packed, OTHER_ARGUMENTS + n, gradient) < 0)
            Py_CLEAR(packed);
    }
    return packed;
}

/* Runs the backward of a call; None where Python does. */
static PyObject *
run_backward(const rp_isa *isa, direct_call *d, const backward_request *asked)
{
    int rows[OPERANDS], is_taken = take_backward(d, asked, rows);
    if (is_taken < 0)
        return refuse_call("attend_gradients", "the context of a call");
    int ran = run_direct(d, isa, is_taken && fit_arguments(d));
    if (ran == 0)
        return Py_NewRef(Py_None);
    return ran < 0 ? NULL : pack_gradients(d, asked, rows);
}

/* args: the context of a call, the gradients of out and lse, each of which may be None, and
 * the number of threads of calls without one. Returns a gradient for each argument of the
 * node. */
PyObject *
py_attend_gradients(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    const rp_isa *isa = PyCapsule_GetPointer(self, ISA_CAPSULE);
    direct_call d = new_call(BACKWARD);
    if (isa == NULL || count != 4 || !take_threads(&d, args[3]))
        return refuse_call("attend_gradients", "a context, two gradients and a number");
    d.of_tensors = d.call.follows = 1;
    d.call.gives_tensors = can_give_tensors();
    PyObject *made = NULL, *wanted = NULL, *saved = NULL;
    PyObject *call = PyObject_GetAttr(args[0], called.key);
    if (call != NULL && !(PyTuple_Check(call) && PyTuple_Size(call) == 2))
        refuse_call("attend_gradients", "the context of a call");
    else if (call != NULL)
        wanted = PyObject_GetAttr(args[0], needs_input_grad.key);
    if (wanted != NULL)
        saved = PyObject_GetAttr(args[0], saved_tensors.key);
    if (saved != NULL) {
        backward_request asked = {.names = PyTuple_GetItem(call, 0),
                                  .values = PyTuple_GetItem(call, 1),
                                  .saved = saved,
                                  .wanted = wanted,
                                  .first_wanted = OTHER_ARGUMENTS,
                                  .grads = {args[1], args[2]}};
        made = run_backward(isa, &d, &asked);
    }
    release_direct(&d);
    Py_XDECREF(call);
    Py_XDECREF(wanted);
    Py_XDECREF(saved);
    return made;
}
