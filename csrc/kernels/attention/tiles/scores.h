/* scores.h: the logits of one tile, in units of log 2:
 *   s = log2e * (scale * ((q + u).k + (q + v).A[l] + k.C[l]) + b[l] + fire + mask). */
#ifndef RELPOS_ATTENTION_TILES_SCORES_H
#define RELPOS_ATTENTION_TILES_SCORES_H

#include "../terms/bias.h"
#include "../terms/mask.h"
#include "../terms/rel_key.h"
#include "../terms/rel_query.h"

/* Bias, mask and visibility of one row, and its maximum anew. */
static void
finish_row(const plan_t *plan, scratch_t *w, const queries_t *q, const tile_t *t, int m)
{
    const rp_attention *p = plan->p;
    rp_interval visible = rp_visible(p, q->b, q->i0 + m);
    T *s = t->s + m * t->ld;
    if (p->rel_bias.data)
        add_bias_row(p, w, q, t, m);
    if (p->fire_lines.data && !plan->fire_first)
        add_fire_row(&plan->fire, q->b, q->h, q->i0 + m, t->j0, t->columns, s);
    if (p->mask_type != RP_MASK_NONE)
        add_mask_row(p, rp_at(&p->mask, q->b, q->h, q->i0 + m) + t->j0 * p->mask.col,
                     t->keys, s);
    hide(s, 0, RP_MIN(t->columns, visible.begin - t->j0));
    hide(s, RP_MAX(0, visible.end - t->j0), t->columns);
    if (!w->lane_max)
        return;
    V top = load(s);
    for (int n = VL; n < t->columns; n += VL)
        top = vmax(load(s + n), top);
    store(w->lane_max + m * VL, top);
}

static void
copy_logits(const rp_attention *p, const queries_t *q, const tile_t *t)
{
    for (int m = 0; m < q->rows; m++) {
        char *at = rp_at(&p->weights, q->b, q->h, q->i0 + m) + t->j0 * p->weights.col;
        for (int n = 0; n < t->keys; n++, at += p->weights.col)
            *(T *)at = t->s[m * t->ld + n];
    }
}

/* The whole tile: logits in t->s, row maxima, where wanted, in w->lane_max. */
static void
score_tile(const plan_t *plan, scratch_t *w, queries_t *q, tile_t *t, const T *keys)
{
    const rp_attention *p = plan->p;
    ptrdiff_t step;
    const T *constant = fill_positions(plan, w, q, t, &step);
    add_product(q, t, t->s, q->content, plan->D_pad, keys, p->D, constant, step,
                w->lane_max, NULL);
    if (plan->use_query != RP_ABSENT)
        add_rel_query(plan, w, q, t);
    t->finished = p->rel_bias.data || p->mask_type != RP_MASK_NONE || plan->use_query ||
                  (p->fire_lines.data && !plan->fire_first) ||
                  rp_visible(p, q->b, q->i0 + q->rows - 1).begin > t->j0 ||
                  rp_visible(p, q->b, q->i0).end < t->j0 + t->columns;
    if (t->finished) {
        if (p->rel_bias.data && !p->labels.data)
            bias_band(plan, w, q, t);
        for (int m = 0; m < q->rows; m++)
            finish_row(plan, w, q, t, m);
    }
    if (p->weights.data)
        copy_logits(p, q, t);
}

#endif
