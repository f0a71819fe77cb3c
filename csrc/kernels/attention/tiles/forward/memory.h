/* memory.h: the memory of a forward call. */
#ifndef RELPOS_ATTENTION_TILES_FORWARD_MEMORY_H
#define RELPOS_ATTENTION_TILES_FORWARD_MEMORY_H

#include "../../terms/rel_query.h"
#include "plan.h"

/* Lays out the buffers of one worker of the forward. */
static void
lay_out_scratch(const plan_t *plan, arena_t *arena, scratch_t *w)
{
    const rp_attention *p = plan->p;
    queries_t q = {0};
    w->scores = take_numbers(arena, BQ * plan->lds);
    w->lane_max = take_numbers(arena, BQ * VL);
    w->slopes = NULL;
    w->bias = take_numbers(arena, p->rel_bias.array.data ? plan->lds : 0);
    lay_out_band_lines(plan, arena, &w->dots);
    if (by_list(&plan->rel_key) || by_list(&plan->rel_query))
        lay_out_listed(arena, &w->listed, plan->lds);
    w->queries = take(arena, plan->block_tiles, sizeof(queries_t));
    for (int i = 0; i < plan->block_tiles; i++) {
        q.content = take_numbers(arena, BQ * plan->D_pad);
        q.relative =
            packs_two(plan) ? take_numbers(arena, BQ * plan->Dp_pad) : q.content;
        q.saved = by_band(&plan->rel_key) ? take_numbers(arena, BQ * BQ) : NULL;
        q.out = take_numbers(arena, BQ * plan->Dv_pad);
        q.max = take_numbers(arena, BQ);
        q.sum = take_numbers(arena, BQ);
        if (by_row(&plan->rel_key))
            q.key_dots = take_numbers(arena, BQ * plan->rel_key.stride);
        if (by_row(&plan->rel_value))
            q.value_sums = take_numbers(arena, BQ * plan->rel_value.stride);
        if (arena->memory)
            w->queries[i] = q;
    }
}

/* Lays out a forward call: a wave of slices, the tables, and a scratch for each worker. */
static void
lay_out_forward(void *context, arena_t *arena)
{
    plan_t *plan = context;
    const rp_attention *p = plan->p;
    arena_t worker = {0};
    scratch_t unused;
    lay_out_scratch(plan, &worker, &unused);
    plan->scratch_size = worker.used;
    plan->keys = take(arena, plan->slices * plan->Lk_pad, (size_t)p->D * sizeof(T));
    plan->values = take(arena, plan->copy_values ? plan->slices * p->Lk : 0,
                        (size_t)plan->Dv_pad * sizeof(T));
    plan->values_bad = take(arena, plan->slices, (size_t)plan->key_tiles);
    plan->scratch = take(arena, p->threads, plan->scratch_size);
    lay_out_tables(plan, arena);
    lay_out_shown(&plan->shown, arena);
    lay_out_weightless(&plan->weightless, arena, plan->slices * plan->key_tiles);
    lay_out_bias(&plan->bias, arena);
}

#endif
