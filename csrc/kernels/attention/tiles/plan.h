/* attention_plan.h: how one problem is laid out: which path each table takes, what is
 * packed, and the packing itself.
 *
 * Query tiles of BQ rows start at multiples of BQ, key tiles of key_tile keys at
 * multiples of that, whatever the threads, batch and heads: a row's bits depend on its
 * own problem only.
 *
 * Band columns are numbered by w = r - r_0, r_0 = 1 - Lq_pad - query_offset, so that the
 * first column of every tile, w0 = j0 - i0 + Lq_pad - BQ, is a multiple of NR and tiles
 * read whole panels. */
#ifndef RELPOS_ATTENTION_TILES_PLAN_H
#define RELPOS_ATTENTION_TILES_PLAN_H

#include "../../ground/pack.h"
#include "../terms/fire.h"

#define BQ (RP_QUERY_TILE / (RP_IS_F32 ? 1 : 2))

/* Packed copies of one table: one for all, or per head, or per batch item (and head). */
typedef struct {
    T *data;
    ptrdiff_t size; /* elements of one copy */
    int64_t heads, batches;
    int64_t first; /* the copy at data: where waves pack it not 0, -1 until they do */
} copies_t;

RP_INLINE T *
copy_of(const copies_t *c, int64_t b, int64_t h)
{
    int64_t index = (c->heads > 1 ? h : 0) * c->batches + (c->batches > 1 ? b : 0);
    return c->data + (index - c->first) * c->size;
}

/* What packing a table takes. */
typedef struct {
    const struct plan *plan;
    const rp_array *table;
    copies_t *copies;
    int64_t rows, columns; /* of the table; columns = its row length */
    int64_t packed_rows, padded;
    int path, panels; /* panels of NR rows; else rows of whole vectors */
    T factor;
    int64_t chunks;
} table_pack_t;

typedef struct plan {
    const rp_attention *p;
    int64_t group;                     /* query heads to a key head */
    int use_key, use_query, use_value; /* RP_ABSENT .. RP_LABELS */
    int skew;                          /* 1: score rows lie skewed in their buffer */
    int may_hide;                      /* some visible tile may hold hidden pairs */
    int key_tile;                      /* keys of a tile */
    ptrdiff_t lds; /* row length of the score buffer: key_tile keys plus the skew */
    int64_t Lq_pad, Lk_pad, D_pad, Dv_pad, key_tiles;
    ptrdiff_t key_stride,
        value_stride;             /* table rows, rounded up to panels and vectors */
    int64_t band_first, band_end; /* band columns that any tile reads */
    copies_t rel_key, rel_query, rel_value;
    table_pack_t wave_tables[2]; /* those that waves pack; without a plan: none */
    fire_t fire;
    int fire_first; /* FIRE's bias goes into the empty tile, not on top of the scores */
    int rel_value_bad; /* rel_value holds NaN or infinity */
    int copy_values;
    T *keys, *values;                  /* packed slices of this wave */
    unsigned char *values_bad;         /* per slice and key tile: NaN or infinity */
    int64_t first_slice, slices;       /* this wave */
    int64_t query_blocks, block_tiles; /* units to a head, query tiles to a unit */
    char *scratch;
    size_t scratch_size; /* bytes to a worker */
} plan_t;

/* ROWS costs BQ * rows * D a query tile and a pass over the few tiles near the diagonal;
 * BAND costs as much again as the content product. Both give the same bits. */
RP_INLINE int
choose_path(const rp_attention *p, const rp_array *table, int64_t rows)
{
    if (!table->data)
        return RP_ABSENT;
    if (p->labels.data)
        return RP_LABELS;
    return rows <= 1024 && 8 * rows <= p->Lq + p->Lk ? RP_ROWS : RP_BAND;
}

static void
plan_band(plan_t *plan)
{
    const rp_attention *p = plan->p;
    int64_t low = 0, high = 0, full = plan->Lq_pad + plan->Lk_pad;
    for (int64_t b = 0; b < (p->query_offset ? p->B : 1); b++) {
        int64_t o = rp_query_offset(p, b), first = 0, end = full;
        if (p->window_left != RP_UNBOUNDED)
            first = o - p->window_left - plan->key_tile + plan->Lq_pad - BQ;
        if (p->window_right != RP_UNBOUNDED)
            end = p->window_right + o + plan->Lq_pad;
        low = b ? RP_MIN(low, first) : first;
        high = b ? RP_MAX(high, end) : end;
    }
    low = RP_MIN(RP_MAX(low, 0), full);
    high = RP_MIN(RP_MAX(high, low), full);
    plan->band_first = low / NR * NR;
    plan->band_end = RP_ROUND_UP(high, NR);
}

/* ---- packing ---------------------------------------------------------------- */

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

/* ---- slices ----------------------------------------------------------------- */

RP_INLINE int64_t
slice_of(const plan_t *plan, int64_t b, int64_t hk)
{
    return hk * plan->p->B + b - plan->first_slice;
}

/* The batch item and key head of a slice of the wave. */
RP_INLINE void
slice_at(const plan_t *plan, int64_t slice, int64_t *b, int64_t *hk)
{
    *b = (plan->first_slice + slice) % plan->p->B;
    *hk = (plan->first_slice + slice) / plan->p->B;
}

/* The batch item and query head of query head `index` of the wave. */
RP_INLINE void
head_at(const plan_t *plan, int64_t index, int64_t *b, int64_t *h)
{
    int64_t hk;
    slice_at(plan, index / plan->group, b, &hk);
    *h = hk * plan->group + index % plan->group;
}

/* (q + u) and (q + v), times scale * log2e, of the `rows` queries from i0 on, then zeros
 * up to `padded` rows. */
static void
pack_queries(const plan_t *plan, int64_t b, int64_t h, int64_t i0, int64_t rows,
             int64_t padded, T *content, T *relative)
{
    static const rp_array absent = {0};
    const rp_attention *p = plan->p;
    const T factor = (T)(p->scale * RP_LOG2E);
    for (int64_t m = 0; m < padded; m++) {
        const rp_array *query = m < rows ? &p->query : &absent;
        pack_sum(content + m * plan->D_pad, query, &p->pos_bias_u, b, h, i0 + m, p->D,
                 plan->D_pad, factor);
        if (relative != content)
            pack_sum(relative + m * plan->D_pad, query, &p->pos_bias_v, b, h, i0 + m,
                     p->D, plan->D_pad, factor);
    }
}

/* Keys, and where needed values, of one key tile of one slice. */
static void
pack_slice_unit(void *context, int64_t unit, int worker)
{
    plan_t *plan = context;
    const rp_attention *p = plan->p;
    (void)worker;
    int64_t slice = unit / plan->key_tiles, tile = unit % plan->key_tiles;
    int64_t b, hk, j0 = tile * plan->key_tile;
    int64_t end = RP_MIN(plan->Lk_pad, j0 + plan->key_tile);
    slice_at(plan, slice, &b, &hk);
    T *keys = plan->keys + slice * plan->Lk_pad * p->D;
    for (int64_t j = j0; j < end; j += NR) {
        const char *rows[NR];
        for (int i = 0; i < NR; i++)
            rows[i] = j + i < p->Lk ? rp_at(&p->key, b, hk, j + i) : NULL;
        pack_panel(keys + j * p->D, rows, p->key.col, p->D, 1, NR * p->key.row);
    }
    end = RP_MIN(end, p->Lk);
    if (plan->copy_values) {
        T *values = plan->values + slice * p->Lk * plan->Dv_pad;
        for (int64_t j = j0; j < end; j++)
            pack_row(values + j * plan->Dv_pad, rp_at(&p->value, b, hk, j),
                     p->value.col, p->Dv, plan->Dv_pad);
    }
    if (plan->may_hide)
        plan->values_bad[unit] = (unsigned char)not_finite(
            rp_at(&p->value, b, hk, j0), p->value.row, p->value.col, end - j0, p->Dv);
}

/* Values of slice (b, hk) as rows: the packed copy, or the caller's array where its rows
 * are whole vectors close together (rows 1 KB apart halve the speed of P.V). */
RP_INLINE const T *
slice_values(const plan_t *plan, int64_t b, int64_t hk, ptrdiff_t *stride)
{
    const rp_attention *p = plan->p;
    if (plan->copy_values) {
        *stride = plan->Dv_pad;
        return plan->values + slice_of(plan, b, hk) * p->Lk * plan->Dv_pad;
    }
    *stride = p->value.row / (ptrdiff_t)sizeof(T);
    return (const T *)rp_at(&p->value, b, hk, 0);
}

static void
plan_paths(plan_t *plan, const rp_attention *p, int key_tile)
{
    const ptrdiff_t size = sizeof(T);
    plan->p = p;
    plan->key_tile = key_tile;
    plan->lds = key_tile + BQ;
    plan->group = p->H / p->Hk;
    plan->use_key = choose_path(p, &p->rel_key, p->key_rows);
    plan->use_query = p->rel_query.data ? RP_BAND : RP_ABSENT;
    plan->use_value = choose_path(p, &p->rel_value, p->value_rows);
    plan->skew = plan->use_key == RP_BAND || plan->use_value == RP_BAND;
    plan->may_hide = p->window_left != RP_UNBOUNDED ||
                     p->window_right != RP_UNBOUNDED || p->mask_type != RP_MASK_NONE ||
                     p->rel_bias.data || p->fire_lines.data;
    plan->Lq_pad = RP_ROUND_UP(p->Lq, BQ);
    plan->Lk_pad = RP_ROUND_UP(p->Lk, NR);
    plan->D_pad = RP_ROUND_UP(p->D, VL);
    plan->Dv_pad = RP_ROUND_UP(p->Dv, VL);
    plan->key_tiles = (p->Lk + plan->key_tile - 1) / plan->key_tile;
    plan->key_stride = RP_ROUND_UP(p->key_rows, NR);
    plan->value_stride = RP_ROUND_UP(p->value_rows, VL);
    plan->copy_values = p->value.col != size || p->Dv % VL || p->value.row % size ||
                        p->value.row > 128 * size || p->value.row < 0;
    plan_band(plan);
}

/* FIRE's tables. Its bias is written into the empty tile where nothing else is, and where
 * it hides no pair: the products are then added to it for nothing. */
static rp_status
plan_bias(plan_t *plan, const rp_array *slopes)
{
    const rp_attention *p = plan->p;
    rp_status status = plan_fire(&plan->fire, p, slopes);
    plan->fire_first =
        p->fire_lines.data && !plan->fire.hides && plan->use_key == RP_ABSENT;
    return status;
}

#endif
