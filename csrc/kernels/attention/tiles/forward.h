/* attention_forward.h: the fused forward: nothing Lq x Lk is ever stored.
 *
 * A unit is one head's block of query tiles; key tiles are its outer loop, so the tiles of
 * a block share each slice of keys, values and table while it is in the second-level
 * cache. */
#ifndef RELPOS_ATTENTION_TILES_FORWARD_H
#define RELPOS_ATTENTION_TILES_FORWARD_H

#include "../../graph/forward.h"
#include "waves.h"

/* Hands out `count` elements of memory from *used on; without memory only counts. */
static void *
take(char *memory, size_t *used, ptrdiff_t count, size_t size)
{
    void *block = memory ? memory + *used : NULL;
    *used += RP_ROUND_UP((size_t)count * size, 64);
    return block;
}

/* Lays a worker's buffers out from `memory` on; returns the bytes they take. */
static size_t
lay_out(const plan_t *plan, char *memory, scratch_t *w)
{
    const rp_attention *p = plan->p;
    size_t used = 0;
    queries_t q = {0};
    int two_queries = plan->use_key && (p->pos_bias_u.data || p->pos_bias_v.data);
#define TAKE(count) take(memory, &used, count, sizeof(T))
    w->scores = TAKE(BQ * plan->lds);
    w->lane_max = TAKE(BQ * VL);
    w->bias = TAKE(p->rel_bias.data ? plan->lds : 0);
    w->keys = TAKE(plan->use_query ? MR * (plan->D_pad + BQ + MR + 2 * NR) : 0);
    w->queries = take(memory, &used, RP_BLOCK_TILES, sizeof(queries_t));
    for (int i = 0; i < plan->block_tiles; i++) {
        q.content = TAKE(BQ * plan->D_pad);
        q.relative = two_queries ? TAKE(BQ * plan->D_pad) : q.content;
        q.saved = TAKE(plan->use_key == RP_BAND ? BQ * BQ : 0);
        q.out = TAKE(BQ * plan->Dv_pad);
        q.max = TAKE(BQ);
        q.sum = TAKE(BQ);
        if (plan->use_key > RP_BAND)
            q.key_dots = TAKE(BQ * plan->key_stride);
        if (plan->use_value > RP_BAND)
            q.value_sums = TAKE(BQ * plan->value_stride);
        if (memory)
            w->queries[i] = q;
    }
    return used;
#undef TAKE
}

static void
start_queries(const plan_t *plan, queries_t *q, int64_t b, int64_t h, int64_t i0)
{
    const rp_attention *p = plan->p;
    q->b = b;
    q->h = h;
    q->i0 = i0;
    q->rows = (int)RP_MIN(BQ, p->Lq - i0);
    q->rows_pad = RP_ROUND_UP(q->rows, MR);
    q->begin = rp_visible(p, b, i0).begin;
    q->end = rp_visible(p, b, i0 + q->rows - 1).end;
    q->saved_column = -1;
    pack_queries(plan, b, h, i0, q->rows, q->rows_pad, q->content, q->relative);
    memset(q->out, 0, (size_t)(BQ * plan->Dv_pad) * sizeof(T));
    for (int m = 0; m < BQ; m++) {
        q->max[m] = -(T)INFINITY;
        q->sum[m] = 0;
    }
    if (q->key_dots)
        gemm_set(q->relative, plan->D_pad, copy_of(&plan->rel_key, b, h), q->rows_pad,
                 plan->key_stride, p->D, p->D, q->key_dots, plan->key_stride);
    if (q->value_sums)
        memset(q->value_sums, 0, (size_t)(BQ * plan->value_stride) * sizeof(T));
    if (p->weights.data)
        for (int m = 0; m < q->rows; m++)
            for (int64_t j = 0; j < p->Lk; j++)
                *(T *)(rp_at(&p->weights, b, h, i0 + m) + j * p->weights.col) =
                    -(T)INFINITY;
}

static void
visit_tile(const plan_t *plan, scratch_t *w, queries_t *q, int64_t j0)
{
    const rp_attention *p = plan->p;
    if (!rp_overlaps(q->begin, q->end, j0, plan->key_tile))
        return;
    tile_t t = {.j0 = j0, .keys = (int)RP_MIN(plan->key_tile, q->end - j0)};
    t.columns = RP_ROUND_UP(t.keys, NR);
    t.w0 = j0 - q->i0 + plan->Lq_pad - BQ;
    t.ld = plan->lds - plan->skew;
    t.s = w->scores + plan->skew * (BQ - 1);
    int64_t hk = q->h / plan->group, slice = slice_of(plan, q->b, hk);
    ptrdiff_t stride;
    const T *values = slice_values(plan, q->b, hk, &stride);
    score_tile(plan, w, q, &t, plan->keys + slice * plan->Lk_pad * p->D);
    value_tile(plan, w, q, &t, values, stride,
               plan->may_hide &&
                   plan->values_bad[slice * plan->key_tiles + j0 / plan->key_tile]);
}

static void
forward_unit(void *context, int64_t unit, int worker)
{
    const plan_t *plan = context;
    const rp_attention *p = plan->p;
    scratch_t w;
    lay_out(plan, plan->scratch + (size_t)worker * plan->scratch_size, &w);
    /* The last blocks of a causal head are the longest: they go first. */
    int64_t block = plan->query_blocks - 1 - unit % plan->query_blocks;
    int64_t b, h, i0 = block * plan->block_tiles * BQ, begin = p->Lk, end = 0;
    head_at(plan, unit / plan->query_blocks, &b, &h);
    int tiles = 0;
    for (; tiles < plan->block_tiles && i0 + tiles * BQ < p->Lq; tiles++) {
        queries_t *q = &w.queries[tiles];
        start_queries(plan, q, b, h, i0 + tiles * BQ);
        begin = RP_MIN(begin, q->begin);
        end = RP_MAX(end, q->end);
    }
    for (int64_t j0 = begin / plan->key_tile * plan->key_tile; j0 < end;
         j0 += plan->key_tile)
        for (int i = 0; i < tiles; i++) {
            if (rp_stopping())
                return;
            visit_tile(plan, &w, &w.queries[i], j0);
        }
    for (int i = 0; i < tiles; i++)
        write_queries(plan, &w.queries[i]);
}

static rp_status
pack_tables(plan_t *plan)
{
    const rp_attention *p = plan->p;
    rp_status status = pack_table(plan, &p->rel_key, &plan->rel_key, p->key_rows, p->D,
                                  plan->use_key, 1, 1);
    if (!status)
        status = pack_table(plan, &p->rel_query, &plan->rel_query, p->query_rows, p->D,
                            plan->use_query, 1, p->scale * RP_LOG2E);
    if (!status)
        status = pack_table(plan, &p->rel_value, &plan->rel_value, p->value_rows, p->Dv,
                            plan->use_value, 0, 1);
    const copies_t *c = &plan->rel_value;
    if (!status && plan->use_value && plan->Dv_pad)
        plan->rel_value_bad = not_finite(
            (const char *)c->data, plan->Dv_pad * (ptrdiff_t)sizeof(T), sizeof(T),
            c->size / plan->Dv_pad * c->heads * c->batches, plan->Dv_pad);
    return status;
}

/* How many slices a wave takes. */
static void
plan_waves(plan_t *plan)
{
    const rp_attention *p = plan->p;
    size_t bytes = (size_t)plan->Lk_pad * (size_t)(p->D + plan->Dv_pad) * sizeof(T);
    bytes += plan_wave_table(plan, 0, &p->rel_key, &plan->rel_key, p->key_rows, p->D,
                             plan->use_key, 1);
    plan->slices = wave_of(plan, bytes, 1);
}

/* Query tiles of a block read each slice of keys, values and table from far away once. Fewer
 * of them where threads would be left without a unit. */
static void
plan_blocks(plan_t *plan)
{
    int64_t tiles = plan->Lq_pad / BQ, heads = plan->slices * plan->group;
    int64_t wanted = plan->p->threads > 1 ? 4 * plan->p->threads : 1;
    plan->block_tiles = RP_BLOCK_TILES;
    while (plan->block_tiles > 1 &&
           heads * ((tiles + plan->block_tiles - 1) / plan->block_tiles) < wanted)
        plan->block_tiles /= 2;
    plan->query_blocks = (tiles + plan->block_tiles - 1) / plan->block_tiles;
}

/* Memory for one wave of slices and one scratch a worker. */
static rp_status
allocate(plan_t *plan)
{
    const rp_attention *p = plan->p;
    size_t keys = (size_t)plan->Lk_pad * (size_t)p->D * sizeof(T);
    size_t values =
        plan->copy_values ? (size_t)p->Lk * (size_t)plan->Dv_pad * sizeof(T) : 0;
    plan->keys = rp_alloc((size_t)plan->slices, keys);
    plan->values = rp_alloc((size_t)plan->slices, values);
    plan->values_bad = rp_alloc((size_t)plan->slices, (size_t)plan->key_tiles);
    scratch_t unused;
    plan->scratch_size = lay_out(plan, NULL, &unused);
    plan->scratch = rp_alloc((size_t)p->threads, plan->scratch_size);
    return plan->keys && plan->values && plan->values_bad && plan->scratch
               ? allocate_wave_tables(plan)
               : RP_NO_MEMORY;
}

static rp_status
run_waves(plan_t *plan)
{
    const rp_attention *p = plan->p;
    int64_t wave = plan->slices;
    for (int64_t s = 0; s < p->B * p->Hk; s += plan->slices) {
        start_wave(plan, s, wave);
        rp_status status = pack_wave_tables(plan);
        if (!status)
            status = rp_parallel(plan->slices * plan->key_tiles, pack_slice_unit, plan,
                                 p->threads);
        if (!status)
            status = rp_parallel(plan->slices * plan->group * plan->query_blocks,
                                 forward_unit, plan, p->threads);
        if (status)
            return status;
    }
    return RP_OK;
}

static rp_status
attention_forward(const rp_attention *p)
{
    if (p->B == 0 || p->H == 0 || p->Lq == 0)
        return RP_OK;
    if (p->indptr)
        return graph_forward(p);
    if (p->Lq <= RP_FEW_QUERIES || labels_apply(p))
        return attention_rows(p);
    plan_t plan = {0};
    plan_paths(&plan, p, RP_KEY_TILE);
    plan_waves(&plan);
    plan_blocks(&plan);
    rp_status status = plan_bias(&plan, NULL);
    if (!status)
        status = pack_tables(&plan);
    if (!status)
        status = allocate(&plan);
    if (!status)
        status = run_waves(&plan);
    rp_free(plan.scratch);
    rp_free(plan.values_bad);
    rp_free(plan.values);
    rp_free(plan.keys);
    rp_free(plan.rel_value.data);
    rp_free(plan.rel_query.data);
    rp_free(plan.rel_key.data);
    free_fire(&plan.fire);
    return status;
}

#endif
