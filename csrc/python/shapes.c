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

/* Axis of an array of so many axes that is the letter's; negative: it lacks that. */
static int
axis_of(const operand_row *row, int ndim, int letter)
{
    int axis = ndim;
    if (row->fit == HEADS && ndim == 1)
        return letter == 0 ? 0 : -1;
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
    return row->fit == PAIRS || (row->fit == SHARED && row->shape[letter] == 'H') ||
           (row->fit == HEADS && row->shape[letter] != 'H');
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
    if (view->ndim < needed)
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
    int own = view->ndim > own_axes(row) ? view->ndim - own_axes(row) : 0;
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

/* Whether as many heads form groups of so many. */
static int
divides(int64_t groups, int64_t heads)
{
    return groups > 0 && heads % groups == 0;
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
    if (dims['K'] != dims['H'] && (!rules.groups || !divides(dims['K'], dims['H'])))
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
    const int *given = call->given;
    for (int n = 0; n < call->count && found.rule == FITS; n++)
        if (given[n] > VALUE)
            found = fit_letters(call, given[n], rules);
    const int64_t groups = call->dims['g'];
    if (found.rule == FITS && groups >= 0 && groups != call->dims['H'] &&
        !divides(groups, call->dims['H']))
        found = (misfit){&operand_rows[KEY_INDICES].entry, NO_GROUPS, 0};
    for (int n = 0; n < call->count && found.rule == FITS; n++)
        if (is_argument(call, given[n]))
            found =
                join_batch(call, &operand_rows[given[n]].entry, &call->views[given[n]],
                           own_axes(&operand_rows[given[n]]));
    for (int i = 0; i < PART_ITEMS && found.rule == FITS; i++)
        if (call->items[i].owner != NULL)
            found = join_batch(call, &item_rows[i].entry, &call->items[i], 0);
    for (int n = 0; n < call->count && found.rule == FITS; n++)
        if (!is_argument(call, given[n]))
            found = fit_batch(call, given[n]);
    return found;
}

int
lay_out(attention_call *call)
{
    for (int i = 0; i < OPERANDS; i++) {
        const operand_row *row = &operand_rows[i];
        const array_view *view = &call->views[i];
        if (call->makes[i] && take_result(call, i) < 0)
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
