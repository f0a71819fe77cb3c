/* results.h: a finished query row becomes out, lse, weights, and what the backward starts
 * from. */
#ifndef RELPOS_ATTENTION_RESULTS_H
#define RELPOS_ATTENTION_RESULTS_H

#include "../ground/pack.h"
#include "terms/sinks.h"

/* Logits of row (b, h, i) become weights. */
static void
write_weights(const rp_array *weights, int64_t b, int64_t h, int64_t i, int64_t Lk,
              running_t row)
{
    char *at = rp_at(weights, b, h, i);
    for (int64_t j = 0; j < Lk; j++, at += weights->col) {
        T s = *(T *)at;
        *(T *)at = s == -(T)INFINITY ? 0 : vexp2(splat(s - row.max))[0] / row.sum;
    }
}

/* All weights of row (b, h, i) hidden, until logits are written over them. */
static void
hide_weights(const rp_array *weights, int64_t b, int64_t h, int64_t i, int64_t Lk)
{
    char *at = rp_at(weights, b, h, i);
    for (int64_t j = 0; j < Lk; j++)
        *(T *)(at + j * weights->col) = -(T)INFINITY;
}

/* Writes query row (b, h, i): `values`, Dv of them in whole vectors, hold
 * sum_j p_j z_j (v_j + W) but for a factor 1 / kept. A row that saw no key has accumulated
 * nothing: its out is 0 and its lse -inf, or its sink. */
static void
write_row(const rp_results *results, const rp_array *sinks, int64_t b, int64_t h,
          int64_t i, running_t row, T *values, ptrdiff_t Dv, double kept)
{
    T norm = row.sum == 0 ? 0 : (T)(1 / (row.sum * kept));
    char *out = rp_at(&results->out, b, h, i);
    write_line(&results->out, out, values, Dv, norm);
    if (results->kept.data) /* values have been multiplied */
        unpack_row(&results->kept, rp_at(&results->kept, b, h, i), values, Dv);
    if (results->row_max.data)
        *(T *)rp_at(&results->row_max, b, h, i) = row.max;
    if (results->row_sum.data)
        *(T *)rp_at(&results->row_sum, b, h, i) = row.sum;
    if (results->lse.data)
        *(T *)rp_at(&results->lse, b, h, i) = row_lse(sinks, b, h, i, row);
}

#endif
