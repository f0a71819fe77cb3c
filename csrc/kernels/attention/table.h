/* table.h: the rows of a table that pairs have: by relative position, by an index of it, or by
 * label; spreading what a row of the table gives over the pairs that use it, and the way back:
 * sums over the pairs of a row. */
#ifndef RELPOS_ATTENTION_TABLE_H
#define RELPOS_ATTENTION_TABLE_H

#include "../ground/pack.h"
#include "labels.h"

/* The table row of relative position r; -1: no position term. */
RP_INLINE int64_t
rp_table_row(int64_t r, int64_t min_position, int64_t rows, int beyond)
{
    rp_assert(r > -RP_WIDEST && r < RP_WIDEST);
    int64_t t = r - min_position;
    if (t < 0)
        return beyond == RP_CLIP ? 0 : -1;
    if (t >= rows)
        return beyond == RP_CLIP ? rows - 1 : -1;
    return t;
}

/* The row of its array that row l of a table is; -1 for -1. */
RP_INLINE int64_t
array_row(const rp_table *table, int64_t l)
{
    return table->index && l >= 0 ? table->index[l] : l;
}

/* Rows of the array of a table. */
RP_INLINE int64_t
array_rows(const rp_table *table)
{
    return table->index ? table->listed : table->rows;
}

/* Row n < rows_of_pair(p) of those of a table's array that the pair (i, j) uses; -1: none. */
RP_INLINE int64_t
pair_row(const rp_attention *p, int n, int64_t b, int64_t i, int64_t j,
         const rp_table *table)
{
    const rp_label_array *labels = &p->labels.of[n];
    if (has_labels(p))
        return rp_label(rp_at(&labels->array, b, 0, i) + j * labels->array.col,
                        labels->size, table->rows);
    return array_row(table, rp_table_row(j - i - rp_query_offset(p, b), table->first,
                                         table->rows, p->beyond));
}

/* What rows of rel_key are dotted with: queries, or position queries where there are any.
 * */
RP_INLINE const rp_array *
rel_key_queries(const rp_attention *p)
{
    return p->position_query.data ? &p->position_query : &p->query;
}

/* What the product of rel_key_queries and rel_key is multiplied by. */
RP_INLINE double
rel_key_scale(const rp_attention *p)
{
    return p->position_query.data ? 1 : p->scale;
}

/* Finds, among the keys [j0, end) of query i, those whose rows follow each other in a
 * table: key j has row j + *shift. The keys before have its first row, those behind its
 * last, or none. Not for labels. */
RP_INLINE rp_interval
run_in_table(const rp_attention *p, int64_t b, int64_t i, int64_t j0, int64_t end,
             const rp_table *table, int64_t *shift)
{
    *shift = -i - rp_query_offset(p, b) - table->first;
    int64_t begin = RP_MIN(end, RP_MAX(j0, -*shift));
    return (rp_interval){begin, RP_MAX(begin, RP_MIN(end, table->rows - *shift))};
}

/* ---- a row of the table to its pairs --------------------------------------------- */

/* The keys of row m of a tile by where they fall on a table: key n has row
 * `row + n` for n in [inside, past), keys before and after lie beyond its ends. */
typedef struct {
    int64_t row, inside, past;
} runs_t;

RP_INLINE runs_t
runs_of(const rp_attention *p, const queries_t *q, const tile_t *t, int m,
        const rp_table *table, int64_t count)
{
    runs_t runs = {position_of(p, q, t, m, 0) - table->first, 0, 0};
    runs.inside = RP_MIN(count, RP_MAX(0, -runs.row));
    runs.past = RP_MIN(count, RP_MAX(0, table->rows - runs.row));
    return runs;
}

/* Whether the first `count` keys of the tile lie before the table for all of its rows, or
 * behind it. */
RP_INLINE int
lies_before(const rp_attention *p, const queries_t *q, const tile_t *t,
            const rp_table *table, int64_t count)
{
    return position_of(p, q, t, 0, count - 1) < table->first;
}

RP_INLINE int
lies_after(const rp_attention *p, const queries_t *q, const tile_t *t,
           const rp_table *table)
{
    return position_of(p, q, t, q->rows - 1, 0) >= table->first + table->rows;
}

/* Whether no pair of the tile has a term of a table that is met by relative position. */
RP_INLINE int
lies_beyond(const rp_attention *p, const queries_t *q, const tile_t *t,
            const rp_table *table)
{
    return p->beyond == RP_ZERO &&
           (lies_before(p, q, t, table, t->columns) || lies_after(p, q, t, table));
}

/* s[m, n] = dots[m, table row of the pair], by clipping. */
static void
fill_clipped(const rp_attention *p, const queries_t *q, const tile_t *t, T *s,
             const T *dots, ptrdiff_t stride, const rp_table *table)
{
    int clip = p->beyond == RP_CLIP;
    for (int m = 0; m < q->rows; m++, s += t->ld, dots += stride) {
        runs_t runs = runs_of(p, q, t, m, table, t->columns);
        T before = clip ? dots[0] : 0, after = clip ? dots[table->rows - 1] : 0;
        int64_t n = 0;
        for (; n < runs.inside; n++)
            s[n] = before;
        for (; n < runs.past; n++)
            s[n] = dots[runs.row + n];
        for (; n < t->columns; n++)
            s[n] = after;
    }
}

/* Spreads the products of queries and table rows over the tile at s and returns NULL; or
 * returns the one value that they have in each row of the tile, a row's `*step` from the
 * next (ROWS, all keys on one side of the table). */
static const T *
fill_dots(const rp_attention *p, const queries_t *q, const tile_t *t, T *s,
          const T *dots, ptrdiff_t stride, const rp_table *table, ptrdiff_t *step)
{
    static const T zero = 0;
    if (has_labels(p)) {
        fill_labels(p, q, t, s, dots, stride, table->rows);
        return NULL;
    }
    int before = lies_before(p, q, t, table, t->columns);
    int after = lies_after(p, q, t, table);
    if (!before && !after) {
        fill_clipped(p, q, t, s, dots, stride, table);
        return NULL;
    }
    *step = p->beyond == RP_ZERO ? 0 : stride;
    return p->beyond == RP_ZERO ? &zero : dots + (before ? 0 : table->rows - 1);
}

/* ---- the pairs of a row to the table --------------------------------------------- */

/* sums[m, table row of the pair] += a[m, n] over the tile, by clipping: every row inside
 * the table has one key, its two ends take all keys beyond: of a tile that lies beyond one
 * of them as a whole, `totals`, the sums of its rows, unless they are NULL. */
static void
sum_by_row(const rp_attention *p, const queries_t *q, const tile_t *t, const T *a,
           const T *totals, T *sums, ptrdiff_t stride, const rp_table *table)
{
    int before = lies_before(p, q, t, table, t->keys);
    int after = lies_after(p, q, t, table);
    if ((before || after) && p->beyond == RP_ZERO)
        return;
    if ((before || after) && totals) {
        T *end = sums + (before ? 0 : table->rows - 1);
        for (int m = 0; m < q->rows; m++)
            end[m * stride] += totals[m];
        return;
    }
    for (int m = 0; m < q->rows; m++, a += t->ld, sums += stride) {
        runs_t runs = runs_of(p, q, t, m, table, t->keys);
        if (p->beyond == RP_CLIP) {
            sums[0] += sum_run(a, 0, runs.inside);
            sums[table->rows - 1] += sum_run(a, runs.past, t->keys);
        }
        int64_t n = runs.inside;
        for (; n + VL <= runs.past; n += VL) {
            /* only pairs inside have a row of the table: others may be far from it */
            T *at = sums + (runs.row + n);
            store(at, load(at) + load(a + n));
        }
        for (; n < runs.past; n++)
            sums[runs.row + n] += a[n];
    }
}

static void
sum_by_table_row(const rp_attention *p, const queries_t *q, const tile_t *t, const T *a,
                 const T *totals, T *sums, ptrdiff_t stride, const rp_table *table)
{
    if (has_labels(p))
        sum_by_label(p, q, t, a, sums, stride, table->rows);
    else
        sum_by_row(p, q, t, a, totals, sums, stride, table);
}

#endif
