/* scores.h: the logits of one tile, in units of log 2:
 *   s = log2e * (scale * ((q + u).k + (q + v).A[l] + k.C[l]) + bias + mask). */
#ifndef RELPOS_ATTENTION_TILES_SCORES_H
#define RELPOS_ATTENTION_TILES_SCORES_H

#include "../terms/content.h"
#include "../terms/mask.h"
#include "../terms/rel_key.h"
#include "../terms/rel_query.h"
#include "../terms/softcap.h"

/* Columns that all rows of the tile see and that nothing is added to after the products. */
static rp_interval
open_columns(const plan_t *plan, const tile_t *t)
{
    const rp_interval none = {0, 0};
    return adds_bias(&plan->bias, plan->bias_first) ? none : t->shown;
}

/* The largest of s[first] to s[end - 1], whole vectors, and top, by lane. */
RP_INLINE V
largest(const T *s, int64_t first, int64_t end, V top)
{
    for (int64_t n = first; n < end; n += VL)
        top = vmax(load(s + n), top);
    return top;
}

/* The cap on the products of a tile, and the open columns in the maxima of its rows. */
static void
cap_tile(const plan_t *plan, scratch_t *w, const queries_t *q, const tile_t *t)
{
    const softcap_t cap = softcap_of(plan->p->softcap * RP_LOG2E);
    for (int m = 0; m < q->rows; m++) {
        T *s = t->s + m * t->ld;
        V top = w->slopes ? cap_row(cap, s, t->columns, w->slopes + m * plan->key_tile)
                          : cap_row(cap, s, t->columns, NULL);
        if (!all_open(t))
            top = largest(s, t->open.begin, t->open.end, splat(-(T)INFINITY));
        if (w->lane_max)
            store(w->lane_max + m * VL, top);
    }
}

/* Bias, mask and visibility of one row, and the columns that are not open in its maximum. */
static void
finish_row(const plan_t *plan, scratch_t *w, const queries_t *q, const tile_t *t, int m)
{
    rp_interval visible = rp_visible(plan->p, q->b, q->i0 + m);
    T *s = t->s + m * t->ld, *top = w->lane_max;
    add_bias(&plan->bias, w, q, t, m, plan->bias_first);
    mask_keys(plan->p, q->b, q->h, q->i0 + m, t->j0, t->shown.begin, s);
    mask_keys(plan->p, q->b, q->h, q->i0 + m, t->j0 + t->shown.end,
              t->keys - t->shown.end, s + t->shown.end);
    hide(s, 0, RP_MIN(t->columns, visible.begin - t->j0));
    hide(s, RP_MAX(0, visible.end - t->j0), t->columns);
    if (!top)
        return;
    V left = largest(s, 0, t->open.begin, load(top + m * VL));
    store(top + m * VL, largest(s, t->open.end, t->columns, left));
}

/* Whether all rows of a tile see the same keys, from its first on, and nothing is added to or
 * hidden from their products. */
static int
sees_alike(const plan_t *plan, const queries_t *q, const tile_t *t)
{
    return q->seen.begin == q->common.begin && q->seen.end == q->common.end &&
           q->seen.begin <= t->j0 && !plan->shown.classes &&
           !adds_bias(&plan->bias, plan->bias_first);
}

/* finish_row for all rows of such a tile: the columns past its keys are lanes of the last
 * vector. */
static void
hide_past_keys(scratch_t *w, const queries_t *q, const tile_t *t)
{
    const int last = t->columns - VL, count = t->keys - last;
    const V hidden = splat(-(T)INFINITY);
    for (int m = 0; m < q->rows; m++) {
        T *s = t->s + m * t->ld;
        store(s + last, keep_lanes(load(s + last), count, hidden));
        if (w->lane_max) {
            T *top = w->lane_max + m * VL;
            store(top, largest(s, t->open.end, t->columns, load(top)));
        }
    }
}

static void
copy_logits(const rp_array *weights, const queries_t *q, const tile_t *t)
{
    for (int m = 0; m < q->rows; m++)
        unpack_row(weights,
                   rp_at(weights, q->b, q->h, q->i0 + m) + t->j0 * weights->col,
                   t->s + m * t->ld, t->keys);
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
    if (is_used(&plan->rel_query)) {
        add_rel_query(plan, w, q, t, keys, constant, step);
        constant = NULL;
    }
    t->open = open_columns(plan, t);
    int capped = plan->p->softcap > 0;
    add_content(plan, q, t, keys, constant, step, capped ? NULL : w->lane_max);
    if (capped)
        cap_tile(plan, w, q, t);
    if (!all_open(t) && sees_alike(plan, q, t)) {
        hide_past_keys(w, q, t);
    } else if (!all_open(t)) {
        start_bias_tile(&plan->bias, w, q, t);
        for (int m = 0; m < q->rows; m++)
            finish_row(plan, w, q, t, m);
    }
    if (plan->p->results.weights.data)
        copy_logits(&plan->p->results.weights, q, t);
}

#endif
