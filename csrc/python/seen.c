/* seen.c: integers of batch items, and which pairs queries see by them. */
#include "rules.h"

/* ---- integers of batch items ------------------------------------------------------------ */

/* What makes the call depend on the position of its queries; NULL: nothing does. */
static const char *
find_positional(const attention_call *call, const call_rules *rules)
{
    for (int i = 0; i < TABLES; i++)
        if (rules->spans[i].count > 0)
            return name_of(tables[i]);
    if (has(call, LOG_DECAY))
        return name_of(LOG_DECAY);
    if (rules->is_causal)
        return "is_causal";
    if (rules->left != RP_UNBOUNDED || rules->right != RP_UNBOUNDED)
        return "window";
    return rules->has_fire ? "FIRE's bias" : NULL;
}

/* The lowest and the highest of the integers of batch items; 0 and 0 of none. Of those that
 * repeat along an axis one is looked at. */
static void
find_extremes(const array_view *view, int64_t ends[2])
{
    npy_intp shape[MOST_BATCH_AXES];
    for (int axis = 0; axis < view->ndim; axis++)
        shape[axis] =
            view->strides[axis] == 0 && view->shape[axis] > 1 ? 1 : view->shape[axis];
    npy_intp count = PyArray_MultiplyList(shape, view->ndim);
    ends[0] = ends[1] = 0;
    for (npy_intp n = 0; n < count; n++) {
        ptrdiff_t offset = item_offset(view, shape, view->ndim, 0, n);
        int64_t number = *(const int64_t *)(view->data + offset);
        ends[0] = n == 0 || number < ends[0] ? number : ends[0];
        ends[1] = n == 0 || number > ends[1] ? number : ends[1];
    }
}

/* Reports an integer of some batch item that is not from low to high. */
static int
check_ends(const attention_call *call, call_rules *rules, int item, int64_t low,
           int64_t high)
{
    int64_t ends[2];
    if (call->items[item].owner == NULL)
        return 1;
    find_extremes(&call->items[item], ends);
    for (int i = 0; i < 2; i++)
        if (ends[i] < low || ends[i] > high) {
            breaks(rules, item == QUERY_OFFSET ? FAR_OFFSET : LONG_LENGTH,
                   item_rows[item].entry.name, NULL);
            return by_numbers(rules, ends[i], 0, 0, 0);
        }
    return 1;
}

int
check_batch_items(const attention_call *call, call_rules *rules)
{
    int64_t queries = call->dims['q'], keys = call->dims['k'];
    if (queries != keys && call->items[QUERY_OFFSET].owner == NULL) {
        const char *positional = find_positional(call, rules);
        if (positional != NULL)
            return breaks(rules, NEEDS_OFFSET, positional, NULL);
    }
    return check_ends(call, rules, QUERY_OFFSET, -RP_FARTHEST, RP_FARTHEST) &&
           check_ends(call, rules, KEY_LENGTHS, 0, keys);
}

/* ---- pairs that are seen ---------------------------------------------------------------- */

/* Adds the positions from low to high, those of the keys that one query sees, or several. */
static void
see(call_rules *rules, int64_t low, int64_t high)
{
    low = low < -rules->left ? -rules->left : low;
    high = high > rules->right ? rules->right : high;
    if (low > high)
        return;
    if (!rules->sees_pairs || low < rules->lowest)
        rules->lowest = low;
    if (!rules->sees_pairs || high > rules->highest)
        rules->highest = high;
    rules->sees_pairs = 1;
}

/* The integer of a batch item, or another where none is given. */
static int64_t
item_of(const attention_call *call, int item, const npy_intp *batch, int64_t n,
        int64_t otherwise)
{
    const array_view *view = &call->items[item];
    if (view->owner == NULL)
        return otherwise;
    ptrdiff_t offset = item_offset(view, batch, call->batch_ndim, 0, n);
    return *(const int64_t *)(view->data + offset);
}

/* Adds what the queries of an item see. They see one run of keys each, so that no pair has to
 * be looked at. */
static void
see_item(const attention_call *call, call_rules *rules, const npy_intp *batch,
         int64_t n)
{
    const array_view *ranges = &call->views[KEY_RANGES];
    int64_t queries = call->dims['q'], keys = call->dims['k'];
    int64_t zero = item_of(call, QUERY_OFFSET, batch, n, 0);
    int64_t length = item_of(call, KEY_LENGTHS, batch, n, keys);
    if (ranges->owner == NULL) {
        if (length > 0)
            see(rules, 1 - queries - zero, length - 1 - zero);
        return;
    }
    const char *at = ranges->data + item_offset(ranges, batch, call->batch_ndim, 2, n);
    ptrdiff_t step = stride_along(ranges, ranges->ndim - 2, (npy_intp)queries);
    /* queries that share a range see a run as those of a call without ranges */
    int64_t shared = step == 0 ? queries : 1;
    for (int64_t i = 0; i < queries; i += shared, at += step) {
        const char *second = at + ranges->strides[ranges->ndim - 1];
        int64_t begin = clamp(*(const int64_t *)at, 0, keys);
        int64_t end = clamp(*(const int64_t *)second, 0, length);
        if (begin < end)
            see(rules, begin - (i + shared - 1) - zero, end - 1 - i - zero);
    }
}

/* Finds the lowest and the highest position of a pair that any query sees. */
static void
find_seen(const attention_call *call, call_rules *rules)
{
    npy_intp batch[MOST_BATCH_AXES];
    int64_t items = 1;
    if (call->dims['q'] == 0)
        return;
    /* of the batch axes those along which an item differs from the next */
    for (int axis = 0; axis < call->batch_ndim; axis++) {
        int back = call->batch_ndim - axis;
        npy_intp length = call->batch_shape[axis];
        const array_view *ranges = &call->views[KEY_RANGES];
        int moves = ranges->owner != NULL &&
                    stride_along(ranges, ranges->ndim - 2 - back, length) != 0;
        for (int i = 0; i < PART_ITEMS; i++)
            moves |=
                call->items[i].owner != NULL &&
                stride_along(&call->items[i], call->items[i].ndim - back, length) != 0;
        batch[axis] = moves || length == 0 ? length : 1;
        items *= batch[axis];
    }
    for (int64_t n = 0; n < items; n++)
        see_item(call, rules, batch, n);
}

int
check_seen(const attention_call *call, call_rules *rules)
{
    if (rules->beyond != RAISE_BEYOND && !has(call, LOG_DECAY))
        return 1;
    find_seen(call, rules);
    if (!rules->sees_pairs)
        return 1;
    for (int i = 0; rules->beyond == RAISE_BEYOND && i < TABLES; i++) {
        int64_t first = rules->spans[i].first, count = rules->spans[i].count;
        if (count == 0 || (rules->lowest >= first && rules->highest < first + count))
            continue;
        breaks(rules, UNSEEN_ROWS, name_of(tables[i]), NULL);
        return by_numbers(rules, rules->lowest, rules->highest, first,
                          first + count - 1);
    }
    if (!has(call, LOG_DECAY) || rules->highest <= 0)
        return 1;
    breaks(rules, SEES_AHEAD, name_of(LOG_DECAY), NULL);
    return by_numbers(rules, rules->highest, 0, 0, 0);
}
