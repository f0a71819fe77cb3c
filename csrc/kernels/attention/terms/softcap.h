/* softcap.h: the cap on the products of a logit, x -> c tanh(x / c), and its slope
 * 1 - tanh^2 on the way back. Biases and masks come after it. */
#ifndef RELPOS_ATTENTION_TERMS_SOFTCAP_H
#define RELPOS_ATTENTION_TERMS_SOFTCAP_H

#include "../../ground/expm1.h"
#include "../../ground/lines.h"
#include "../logits.h"

typedef struct {
    T cap, rate; /* in units of x; -2 / cap */
} softcap_t;

RP_INLINE softcap_t
softcap_of(double cap)
{
    return (softcap_t){(T)cap, (T)RP_MAX(-2 / cap, -4 * (double)RP_LARGEST_TERM)};
}

/* With E = e^(-2 |x| / c): tanh = (1 - E) / (1 + E) or, where it rounds less,
 * 1 - 2 E / (1 + E); 1 - tanh^2 = 4 E / (1 + E)^2. */
RP_INLINE V
cap_vector(softcap_t c, V x, V *slope)
{
    const VI sign = (VI)splat(-(T)0);
    V e, less = vexpm1((V)((VI)x & ~sign) * c.rate, &e), whole = less + 2;
    VI far = e < (T)0.25;
    V part = (V)(((VI)(e + e) & far) | ((VI)-less & ~far)) / whole;
    V size = (V)(((VI)(1 - part) & far) | ((VI)part & ~far)) * c.cap;
    *slope = 4 * e / (whole * whole);
    return (V)(((VI)size & ~sign) | ((VI)x & sign));
}

/* `count` logits of a row, capped, and their slopes, unless those are NULL. */
RP_INLINE void
cap_row(softcap_t c, T *x, int64_t count, T *slopes)
{
    V slope;
    int64_t n = 0;
    for (; n + VL <= count; n += VL) {
        store(x + n, cap_vector(c, load(x + n), &slope));
        if (slopes)
            store(slopes + n, slope);
    }
    for (; n < count; n++) {
        x[n] = cap_vector(c, splat(x[n]), &slope)[0];
        if (slopes)
            slopes[n] = slope[0];
    }
}

/* Gradients d by capped logits become those by what was capped. What is 0, as of a hidden
 * pair, stays it, whatever the slope. */
RP_INLINE void
pass_cap(T *d, const T *slopes, int64_t count)
{
    for (int64_t n = 0; n < count; n += VL) {
        V x = load(d + n);
        store(d + n, (V)((VI)(x * load(slopes + n)) & (x != 0)));
    }
}

#endif
