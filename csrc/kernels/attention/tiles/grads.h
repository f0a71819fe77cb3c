/* grads.h: one tile of the backward.
 *
 * The logits are made again as in the forward. Beside them a second buffer of the same
 * shape takes dP = grad_out . (v + W)', by the same two products, and is overwritten by
 *   dS = p * (z * dP - delta),   z the dropout factor. */
#ifndef RELPOS_ATTENTION_TILES_GRADS_H
#define RELPOS_ATTENTION_TILES_GRADS_H

#include "../../ground/exp2.h"
#include "../dropout.h"
#include "../terms/rel_value.h"
#include "scores.h"
#include "waves.h"

/* Lists what the next query tile reads first, BQ rows each: fetched while dP is made, as a
 * pass over the queries leaves the second-level cache behind. */
static void
next_operands(const gradients_t *gp, const visit_t *x, uintptr_t later[RP_LATER])
{
    const plan_t *plan = &gp->plan;
    const head_t *head = x->head;
    int64_t i1 = x->q.i0 + BQ, w1 = x->t.w0 - BQ, n = 0;
    if (i1 >= plan->p->Lq)
        return;
    later[n++] = (uintptr_t)(head->rows_u + i1 * plan->D_pad);
    later[n++] = (uintptr_t)(head->grad_rows + i1 * plan->Dv_pad);
    if (x->grad_query)
        later[n++] = (uintptr_t)(x->grad_query + i1 * plan->D_pad);
    if (packs_two(plan))
        later[n++] = (uintptr_t)(head->rows_v + i1 * plan->Dp_pad);
    if (!by_band(&plan->rel_key) || w1 < plan->band.first)
        return;
    T *sums = partial_of(gp, RP_GRAD_KEY, x->index, x->chunk);
    int64_t row = w1 - plan->band.first;
    later[n++] =
        (uintptr_t)(copy_of(&plan->rel_key, x->q.b, x->q.h) + row * plan->p->Dp);
    later[n++] =
        (uintptr_t)(copy_of(&gp->key_rows, x->q.b, x->q.h) + row * plan->Dp_pad);
    if (sums)
        later[n++] =
            (uintptr_t)(sums + (w1 - x->chunk * gp->chunk_keys) * plan->Dp_pad);
}

/* dP = grad_out . (v + W)' */
static void
fill_grads(const gradients_t *gp, grad_scratch_t *w, const visit_t *x, const T *values)
{
    const plan_t *plan = &gp->plan;
    uintptr_t later[RP_LATER] = {0};
    ptrdiff_t step;
    const T *constant = fill_rel_value_grads(gp, w, x, &step);
    next_operands(gp, x, later);
    add_product(&x->q, &x->t, x->d, x->head->grad_rows + x->q.i0 * plan->Dv_pad,
                plan->Dv_pad, values, plan->p->Dv, window_of(&x->t), constant, step,
                NULL, later);
}

/* Adds row m of a tile to the sums that ends.h corrects by. */
static void
sum_ends(const gradients_t *gp, const grad_scratch_t *w, const visit_t *x, int m)
{
    row_ends_t *row = ends_of(gp, x->index, x->chunk) + x->q.i0 + m;
    const tile_t *t = &x->t;
    const T *s = t->s + m * t->ld;
    runs_t runs = runs_of(gp->plan.p, &x->q, t, m, &gp->plan.p->rel_key, t->keys);
    row->grad += w->totals[m];
    if (runs.inside == t->keys)
        row->share[0] += w->shares[m];
    else if (runs.past == 0)
        row->share[1] += w->shares[m];
    else {
        row->share[0] += sum_run(s, 0, runs.inside);
        row->share[1] += sum_run(s, runs.past, t->keys);
    }
}

/* One row: logits -> p, dP -> dS, and the sums of dS and p. Where `hidden` is set, a pair
 * with a logit of -inf has p = 0 and dS = 0 whatever dP and the row's sum are: in a row of
 * NaN it has to be, so that the pairs that NaN reaches do not depend on the tile. */
RP_INLINE void
grad_row(T *s, T *d, int columns, T max, T norm, T delta, const int hidden, V sums[2])
{
    V sum = (V){0}, share = (V){0};
    for (int n = 0; n < columns; n += VL) {
        V logits = load(s + n), p = vexp2(logits - max) * norm;
        if (hidden)
            p = (V)((VI)p & (logits != -(T)INFINITY));
        V ds = p * (load(d + n) - delta);
        if (hidden)
            ds = (V)((VI)ds & ~(VI)(p == 0));
        store(s + n, p);
        store(d + n, ds);
        sum += ds;
        share += p;
    }
    sums[0] = sum;
    sums[1] = share;
}

/* Logits and dP of the tile -> p z and dS. */
static void
grad_tile(const gradients_t *gp, const grad_scratch_t *w, const visit_t *x)
{
    const rp_attention *p = gp->plan.p;
    V sums[2];
    unsigned char keep[RP_KEY_TILE];
    const T kept = (T)(1 / (1 - p->dropout.p));
    for (int m = 0; m < x->q.rows_pad; m++) {
        T *s = x->t.s + m * x->t.ld, *d = x->d + m * x->t.ld;
        int64_t i = x->q.i0 + m;
        T max = x->head->max[i], norm = x->head->norm[i], delta = x->head->delta[i];
        if (norm == 0) { /* padding, or a row that saw no key */
            memset(s, 0, (size_t)x->t.columns * sizeof(T));
            memset(d, 0, (size_t)x->t.columns * sizeof(T));
            if (w->totals)
                w->totals[m] = w->shares[m] = 0;
            continue;
        }
        if (p->dropout.p > 0) {
            rp_dropout_kept(p, x->q.b, x->q.h, i, x->t.j0, x->t.keys, keep);
            scale_by_dropout(d, keep, x->t.keys, kept);
        }
        if (all_open(&x->t) && norm == norm)
            grad_row(s, d, x->t.columns, max, norm, delta, 0, sums);
        else
            grad_row(s, d, x->t.columns, max, norm, delta, 1, sums);
        if (w->totals) {
            w->totals[m] = sum_lanes(sums[0])[0];
            w->shares[m] = sum_lanes(sums[1])[0];
        }
        if (gp->ends)
            sum_ends(gp, w, x, m);
        if (p->dropout.p > 0)
            scale_by_dropout(s, keep, x->t.keys, kept);
    }
}

/* out = sum p z v: grad_value. */
static void
value_grads(const gradients_t *gp, const grad_scratch_t *w, const visit_t *x)
{
    const ptrdiff_t width = gp->plan.Dv_pad;
    int64_t row = x->t.j0 - x->chunk * gp->chunk_keys;
    diagonal_t rows;
    if (gp->g->grad_value.data)
        add_columns(x->selected, x->t.s, x->t.ld, x->head->grad_rows + x->q.i0 * width,
                    width, x->t.keys, width, x->q.rows, rows_by_key(&x->t, &rows),
                    w->grad_value + row * width, width);
}

/* The bias of a pair, and sums of dS that it is made of. */
static void
bias_grads(const gradients_t *gp, grad_scratch_t *w, const visit_t *x)
{
    int by_label = has_labels(gp->plan.p);
    T *sums = partial_of(gp, RP_GRAD_BIAS, x->index, x->chunk);
    if (!by_label && sums)
        sum_offsets(gp, w, x, w->offset_sums);
    if ((sums && by_label) || sums_bias_runs(gp->g))
        sum_bias(&gp->plan.bias, gp->g, &x->q, &x->t, x->d, by_label ? sums : NULL,
                 bias_sums_of(gp, x->index, x->chunk));
}

/* What passes the cap of dS, and its sums by row. */
static void
cap_grads(const gradients_t *gp, const grad_scratch_t *w, const visit_t *x)
{
    for (int m = 0; m < x->q.rows; m++) {
        T *d = x->d + m * x->t.ld;
        pass_cap(d, w->forward.slopes + m * gp->plan.key_tile, x->t.columns);
        if (w->totals)
            w->totals[m] = sum_run(d, 0, x->t.columns);
    }
}

/* Sums of dS that u and v are made of; those by offset may be the bias's. */
static void
vector_grads(const gradients_t *gp, grad_scratch_t *w, const visit_t *x)
{
    int summed = !(gp->plan.p->softcap > 0) && wants(gp, RP_GRAD_BIAS);
    if (wants(gp, RP_GRAD_V) && !has_labels(gp->plan.p) && !summed)
        sum_offsets(gp, w, x, w->v_sums);
    if (wants(gp, RP_GRAD_U))
        sum_columns(gp, w, x);
}

/* What each term of the formula takes from a tile: first those that no cap is on. */
static void
backward_tile(const gradients_t *gp, grad_scratch_t *w, visit_t *x, const T *keys,
              const T *values, int keys_bad)
{
    score_tile(&gp->plan, &w->forward, &x->q, &x->t, keys);
    fill_grads(gp, w, x, values);
    grad_tile(gp, w, x);
    value_grads(gp, w, x);
    rel_value_grads(gp, w, x);
    bias_grads(gp, w, x);
    mask_grads(gp->g, x);
    if (gp->plan.p->softcap > 0)
        cap_grads(gp, w, x);
    content_grads(gp, w, x, keys_bad);
    rel_key_grads(gp, w, x);
    rel_query_grads(gp, w, x, keys_bad);
    vector_grads(gp, w, x);
}

#endif
