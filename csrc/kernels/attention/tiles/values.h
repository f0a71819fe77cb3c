/* attention_values.h: logits -> probabilities -> out, one tile at a time.
 *
 * Running softmax: max and sum of a row are those of the keys seen so far; when a tile
 * raises the maximum, what the row has accumulated is scaled down. The sums over table
 * rows (rel_value by ROWS or LABELS) are scaled with it. */
#ifndef RELPOS_ATTENTION_TILES_VALUES_H
#define RELPOS_ATTENTION_TILES_VALUES_H

#include "scores.h"

RP_INLINE void
scale_row(T *row, ptrdiff_t count, T factor)
{
    for (ptrdiff_t k = 0; k < count; k += VL)
        store(row + k, load(row + k) * factor);
}

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

/* ---- rel_value -------------------------------------------------------------------- */

RP_INLINE T
sum_run(const T *p, int64_t first, int64_t end)
{
    V sum = (V){0};
    T rest = 0;
    for (; first + VL <= end; first += VL)
        sum += load(p + first);
    for (; first < end; first++)
        rest += p[first];
    return sum_lanes(sum)[0] + rest;
}

/* sums[m, table row of the pair] += a[m, n] over the tile, by clipping: every row inside
 * the table has one key, its two ends take all keys beyond. */
static void
sum_by_row(const plan_t *plan, const queries_t *q, const tile_t *t, const T *a, T *sums,
           ptrdiff_t stride, int64_t rows)
{
    for (int m = 0; m < q->rows; m++, a += t->ld, sums += stride) {
        runs_t runs = runs_of(plan, q, t, m, rows, t->keys);
        if (plan->p->beyond == RP_CLIP) {
            sums[0] += sum_run(a, 0, runs.inside);
            sums[rows - 1] += sum_run(a, runs.past, t->keys);
        }
        for (int64_t n = runs.inside; n < runs.past; n++)
            sums[runs.row + n] += a[n];
    }
}

/* The same by label. */
static void
sum_by_label(const plan_t *plan, const queries_t *q, const tile_t *t, const T *a,
             T *sums, ptrdiff_t stride, int64_t rows)
{
    const rp_attention *p = plan->p;
    for (int m = 0; m < q->rows; m++, a += t->ld, sums += stride) {
        const char *label =
            rp_at(&p->labels, q->b, 0, q->i0 + m) + t->j0 * p->labels.col;
        for (int n = 0; n < t->keys; n++, label += p->labels.col) {
            int64_t l = rp_label(label, p->label_size, rows);
            if (l >= 0)
                sums[l] += a[n];
        }
    }
}

RP_INLINE void
sum_by_table_row(const plan_t *plan, const queries_t *q, const tile_t *t, const T *a,
                 T *sums, ptrdiff_t stride, int64_t rows)
{
    (plan->p->labels.data ? sum_by_label : sum_by_row)(plan, q, t, a, sums, stride,
                                                       rows);
}

/* The probabilities read with the plain row length are the band matrix, once the cells
 * that belong to no pair of the tile are zero. */
static void
add_value_band(const plan_t *plan, scratch_t *w, queries_t *q, const tile_t *t)
{
    const T *table = copy_of(&plan->rel_value, q->b, q->h) +
                     (t->w0 - plan->band_first) * plan->Dv_pad;
    int64_t depth = RP_MIN(t->keys + BQ - 1, plan->band_end - t->w0);
    for (int m = 0; m < q->rows_pad; m++) {
        T *row = w->scores + m * plan->lds;
        int first = BQ - 1 - m, end = first + (m < q->rows ? t->keys : 0);
        for (int c = 0; c < first; c++)
            row[c] = 0;
        for (int64_t c = end; c < depth; c++)
            row[c] = 0;
    }
    if (plan->rel_value_bad)
        gemm_add_rows_selected(w->scores, plan->lds, table, plan->Dv_pad, q->rows,
                               plan->Dv_pad, depth, q->out, plan->Dv_pad);
    else
        gemm_add_rows(w->scores, plan->lds, table, plan->Dv_pad, q->rows_pad,
                      plan->Dv_pad, depth, q->out, plan->Dv_pad);
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

/* ---- the finished rows --------------------------------------------------------------- */

static void
write_weights_row(const rp_attention *p, int64_t b, int64_t h, int64_t i, T max, T sum)
{
    char *at = rp_at(&p->weights, b, h, i);
    for (int64_t j = 0; j < p->Lk; j++, at += p->weights.col) {
        T s = *(T *)at;
        *(T *)at = s == -(T)INFINITY ? 0 : vexp2(splat(s - max))[0] / sum;
    }
}

/* Writes query row (b, h, i): `values` holds sum_j p_j z_j (v_j + W) in whole vectors, max
 * and sum are those of its logits. A row that saw no key has accumulated nothing: its out
 * is 0 and its lse -inf. Weights hold the row's logits so far. */
static void
write_row(const rp_attention *p, int64_t b, int64_t h, int64_t i, T max, T sum,
          T *values)
{
    T norm = sum == 0 ? 0 : (T)(1 / (sum * (1 - p->dropout_p)));
    char *out = rp_at(&p->out, b, h, i);
    if (p->out.col == (ptrdiff_t)sizeof(T) && p->Dv % VL == 0) {
        for (ptrdiff_t k = 0; k < p->Dv; k += VL)
            store((T *)out + k, load(values + k) * norm);
    } else {
        scale_row(values, p->Dv, norm);
        unpack_row(out, p->out.col, values, p->Dv);
    }
    if (p->row_max.data)
        *(T *)rp_at(&p->row_max, b, h, i) = max;
    if (p->row_sum.data)
        *(T *)rp_at(&p->row_sum, b, h, i) = sum;
    if (p->lse.data)
        *(T *)rp_at(&p->lse, b, h, i) =
            sum == 0 ? -(T)INFINITY : (T)((max + log2((double)sum)) * RP_LN2);
    if (p->weights.data)
        write_weights_row(p, b, h, i, max, sum);
}

static void
write_queries(const plan_t *plan, queries_t *q)
{
    const rp_attention *p = plan->p;
    ptrdiff_t stride = plan->value_stride, width = plan->Dv_pad;
    if (q->value_sums)
        (plan->rel_value_bad ? gemm_add_rows_selected : gemm_add_rows)(
            q->value_sums, stride, copy_of(&plan->rel_value, q->b, q->h), width,
            q->rows_pad, width, p->value_rows, q->out, width);
    for (int m = 0; m < q->rows; m++)
        write_row(p, q->b, q->h, q->i0 + m, q->max[m], q->sum[m], q->out + m * width);
}

#endif
