/* memory.h: the memory of a forward call. */
#ifndef RELPOS_ATTENTION_TILES_FORWARD_MEMORY_H
#define RELPOS_ATTENTION_TILES_FORWARD_MEMORY_H

#include "../backward/memory.h"
#include "plan.h"

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

#endif
