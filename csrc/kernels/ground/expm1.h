/* expm1.h: e^z - 1 and e^z for z <= 0, what tanh is made of.
 *
 * z = n ln 2 + f with n the nearest integer, found as in exp2.h; ln 2 comes in two parts, of
 * which n times the first is exact. e^f - 1 = f + f^2 r(f), r minimax of the relative error
 * (float32 1.4e-8, float64 2.6e-19): near 0 the sum rounds once. Below z = -60 or -120, where
 * tanh(z / 2) has long been -1, the results stay the same. NaN stays NaN. */
#ifndef RELPOS_GROUND_EXPM1_H
#define RELPOS_GROUND_EXPM1_H

#include "vector.h"

/* e^z - 1, and e^z in *power. */
RP_INLINE V
vexpm1(V z, V *power)
{
#if RP_IS_F32
    const T shift = 0x1.8p23f, smallest = -60.0f, log2e = 0x1.715476p0f;
    const T high = 0x1.62e4p-1f, low = 0x1.7f7d1cp-20f;
    const int mantissa = 23, bias = 127;
    static const T c[] = {0.5f, 0.1666654795408249f, 0.04166683927178383f,
                          0.008366120047867298f, 0.0013899639016017318f};
#else
    const T shift = 0x1.8p52, smallest = -120.0, log2e = 0x1.71547652b82fep0;
    const T high = 0x1.62e42fefa38p-1, low = 0x1.ef35793c7673p-45;
    const int mantissa = 52;
    const int64_t bias = 1023;
    static const T c[] = {0.5,
                          0.16666666666666676508,
                          0.041666666666666508899,
                          0.0083333333333216908533,
                          0.0013888888888962336236,
                          0.00019841269885967501638,
                          0.00002480158717258517092,
                          2.7557244372725136578e-6,
                          2.7557402613140200781e-7,
                          2.5108979358977337496e-8,
                          2.0875337194376872389e-9};
#endif
    enum { DEGREE = sizeof c / sizeof *c - 1 };
    z = vmax(splat(smallest), z);
    V rounded = z * log2e + shift, n = rounded - shift;
    V f = (z - n * high) - n * low, r = splat(c[DEGREE]);
#pragma GCC unroll 10
    for (int i = DEGREE - 1; i >= 0; i--)
        r = r * f + c[i];
    V whole = (V)(((VI)rounded + (TI)bias) << mantissa);
    f = f * f * r + f;
    *power = whole * f + whole;
    return whole * f + (whole - 1);
}

#endif
