/* rules.c: what arrays, numbers and flags of a call say together. Here alone is decided where
 * tables lie, which pairs are seen, which numbers are in range and which options go together:
 * direct.c gives up a call that breaks a rule, and Python words the error. */
#include "rules.h"

#include <math.h>

static const char *const names[RULES] = {
    [NEEDS_REL_KEY] = "needs rel_key",  [LABELS_AND] = "labels and",
    [NEEDS_TABLE] = "needs a table",    [UNEQUAL_ROWS] = "unequal rows",
    [OUTSIDE_ROWS] = "outside rows",    [UNPLACED_ROWS] = "unplaced rows",
    [EVEN_ROWS] = "even rows",          [FIRE_HEADS] = "heads of FIRE",
    [NEEDS_OTHER] = "needs another",    [BLOCK_HEADS] = "heads of blocks",
    [BLOCK_COUNT] = "number of blocks", [NEEDS_OFFSET] = "needs an offset",
    [FAR_OFFSET] = "far offset",        [LONG_LENGTH] = "long length",
    [UNSEEN_ROWS] = "unseen rows",      [SEES_AHEAD] = "sees ahead",
    [NEEDS_SCALE] = "needs a scale",    [NEEDS_CAP] = "needs a cap",
    [VANISHES] = "too small",           [OVERFLOWS] = "too large",
};

const char *
name_of_rule(int rule)
{
    return names[rule];
}

int
breaks(call_rules *rules, int rule, const char *operand, const char *other)
{
    rules->broken = (broken_rule){rule, operand, other, {0}};
    return 0;
}

int
by_numbers(call_rules *rules, int64_t a, int64_t b, int64_t c, int64_t d)
{
    const int64_t numbers[] = {a, b, c, d};
    memcpy(rules->broken.numbers, numbers, sizeof numbers);
    return 0;
}

const char *
name_of(int operand)
{
    return operand_rows[operand].entry.name;
}

int
has(const attention_call *call, int operand)
{
    return call->views[operand].owner != NULL;
}

static int
has_table(const attention_call *call)
{
    int found = 0;
    for (int i = 0; i < TABLES; i++)
        found |= has(call, tables[i]);
    return found;
}

int
is_labelled(const attention_call *call)
{
    return has(call, LABELS) || has(call, LABELS + 1);
}

int64_t
clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* ---- dtypes --------------------------------------------------------------------------- */

/* Kind of the result: that of query, key and value, float32 where they differ, or float64 where
 * any number is. */
static int
result_kind(const attention_call *call)
{
    int kind = call->views[QUERY].kind;
    for (int n = 0; n < call->count; n++) {
        int i = call->given[n], role = operand_rows[i].roles[FORWARD];
        const array_view *view = &call->views[i];
        if (view->kind == kind || role == UNKNOWN || role >= OUTPUT ||
            operand_rows[i].of_kind > OF_16)
            continue;
        if (kind == KIND_F64 || view->kind == KIND_F64)
            kind = KIND_F64;
        else if (i <= VALUE)
            kind = KIND_F32;
    }
    return kind;
}

/* ---- options that go together --------------------------------------------------------- */

static int
check_options(const attention_call *call, call_rules *rules)
{
    int of_rel_key[] = {POS_BIAS_V, POSITION_QUERY}, labelled = is_labelled(call);
    const char *first = rules->has_first ? "min_relative_position" : NULL;
    const char *buckets = rules->buckets.owner ? "buckets" : NULL;
    for (int i = 0; i < 2; i++)
        if (has(call, of_rel_key[i]) && !has(call, REL_KEY))
            return breaks(rules, NEEDS_REL_KEY, name_of(of_rel_key[i]), NULL);
    if (labelled && (first || buckets))
        return breaks(rules, LABELS_AND, "labels", first ? first : buckets);
    if (has_table(call) || (!labelled && !first && !buckets))
        return 1;
    return breaks(rules, NEEDS_TABLE,
                  labelled  ? "labels"
                  : buckets ? buckets
                            : first,
                  NULL);
}

/* Whether there is a block for all queries and keys, and none more. */
static int
check_blocks(const attention_call *call, call_rules *rules)
{
    const int64_t *dims = call->dims;
    const char *blocks = name_of(KEY_BLOCKS);
    if (has(call, KEY_BLOCKS) != rules->has_blocks)
        return rules->has_blocks ? breaks(rules, NEEDS_OTHER, "block_size", blocks)
                                 : breaks(rules, NEEDS_OTHER, blocks, "block_size");
    if (!rules->has_blocks)
        return 1;
    if (dims['h'] != 1 && dims['h'] != dims['K'] && dims['h'] != dims['H']) {
        breaks(rules, BLOCK_HEADS, blocks, NULL);
        return by_numbers(rules, dims['h'], dims['K'], dims['H'], 0);
    }
    int64_t queries = (dims['q'] + rules->block_queries - 1) / rules->block_queries;
    int64_t keys = (dims['k'] + rules->block_keys - 1) / rules->block_keys;
    if (dims['x'] == queries && dims['y'] == keys)
        return 1;
    breaks(rules, BLOCK_COUNT, blocks, NULL);
    return by_numbers(rules, dims['x'], dims['y'], queries, keys);
}

/* ---- numbers ------------------------------------------------------------------------------ */

/* Whether a number that the kernels multiply by log2(e) is neither 0 nor infinite then. */
static int
check_range(call_rules *rules, const char *name, double number)
{
    int is_single = rules->kind == KIND_F32;
    double zero = is_single ? 0x1p-150 : 0;
    double infinite = is_single ? 0x1.ffffffp127 : (double)INFINITY;
    if (fabs(number) <= zero)
        return breaks(rules, VANISHES, name, NULL);
    if (fabs(number) * 1.4426950408889634 >= infinite)
        return breaks(rules, OVERFLOWS, name, NULL);
    return 1;
}

static int
check_scores(const attention_call *call, call_rules *rules)
{
    if (!rules->has_scale && call->dims['D'] == 0)
        return breaks(rules, NEEDS_SCALE, "scale", NULL);
    if (!rules->has_scale)
        rules->scale = 1 / sqrt((double)call->dims['D']);
    else if (rules->scale != 0 && !check_range(rules, "scale", rules->scale))
        return 0;
    if (!rules->has_softcap)
        return 1;
    if (!(rules->softcap > 0))
        return breaks(rules, NEEDS_CAP, "softcap", NULL);
    return check_range(rules, "softcap", rules->softcap);
}

/* ---- all of them -------------------------------------------------------------------------- */

int
apply_rules(attention_call *call, call_rules *rules)
{
    call->out_kind = rules->is_wide ? KIND_F64 : result_kind(call);
    rules->kind = call->out_kind == KIND_F64 ? KIND_F64 : KIND_F32;
    if (rules->is_causal && rules->right > 0)
        rules->right = 0;
    if (!check_options(call, rules) || !check_blocks(call, rules) ||
        !place_tables(call, rules))
        return 0;
    if (rules->has_fire && rules->fire_heads != call->dims['H']) {
        breaks(rules, FIRE_HEADS, "w2", NULL);
        return by_numbers(rules, rules->fire_heads, rules->fire_units, 0, 0);
    }
    if (!check_batch_items(call, rules) || !check_seen(call, rules))
        return 0;
    if (rules->buckets.owner != NULL)
        use_buckets(call, rules);
    return check_scores(call, rules);
}
