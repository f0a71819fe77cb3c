/* plan.h: how one problem is cut into tiles, in both directions, and which path each table
 * takes.
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

#include "../terms/fire.h"

enum {
    RP_CHUNKS = 8,     /* key chunks of a head that the backward works on, at most */
    RP_FEW_ROWS = 256, /* table rows up to which it sums by row, not by band */
};

#define BQ (RP_QUERY_TILE / (RP_IS_F32 ? 1 : 2))

enum { RP_ABSENT, RP_BAND, RP_ROWS, RP_LABELS };

/* The table row of relative position r; -1: no position term. */
RP_INLINE int64_t
rp_table_row(int64_t r, int64_t min_position, int64_t rows, int beyond)
{
    int64_t t = r - min_position;
    if (t < 0)
        return beyond == RP_CLIP ? 0 : -1;
    if (t >= rows)
        return beyond == RP_CLIP ? rows - 1 : -1;
    return t;
}

/* The label of a pair as a row of a table with `rows` rows; -1 outside. Labels were
 * checked before the call; checking each again keeps a caller who changes them during
 * the call from reading outside the table. */
RP_INLINE int64_t
rp_label(const char *at, int size, int64_t rows)
{
    int64_t label = size == 1   ? *(const int8_t *)at
                    : size == 2 ? *(const int16_t *)at
                    : size == 4 ? *(const int32_t *)at
                                : *(const int64_t *)at;
    return label >= 0 && label < rows ? label : -1;
}

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

/* ---- slices ---------------------------------------------------------------------- */

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

#endif
