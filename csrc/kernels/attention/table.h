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
#include "tiles/tile.h"

enum {
    RP_PACK_CHUNK = 256, /* rows that a unit of packing takes */
};

/* ---- packing --------------------------------------------------------------------- */

/* Address of packed row n of a copy, or NULL for a row of zeros. */
RP_INLINE const char *
table_source(const table_pack_t *t, int64_t b, int64_t h, int64_t n)
{
    const rp_attention *p = t->plan->p;
    int64_t row = n < t->rows ? n : -1;
    if (t->path == RP_BAND) {
        int64_t r =
            n + t->plan->band_first + 1 - t->plan->Lq_pad - rp_query_offset(p, b);
        row = rp_table_row(r, p->min_position, t->rows, p->beyond);
    }
    return row < 0 ? NULL : rp_at(t->table, b, h, row);
}

static void
pack_table_unit(void *context, int64_t unit, int worker)
{
    table_pack_t *t = context;
    (void)worker;
    int64_t chunk = unit % t->chunks, copy = unit / t->chunks;
    T *data = t->copies->data + copy * t->copies->size;
    copy += t->copies->first;
    int64_t b = copy % t->copies->batches, h = copy / t->copies->batches;
    int64_t end = RP_MIN(t->packed_rows, (chunk + 1) * RP_PACK_CHUNK);
    for (int64_t n = chunk * RP_PACK_CHUNK; n < end; n += t->panels ? NR : 1) {
        const char *rows[NR];
        if (!t->panels) {
            pack_row(data + n * t->padded, table_source(t, b, h, n), t->table->col,
                     t->columns, t->padded);
            for (ptrdiff_t k = 0; t->factor != 1 && k < t->columns; k++)
                data[n * t->padded + k] *= t->factor;
            continue;
        }
        for (int i = 0; i < NR; i++)
            rows[i] = table_source(t, b, h, n + i);
        pack_panel(data + n * t->columns, rows, t->table->col, t->columns, t->factor,
                   NR * t->table->row);
    }
}

/* One copy for all batch items unless the table, or the band's origin, differs by item. */
RP_INLINE int64_t
table_batches(const rp_attention *p, const rp_array *table, int path)
{
    for (int64_t b = 1; b < p->B; b++) {
        if (table->batch && table->batch[b] != table->batch[0])
            return p->B;
        if (path == RP_BAND && rp_query_offset(p, b) != rp_query_offset(p, 0))
            return p->B;
    }
    return 1;
}

/* Lays the copies of a table out. */
static table_pack_t
plan_table(const plan_t *plan, const rp_array *table, copies_t *copies, int64_t rows,
           int64_t columns, int path, int panels, double factor)
{
    table_pack_t t = {plan,    table, copies, rows,      columns, rows,
                      columns, path,  panels, (T)factor, 0};
    if (path == RP_BAND)
        t.packed_rows = plan->band_end - plan->band_first;
    if (panels)
        t.packed_rows = RP_ROUND_UP(t.packed_rows, NR);
    else
        t.padded = RP_ROUND_UP(columns, VL);
    t.chunks = (t.packed_rows + RP_PACK_CHUNK - 1) / RP_PACK_CHUNK;
    copies->heads = table->head ? plan->p->H : 1;
    copies->batches = table_batches(plan->p, table, path);
    copies->size = t.packed_rows * t.padded;
    return t;
}

static rp_status
pack_table(const plan_t *plan, const rp_array *table, copies_t *copies, int64_t rows,
           int64_t columns, int path, int panels, double factor)
{
    if (path == RP_ABSENT || copies->first < 0)
        return RP_OK;
    table_pack_t t =
        plan_table(plan, table, copies, rows, columns, path, panels, factor);
    int64_t count = copies->heads * copies->batches;
    copies->data = rp_alloc((size_t)count, (size_t)copies->size * sizeof(T));
    if (!copies->data)
        return RP_NO_MEMORY;
    return rp_parallel(count * t.chunks, pack_table_unit, &t, plan->p->threads);
}

/* 1 when any copy of a table holds NaN or infinity. */
static int
table_not_finite(const rp_array *table, const copies_t *copies, int64_t rows,
                 int64_t columns)
{
    int bad = 0;
    for (int64_t b = 0; table->data && b < copies->batches; b++)
        for (int64_t h = 0; h < copies->heads; h++)
            bad |= not_finite(rp_at(table, b, h, 0), table->row, table->col, rows,
                              columns);
    return bad;
}

/* ---- a row of the table to its pairs --------------------------------------------- */

/* The keys of row m of a tile by where they fall on a table of `rows` rows: key n has row
 * `row + n` for n in [inside, past), keys before and after lie beyond its ends. */
typedef struct {
    int64_t row, inside, past;
} runs_t;

RP_INLINE
runs_t
runs_of(const plan_t *plan, const queries_t *q, const tile_t *t, int m, int64_t rows,
        int64_t count)
{
    runs_t runs = {position_of(plan, q, t, m, 0) - plan->p->min_position, 0, 0};
    runs.inside = RP_MIN(count, RP_MAX(0, -runs.row));
    runs.past = RP_MIN(count, RP_MAX(0, rows - runs.row));
    return runs;
}

/* s[m, n] = dots[m, table row of the pair], by clipping. */
static void
fill_clipped(const plan_t *plan, const queries_t *q, const tile_t *t, T *s,
             const T *dots, ptrdiff_t stride, int64_t rows)
{
    int clip = plan->p->beyond == RP_CLIP;
    for (int m = 0; m < q->rows; m++, s += t->ld, dots += stride) {
        runs_t runs = runs_of(plan, q, t, m, rows, t->columns);
        T before = clip ? dots[0] : 0, after = clip ? dots[rows - 1] : 0;
        int64_t n = 0;
        for (; n < runs.inside; n++)
            s[n] = before;
        for (; n < runs.past; n++)
            s[n] = dots[runs.row + n];
        for (; n < t->columns; n++)
            s[n] = after;
    }
}

/* The same by label. */
static void
fill_labels(const plan_t *plan, const queries_t *q, const tile_t *t, T *s,
            const T *dots, ptrdiff_t stride, int64_t rows)
{
    const rp_attention *p = plan->p;
    for (int m = 0; m < q->rows; m++, s += t->ld, dots += stride) {
        const char *label =
            rp_at(&p->labels, q->b, 0, q->i0 + m) + t->j0 * p->labels.col;
        for (int n = 0; n < t->columns; n++, label += p->labels.col) {
            int64_t l = n < t->keys ? rp_label(label, p->label_size, rows) : -1;
            s[n] = l < 0 ? 0 : dots[l];
        }
    }
}

/* Spreads the products of queries and table rows over the tile at s and returns NULL; or
 * returns the one value that they have in each row of the tile, a row's `*step` from the
 * next (ROWS, all keys on one side of the table). */
static const T *
fill_dots(const plan_t *plan, const queries_t *q, const tile_t *t, T *s, const T *dots,
          ptrdiff_t stride, int64_t rows, ptrdiff_t *step)
{
    static const T zero = 0;
    const rp_attention *p = plan->p;
    if (p->labels.data)
        return fill_labels(plan, q, t, s, dots, stride, rows), NULL;
    int before = position_of(plan, q, t, 0, t->columns - 1) < p->min_position;
    int after = position_of(plan, q, t, q->rows - 1, 0) >= p->min_position + rows;
    if (!before && !after)
        return fill_clipped(plan, q, t, s, dots, stride, rows), NULL;
    *step = p->beyond == RP_ZERO ? 0 : stride;
    return p->beyond == RP_ZERO ? &zero : dots + (before ? 0 : rows - 1);
}

/* ---- the pairs of a row to the table --------------------------------------------- */

RP_INLINE T
sum_run(const T *p, int64_t first, int64_t end)
{
    V sum = (V){0};
    T rest = 0;
    for (; first + VL <= end; first += VL)
        sum += load(p + first);
    for (; first < end; first++)
        rest += p[first];
    return sum_lanes(sum)[0] + rest;
}

/* sums[m, table row of the pair] += a[m, n] over the tile, by clipping: every row inside
 * the table has one key, its two ends take all keys beyond. */
static void
sum_by_row(const plan_t *plan, const queries_t *q, const tile_t *t, const T *a, T *sums,
           ptrdiff_t stride, int64_t rows)
{
    for (int m = 0; m < q->rows; m++, a += t->ld, sums += stride) {
        runs_t runs = runs_of(plan, q, t, m, rows, t->keys);
        if (plan->p->beyond == RP_CLIP) {
            sums[0] += sum_run(a, 0, runs.inside);
            sums[rows - 1] += sum_run(a, runs.past, t->keys);
        }
        for (int64_t n = runs.inside; n < runs.past; n++)
            sums[runs.row + n] += a[n];
    }
}

/* The same by label. */
static void
sum_by_label(const plan_t *plan, const queries_t *q, const tile_t *t, const T *a,
             T *sums, ptrdiff_t stride, int64_t rows)
{
    const rp_attention *p = plan->p;
    for (int m = 0; m < q->rows; m++, a += t->ld, sums += stride) {
        const char *label =
            rp_at(&p->labels, q->b, 0, q->i0 + m) + t->j0 * p->labels.col;
        for (int n = 0; n < t->keys; n++, label += p->labels.col) {
            int64_t l = rp_label(label, p->label_size, rows);
            if (l >= 0)
                sums[l] += a[n];
        }
    }
}

RP_INLINE void
sum_by_table_row(const plan_t *plan, const queries_t *q, const tile_t *t, const T *a,
                 T *sums, ptrdiff_t stride, int64_t rows)
{
    (plan->p->labels.data ? sum_by_label : sum_by_row)(plan, q, t, a, sums, stride,
                                                       rows);
}

#endif
