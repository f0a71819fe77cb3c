/* plan.h: the forward in waves of slices and blocks of query tiles. */
#ifndef RELPOS_ATTENTION_TILES_FORWARD_PLAN_H
#define RELPOS_ATTENTION_TILES_FORWARD_PLAN_H

#include "../waves.h"

enum {
    RP_BLOCK_TILES = 4, /* query tiles that share a slice of keys, threads allowing */
};

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

#endif
