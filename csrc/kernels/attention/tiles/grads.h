/* grads.h: one tile of the backward.
 *
 * The logits are made again as in the forward. Beside them a second buffer of the same
 * shape takes dP = grad_out . (v + W)', by the same two products, and is overwritten by
 *   dS = p * (z * dP - delta),   z the dropout factor. */
#ifndef RELPOS_ATTENTION_TILES_GRADS_H
#define RELPOS_ATTENTION_TILES_GRADS_H

#include "../../ground/exp2.h"
#include "../dropout.h"
#include "../terms/content.h"
#include "../terms/rel_value.h"
#include "scores.h"

/* Terms of grad_out . rel_value summed up at a time. All pairs of a table row share its
 * rounding, and dP - delta does not cancel it as a softmax kept in memory would. */
#define VALUE_BLOCK 8

/* What the next query tile reads first, BQ rows each: fetched while dP is made, as a pass
 * over the queries leaves the second-level cache behind. */
static void
next_operands(const gradients_t *gp, const step_t *x, uintptr_t later[RP_LATER])
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
    if (head->rows_v != head->rows_u)
        later[n++] = (uintptr_t)(head->rows_v + i1 * plan->D_pad);
    if (plan->use_key != RP_BAND || w1 < plan->band_first)
        return;
    T *sums = partial_of(gp, RP_GRAD_KEY, x->index, x->chunk);
    int64_t row = w1 - plan->band_first;
    later[n++] =
        (uintptr_t)(copy_of(&plan->rel_key, x->q.b, x->q.h) + row * plan->p->D);
    later[n++] =
        (uintptr_t)(copy_of(&gp->key_rows, x->q.b, x->q.h) + row * plan->D_pad);
    if (sums)
        later[n++] = (uintptr_t)(sums + (w1 - x->chunk * gp->chunk_keys) * plan->D_pad);
}

static void
fill_grads(const gradients_t *gp, worker_t *w, const step_t *x, const T *values)
{
    static const T zero = 0;
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    const T *left = x->head->grad_rows + x->q.i0 * plan->Dv_pad, *constant = &zero;
    uintptr_t later[RP_LATER] = {0};
    ptrdiff_t step = 0;
    if (plan->use_value == RP_BAND) {
        const T *table = copy_of(&gp->value_panels, x->q.b, x->q.h) +
                         (x->t.w0 - plan->band_first) * p->Dv;
        int64_t end = RP_MIN(x->t.columns + BQ, plan->band_end - x->t.w0);
        gemm_set(left, plan->Dv_pad, table, x->q.rows_pad, end, p->Dv, VALUE_BLOCK,
                 w->grads, plan->lds);
        constant = NULL;
    } else if (plan->use_value != RP_ABSENT) {
        ptrdiff_t stride = RP_ROUND_UP(p->value_rows, NR);
        constant =
            fill_dots(plan, &x->q, &x->t, x->d, x->head->value_dots + x->q.i0 * stride,
                      stride, p->value_rows, &step);
    }
    next_operands(gp, x, later);
    add_product(&x->q, &x->t, x->d, left, plan->Dv_pad, values, p->Dv, constant, step,
                NULL, later);
}

/* Adds row m of a tile to the sums that gradients_ends.h corrects by. */
static void
sum_ends(const gradients_t *gp, const step_t *x, int m, const V sums[2])
{
    row_ends_t *row = ends_of(gp, x->index, x->chunk) + x->q.i0 + m;
    const tile_t *t = &x->t;
    const T *s = t->s + m * t->ld;
    runs_t runs = runs_of(&gp->plan, &x->q, t, m, gp->plan.p->key_rows, t->keys);
    row->grad += sum_lanes(sums[0])[0];
    if (runs.inside == t->keys)
        row->share[0] += sum_lanes(sums[1])[0];
    else if (runs.past == 0)
        row->share[1] += sum_lanes(sums[1])[0];
    else {
        row->share[0] += sum_run(s, 0, runs.inside);
        row->share[1] += sum_run(s, runs.past, t->keys);
    }
}

/* One row: logits -> p, dP -> dS, and the sums of dS and p. A hidden pair has p = 0 and
 * dS = 0 whatever dP is. */
RP_INLINE void
grad_row(T *s, T *d, int columns, T max, T norm, T delta, const int hidden, V sums[2])
{
    V sum = (V){0}, share = (V){0};
    for (int n = 0; n < columns; n += VL) {
        V p = vexp2(load(s + n) - max) * norm;
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
grad_tile(const gradients_t *gp, const step_t *x)
{
    const rp_attention *p = gp->plan.p;
    V sums[2];
    unsigned char keep[RP_GRAD_TILE];
    const T kept = (T)(1 / (1 - p->dropout_p));
    for (int m = 0; m < x->q.rows_pad; m++) {
        T *s = x->t.s + m * x->t.ld, *d = x->d + m * x->t.ld;
        int64_t i = x->q.i0 + m;
        T max = x->head->max[i], norm = x->head->norm[i], delta = x->head->delta[i];
        if (norm == 0) { /* padding, or a row that saw no key */
            memset(s, 0, (size_t)x->t.columns * sizeof(T));
            memset(d, 0, (size_t)x->t.columns * sizeof(T));
            continue;
        }
        if (p->dropout_p > 0) {
            rp_dropout_kept(p, x->q.b, x->q.h, i, x->t.j0, x->t.keys, keep);
            scale_by_dropout(d, keep, x->t.keys, kept);
        }
        if (x->t.finished)
            grad_row(s, d, x->t.columns, max, norm, delta, 1, sums);
        else
            grad_row(s, d, x->t.columns, max, norm, delta, 0, sums);
        if (gp->ends)
            sum_ends(gp, x, m, sums);
        if (p->dropout_p > 0)
            scale_by_dropout(s, keep, x->t.keys, kept);
    }
}

/* column_sums[key] += dS, for the gradient of u. */
static void
sum_columns(const gradients_t *gp, const worker_t *w, const step_t *x)
{
    double *sums = w->column_sums + x->t.j0 - x->chunk * gp->chunk_keys;
    column_totals(x->d, x->t.ld, x->q.rows, x->t.keys, w->tile_sums);
    for (int n = 0; n < x->t.keys; n++)
        sums[n] += w->tile_sums[n];
}

static void
sum_fire_tile(const gradients_t *gp, const step_t *x)
{
    double *sums = fire_sums_of(gp, x->index, x->chunk);
    for (int m = 0; sums && m < x->q.rows; m++)
        sum_fire_row(&gp->plan.fire, gp->g, x->q.b, x->q.h, x->q.i0 + m, x->t.j0,
                     x->t.columns, x->d + m * x->t.ld, sums);
}

static void
backward_tile(const gradients_t *gp, worker_t *w, step_t *x, const T *keys,
              const T *values, int keys_bad)
{
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    score_tile(plan, &w->forward, &x->q, &x->t, keys);
    fill_grads(gp, w, x, values);
    grad_tile(gp, x);
    if (plan->use_value > RP_BAND && wants(gp, RP_GRAD_VALUE))
        sum_by_table_row(plan, &x->q, &x->t, x->t.s,
                         w->value_sums + x->q.i0 * plan->value_stride,
                         plan->value_stride, p->value_rows);
    value_products(gp, w, x);
    content_products(gp, w, x, keys_bad);
    if (plan->use_key == RP_BAND)
        band_products(gp, w, x);
    else if (plan->use_key != RP_ABSENT)
        sum_by_table_row(plan, &x->q, &x->t, x->d,
                         w->key_sums + x->q.i0 * plan->key_stride, plan->key_stride,
                         p->key_rows);
    if (plan->use_query != RP_ABSENT)
        rel_query_products(gp, w, x, keys_bad);
    if (p->labels.data && wants(gp, RP_GRAD_BIAS))
        sum_bias_labels(p, x, partial_of(gp, RP_GRAD_BIAS, x->index, x->chunk));
    else if (wants(gp, RP_GRAD_BIAS) || wants(gp, RP_GRAD_V))
        sum_offsets(gp, w, x);
    if (wants(gp, RP_GRAD_U))
        sum_columns(gp, w, x);
    sum_fire_tile(gp, x);
    if (gp->g->grad_mask.data)
        write_mask_grad(gp->g, x);
}

#endif
