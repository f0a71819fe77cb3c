/* plan.h: the backward in chunks of keys and waves of slices. */
#ifndef RELPOS_ATTENTION_TILES_BACKWARD_PLAN_H
#define RELPOS_ATTENTION_TILES_BACKWARD_PLAN_H

#include "../partials.h"
#include "memory.h"

/* Tables as the products of scores, dP and gradients need them. */
static void
plan_gradient_tables(gradients_t *gp)
{
    plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    gp->key_rows.path = plan->rel_key.path;
    gp->value_panels.path = plan->rel_value.path;
    gp->value_panels.stride = RP_ROUND_UP(p->rel_value.rows, VL);
    add_table(plan, &plan->rel_key, &p->rel_key, &plan->band, p->Dp, 1, 1);
    add_table(plan, &gp->key_rows, &p->rel_key, &plan->band, p->Dp, 0, 1);
    add_table(plan, &plan->rel_query, &p->rel_query, &plan->query_band, p->D, 0,
              p->scale * RP_LOG2E);
    add_table(plan, &gp->value_panels, &p->rel_value, &plan->band, p->Dv, 1, 1);
}

/* Whether the ends of rel_key are corrected (ends.h): without rel_value only the rounding of
 * out is left, too little to pay for; below a cap every pair passes another share of it; a
 * part of a row's keys does not know what all of them sum up to. */
static int
corrects_ends(const gradients_t *gp)
{
    const rp_gradients *g = gp->g;
    const plan_t *plan = &gp->plan;
    return is_used(&plan->rel_value) && is_used(&plan->rel_key) &&
           !has_labels(&g->forward) && g->forward.beyond == RP_CLIP &&
           !(g->forward.softcap > 0) && !g->forward.part.has_more_keys &&
           (gp->query_sums[relative_sums(gp)].grad->data || g->grad_rel_key.data ||
            g->grad_pos_bias_v.data);
}

/* Key chunks: 16 units of work to a batch item, as far as there are keys for them, cut from
 * Lk and the whole's Hk alone: bits depend neither on the batch nor on threads, nor on how
 * many of the heads are here. Tiles of many keys where each costs BQ columns of a band more;
 * else as many as leave the cache to the rest. */
static void
plan_chunks(gradients_t *gp)
{
    plan_t *plan = &gp->plan;
    const int64_t Lk = plan->p->Lk, whole = plan->p->part.key_heads;
    const int64_t Hk = whole ? whole : plan->p->Hk;
    int64_t most = RP_MIN(RP_CHUNKS, RP_MAX(1, 16 / RP_MAX(Hk, 1)));
    int64_t share = (Lk + most - 1) / most;
    int bands = in_band(&plan->rel_key) || in_band(&plan->rel_value);
    int wide = bands && (Hk >= 8 || share > RP_KEY_TILE / 2);
    int tile = wide ? RP_KEY_TILE : RP_KEY_TILE / 2;
    plan_tiles(plan, tile);
    gp->chunk_keys = RP_MAX(tile, RP_ROUND_UP(share, tile));
    gp->chunks = RP_MAX(1, (Lk + gp->chunk_keys - 1) / gp->chunk_keys);
    rp_assert(gp->chunks <= RP_CHUNKS);
    gp->chunk_keys = RP_MIN(gp->chunk_keys, plan->Lk_pad);
}

static void
plan_query_sums(gradients_t *gp)
{
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    gp->query_sums[RP_OF_QUERY] =
        (query_sums_t){&gp->g->grad_query, p->D, plan->D_pad, (T)p->scale, NULL};
    gp->query_sums[RP_OF_POSITION] =
        (query_sums_t){&gp->g->grad_position_query, p->Dp, plan->Dp_pad, 1, NULL};
}

/* How many slices a wave takes, which bounds what is packed and summed up at a time. */
static void
plan_gradient_waves(gradients_t *gp)
{
    plan_t *plan = &gp->plan;
    const size_t size = sizeof(T);
    size_t head = gp->head_size + (size_t)(gp->starts[gp->chunks] * plan->D_pad) * size;
    if (gp->g->grad_position_query.data)
        head += (size_t)(gp->starts[gp->chunks] * plan->Dp_pad) * size;
    if (gp->correct_ends)
        head += (size_t)gp->starts[gp->chunks] * sizeof(row_ends_t);
    for (int which = 0; which < RP_PARTIALS; which++) {
        const partial_t *s = &gp->partials[which];
        if (s->grad->data)
            head += (size_t)(s->starts[gp->chunks] * s->width) * size;
    }
    head += (size_t)(gp->chunks * bias_sums_count(gp->g)) * sizeof(double);
    size_t tables =
        pack_by_wave(plan, &plan->rel_key) + pack_by_wave(plan, &gp->key_rows);
    plan->slices = wave_of(plan, head * (size_t)plan->group + tables, gp->chunks);
}

static void
plan_backward(gradients_t *gp, const rp_gradients *g)
{
    const rp_attention *p = &g->forward;
    const ptrdiff_t size = sizeof(T);
    plan_t *plan = &gp->plan;
    arena_t head = {0};
    gp->g = g;
    plan_paths(plan, p, RP_FEW_ROWS);
    plan_bias(&plan->bias, p, g);
    plan_chunks(gp);
    gp->narrow = by_band(&plan->rel_key) && is_narrow(p);
    /* with a gradient of rel_bias or v too: their sums are columns of the band matrix */
    plan->skew = plan->skew || (g->grad_rel_bias.data && !has_labels(p)) ||
                 g->grad_pos_bias_v.data;
    plan->copy_values = plan->may_hide = 0; /* values are packed as panels only */
    gp->copy_keys = !is_plain(&p->key) || p->D % VL || p->key.row % size ||
                    p->key.row > 128 * size || p->key.row < 0;
    plan_query_sums(gp);
    gp->correct_ends = corrects_ends(gp);
    plan_gradient_tables(gp);
    plan_queries(gp);
    plan_partials(gp);
    lay_out_head(gp, &head);
    gp->head_size = head.used;
    plan_gradient_waves(gp);
}

#endif
