/* loop.h: the fused forward: nothing Lq x Lk is ever stored.
 *
 * A unit is one head's block of query tiles; key tiles are its outer loop, so the tiles of
 * a block share each slice of keys, values and table while it is in the second-level
 * cache. */
#ifndef RELPOS_ATTENTION_TILES_FORWARD_LOOP_H
#define RELPOS_ATTENTION_TILES_FORWARD_LOOP_H

#include "../../results.h"
#include "../../terms/sinks.h"
#include "../scores.h"
#include "../values.h"
#include "memory.h"
#include "pack.h"

static void
start_queries(const plan_t *plan, queries_t *q, int64_t b, int64_t h, int64_t i0)
{
    const rp_attention *p = plan->p;
    q->b = b;
    q->h = h;
    q->i0 = i0;
    q->rows = (int)RP_MIN(BQ, p->Lq - i0);
    q->rows_pad = padded_rows(q->rows);
    q->fresh = 1;
    see_keys(&plan->shown, q);
    if (plan->shown.classes)
        q->seen = without_hidden(&plan->shown, q, q->seen);
    q->saved_column = -1;
    pack_queries(plan, b, h, i0, q->rows, q->rows_pad, q->content, q->relative);
    memset(q->out, 0, (size_t)(q->rows_pad * plan->Dv_pad) * sizeof(T));
    running_t start = start_softmax(&p->sinks, b, h, i0);
    for (int m = 0; m < BQ; m++) {
        if (p->sinks.row != 0 && 0 < m && m < q->rows)
            start = start_softmax(&p->sinks, b, h, i0 + m);
        q->max[m] = start.max;
        q->sum[m] = start.sum;
    }
    if (q->key_dots)
        dot_rel_key(plan, b, h, q->relative, q->rows_pad, q->key_dots);
    if (q->value_sums)
        memset(q->value_sums, 0, (size_t)(BQ * plan->rel_value.stride) * sizeof(T));
    for (int m = 0; p->results.weights.data && m < q->rows; m++)
        hide_weights(&p->results.weights, b, h, i0 + m, p->Lk);
}

/* Finds what the maximum of each row will be at least, where that lets tiles be left out.
 * */
static void
find_floor(const plan_t *plan, scratch_t *w, queries_t *q)
{
    const int64_t slice = slice_of(plan, q->b, q->h / plan->group);
    const T *norms = norms_of(&plan->weightless, slice, plan->key_tiles);
    tile_t t;
    if (!may_weigh_nothing(&plan->weightless, q, norms, plan->key_tiles, plan->D_pad))
        return;
    for (int64_t tile = 0; tile < plan->key_tiles; tile++) {
        int64_t j0 = tile * plan->key_tile, at = j0;
        while (start_tile(&plan->shown, q, &t, &at, j0, plan->key_tile)) {
            start_bias_tile(&plan->bias, w, q, &t);
            raise_floor(&plan->weightless, w, q, &t, norms[tile]);
        }
    }
}

/* Adds the keys of a part of a key tile to what its queries accumulate. */
static void
visit_part(const plan_t *plan, scratch_t *w, queries_t *q, tile_t *t)
{
    const rp_attention *p = plan->p;
    t->w0 = t->j0 - q->i0 + plan->Lq_pad - BQ;
    t->ld = plan->lds - plan->skew;
    t->s = w->scores + plan->skew * (BQ - 1);
    int64_t hk = q->h / plan->group, slice = slice_of(plan, q->b, hk);
    int64_t tile = slice * plan->key_tiles + t->j0 / plan->key_tile;
    int bad = plan->may_hide && plan->values_bad[tile];
    ptrdiff_t stride;
    const T *values = slice_values(plan, q->b, hk, &stride);
    if (q->floor > -(T)INFINITY && !bad) {
        start_bias_tile(&plan->bias, w, q, t);
        if (weighs_nothing(&plan->weightless, w, q, t, plan->weightless.norms[tile]))
            return;
    }
    score_tile(plan, w, q, t, plan->keys + slice * plan->Lk_pad * p->D);
    value_tile(plan, w, q, t, values, stride, bad);
}

static void
visit_tile(const plan_t *plan, scratch_t *w, queries_t *q, int64_t j0)
{
    tile_t t;
    for (int64_t at = j0; start_tile(&plan->shown, q, &t, &at, j0, plan->key_tile);)
        visit_part(plan, w, q, &t);
}

static void
write_queries(const plan_t *plan, queries_t *q)
{
    const rp_attention *p = plan->p;
    finish_rel_value_rows(plan, q);
    for (int m = 0; m < q->rows; m++) {
        running_t row = {q->max[m], q->sum[m]};
        write_row(&p->results, &p->sinks, q->b, q->h, q->i0 + m, row,
                  q->out + m * plan->Dv_pad, p->Dv, 1 - p->dropout.p);
        if (p->results.weights.data)
            write_weights(&p->results.weights, q->b, q->h, q->i0 + m, p->Lk, row);
    }
}

static void
forward_unit(void *context, int64_t unit, int worker)
{
    const plan_t *plan = context;
    const rp_attention *p = plan->p;
    scratch_t w;
    arena_t arena = {.memory = plan->scratch + (size_t)worker * plan->scratch_size};
    lay_out_scratch(plan, &arena, &w);
    /* The last blocks of a causal head are the longest: they go first. */
    int64_t block = plan->query_blocks - 1 - unit % plan->query_blocks;
    int64_t b, h, i0 = block * plan->block_tiles * BQ, begin = p->Lk, end = 0;
    head_at(plan, unit / plan->query_blocks, &b, &h);
    int tiles = 0;
    for (; tiles < plan->block_tiles && i0 + tiles * BQ < p->Lq; tiles++) {
        queries_t *q = &w.queries[tiles];
        start_queries(plan, q, b, h, i0 + tiles * BQ);
        find_floor(plan, &w, q);
        if (q->seen.begin == q->seen.end)
            continue;
        begin = RP_MIN(begin, q->seen.begin);
        end = RP_MAX(end, q->seen.end);
    }
    for (int64_t j0 = begin / plan->key_tile * plan->key_tile; j0 < end;
         j0 += plan->key_tile) {
        start_band_lines(plan, &w.dots);
        for (int i = 0; i < tiles; i++) {
            if ((i > 0 || j0 > begin) && rp_stopping())
                return;
            visit_tile(plan, &w, &w.queries[i], j0);
        }
    }
    for (int i = 0; i < tiles; i++)
        write_queries(plan, &w.queries[i]);
}

/* Runs all units of one slice on one worker: where there are many slices, one is a unit. */
static void
forward_slice(void *context, int64_t slice, int worker)
{
    const plan_t *plan = context;
    run_units_of(pack_slice_unit, context, slice, plan->key_tiles, worker);
    run_units_of(forward_unit, context, slice, plan->group * plan->query_blocks,
                 worker);
}

static rp_status
run_forward_waves(plan_t *plan)
{
    const rp_attention *p = plan->p;
    int64_t wave = plan->slices;
    for (int64_t s = 0; s < p->B * p->Hk; s += plan->slices) {
        start_wave(plan, s, wave);
        rp_status status = pack_wave_tables(plan);
        int steps = !by_slice(plan);
        if (!status && !steps)
            status = rp_parallel(plan->slices, forward_slice, plan, p->threads);
        if (!status && steps)
            status = rp_parallel(plan->slices * plan->key_tiles, pack_slice_unit, plan,
                                 p->threads);
        if (!status && steps)
            status = rp_parallel(plan->slices * plan->group * plan->query_blocks,
                                 forward_unit, plan, p->threads);
        if (status)
            return status;
    }
    return RP_OK;
}

/* Runs the problem, or only counts: see `reserve`. */
static rp_status
forward_by_tiles(const rp_attention *p, size_t *bytes)
{
    plan_t plan = {0};
    arena_t arena;
    rp_attention trimmed = *p;
    trim_table(p, &trimmed.rel_key, NULL);
    trim_table(p, &trimmed.rel_value, NULL);
    plan_forward(&plan, &trimmed);
    rp_status status = reserve(&arena, lay_out_forward, &plan, bytes);
    if (status || bytes)
        return status;
    status = start_forward(&plan);
    if (!status)
        status = run_forward_waves(&plan);
    rp_free(arena.memory);
    return status;
}

#endif
