/* table.h: how a table of positions meets a tile of pairs.
 *
 *   BAND    one product per tile with the table rows its relative positions span
 *   ROWS    few rows: one product per query with the whole table, spread by clipping
 *   LABELS  the same, spread by the label array
 *
 * Packing for either way, spreading what a row of the table gives over the pairs that use
 * it, and the way back: sums over the pairs of a row. */
#ifndef RELPOS_ATTENTION_TABLE_H
#define RELPOS_ATTENTION_TABLE_H

#include "../ground/pack.h"
#include "labels.h"

enum { RP_ABSENT, RP_BAND, RP_ROWS, RP_LABELS };

enum {
    RP_MANY_ROWS = 1024, /* up to this many rows the forward takes ROWS */
    RP_FEW_ROWS = 256,   /* the backward, which keeps sums by row for all queries */
    RP_PACK_ROWS = 256,  /* rows that a unit of packing takes */
};

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

/* Row n < rows_of_pair(p) of those of a table that the pair (i, j) uses; -1: none. */
RP_INLINE int64_t
pair_row(const rp_attention *p, int n, int64_t b, int64_t i, int64_t j,
         const rp_table *table)
{
    const rp_label_array *labels = &p->labels.of[n];
    if (has_labels(p))
        return rp_label(rp_at(&labels->array, b, 0, i) + j * labels->array.col,
                        labels->size, table->rows);
    return rp_table_row(j - i - rp_query_offset(p, b), table->first, table->rows,
                        p->beyond);
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

/* ---- packing --------------------------------------------------------------------- */

/* Band columns that any tile reads, [first, end); column 0 is that of relative position
 * `position` plus the query offset. */
typedef struct {
    int64_t first, end, position;
} band_t;

/* A table as products read it: in one copy, or one for each head, or for each batch item
 * (and head). */
typedef struct {
    T *data;
    ptrdiff_t size;         /* elements of a copy */
    int64_t heads, batches; /* copies */
    int64_t first;          /* the copy at data: where waves pack it, not 0 */
    int by_wave;            /* waves pack it with their slices */
    int path;               /* RP_ABSENT .. RP_LABELS */
    ptrdiff_t stride;       /* rows, rounded up to panels or vectors */
    const rp_attention *p;
    const rp_table *table;
    const band_t *band;
    int64_t columns, padded, packed_rows, units; /* of a copy */
    int panels; /* panels of NR rows; else rows of whole vectors */
    T factor;
} packed_t;

RP_INLINE int
is_used(const packed_t *t)
{
    return t->path != RP_ABSENT;
}

RP_INLINE int
by_band(const packed_t *t)
{
    return t->path == RP_BAND;
}

/* Whether a table is met by ROWS or by LABELS: one product with all of it, which is spread.
 * */
RP_INLINE int
by_row(const packed_t *t)
{
    return t->path == RP_ROWS || t->path == RP_LABELS;
}

/* ROWS multiplies each query with every row of the table, and passes over the few tiles near
 * the diagonal; BAND multiplies it with a row for each key, and half a tile more. From half
 * as many rows on that is cheaper. */
RP_INLINE int
choose_path(const rp_attention *p, const rp_table *table, int64_t most_rows)
{
    if (!table->array.data)
        return RP_ABSENT;
    if (has_labels(p))
        return RP_LABELS;
    int few = table->rows <= most_rows && 2 * table->rows <= p->Lk + 64;
    return few ? RP_ROWS : RP_BAND;
}

RP_INLINE T *
copy_of(const packed_t *t, int64_t b, int64_t h)
{
    int64_t index = (t->heads > 1 ? h : 0) * t->batches + (t->batches > 1 ? b : 0);
    return t->data + (index - t->first) * t->size;
}

/* One copy for all batch items unless the table, or the band's origin, differs by item. */
RP_INLINE int64_t
table_batches(const rp_attention *p, const rp_table *table, int path)
{
    const ptrdiff_t *batch = table->array.batch;
    for (int64_t b = 1; b < p->B && (batch || p->sight.query_offset); b++) {
        if (batch && batch[b] != batch[0])
            return p->B;
        if (path == RP_BAND && rp_query_offset(p, b) != rp_query_offset(p, 0))
            return p->B;
    }
    return 1;
}

/* Plans the copies of a table whose path is chosen. */
static void
plan_packed(packed_t *t, const rp_attention *p, const band_t *band,
            const rp_table *table, int64_t columns, int panels, double factor)
{
    t->p = p;
    t->band = band;
    t->table = table;
    t->columns = columns;
    t->panels = panels;
    t->factor = (T)factor;
    t->packed_rows = by_band(t) ? band->end - band->first : table->rows;
    if (panels)
        t->packed_rows = RP_ROUND_UP(t->packed_rows, NR);
    t->padded = panels ? columns : RP_ROUND_UP(columns, VL);
    t->units = (t->packed_rows + RP_PACK_ROWS - 1) / RP_PACK_ROWS;
    t->heads = table->array.head ? p->H : 1;
    t->batches = table_batches(p, table, t->path);
    t->size = t->packed_rows * t->padded;
}

/* Address of packed row n of a copy, or NULL for a row of zeros. */
RP_INLINE const char *
table_source(const packed_t *t, int64_t b, int64_t h, int64_t n)
{
    int64_t row = n < t->table->rows ? n : -1;
    if (by_band(t)) {
        int64_t r = n + t->band->first + t->band->position - rp_query_offset(t->p, b);
        row = rp_table_row(r, t->table->first, t->table->rows, t->p->beyond);
    }
    return row < 0 ? NULL : rp_at(&t->table->array, b, h, row);
}

static void
pack_table_unit(void *context, int64_t unit, int worker)
{
    const packed_t *t = context;
    const rp_array *array = &t->table->array;
    (void)worker;
    int64_t part = unit % t->units, copy = unit / t->units;
    T *data = t->data + copy * t->size;
    copy += t->first;
    int64_t b = copy % t->batches, h = copy / t->batches;
    int64_t end = RP_MIN(t->packed_rows, (part + 1) * RP_PACK_ROWS);
    for (int64_t n = part * RP_PACK_ROWS; n < end; n += t->panels ? NR : 1) {
        const char *rows[NR];
        if (!t->panels) {
            pack_row(data + n * t->padded, array, table_source(t, b, h, n), t->columns,
                     t->padded);
            for (ptrdiff_t k = 0; t->factor != 1 && k < t->columns; k++)
                data[n * t->padded + k] *= t->factor;
            continue;
        }
        for (int i = 0; i < NR; i++)
            rows[i] = table_source(t, b, h, n + i);
        pack_panel(data + n * t->columns, rows, array->col, RP_KIND(array), t->columns,
                   t->factor, NR * array->row);
    }
}

/* 1 when any copy of the table holds NaN or infinity. */
static int
table_not_finite(const packed_t *t)
{
    int bad = 0;
    for (int64_t b = 0; is_used(t) && b < t->batches; b++)
        for (int64_t h = 0; h < t->heads; h++)
            bad |= rows_of_not_finite(&t->table->array, b, h, 0, t->table->rows,
                                      t->columns);
    return bad;
}

/* 1 when a copy of rows, as they are packed, holds NaN or infinity: a number near the largest
 * becomes infinite by t->factor. Not of tables that waves pack. */
static int
packed_not_finite(const packed_t *t)
{
    if (!is_used(t) || t->padded == 0)
        return 0;
    return not_finite((const char *)t->data, t->padded * (ptrdiff_t)sizeof(T),
                      sizeof(T), t->packed_rows * t->heads * t->batches, t->padded);
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
