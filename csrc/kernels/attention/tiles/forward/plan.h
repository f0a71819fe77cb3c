/* plan.h: the forward in waves of slices and blocks of query tiles. */
#ifndef RELPOS_ATTENTION_TILES_FORWARD_PLAN_H
#define RELPOS_ATTENTION_TILES_FORWARD_PLAN_H

#include "../waves.h"

enum {
    RP_BLOCK_TILES = 4,   /* query tiles that share a slice of keys, threads allowing */
    RP_BLOCK_SHEARED = 8, /* with rel_query: the first makes more products of it */
};

/* How many slices a wave takes. */
static void
plan_waves(plan_t *plan)
{
    size_t row = (size_t)(plan->p->D + plan->Dv_pad) * sizeof(T);
    size_t tables = pack_by_wave(plan, &plan->rel_key);
    plan->slices = wave_of(plan, (size_t)plan->Lk_pad * row + tables, 1);
}

/* Query tiles of a block read each slice of keys, values and table from far away once. Fewer
 * of them where threads would be left without a unit. */
static void
plan_blocks(plan_t *plan)
{
    int64_t tiles = plan->Lq_pad / BQ, heads = plan->slices * plan->group;
    int64_t wanted = plan->p->threads > 1 ? 4 * plan->p->threads : 1;
    plan->block_tiles = is_used(&plan->rel_query) ? RP_BLOCK_SHEARED : RP_BLOCK_TILES;
    while (plan->block_tiles > 1 &&
           heads * ((tiles + plan->block_tiles - 1) / plan->block_tiles) < wanted)
        plan->block_tiles /= 2;
    plan->block_tiles = RP_MIN(plan->block_tiles, tiles);
    plan->query_blocks = (tiles + plan->block_tiles - 1) / plan->block_tiles;
}

static void
plan_forward(plan_t *plan, const rp_attention *p)
{
    plan_paths(plan, p, RP_MANY_ROWS);
    plan_bias(&plan->bias, p, NULL);
    plan_tiles(plan, RP_KEY_TILE);
    add_table(plan, &plan->rel_key, &p->rel_key, &plan->band, p->Dp, 1, 1);
    add_table(plan, &plan->rel_query, &p->rel_query, &plan->query_band, p->D, 0,
              p->scale * RP_LOG2E);
    add_table(plan, &plan->rel_value, &p->rel_value, &plan->band, p->Dv, 0, 1);
    plan_waves(plan);
    plan_blocks(plan);
}

#endif
