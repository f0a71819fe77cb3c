/* places.c: where tables lie on the line of relative positions, and which of their rows are
 * gathered for it. */
#include "rules.h"

static int
has_buckets(const call_rules *rules)
{
    return rules->buckets.owner != NULL;
}

/* Whether a table has a number in each row, and no vector. */
static int
is_bias(int table)
{
    return operand_rows[tables[table]].shape[2] == '1';
}

/* Rows of a table, the letter of its second axis. */
static int64_t
rows_of(const attention_call *call, int table)
{
    return call->dims[(int)operand_rows[tables[table]].shape[1]];
}

/* Whether all tables have equally many rows, and each bucket is one of them. */
static int
check_buckets(const attention_call *call, call_rules *rules)
{
    const int64_t *rows = (const int64_t *)rules->buckets.data;
    int first = -1;
    for (int i = 0; i < TABLES; i++) {
        if (!has(call, tables[i]))
            continue;
        first = first < 0 ? i : first;
        int64_t count = rows_of(call, i), other = rows_of(call, first);
        if (count != other) {
            breaks(rules, UNEQUAL_ROWS, name_of(tables[i]), name_of(tables[first]));
            return by_numbers(rules, count, other, 0, 0);
        }
    }
    for (npy_intp n = 0; first >= 0 && n < rules->buckets.shape[0]; n++)
        if (rows[n] < 0 || rows[n] >= rows_of(call, first)) {
            breaks(rules, OUTSIDE_ROWS, name_of(tables[first]), NULL);
            return by_numbers(rules, n, rows[n], rows_of(call, first), 0);
        }
    return 1;
}

/* Places a table of so many rows from the first position on, or centred on position 0, as is
 * a bias of another length than the table before it. */
static int
place_table(call_rules *rules, int table, int before, int64_t count)
{
    int is_centred = !rules->has_first;
    if (!is_centred && before >= 0 && count != rules->spans[before].count) {
        is_centred = is_bias(table);
        if (!is_centred) {
            breaks(rules, UNPLACED_ROWS, name_of(tables[table]),
                   name_of(tables[before]));
            return by_numbers(rules, count, rules->spans[before].count, 0, 0);
        }
    }
    if (is_centred && count % 2 == 0) {
        breaks(rules, EVEN_ROWS,
               has_buckets(rules) ? "buckets" : name_of(tables[table]), NULL);
        return by_numbers(rules, count, 0, 0, 0);
    }
    rules->spans[table] =
        (position_span){is_centred ? -(count / 2) : rules->first, count};
    return 1;
}

/* Queries and keys may use far fewer buckets than there are. The number that is kept
 * decides how a table is read, so that it does not depend on the offset. The buckets at the
 * ends serve the positions beyond them. */
void
use_buckets(const attention_call *call, call_rules *rules)
{
    const array_view *offset = &call->items[QUERY_OFFSET];
    int64_t queries = call->dims['q'], keys = call->dims['k'];
    position_span all = {0, 0};
    for (int i = 0; i < TABLES; i++) /* all tables have one span */
        all = rules->spans[i].count > 0 ? rules->spans[i] : all;
    rules->used = all;
    if (queries > 0 && keys > 0 && offset->ndim == 0) {
        int64_t zero = offset->owner ? *(const int64_t *)offset->data : 0;
        int64_t count = clamp(queries + keys - 1, 1, all.count);
        int64_t last = all.first + all.count - count;
        rules->used =
            (position_span){clamp(1 - queries - zero, all.first, last), count};
    }
    rules->of_vectors = rules->used;
}

/* The kernels have one span for all tables of vectors, the widest one: a table with another is
 * gathered into it. */
static int
place_all(const attention_call *call, call_rules *rules)
{
    int before = -1;
    for (int i = 0; i < TABLES; i++) {
        if (!has(call, tables[i]))
            continue;
        int64_t count = has_buckets(rules) ? rules->buckets.shape[0] : rows_of(call, i);
        if (!place_table(rules, i, before, count))
            return 0;
        before = before < 0 ? i : before;
        if (!is_bias(i) && count > rules->of_vectors.count)
            rules->of_vectors = rules->spans[i];
    }
    return 1;
}

int
place_tables(const attention_call *call, call_rules *rules)
{
    if (rules->is_graph || is_labelled(call))
        return 1;
    if (has_buckets(rules) && !check_buckets(call, rules))
        return 0;
    return place_all(call, rules);
}

const int64_t *
used_buckets(const call_rules *rules)
{
    int64_t first = rules->has_first ? rules->first : -(rules->buckets.shape[0] / 2);
    return (const int64_t *)rules->buckets.data + (rules->used.first - first);
}

int
is_gathered(const attention_call *call, const call_rules *rules, int table)
{
    position_span own = rules->spans[table], all = rules->of_vectors;
    if (own.count == 0 || !has(call, tables[table])) /* not on that line */
        return 0;
    return !has_buckets(rules) && !is_bias(table) &&
           (own.first != all.first || own.count != all.count);
}

PyObject *
list_rows(const call_rules *rules, int table)
{
    position_span own = rules->spans[table], all = rules->of_vectors;
    npy_intp count = (npy_intp)all.count;
    PyObject *array = PyArray_SimpleNew(1, &count, NPY_INT64);
    int64_t *rows = array ? PyArray_DATA((PyArrayObject *)array) : NULL;
    for (npy_intp n = 0; array != NULL && n < count; n++) {
        int64_t position = all.first + n,
                nearest = clamp(position, own.first, own.first + own.count - 1);
        rows[n] = nearest - own.first;
        if (rules->beyond == RP_ZERO && nearest != position)
            rows[n] = -1;
    }
    return array;
}

/* Relative position of row 0 of a table, as the kernels have it. */
static int64_t
first_of(const call_rules *rules, int table)
{
    if (has_buckets(rules))
        return rules->used.first;
    return is_bias(table) ? rules->spans[table].first : rules->of_vectors.first;
}

void
store_facts(attention_call *call, const call_rules *rules)
{
    rp_attention *p = &call->problem.forward;
    int index = 0;
    p->scale = rules->scale;
    p->softcap = rules->softcap;
    p->sight.window_left = rules->left;
    p->sight.window_right = rules->right;
    p->sight.block_heads = p->sight.block_queries = p->sight.block_keys = 1;
    if (rules->has_blocks) {
        p->sight.block_heads = clamp(call->dims['H'], 1, RP_LONGEST) /
                               clamp(call->dims['h'], 1, RP_LONGEST);
        p->sight.block_queries = rules->block_queries;
        p->sight.block_keys = rules->block_keys;
    }
#define TABLE(row, name, table, ...) p->table.first = first_of(rules, index++);
#include "rows.h"
}
