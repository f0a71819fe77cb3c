/* plan.h: the backward in chunks of keys and waves of slices. */
#ifndef RELPOS_ATTENTION_TILES_BACKWARD_PLAN_H
#define RELPOS_ATTENTION_TILES_BACKWARD_PLAN_H

#include "memory.h"

static void
plan_gradients(gradients_t *gp, const rp_gradients *g)
{
    const rp_attention *p = &g->forward;
    const ptrdiff_t size = sizeof(T);
    plan_t *plan = &gp->plan;
    gp->g = g;
    plan_paths(plan, p, RP_GRAD_TILE);
    /* The sums by table row are kept for all queries: with many rows the band is smaller. */
    if (plan->use_key == RP_ROWS && p->key_rows > RP_FEW_ROWS)
        plan->use_key = RP_BAND;
    if (plan->use_value == RP_ROWS && p->value_rows > RP_FEW_ROWS)
        plan->use_value = RP_BAND;
    /* with a gradient of rel_bias or v too: their sums are columns of the band matrix */
    plan->skew = plan->use_key == RP_BAND || plan->use_value == RP_BAND ||
                 (g->grad_rel_bias.data && !p->labels.data) || g->grad_pos_bias_v.data;
    plan->copy_values = plan->may_hide = 0; /* values are packed as panels only */
    gp->copy_keys = p->key.col != size || p->D % VL || p->key.row % size ||
                    p->key.row > 128 * size || p->key.row < 0;
    /* without rel_value only the rounding of out is left: too little to pay for */
    gp->correct_ends =
        plan->use_value != RP_ABSENT && plan->use_key != RP_ABSENT &&
        plan->use_key != RP_LABELS && p->beyond == RP_CLIP &&
        (g->grad_query.data || g->grad_rel_key.data || g->grad_pos_bias_v.data);
    int64_t most = plan->key_tiles < 16 ? RP_CHUNKS / 2 : RP_CHUNKS;
    int64_t tiles = RP_MAX(1, (plan->key_tiles + most - 1) / most);
    gp->chunk_keys = RP_MIN(tiles * plan->key_tile, plan->Lk_pad);
    gp->chunks = RP_MAX(1, (plan->key_tiles + tiles - 1) / tiles);
    head_of(gp, 0, &gp->head_size);
}

#endif
