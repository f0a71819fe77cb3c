/* softcap.h: the cap on the products of a logit, x -> c tanh(x / c), and its slope
 * 1 - tanh^2 on the way back. Biases and masks come after it. */
#ifndef RELPOS_ATTENTION_TERMS_SOFTCAP_H
#define RELPOS_ATTENTION_TERMS_SOFTCAP_H

#include "../../ground/exp2.h"
#include "../../ground/lines.h"
#include "../logits.h"

typedef struct {
    T cap, inverse, near; /* in units of x: c, 1 / c, and the end of the polynomial */
} softcap_t;

RP_INLINE softcap_t
softcap_of(double cap)
{
    return (softcap_t){(T)cap, (T)RP_MIN(1 / cap, 2 * (double)RP_LARGEST_TERM),
                       (T)(0.6931471805599453 * cap)};
}

RP_INLINE V
sign_of(V x)
{
    return (V)((VI)x & (VI)splat(-(T)0));
}

RP_INLINE V
without_sign(V x)
{
    return (V)((VI)x & ~(VI)splat(-(T)0));
}

/* Up to |y| = log 2, y = x / c, where logits mostly are: c tanh(y) = x + x y^2 P(y^2), P
 * minimax of the relative error (float32 1.4e-8, float64 4.5e-18). */
RP_INLINE V
cap_near(softcap_t c, V x, V *slope)
{
#if RP_IS_F32
    static const T p[] = {-0.33333201957903205f, 0.13329390549808218f,
                          -0.053578665999763891f, 0.020146413119833377f,
                          -0.0051896585748334753f};
#else
    static const T p[] = {-0.33333333333333133913,     0.1333333333330493854,
                          -0.053968253954123426881,    0.021869488182586939469,
                          -0.0088632303289732047765,   0.003592079123877466837,
                          -0.0014555258278218741289,   0.0005886875315337924103,
                          -0.00023508579470684217952,  0.000088481004734966622338,
                          -0.000027361015544516217824, 4.9058494770497634336e-6};
#endif
    enum { DEGREE = sizeof p / sizeof *p - 1 };
    V y = x * c.inverse, square = y * y, sum = splat(p[DEGREE]);
#pragma GCC unroll 12
    for (int i = DEGREE - 1; i >= 0; i--)
        sum = sum * square + p[i];
    V tanh = y * square * sum + y;
    *slope = 1 - tanh * tanh;
    return x * square * sum + x;
}

/* Anywhere; beyond, with E = e^(-2 |y|), tanh = 1 - 2 E / (1 + E). */
RP_INLINE V
cap_vector(softcap_t c, V x, V *slope)
{
    V size = without_sign(x), near = cap_near(c, x, slope);
    V e = vexp2(size * c.inverse * (T)(-2 * RP_LOG2E)), less = 2 * e / (1 + e);
    V far = (1 - less) * c.cap;
    VI is_far = size > c.near;
    *slope = (V)(((VI)(less * (2 - less)) & is_far) | ((VI)*slope & ~is_far));
    far = (V)((VI)far | (VI)sign_of(x));
    return (V)(((VI)far & is_far) | ((VI)near & ~is_far));
}

RP_INLINE T
largest_size(const T *x, int64_t count)
{
    V top = splat(0);
    T rest = 0;
    int64_t n = 0;
    for (; n + VL <= count; n += VL)
        top = vmax(without_sign(load(x + n)), top);
    for (; n < count; n++)
        rest = RP_MAX(RP_MAX(x[n], -x[n]), rest); /* a hidden NaN changes nothing */
    return RP_MAX(rest, max_lanes(top)[0]);
}

/* `count` logits of a row by one of the two, and their slopes, unless those are NULL;
 * returns the largest by lane, of whole vectors. */
RP_INLINE V
cap_row_by(V (*rule)(softcap_t, V, V *), softcap_t c, T *x, int64_t count, T *slopes)
{
    V slope, top = splat(-(T)INFINITY);
    int64_t n = 0;
    for (; n + VL <= count; n += VL) {
        V capped = rule(c, load(x + n), &slope);
        store(x + n, capped);
        top = vmax(capped, top);
        if (slopes)
            store(slopes + n, slope);
    }
    for (; n < count; n++) {
        x[n] = rule(c, splat(x[n]), &slope)[0];
        if (slopes)
            slopes[n] = slope[0];
    }
    return top;
}

/* Caps a row of logits, and notes the slopes unless those are NULL. A row of small numbers
 * does without the exponential: both ways give the same bits. */
RP_INLINE V
cap_row(softcap_t c, T *x, int64_t count, T *slopes)
{
    if (largest_size(x, count) <= c.near)
        return cap_row_by(cap_near, c, x, count, slopes);
    return cap_row_by(cap_vector, c, x, count, slopes);
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
