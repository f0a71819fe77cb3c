/* values.h: logits -> probabilities -> out, one tile at a time.
 *
 * Running softmax: max and sum of a row are those of the keys seen so far; when a tile
 * raises the maximum, what the row has accumulated is scaled down. The sums over table
 * rows (rel_value by ROWS or LABELS) are scaled with it. */
#ifndef RELPOS_ATTENTION_TILES_VALUES_H
#define RELPOS_ATTENTION_TILES_VALUES_H

#include "../../ground/exp2.h"
#include "../dropout.h"
#include "../table.h"
#include "../terms/rel_value.h"

/* Column by column, VL rows of VL elements. */
RP_INLINE void
load_columns(const T *rows, V columns[VL])
{
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++)
        columns[i] = load(rows + i * VL);
    transpose(columns);
}

/* The sum, or the largest element, of each of VL rows of VL elements, in the tree order of
 * sum_lanes and max_lanes. VL rows at a time cost what two cost alone. */
RP_INLINE V
sum_rows(const T *rows)
{
    V x[VL];
    load_columns(rows, x);
#pragma GCC unroll 4
    for (int half = VL / 2; half > 0; half /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < half; i++)
            x[i] += x[i + half];
    return x[0];
}

RP_INLINE V
max_rows(const T *rows)
{
    V x[VL];
    load_columns(rows, x);
#pragma GCC unroll 4
    for (int half = VL / 2; half > 0; half /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < half; i++)
            x[i] = vmax(x[i], x[i + half]);
    return x[0];
}

/* Raises the maxima of the tile's rows, and scales what they have accumulated down. No
 * branch on a row's own maximum: which rows rise is past predicting. base[m] is what the
 * exponents of row m start from. */
static void
raise_maxima(const plan_t *plan, const scratch_t *w, queries_t *q, T *base)
{
    T factor[BQ];
    for (int m = 0; m < q->rows; m += VL) {
        V old = load(q->max + m);
        V top = vmax(max_rows(w->lane_max + m * VL), old);
        /* A row with nothing visible yet: exp2(-inf - 0) = 0, not NaN. */
        VI hidden = top == -(T)INFINITY;
        V from = (V)((VI)top & ~hidden), f = vexp2(old - from);
        store(q->max + m, top);
        store(q->sum + m, load(q->sum + m) * f);
        store(base + m, from);
        store(factor + m, f);
    }
    for (int m = 0; m < q->rows; m++) {
        scale_row(q->out + m * plan->Dv_pad, plan->Dv_pad, factor[m]);
        if (q->value_sums)
            scale_row(q->value_sums + m * plan->value_stride, plan->value_stride,
                      factor[m]);
    }
}

/* exp2(s - max) in place for every row, sums included. */
static void
softmax_tile(const plan_t *plan, const scratch_t *w, queries_t *q, const tile_t *t)
{
    T base[BQ], *sums = w->lane_max;
    raise_maxima(plan, w, q, base);
    for (int m = 0; m < q->rows; m++) {
        T *s = t->s + m * t->ld;
        V sum0 = (V){0}, sum1 = (V){0}, from = splat(base[m]);
        for (int n = 0; n < t->columns; n += NR) {
            V p0 = vexp2(load(s + n) - from);
            V p1 = vexp2(load(s + n + VL) - from);
            store(s + n, p0);
            store(s + n + VL, p1);
            sum0 += p0;
            sum1 += p1;
        }
        store(sums + m * VL, sum0 + sum1);
    }
    for (int m = 0; m < q->rows; m += VL)
        store(q->sum + m, load(q->sum + m) + sum_rows(sums + m * VL));
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

/* Probabilities of a scored tile, and their share of the output. */
static void
value_tile(const plan_t *plan, scratch_t *w, queries_t *q, const tile_t *t,
           const T *values, ptrdiff_t stride, int values_bad)
{
    const rp_attention *p = plan->p;
    softmax_tile(plan, w, q, t);
    if (p->dropout_p > 0)
        drop_tile(p, q, t);
    if (plan->use_value > RP_BAND)
        sum_by_table_row(plan, q, t, t->s, q->value_sums, plan->value_stride,
                         p->value_rows);
    if (values_bad && t->finished)
        gemm_add_rows_selected(t->s, t->ld, values + t->j0 * stride, stride, q->rows,
                               plan->Dv_pad, t->keys, q->out, plan->Dv_pad);
    else
        gemm_add_rows(t->s, t->ld, values + t->j0 * stride, stride, q->rows_pad,
                      plan->Dv_pad, t->keys, q->out, plan->Dv_pad);
    if (plan->use_value == RP_BAND)
        add_value_band(plan, w, q, t);
}

#endif
