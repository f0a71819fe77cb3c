/* shapes.c: shapes as arguments have them become the letters and the batch axes of a call.
 *
 * The axes of an operand are those of its row's letters but for 1, which stands for an axis
 * that no argument has, after batch axes that broadcast as in NumPy. A letter takes the
 * first length it meets and must meet the same one from then on, so the order of the rows
 * matters: query, key and value first. */
#include "module.h"

static const misfit fits;
enum { MOST_MADE = 1 << 20 }; /* numbers: larger gradients have memory of huge pages */

int
own_axes(const operand_row *row)
{
    return (row->shape[0] != '1') + (row->shape[1] != '1') + (row->shape[2] != '1');
}

/* Axis of an array of so many axes that is the letter's; negative: it lacks that. */
static int
axis_of(const operand_row *row, int ndim, int letter)
{
    int axis = ndim;
    for (int i = 2; i >= letter; i--)
        axis -= row->shape[i] != '1';
    return row->shape[letter] == '1' ? -1 : axis;
}

/* Whether the batch axes of an operand are some of those that make the call's. */
static int
is_argument(const attention_call *call, int index)
{
    const operand_row *row = &operand_rows[index];
    return row->fit != WHOLE && row->roles[call->direction] < OUTPUT;
}

/* Whether an array may lack the axis of a letter, or have it once. */
static int
may_repeat(const operand_row *row, int letter)
{
    if (row->shape[letter] == '2') /* begin and end of a range */
        return 0;
    return row->fit == PAIRS || (row->fit == SHARED && row->shape[letter] == 'H');
}

/* Whether a letter takes the length, or has it already. */
static int
meet(attention_call *call, int letter, int64_t length, shape_rules rules)
{
    int64_t *known = &call->dims[letter];
    if (letter == 't' && *known < 0) {
        int64_t keys = call->dims['k'];
        if (length < keys || (length > keys && !rules.is_part))
            return 0;
    }
    if (*known < 0)
        *known = length;
    return *known == length;
}

static int
is_table(int index)
{
    int found = 0;
    for (int i = 0; i < TABLES; i++)
        found |= tables[i] == index;
    return found;
}

/* Matches the axes behind those of the batch with the letters of the row. */
static misfit
fit_letters(attention_call *call, int index, shape_rules rules)
{
    const operand_row *row = &operand_rows[index];
    const array_view *view = &call->views[index];
    int needed = row->fit == PAIRS && row->shape[0] == '1' ? 2 : 0;
    for (int letter = 0; letter < 3; letter++)
        needed +=
            row->shape[letter] != '1' && !may_repeat(row, letter) && row->fit != PAIRS;
    if (view->ndim < needed || (row->fit == ALONE && view->ndim > needed))
        return (misfit){&row->entry, LACKS_AXES, 0};
    for (int letter = 2; letter >= 0; letter--) {
        int axis = axis_of(row, view->ndim, letter), name = row->shape[letter];
        if (axis < 0 || (view->shape[axis] == 1 && may_repeat(row, letter)))
            continue;
        if (!meet(call, name, view->shape[axis], rules))
            return (misfit){&row->entry, OTHER_LENGTH, letter};
        if (view->shape[axis] == 0 && letter == 1 && is_table(index))
            return (misfit){&row->entry, HAS_NO_ROWS, letter};
    }
    return fits;
}

/* Broadcasts the batch axes of an argument with those of the arguments before it. */
static misfit
join_batch(attention_call *call, const dict_entry *entry, const array_view *view,
           int axes)
{
    int own = view->ndim > axes ? view->ndim - axes : 0, added = own - call->batch_ndim;
    npy_intp *batch = call->batch_shape;
    if (own > MOST_BATCH_AXES)
        return (misfit){entry, TOO_MANY_AXES, 0};
    for (int axis = 1; axis <= own && axis <= call->batch_ndim; axis++) {
        npy_intp length = view->shape[own - axis],
                 other = batch[call->batch_ndim - axis];
        if (length != other && length != 1 && other != 1)
            return (misfit){entry, OTHER_BATCH, 0};
    }
    if (added > 0) {
        memmove(batch + added, batch, (size_t)call->batch_ndim * sizeof *batch);
        for (int axis = 0; axis < added; axis++)
            batch[axis] = 1;
        call->batch_ndim = own;
    }
    for (int axis = 1; axis <= own; axis++)
        if (view->shape[own - axis] != 1)
            batch[call->batch_ndim - axis] = view->shape[own - axis];
    return fits;
}

/* A result, or a gradient: its batch axes are those of the call, or all repeated. Units of work
 * add up what is of one batch item, or of all: two of them would write to a gradient that some
 * items share. */
static misfit
fit_batch(const attention_call *call, int index)
{
    int moves = 0, repeats = 0;
    const operand_row *row = &operand_rows[index];
    const array_view *view = &call->views[index];
    int own = view->ndim - own_axes(row);
    if (row->fit == WHOLE ? own != call->batch_ndim : own > call->batch_ndim)
        return (misfit){&row->entry, LACKS_AXES, 0};
    for (int axis = 0; axis < own; axis++) {
        npy_intp length = view->shape[axis],
                 whole = call->batch_shape[call->batch_ndim - own + axis];
        if (length != whole && (row->fit == WHOLE || length != 1))
            return (misfit){&row->entry, OTHER_BATCH, 0};
        moves |= length > 1;
        repeats |= length != whole;
    }
    for (int axis = 0; axis < call->batch_ndim - own; axis++)
        repeats |= call->batch_shape[axis] > 1;
    return moves && repeats ? (misfit){&row->entry, SOME_ITEMS, 0} : fits;
}

/* The letters of query, key and value, and of the columns of rel_key. */
static misfit
fit_tokens(attention_call *call, shape_rules rules)
{
    static const int tokens[] = {QUERY, KEY, VALUE, POSITION_QUERY};
    const array_view *own = &call->views[POSITION_QUERY];
    int64_t *dims = call->dims;
    int count = own->owner == NULL ? 3 : 4;
    for (int i = 0; i < count; i++)
        if (call->views[tokens[i]].ndim < 3)
            return (misfit){&operand_rows[tokens[i]].entry, LACKS_AXES, 0};
    for (int i = 0; i < 3; i++) {
        misfit found = fit_letters(call, tokens[i], rules);
        if (found.rule != FITS)
            return found;
    }
    dims['P'] = own->owner == NULL ? dims['D'] : own->shape[own->ndim - 1];
    if (dims['K'] != dims['H'] &&
        (!rules.groups || dims['K'] == 0 || dims['H'] % dims['K'] != 0))
        return (misfit){&operand_rows[KEY].entry, NO_GROUPS, 0};
    return fits;
}

misfit
fit_shapes(attention_call *call, shape_rules rules)
{
    memset(call->dims, -1, sizeof call->dims);
    for (int digit = '1'; digit <= '3'; digit++)
        call->dims[digit] = digit - '0';
    misfit found = fit_tokens(call, rules);
    for (int i = VALUE + 1; i < OPERANDS && found.rule == FITS; i++)
        if (call->views[i].owner != NULL)
            found = fit_letters(call, i, rules);
    for (int i = 0; i < OPERANDS && found.rule == FITS; i++)
        if (call->views[i].owner != NULL && is_argument(call, i))
            found = join_batch(call, &operand_rows[i].entry, &call->views[i],
                               own_axes(&operand_rows[i]));
    for (int i = 0; i < PART_ITEMS && found.rule == FITS; i++)
        if (call->items[i].owner != NULL)
            found = join_batch(call, &item_rows[i].entry, &call->items[i], 0);
    for (int i = 0; i < OPERANDS && found.rule == FITS; i++)
        if (call->views[i].owner != NULL && !is_argument(call, i))
            found = fit_batch(call, i);
    return found;
}

/* The operand that a gradient is of, NULL of a result. */
static const array_view *
operand_of(const attention_call *call, const operand_row *row)
{
    for (int i = 0; i < OPERANDS; i++)
        if (row->of != 0 && operand_rows[i].array == row->of)
            return &call->views[i];
    return NULL;
}

/* Writes the shape of what a call makes: all axes, or those of a shared operand; -1 for a
 * gradient that is a sum over some axes of what the kernel writes. */
static int
shape_of(const attention_call *call, const operand_row *row, npy_intp *shape)
{
    const array_view *of = operand_of(call, row);
    int ndim = call->batch_ndim, own = of ? of->ndim - own_axes(row) : 0;
    npy_intp items = 1;
    memcpy(shape, call->batch_shape, (size_t)ndim * sizeof *shape);
    for (int letter = 0; letter < 3; letter++)
        if (row->shape[letter] != '1')
            shape[ndim++] = (npy_intp)call->dims[(int)row->shape[letter]];
    if (of == NULL)
        return ndim;
    if (row->fit == WHOLE)
        return of->ndim == ndim && PyArray_CompareLists(of->shape, shape, ndim) ? ndim
                                                                                : -1;
    for (int axis = 0; axis < own; axis++)
        items *= of->shape[axis];
    if (items != 1 && (own != call->batch_ndim ||
                       !PyArray_CompareLists(of->shape, call->batch_shape, own)))
        return -1;
    memcpy(shape, of->shape, (size_t)of->ndim * sizeof *shape);
    return of->ndim;
}

/* The array of 16 bits that a result has the dtype of, a gradient's operand, or the query;
 * NULL of others, which have the computation's: sums over several units are not rounded. */
static const array_view *
typed_like(const attention_call *call, int index)
{
    const array_view *of = operand_of(call, &operand_rows[index]);
    if (index == OUT && storage_of(call->out_kind) != RP_OWN)
        of = &call->views[QUERY];
    else if (operand_rows[index].of_kind != OF_16)
        of = NULL;
    return of != NULL && storage_of(of->kind) != RP_OWN ? of : NULL;
}

static PyArray_Descr *
dtype_of(const attention_call *call, int index)
{
    const array_view *like = typed_like(call, index);
    if (like == NULL)
        return descr_of(call->kind == KIND_F32 ? NPY_FLOAT : NPY_DOUBLE);
    return (PyArray_Descr *)Py_NewRef(
        (PyObject *)PyArray_DESCR((PyArrayObject *)like->owner));
}

/* Whether the numbers of a row of all heads lie together, as layers cut their columns into
 * heads: in the operand of a gradient, or in the query. */
static int
has_rows_of_heads(const attention_call *call, int index, int ndim)
{
    const operand_row *row = &operand_rows[index];
    const array_view *like = index == OUT ? &call->views[QUERY] : operand_of(call, row);
    if (!call->follows || like == NULL || row->fit != WHOLE || own_axes(row) != 3 ||
        like->ndim != ndim)
        return 0;
    npy_intp head = like->strides[ndim - 3];
    return head > 0 && head < like->strides[ndim - 2];
}

/* An array of zeros or, if all is written, of any numbers; in memory the axes of heads and rows
 * may be exchanged. */
static PyObject *
alloc_result(int ndim, npy_intp *shape, PyArray_Descr *dtype, int is_written,
             int is_exchanged)
{
    if (is_exchanged) {
        npy_intp rows = shape[ndim - 2];
        shape[ndim - 2] = shape[ndim - 3];
        shape[ndim - 3] = rows;
    }
    PyObject *array = is_written ? PyArray_SimpleNewFromDescr(ndim, shape, dtype)
                                 : PyArray_Zeros(ndim, shape, dtype, 0);
    if (array == NULL || !is_exchanged)
        return array;
    PyObject *view = PyArray_SwapAxes((PyArrayObject *)array, ndim - 3, ndim - 2);
    Py_DECREF(array);
    return view;
}

/* Makes a result: of zeros where it is added to, or no pair writes to it. */
static int
make_result(attention_call *call, int index)
{
    const operand_row *row = &operand_rows[index];
    npy_intp shape[NPY_MAXDIMS];
    int ndim = shape_of(call, row, shape);
    int is_written = call->direction == FORWARD ||
                     (row->of_kind == OF_16 && call->dims['q'] && call->dims['k']);
    if (ndim < 0 || (row->of && PyArray_MultiplyList(shape, ndim) > MOST_MADE))
        return -1;
    PyObject *array = alloc_result(ndim, shape, dtype_of(call, index), is_written,
                                   has_rows_of_heads(call, index, ndim));
    if (array == NULL)
        return -1;
    take_view(array, &call->views[index]);
    FIELD(call, rp_array, row->array).data = call->views[index].data;
    FIELD(call, rp_array, row->array).kind = storage_of(call->views[index].kind);
    return 0;
}

/* Whether a result that the caller gave has the dtype of one that is made. */
static int
check_result(const attention_call *call, int index)
{
    PyArrayObject *given = (PyArrayObject *)call->views[index].owner;
    PyArray_Descr *made = dtype_of(call, index);
    int same = made != NULL && PyArray_EquivTypes(made, PyArray_DESCR(given));
    Py_XDECREF(made);
    return same ? 0 : -1;
}

int
lay_out(attention_call *call)
{
    for (int i = 0; i < OPERANDS; i++) {
        const operand_row *row = &operand_rows[i];
        const array_view *view = &call->views[i];
        if (call->makes[i] &&
            (view->owner ? check_result(call, i) : make_result(call, i)) < 0)
            return -1;
        if (view->owner == NULL)
            continue;
        ptrdiff_t strides[3];
        for (int letter = 0; letter < 3; letter++)
            strides[letter] =
                stride_along(view, axis_of(row, view->ndim, letter),
                             (npy_intp)call->dims[(int)row->shape[letter]]);
        rp_array *array = &FIELD(call, rp_array, row->array);
        array->head = strides[0];
        array->row = strides[1];
        array->col = strides[2];
    }
    return 0;
}
