/* fma_loop.h: the yardstick of relpos/_bench: independent multiply-adds in registers.
 *
 * 12 accumulators hide the latency of the operation on every CPU the project knows (4
 * cycles, 2 a cycle), and fit the 16 registers of AVX2 beside the two operands. */
#ifndef RELPOS_GROUND_FMA_LOOP_H
#define RELPOS_GROUND_FMA_LOOP_H

#include "vector.h"

static double
fma_loop(int64_t rounds)
{
    enum { CHAINS = 12 };
    V acc[CHAINS], x, y;
    /* volatile: nothing of the loop is known to the compiler */
    volatile T seed = (T)0.5;
    for (int c = 0; c < CHAINS; c++)
        acc[c] = splat(seed);
    x = splat(seed);
    y = splat(seed);
    for (int64_t round = 0; round < rounds; round++)
#pragma GCC unroll 12
        for (int c = 0; c < CHAINS; c++)
            acc[c] = acc[c] * x + y;
    V total = acc[0];
    for (int c = 1; c < CHAINS; c++)
        total += acc[c];
    seed = sum_lanes(total)[0];
    return 2.0 * CHAINS * VL * (double)rounds;
}

#endif
