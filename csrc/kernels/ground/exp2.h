/* exp2.h: 2^x for x <= 0, the only transcendental of attention.
 *
 * x = n + f with n the nearest integer: adding and subtracting 1.5 * 2^(mantissa bits)
 * rounds, and leaves n in the low bits of the sum. 2^f on [-1/2, 1/2] is the minimax
 * polynomial of the relative error with p(0) = 1 exactly, so that the largest entry of a
 * row weighs exactly 1 (float32: degree 5, coefficients rounded one after the other with
 * the rest refitted, 9.4e-8; float64: degree 11, 3.1e-18). The result is 0 some way above
 * the end of the normal range: p and dS, which are less by the sum of a row, are then
 * normal too, and subnormals, slow operands on many CPUs, stay rare. NaN stays NaN: the
 * last step is a product, not an addition to the exponent bits. */
#ifndef RELPOS_GROUND_EXP2_H
#define RELPOS_GROUND_EXP2_H

#include "vector.h"

RP_INLINE V
vexp2(V x)
{
#if RP_IS_F32
    const T shift = 0x1.8p23f, smallest = -100.0f;
    const int mantissa = 23, bias = 127;
    static const T c[] = {1.0f,          0.693147004f,  0.240222469f,
                          0.0555071086f, 0.0096712932f, 0.00132696086f};
#else
    const T shift = 0x1.8p52, smallest = -980.0;
    const int mantissa = 52;
    const int64_t bias = 1023;
    static const T c[] = {1.0,
                          0.6931471805599453,
                          0.24022650695910155,
                          0.055504108664819925,
                          0.009618129107588335,
                          0.001333355814678995,
                          0.00015403530462514614,
                          1.5252733489960805e-05,
                          1.321543308959463e-06,
                          1.0178198033328528e-07,
                          7.074105626245659e-09,
                          4.4352809446103363e-10};
#endif
    enum { DEGREE = RP_IS_F32 ? 5 : 11 };
    V rounded = x + shift;
    V f = x - (rounded - shift);
    V p = splat(c[DEGREE]);
#pragma GCC unroll 11
    for (int i = DEGREE - 1; i >= 0; i--)
        p = p * f + c[i];
    V power = (V)(((VI)rounded + (TI)bias) << mantissa);
    VI zero = x < smallest;
    return (V)((VI)(p * power) & ~zero);
}

#endif
