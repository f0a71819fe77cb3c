/* memory.h: the memory of a backward call. */
#ifndef RELPOS_ATTENTION_TILES_BACKWARD_MEMORY_H
#define RELPOS_ATTENTION_TILES_BACKWARD_MEMORY_H

#include "../../terms/rel_query.h"
#include "../waves.h"

/* The operands of one head. */
static head_t
lay_out_head(const gradients_t *gp, arena_t *arena)
{
    const plan_t *plan = &gp->plan;
    head_t head = {0};
    head.rows_u = take_numbers(arena, plan->Lq_pad * plan->D_pad);
    head.rows_v = packs_two(plan) ? take_numbers(arena, plan->Lq_pad * plan->Dp_pad)
                                  : head.rows_u;
    head.grad_rows = take_numbers(arena, plan->Lq_pad * plan->Dv_pad);
    head.max = take_numbers(arena, plan->Lq_pad);
    head.norm = take_numbers(arena, plan->Lq_pad);
    head.delta = take_numbers(arena, plan->Lq_pad);
    if (by_row(&plan->rel_key))
        head.key_dots = take_numbers(arena, plan->Lq_pad * plan->rel_key.stride);
    if (by_row(&gp->value_panels))
        head.value_dots = take_numbers(arena, plan->Lq_pad * gp->value_panels.stride);
    return head;
}

/* The packed operands of head `index` of the wave, where lay_out_head placed them. */
static head_t
head_of(const gradients_t *gp, int64_t index)
{
    arena_t arena = {.memory = gp->heads + (size_t)index * gp->head_size};
    head_t head = lay_out_head(gp, &arena);
    head.bad = gp->heads_bad + index * query_tiles(gp);
    return head;
}

/* Lays out the buffers of one worker of the backward. */
static void
lay_out_grad_scratch(const gradients_t *gp, arena_t *arena, grad_scratch_t *w)
{
    const plan_t *plan = &gp->plan;
    const packed_t *key = &plan->rel_key, *value = &plan->rel_value;
    int64_t rows = plan->Lq_pad, offsets = gp->chunk_keys + rows;
    w->forward = (scratch_t){.scores = take_numbers(arena, BQ * plan->lds + MR)};
    if (plan->p->softcap > 0)
        w->forward.slopes = take_numbers(arena, BQ * plan->key_tile);
    w->forward.bias = take_numbers(arena, plan->p->rel_bias.array.data ? plan->lds : 0);
    lay_out_band_lines(plan, arena, &w->forward.dots);
    if (by_list(key) || by_list(&plan->rel_query))
        lay_out_listed(arena, &w->forward.listed, plan->lds);
    w->grads = take_numbers(arena, BQ * plan->lds + MR);
    w->grad_key = take_numbers(arena, (gp->chunk_keys + MR) * plan->D_pad);
    w->grad_value = take_numbers(arena, (gp->chunk_keys + MR) * plan->Dv_pad);
    w->key_sums = take_numbers(arena, by_row(key) ? rows * key->stride + MR : 0);
    w->narrow_sums =
        take_numbers(arena, gp->narrow ? plan->p->Dp * (gp->chunk_keys + rows) : 0);
    w->value_sums = take_numbers(arena, by_row(value) ? rows * value->stride + MR : 0);
    if (by_row(key) || by_row(value) || gp->correct_ends) {
        w->totals = take_numbers(arena, BQ);
        w->shares = take_numbers(arena, BQ);
    }
    w->tile_sums = take_numbers(arena, plan->lds + VL);
    lay_out_band_lines(plan, arena, &w->sheared);
    w->offset_sums = w->v_sums = take(arena, offsets, sizeof(double));
    if (plan->p->softcap > 0)
        w->v_sums = take(arena, offsets, sizeof(double));
    w->column_sums = take(arena, gp->chunk_keys, sizeof(double));
    w->row = take(arena, RP_MAX(plan->D_pad, plan->Dp_pad), sizeof(double));
    w->clean[0] = w->clean[1] = -1;
}

/* Partial sums of the heads of a wave. */
static void
lay_out_partials(gradients_t *gp, arena_t *arena)
{
    const plan_t *plan = &gp->plan;
    const size_t size = sizeof(T);
    int64_t heads = plan->slices * plan->group;
    size_t queries = (size_t)gp->starts[gp->chunks];
    for (int which = 0; which < RP_QUERY_SUMS; which++) {
        query_sums_t *s = &gp->query_sums[which];
        if (s->grad->data)
            s->data = take(arena, heads, queries * (size_t)s->width * size);
    }
    gp->bias_sums = take(arena, heads * gp->chunks,
                         (size_t)bias_sums_count(gp->g) * sizeof(double));
    if (gp->correct_ends)
        gp->ends = take(arena, heads, queries * sizeof(row_ends_t));
    for (int which = 0; which < RP_PARTIALS; which++) {
        partial_t *s = &gp->partials[which];
        size_t rows = (size_t)s->starts[gp->chunks];
        if (s->grad->data)
            s->data = take(arena, heads, rows * (size_t)s->width * size);
    }
}

/* Lays out a backward call: a wave of slices with its partial sums, the tables, and a
 * scratch for each worker. */
static void
lay_out_backward(void *context, arena_t *arena)
{
    gradients_t *gp = context;
    plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    const size_t size = sizeof(T);
    int64_t heads = plan->slices * plan->group, keys = plan->slices * plan->Lk_pad;
    arena_t worker = {0};
    grad_scratch_t unused = {0};
    lay_out_grad_scratch(gp, &worker, &unused);
    plan->scratch_size = worker.used;
    plan->keys = take(arena, keys, (size_t)p->D * size);
    gp->value_panel = take(arena, keys, (size_t)p->Dv * size);
    if (gp->copy_keys)
        gp->key_copy = take(arena, plan->slices * p->Lk, (size_t)plan->D_pad * size);
    gp->keys_bad = take(arena, plan->slices, (size_t)plan->key_tiles);
    gp->heads_bad = take(arena, heads, (size_t)query_tiles(gp));
    gp->heads = take(arena, heads, gp->head_size);
    if (p->sight.key_ranges.data)
        gp->met = take(arena, p->B, (size_t)gp->chunks * sizeof(rp_interval));
    lay_out_partials(gp, arena);
    plan->scratch = take(arena, p->threads, plan->scratch_size);
    lay_out_tables(plan, arena);
    lay_out_shown(&plan->shown, arena);
    lay_out_weightless(&plan->weightless, arena, plan->slices * plan->key_tiles);
    lay_out_bias(&plan->bias, arena);
}

#endif
