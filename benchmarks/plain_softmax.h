/* plain_softmax.h: exponentials and their sums, for the loops that compute attention. */
#ifndef RELPOS_BENCHMARKS_PLAIN_SOFTMAX_H
#define RELPOS_BENCHMARKS_PLAIN_SOFTMAX_H

#include "plain_loops.h"

/* 2^x for -126 <= x <= 0, to some 1e-7 of it. */
static inline vector
exponential(vector x)
{
    const float parts[] = {1.5403530e-4f, 1.3333558e-3f, 9.6181291e-3f,
                           5.5504109e-2f, 2.4022651e-1f, 6.9314718e-1f};
    const integers whole = __builtin_convertvector(x - 0.5f, integers);
    const vector rest = x - __builtin_convertvector(whole, vector);
    vector power = {0};
    for (int i = 0; i < 6; i++)
        power = power * rest + parts[i];
    return (power * rest + 1.0f) * (vector)((whole + 127) << 23);
}

/* The larger of two vectors, lane by lane. */
static inline vector
larger(vector x, vector y)
{
    const integers first = x > y;
    return (vector)(((integers)x & first) | ((integers)y & ~first));
}

/* One row's logits, times log2(e), become weights, whose sum is returned. */
static float
soften(float *s, int64_t keys)
{
    loaded *x = (loaded *)s;
    vector top = x[0], sum = {0};
    float most = s[0], total = 0;
    for (int64_t n = 1; n < keys / LANES; n++)
        top = larger(x[n], top);
    for (int i = 0; i < LANES; i++)
        most = top[i] > most ? top[i] : most;
    for (int64_t n = 0; n < keys / LANES; n++)
        sum += x[n] = exponential(larger(x[n] - most, (vector){0} - 126.0f));
    for (int i = 0; i < LANES; i++)
        total += sum[i];
    return total;
}

#endif
