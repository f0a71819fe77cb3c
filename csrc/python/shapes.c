/* shapes.c: shapes as arguments have them become the letters and the batch axes of a call.
 *
 * The axes of an operand are those of its row's letters but for 1, which stands for an axis
 * that no argument has, after batch axes that broadcast as in NumPy. A letter takes the
 * first length it meets and must meet the same one from then on, so the order of the rows
 * matters: query, key and value first. */
#include "module.h"

static const misfit fits;

int
own_axes(const operand_row *row)
{
    return (row->shape[0] != '1') + (row->shape[1] != '1') + (row->shape[2] != '1');
}

int
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
        if (view->shape[axis] == 0 && strchr("ACWB", name) != NULL)
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

/* A result, or a gradient: its batch axes are those of the call, or repeated. */
static misfit
fit_batch(const attention_call *call, int index)
{
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
    }
    return fits;
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

int
make_result(attention_call *call, int index)
{
    const operand_row *row = &operand_rows[index];
    const int64_t *dims = call->dims;
    npy_intp shape[MOST_BATCH_AXES + 3];
    int ndim = call->batch_ndim, type = call->kind == KIND_F32 ? NPY_FLOAT : NPY_DOUBLE;
    if (row->of != 0 && FIELD(call, rp_array, row->of).data == NULL)
        return reject(call, PyExc_ValueError, row->entry.name, "has no operand");
    memcpy(shape, call->batch_shape, (size_t)ndim * sizeof *shape);
    for (int letter = 0; letter < 3; letter++)
        if (row->shape[letter] != '1')
            shape[ndim++] = (npy_intp)dims[(int)row->shape[letter]];
    int is_written = call->direction == FORWARD || (dims['q'] > 0 && dims['k'] > 0);
    PyObject *array = is_written ? PyArray_SimpleNew(ndim, shape, type)
                                 : PyArray_ZEROS(ndim, shape, type, 0);
    if (array == NULL)
        return -1;
    take_view(array, &call->views[index]);
    FIELD(call, rp_array, row->array).data = call->views[index].data;
    return 0;
}
