/* results.h: a finished query row becomes out, lse, and what the backward starts from. */
#ifndef RELPOS_ATTENTION_RESULTS_H
#define RELPOS_ATTENTION_RESULTS_H

#include "../ground/exp2.h"
#include "../ground/lines.h"
#include "logits.h"

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

#endif
