/* values.h: logits -> probabilities -> out, one tile at a time. */
#ifndef RELPOS_ATTENTION_TILES_VALUES_H
#define RELPOS_ATTENTION_TILES_VALUES_H

#include "../../ground/running.h"
#include "../dropout.h"
#include "../terms/rel_value.h"

/* Probabilities, but for the sum of the row, in place, and what the tile's rows have
 * accumulated scaled down to go with them. totals: the sums of the tile's rows. */
static void
softmax_tile(const plan_t *plan, const scratch_t *w, queries_t *q, const tile_t *t,
             T totals[BQ])
{
    T base[BQ], factor[BQ], *sums = w->lane_max;
    raise_maxima(q->max, q->sum, w->lane_max, q->rows, base, factor);
    for (int m = 0; m < q->rows && !q->fresh; m++) {
        scale_row(q->out + m * plan->Dv_pad, plan->Dv_pad, factor[m]);
        if (q->value_sums)
            scale_row(q->value_sums + m * plan->rel_value.stride,
                      plan->rel_value.stride, factor[m]);
    }
    q->fresh = 0;
    for (int m = 0; m < q->rows; m++)
        store(sums + m * VL, exponents(t->s + m * t->ld, t->columns, base[m]));
    for (int m = 0; m < q->rows; m += VL) {
        V total = sum_rows(sums + m * VL);
        store(totals + m, total);
        store(q->sum + m, load(q->sum + m) + total);
    }
}

static void
drop_tile(const rp_attention *p, const queries_t *q, const tile_t *t)
{
    unsigned char keep[RP_KEY_TILE];
    for (int m = 0; m < q->rows; m++) {
        rp_dropout_kept(p, q->b, q->h, q->i0 + m, t->j0, t->keys, keep);
        for (int n = 0; n < t->keys; n++)
            t->s[m * t->ld + n] = keep[n] ? t->s[m * t->ld + n] : 0;
    }
}

/* out += sum_j p_j v_j over the tile. */
static void
add_values(const plan_t *plan, const queries_t *q, const tile_t *t, const T *values,
           ptrdiff_t stride, int selected)
{
    const T *rows = values + t->j0 * stride;
    if (selected)
        gemm_add_rows_selected(t->s, t->ld, rows, stride, q->rows, plan->Dv_pad,
                               t->keys, q->out, plan->Dv_pad);
    else
        gemm_add_rows(t->s, t->ld, rows, stride, q->rows_pad, plan->Dv_pad, t->keys,
                      window_of(t), q->out, plan->Dv_pad);
}

/* Probabilities of a scored tile, and their share of the output:
 *   out_i = sum_j p_ij * (v_j + W[l]) */
static void
value_tile(const plan_t *plan, scratch_t *w, queries_t *q, const tile_t *t,
           const T *values, ptrdiff_t stride, int values_bad)
{
    T totals[BQ];
    int drops = plan->p->dropout.p > 0;
    softmax_tile(plan, w, q, t, totals);
    if (drops)
        drop_tile(plan->p, q, t);
    sum_rel_value(plan, q, t, drops ? NULL : totals);
    add_values(plan, q, t, values, stride, values_bad && !all_open(t));
    add_rel_value(plan, w, q, t);
}

#endif
