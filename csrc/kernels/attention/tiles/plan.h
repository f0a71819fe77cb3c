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

#include "../packed.h"
#include "../terms/bias.h"
#include "shown.h"
#include "weightless.h"

enum {
    RP_MOST_TABLES = 4, /* packed for one call: by the backward */
};

typedef struct {
    const rp_attention *p;
    int64_t group; /* query heads to a key head */
    int skew;      /* 1: score rows lie skewed in their buffer */
    int may_hide;  /* some visible tile may hold hidden pairs */
    int key_tile;  /* keys of a tile */
    ptrdiff_t lds; /* row length of the score buffer: key_tile keys plus the skew */
    int64_t Lq_pad, Lk_pad, D_pad, Dv_pad, Dp_pad, key_tiles;
    band_t band, query_band; /* all columns; those that rel_query is packed for */
    shown_t shown;
    weightless_t weightless;
    packed_t rel_key, rel_query, rel_value;
    packed_t *tables[RP_MOST_TABLES]; /* those of them, and others, that are packed */
    int table_count;
    bias_t bias;
    int bias_first;    /* the bias goes into the empty tile, not on top of the scores */
    int rel_value_bad; /* rel_value holds NaN or infinity */
    int copy_values;
    T *keys, *values;                  /* packed slices of this wave */
    unsigned char *values_bad;         /* per slice and key tile: NaN or infinity */
    int by_head;                       /* slices are numbered head by head */
    int64_t first_slice, slices;       /* this wave */
    int64_t query_blocks, block_tiles; /* units to a head, query tiles to a unit */
    char *scratch;
    size_t scratch_size; /* bytes to a worker */
} plan_t;

/* The relative position of a band column. */
RP_INLINE int64_t
position_of_column(const plan_t *plan, int64_t b, int64_t column)
{
    return column + plan->band.position - rp_query_offset(plan->p, b);
}

static void
plan_band(plan_t *plan)
{
    const rp_attention *p = plan->p;
    const rp_sight *sight = &p->sight;
    int64_t low = 0, high = 0, full = plan->Lq_pad + plan->Lk_pad;
    for (int64_t b = 0; b < (sight->query_offset ? p->B : 1); b++) {
        int64_t o = rp_query_offset(p, b), first = 0, end = full;
        if (sight->window_left != RP_UNBOUNDED)
            first = o - sight->window_left - plan->key_tile + plan->Lq_pad - BQ;
        if (sight->window_right != RP_UNBOUNDED)
            end = sight->window_right + o + plan->Lq_pad;
        low = b ? RP_MIN(low, first) : first;
        high = b ? RP_MAX(high, end) : end;
    }
    low = RP_MIN(RP_MAX(low, 0), full);
    high = RP_MIN(RP_MAX(high, low), full);
    plan->band.first = low / NR * NR;
    plan->band.end = RP_ROUND_UP(high, NR);
    plan->band.position = 1 - plan->Lq_pad;
}

/* Leaves out of the band of rel_query what lies so far beyond the table that the columns of a
 * query tile and a panel have one row of it, or none (terms/rel_query.h): one is packed. How
 * many are left follows from the number of rows; items of several offsets keep all. */
static void
plan_query_band(plan_t *plan)
{
    const rp_attention *p = plan->p;
    const band_t *all = &plan->band;
    int64_t size = RP_ROUND_UP(p->rel_query.rows + 2 * (BQ + NR), NR) + NR;
    int64_t low = p->rel_query.first + rp_query_offset(p, 0) - all->position - BQ - NR;
    size = RP_MIN(size, all->end - all->first);
    for (int64_t b = 1; p->sight.query_offset && b < p->B; b++)
        if (rp_query_offset(p, b) != rp_query_offset(p, 0))
            size = all->end - all->first;
    low = RP_MAX(RP_MIN(low, all->end - size), all->first) / NR * NR;
    plan->query_band = (band_t){low, low + size, all->position};
}

/* Leaves out of a table, and of its gradient unless that is NULL, the rows at its ends that no
 * pair has where queries and keys are the same tokens: of a short sequence these are many. Only
 * of tables that are met by ROWS with or without them, in one block of terms: no bit changes.
 * Not by query_offset: what a call takes should not depend on its numbers. */
static void
trim_table(const rp_attention *p, rp_table *table, rp_array *grad)
{
    int64_t low = 1 - p->Lq - table->first, high = low + p->Lq + p->Lk - 2;
    int64_t most = table->rows - 1;
    if (!table->array.data || table->rows > DEPTH_BLOCK || p->Lq != p->Lk ||
        choose_path(p, table, DEPTH_BLOCK) != RP_ROWS)
        return;
    for (int64_t b = 0; p->sight.query_offset && b < p->B; b++)
        if (p->sight.query_offset[b] != 0)
            return;
    low = RP_MIN(RP_MAX(low, 0), most);
    high = RP_MIN(RP_MAX(high, low), most);
    table->first += low;
    table->rows = high - low + 1;
    if (table->index) {
        table->index += low;
        return;
    }
    table->array.data += low * table->array.row;
    if (grad && grad->data)
        grad->data += low * grad->row;
}

/* most_rows: up to how many rows a table is met by ROWS. */
static void
plan_paths(plan_t *plan, const rp_attention *p, int64_t most_rows)
{
    const ptrdiff_t size = sizeof(T);
    plan->p = p;
    plan->group = p->H / p->Hk;
    rp_assert(plan->group > 0);
    /* a narrow band that leaves out what lies beyond costs less than spreading does */
    int narrow = p->beyond == RP_ZERO && p->Dp < p->D;
    plan->rel_key.path = choose_path(p, &p->rel_key, narrow ? RP_FEW_ROWS : most_rows);
    plan->rel_key.stride = RP_ROUND_UP(p->rel_key.rows, VL);
    plan->rel_query.path = p->rel_query.array.data ? RP_BAND : RP_ABSENT;
    if (is_used(&plan->rel_key) && p->rel_key.index && !is_narrow(p))
        plan->rel_key.path = RP_LISTED;
    if (is_used(&plan->rel_query) && p->rel_query.index)
        plan->rel_query.path = RP_LISTED;
    plan->rel_value.path = choose_path(p, &p->rel_value, most_rows);
    plan->rel_value.stride = RP_ROUND_UP(p->rel_value.rows, VL);
    plan_shown(&plan->shown, p);
    plan->skew = in_band(&plan->rel_key) || in_band(&plan->rel_value);
    plan->may_hide = p->sight.window_left != RP_UNBOUNDED ||
                     p->sight.window_right != RP_UNBOUNDED || rp_has_mask(p) ||
                     p->sight.key_ranges.data || has_bias(p);
    plan->Lq_pad = RP_ROUND_UP(p->Lq, BQ);
    plan->Lk_pad = RP_ROUND_UP(p->Lk, NR);
    plan->D_pad = RP_ROUND_UP(p->D, VL);
    plan->Dv_pad = RP_ROUND_UP(p->Dv, VL);
    plan->Dp_pad = RP_ROUND_UP(p->Dp, VL);
    plan->copy_values = !is_plain(&p->value) || p->Dv % VL || p->value.row % size ||
                        p->value.row > 128 * size || p->value.row < 0;
}

/* Key tiles of `keys` keys, and the bands that they meet. */
static void
plan_tiles(plan_t *plan, int keys)
{
    plan->key_tile = keys;
    plan->key_tiles = (plan->p->Lk + keys - 1) / keys;
    plan->lds = keys + BQ;
    plan_band(plan);
    plan_query_band(plan);
    plan_weightless(&plan->weightless, plan->p, &plan->bias, plan->key_tiles);
}

/* ---- slices ---------------------------------------------------------------------- */

RP_INLINE int64_t
slice_of(const plan_t *plan, int64_t b, int64_t hk)
{
    const rp_attention *p = plan->p;
    return (plan->by_head ? hk * p->B + b : b * p->Hk + hk) - plan->first_slice;
}

/* The batch item and key head of a slice of the wave. */
RP_INLINE void
slice_at(const plan_t *plan, int64_t slice, int64_t *b, int64_t *hk)
{
    const rp_attention *p = plan->p;
    slice += plan->first_slice;
    *b = plan->by_head ? slice % p->B : slice / p->Hk;
    *hk = plan->by_head ? slice / p->B : slice % p->Hk;
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
