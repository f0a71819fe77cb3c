/* sinks.h: the sink of a row, a logit without a key, which all rows of a head may share: it joins
 * the sum of the row, as what the running softmax starts from, and has no value. Its gradient is
 * that of any logit,
 *   dsink = sum_i p_sink_i * (grad_lse_i - grad_out_i . out_i),   i the rows that have it. */
#ifndef RELPOS_ATTENTION_TERMS_SINKS_H
#define RELPOS_ATTENTION_TERMS_SINKS_H

#include "../../ground/running.h"
#include "../logits.h"

/* -inf: none. Nothing is added to a sink, so it is cut only where units of log 2 end: beyond
 * them it weighs 1 or 0, as at their end, and row_lse returns the number itself. */
RP_INLINE T
sink_of(const rp_array *sinks, int64_t b, int64_t h, int64_t i)
{
    return sinks->data ? log2_within(*(const T *)rp_at(sinks, b, h, i), RP_LARGEST)
                       : -(T)INFINITY;
}

/* Row (b, h, i) before any key. */
RP_INLINE running_t
start_softmax(const rp_array *sinks, int64_t b, int64_t h, int64_t i)
{
    T sink = sink_of(sinks, b, h, i);
    return (running_t){sink, vexp2(splat(sink - running_base(sink)))[0]};
}

/* The logarithm of the sum of the exponentials of a row; -inf where it saw nothing. */
RP_INLINE T
row_lse(const rp_array *sinks, int64_t b, int64_t h, int64_t i, running_t row)
{
    if (row.sum == 0)
        return -(T)INFINITY;
    if ((row.max == RP_LARGEST || row.max == -RP_LARGEST) &&
        row.max == sink_of(sinks, b, h, i))
        return *(const T *)rp_at(sinks, b, h, i);
    return (T)((row.max + log2((double)row.sum)) * RP_LN2);
}

/* ---- backward -------------------------------------------------------------------- */

/* What a sink weighs in a row, by the row's maximum and 1 / sum. */
RP_INLINE double
sink_share(T sink, T max, double norm)
{
    return vexp2(splat(sink - max))[0] * norm;
}

/* What the gradient of a sink is made of, and what it is added to. */
typedef struct {
    const rp_array *sinks, *grad_out, *grad_lse, *grad;
    const rp_results *results;
    int64_t B, Lq, Dv;
} sink_sum_t;

/* grad_out . out - grad_lse of row (b, h, i). If it `saw` no key, its out is 0, whatever
 * grad_out has there. */
static double
row_delta(const sink_sum_t *x, int64_t b, int64_t h, int64_t i, int saw)
{
    const rp_array *grad = x->grad_out, *out = &x->results->out;
    double sum = 0;
    if (grad->data && saw)
        sum = long_dot(rp_at(grad, b, h, i), grad->col, RP_KIND(grad),
                       rp_at(out, b, h, i), out->col, x->Dv);
    if (x->grad_lse->data)
        sum -= *(const T *)rp_at(x->grad_lse, b, h, i);
    return sum;
}

/* Whether keys changed a row of the softmax since its start, or have a part in its out. */
static int
saw_keys(const sink_sum_t *x, int64_t b, int64_t h, int64_t i, running_t start,
         running_t row)
{
    const rp_array *out = &x->results->out;
    const char *at = rp_at(out, b, h, i);
    int saw = row.max != start.max || row.sum != start.sum;
    for (int64_t n = 0; !saw && n < x->Dv; n++)
        saw = *(const T *)(at + n * out->col) != 0;
    return saw;
}

/* The gradient of what rows [first, end) of item b and head h have of a sink. A row of sum 0 saw
 * neither keys nor a sink, and counts for nothing. */
static double
sink_gradient(const sink_sum_t *x, int64_t b, int64_t h, int64_t first, int64_t end)
{
    double total = 0;
    running_t start = start_softmax(x->sinks, b, h, first);
    for (int64_t i = first; i < end; i++) {
        running_t row = {*(const T *)rp_at(&x->results->row_max, b, h, i),
                         *(const T *)rp_at(&x->results->row_sum, b, h, i)};
        if (x->sinks->row != 0)
            start = start_softmax(x->sinks, b, h, i);
        double share =
            row.sum == 0 ? 0 : sink_share(start.max, row.max, 1 / (double)row.sum);
        if (share != 0)
            total += share * row_delta(x, b, h, i, saw_keys(x, b, h, i, start, row));
    }
    return total;
}

/* Adds up the gradients of one head's sinks: one writer, and one order. Each is of one row or of
 * all, and of one batch item or of all. */
static void
sum_sink_unit(void *context, int64_t h, int worker)
{
    const sink_sum_t *x = context;
    const int64_t items = x->grad->batch ? 1 : x->B, rows = x->grad->row ? 1 : x->Lq;
    (void)worker;
    for (int64_t b = 0; b < x->B; b += items)
        for (int64_t i = 0; i < x->Lq; i += rows) {
            double total = 0;
            for (int64_t item = b; item < b + items && !rp_stopping(); item++)
                total += sink_gradient(x, item, h, i, i + rows);
            *(T *)rp_at(x->grad, b, h, i) -= (T)total;
        }
}

/* The gradient of all sinks, where it is asked for. */
static rp_status
sum_sinks(sink_sum_t x, int64_t heads, int threads)
{
    return x.grad->data ? rp_parallel(heads, sum_sink_unit, &x, threads) : RP_OK;
}

#endif
