/* scores.h: the logits of one tile, in units of log 2:
 *   s = log2e * (scale * ((q + u).k + (q + v).A[l] + k.C[l]) + bias + mask). */
#ifndef RELPOS_ATTENTION_TILES_SCORES_H
#define RELPOS_ATTENTION_TILES_SCORES_H

#include "../terms/content.h"
#include "../terms/mask.h"
#include "../terms/rel_key.h"
#include "../terms/rel_query.h"

/* Bias, mask and visibility of one row, and its maximum anew. */
static void
finish_row(const plan_t *plan, scratch_t *w, const queries_t *q, const tile_t *t, int m)
{
    rp_interval visible = rp_visible(plan->p, q->b, q->i0 + m);
    T *s = t->s + m * t->ld;
    add_bias(&plan->bias, w, q, t, m, plan->bias_first);
    add_mask(plan->p, q->b, q->h, q->i0 + m, t->j0, t->keys, s);
    hide(s, 0, RP_MIN(t->columns, visible.begin - t->j0));
    hide(s, RP_MAX(0, visible.end - t->j0), t->columns);
    if (!w->lane_max)
        return;
    V top = load(s);
    for (int n = VL; n < t->columns; n += VL)
        top = vmax(load(s + n), top);
    store(w->lane_max + m * VL, top);
}

/* Whether rows of the tile need that. */
static int
needs_finish(const plan_t *plan, const queries_t *q, const tile_t *t)
{
    const rp_attention *p = plan->p;
    return adds_bias(&plan->bias, plan->bias_first) || is_used(&plan->rel_query) ||
           p->sight.mask_type != RP_MASK_NONE ||
           rp_visible(p, q->b, q->i0 + q->rows - 1).begin > t->j0 ||
           rp_visible(p, q->b, q->i0).end < t->j0 + t->columns;
}

static void
copy_logits(const rp_array *weights, const queries_t *q, const tile_t *t)
{
    for (int m = 0; m < q->rows; m++)
        unpack_row(rp_at(weights, q->b, q->h, q->i0 + m) + t->j0 * weights->col,
                   weights->col, t->s + m * t->ld, t->keys);
}

/* The whole tile: logits in t->s, row maxima, where wanted, in w->lane_max. */
static void
score_tile(const plan_t *plan, scratch_t *w, queries_t *q, tile_t *t, const T *keys)
{
    const T *constant = NULL;
    ptrdiff_t step = 0;
    if (plan->bias_first)
        fill_bias(&plan->bias, q, t);
    else
        constant = fill_rel_key(plan, w, q, t, &step);
    add_content(plan, q, t, keys, constant, step, w->lane_max);
    add_rel_query(plan, w, q, t);
    t->finished = needs_finish(plan, q, t);
    if (t->finished) {
        start_bias_tile(&plan->bias, w, q, t);
        for (int m = 0; m < q->rows; m++)
            finish_row(plan, w, q, t, m);
    }
    if (plan->p->results.weights.data)
        copy_logits(&plan->p->results.weights, q, t);
}

#endif
