/* loop.h: the fused backward: gradients of every operand, nothing Lq x Lk stored but the
 * mask's gradient, which is dense by nature.
 *
 * A unit is a key head and a chunk of its keys against all queries that see them. Key tiles
 * outside, query tiles inside: grad_key and grad_value of a tile stay in the second-level
 * cache while queries stream by, packed once per head. */
#ifndef RELPOS_ATTENTION_TILES_BACKWARD_LOOP_H
#define RELPOS_ATTENTION_TILES_BACKWARD_LOOP_H

#include "../chunk.h"
#include "../ends.h"
#include "../grads.h"
#include "pack.h"
#include "plan.h"

/* Sets the query tile from i0 on up. */
static void
start_visits(const gradients_t *gp, visit_t *x, int64_t i0)
{
    const plan_t *plan = &gp->plan;
    queries_t *q = &x->q;
    q->i0 = i0;
    q->rows = (int)RP_MIN(BQ, plan->p->Lq - i0);
    q->rows_pad = padded_rows(q->rows);
    see_keys(&plan->shown, q);
    q->content = x->head->rows_u + i0 * plan->D_pad;
    q->relative = x->head->rows_v + i0 * plan->Dp_pad;
    q->key_dots =
        x->head->key_dots ? x->head->key_dots + i0 * plan->rel_key.stride : NULL;
    x->selected = x->head->bad[i0 / BQ];
}

/* Sets up the first part of the key tile at j0, from key *at on, of which a pair is visible; 0:
 * there is none. */
static int
start_visit(const gradients_t *gp, grad_scratch_t *w, visit_t *x, int64_t *at,
            int64_t j0)
{
    const plan_t *plan = &gp->plan;
    queries_t *q = &x->q;
    tile_t *t = &x->t;
    if (!start_tile(&plan->shown, q, t, at, j0, plan->key_tile))
        return 0;
    q->saved_column = -1;
    t->w0 = t->j0 - q->i0 + plan->Lq_pad - BQ;
    t->ld = plan->lds - plan->skew;
    t->s = w->forward.scores + plan->skew * (BQ - 1);
    x->d = w->grads + plan->skew * (BQ - 1);
    return 1;
}

/* Whether every weight of the tile is 0, so that it adds to no gradient. */
static int
visits_nothing(const gradients_t *gp, grad_scratch_t *w, visit_t *x, const T *norms)
{
    const plan_t *plan = &gp->plan;
    queries_t *q = &x->q;
    if (!may_weigh_nothing(&plan->weightless, q, norms, plan->key_tiles, plan->D_pad))
        return 0;
    q->floor = (T)INFINITY;
    for (int m = 0; m < q->rows; m++) {
        T max = x->head->max[q->i0 + m], delta = x->head->delta[q->i0 + m];
        T norm = x->head->norm[q->i0 + m];
        if (norm == 0)
            continue;
        /* what is no number spreads */
        if (!(delta - delta == 0) || max != max || norm != norm)
            return 0;
        q->floor = max < q->floor ? max : q->floor;
    }
    start_bias_tile(&plan->bias, &w->forward, q, &x->t);
    return weighs_nothing(&plan->weightless, &w->forward, q, &x->t,
                          norms[x->t.j0 / plan->key_tile]);
}

/* Adds up the gradients of one query head over the keys of the chunk. */
static void
backward_head(const gradients_t *gp, grad_scratch_t *w, visit_t *x, int64_t slice)
{
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    int64_t hk = x->q.h / plan->group;
    int64_t end = RP_MIN(p->Lk, (x->chunk + 1) * gp->chunk_keys);
    const T *keys = plan->keys + slice * plan->Lk_pad * p->D;
    const T *values = gp->value_panel + slice * plan->Lk_pad * p->Dv;
    const T *norms = norms_of(&plan->weightless, slice, plan->key_tiles);
    head_t head = head_of(gp, x->index);
    rp_interval tiles = chunk_queries(gp, x->q.b, x->chunk);
    x->head = &head;
    x->keys = slice_keys(gp, x->q.b, hk, &x->key_stride);
    x->grad_query = query_sums_of(gp, RP_OF_QUERY, x->index, x->chunk);
    x->grad_relative = query_sums_of(gp, relative_sums(gp), x->index, x->chunk);
    clear_partials(gp, w, x, tiles);
    for (int64_t j0 = x->chunk * gp->chunk_keys; j0 < end; j0 += plan->key_tile) {
        int keys_bad = gp->keys_bad[slice * plan->key_tiles + j0 / plan->key_tile];
        start_band_lines(plan, &w->forward.dots);
        start_band_lines(plan, &w->sheared);
        for (int64_t tile = tiles.begin; tile < tiles.end; tile++) {
            if (rp_stopping())
                return;
            start_visits(gp, x, tile * BQ);
            for (int64_t at = j0; start_visit(gp, w, x, &at, j0);)
                if (!visits_nothing(gp, w, x, norms))
                    backward_tile(gp, w, x, keys, values, keys_bad);
        }
        finish_rel_query(gp, w, x, j0, keys_bad);
    }
    if (tiles.end > tiles.begin)
        finish_chunk(gp, w, x, tiles);
}

static void
backward_unit(void *context, int64_t unit, int worker)
{
    const gradients_t *gp = context;
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    grad_scratch_t w = {0};
    arena_t arena = {.memory = plan->scratch + (size_t)worker * plan->scratch_size};
    lay_out_grad_scratch(gp, &arena, &w);
    int64_t slice = unit / gp->chunks, chunk = unit % gp->chunks;
    int64_t b, hk;
    slice_at(plan, slice, &b, &hk);
    int64_t first = chunk * gp->chunk_keys, end = RP_MIN(p->Lk, first + gp->chunk_keys);
    memset(w.grad_key, 0, (size_t)((end - first) * plan->D_pad) * sizeof(T));
    memset(w.grad_value, 0, (size_t)((end - first) * plan->Dv_pad) * sizeof(T));
    for (int64_t member = 0; member < plan->group; member++) {
        visit_t x = {.index = slice * plan->group + member, .chunk = chunk};
        x.q.b = b;
        x.q.h = hk * plan->group + member;
        backward_head(gp, &w, &x, slice);
    }
    for (int64_t j = first; j < end; j++) {
        T *row = w.grad_key + (j - first) * plan->D_pad;
        const rp_array *key = &gp->g->grad_key, *value = &gp->g->grad_value;
        if (key->data) /* queries hold scale * log2e */
            write_line(key, rp_at(key, b, hk, j), row, p->D, (T)RP_LN2);
        if (value->data)
            write_line(value, rp_at(value, b, hk, j),
                       w.grad_value + (j - first) * plan->Dv_pad, p->Dv, 1);
    }
}

typedef struct {
    const gradients_t *gp;
    int which; /* of the query sums */
} query_sum_t;

/* Adds the chunks' sums of one query tile up, in order, and writes them. */
static void
write_query_unit(void *context, int64_t unit, int worker)
{
    const query_sum_t *sum = context;
    const gradients_t *gp = sum->gp;
    const query_sums_t *s = &gp->query_sums[sum->which];
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    (void)worker;
    int64_t tiles = query_tiles(gp), index = unit / tiles, tile = unit % tiles;
    int64_t b, h;
    head_at(plan, index, &b, &h);
    int64_t i0 = tile * BQ;
    const rp_array *grad = s->grad;
    T *parts[RP_CHUNKS];
    int count = 0;
    for (int64_t chunk = 0; chunk < gp->chunks; chunk++) {
        rp_interval seen = chunk_queries(gp, b, chunk);
        if (tile >= seen.begin && tile < seen.end)
            parts[count++] =
                query_sums_of(gp, sum->which, index, chunk) + i0 * s->width;
    }
    int straight = is_plain(grad) && s->columns == s->width;
    for (int64_t i = i0, at = 0; i < RP_MIN(p->Lq, i0 + BQ); i++) {
        char *to = rp_at(grad, b, h, i);
        fetch_ahead(grad, to, s->columns);
        if (count == 0) {
            zero_run(to, grad->col, size_of(RP_KIND(grad)), s->columns);
            continue;
        }
        T *row = straight ? (T *)to : parts[0] + at;
        for (ptrdiff_t k = 0; k < s->width; k += VL, at += VL) {
            V sum = load(parts[0] + at);
            for (int n = 1; n < count; n++)
                sum += load(parts[n] + at);
            store(row + k, sum * s->factor);
        }
        if (!straight)
            unpack_row(grad, to, row, s->columns);
    }
}

static rp_status
write_query_sums(const gradients_t *gp, int which)
{
    query_sum_t sum = {gp, which};
    int64_t heads = gp->plan.slices * gp->plan.group;
    if (!gp->query_sums[which].data)
        return RP_OK;
    return rp_parallel(heads * query_tiles(gp), write_query_unit, &sum,
                       gp->plan.p->threads);
}

/* Runs all steps of one slice on one worker, but for sums over several slices. */
static void
backward_slice(void *context, int64_t slice, int worker)
{
    gradients_t *gp = context;
    const int64_t heads = gp->plan.group, tiles = heads * query_tiles(gp);
    run_units_of(pack_keys_unit, gp, slice, gp->plan.key_tiles, worker);
    run_units_of(pack_head_unit, gp, slice, tiles, worker);
    run_units_of(backward_unit, gp, slice, gp->chunks, worker);
    if (gp->correct_ends)
        run_units_of(correct_ends_unit, gp, slice, heads, worker);
    for (int which = 0; which < RP_QUERY_SUMS; which++) {
        query_sum_t sum = {gp, which};
        if (gp->query_sums[which].data)
            run_units_of(write_query_unit, &sum, slice, tiles, worker);
    }
}

/* Runs the steps of all slices of a wave, each step for all of them before the next. */
static rp_status
run_backward_steps(gradients_t *gp)
{
    plan_t *plan = &gp->plan;
    int threads = plan->p->threads;
    int64_t tiles = query_tiles(gp), heads = plan->slices * plan->group;
    rp_status status =
        rp_parallel(plan->slices * plan->key_tiles, pack_keys_unit, gp, threads);
    if (!status)
        status = rp_parallel(heads * tiles, pack_head_unit, gp, threads);
    if (!status)
        status = rp_parallel(plan->slices * gp->chunks, backward_unit, gp, threads);
    if (!status && gp->correct_ends)
        status = rp_parallel(heads, correct_ends_unit, gp, threads);
    for (int which = 0; !status && which < RP_QUERY_SUMS; which++)
        status = write_query_sums(gp, which);
    return status;
}

static rp_status
run_backward_wave(gradients_t *gp)
{
    plan_t *plan = &gp->plan;
    rp_status status = pack_wave_tables(plan);
    if (!status && by_slice(plan))
        status = rp_parallel(plan->slices, backward_slice, gp, plan->p->threads);
    else if (!status)
        status = run_backward_steps(gp);
    for (int which = 0; !status && which < RP_PARTIALS; which++)
        status = sum_partial(gp, which);
    return status ? status : sum_bias_gradient(gp);
}

/* Runs the problem, or only counts: see `reserve`. */
static rp_status
backward_by_tiles(const rp_gradients *g, size_t *bytes)
{
    const rp_attention *p = &g->forward;
    gradients_t gp = {0};
    arena_t arena;
    rp_gradients trimmed = *g;
    trim_table(p, &trimmed.forward.rel_key, &trimmed.grad_rel_key);
    trim_table(p, &trimmed.forward.rel_value, &trimmed.grad_rel_value);
    plan_backward(&gp, &trimmed);
    rp_status status = reserve(&arena, lay_out_backward, &gp, bytes);
    if (status || bytes)
        return status;
    int64_t wave = gp.plan.slices;
    status = start_backward(&gp);
    for (int64_t s = 0; !status && s < p->B * p->Hk; s += gp.plan.slices) {
        start_wave(&gp.plan, s, wave);
        status = run_backward_wave(&gp);
    }
    rp_free(arena.memory);
    return status;
}

#endif
