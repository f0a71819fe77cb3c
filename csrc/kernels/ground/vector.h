/* vector.h: the number type T of an object, the ISA's vector of T, and the few operations that
 * C leaves out.
 *
 * V is a vector of VL lanes, VI the signed integers of the same width. Loads and stores
 * take any address aligned to T. Vectors never cross a call that is not inlined. */
#ifndef RELPOS_GROUND_VECTOR_H
#define RELPOS_GROUND_VECTOR_H

#include "system.h"

#if RP_IS_F32
typedef float T;
#else
typedef double T;
#endif

typedef T V __attribute__((vector_size(RP_VECTOR_BYTES)));
typedef T uvec
    __attribute__((vector_size(RP_VECTOR_BYTES), aligned(sizeof(T)), may_alias));
#define VL RP_LANES

#if RP_IS_F32
#define RP_LANES (RP_VECTOR_BYTES / 4)
typedef int32_t VI __attribute__((vector_size(RP_VECTOR_BYTES)));
#define TI int32_t
#else
#define RP_LANES (RP_VECTOR_BYTES / 8)
typedef int64_t VI __attribute__((vector_size(RP_VECTOR_BYTES)));
#define TI int64_t
#endif

RP_INLINE V
load(const T *p)
{
    return *(const uvec *)p;
}

RP_INLINE void
store(T *p, V x)
{
    *(uvec *)p = x;
}

RP_INLINE V
splat(T x)
{
    return x - (V){0}; /* x - 0 keeps the sign of -0 */
}

/* The first `count` lanes of x, zeros beyond. */
RP_INLINE V
first_lanes(V x, int count)
{
    static const TI lanes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    VI lane;
    memcpy(&lane, lanes, sizeof lane);
    return (V)((VI)x & (lane < (VI){0} + (TI)count));
}

/* Lane-wise larger; a NaN in b is kept, one in a is dropped. C vector types have no
 * operator for it; this loop over memory becomes one instruction on gcc and clang, where
 * one over vector subscripts can fall apart into scalars. */
RP_INLINE V
vmax(V a, V b)
{
    T x[VL], y[VL];
    memcpy(x, &a, sizeof a);
    memcpy(y, &b, sizeof b);
#pragma omp simd
    for (int i = 0; i < VL; i++)
        x[i] = x[i] > y[i] ? x[i] : y[i];
    memcpy(&a, x, sizeof a);
    return a;
}

/* RP_SWAP(v, h) exchanges lanes i and i ^ h; RP_MIX takes those with bit h from b; RP_LOW
 * and RP_HIGH interleave the lower and the upper halves of two vectors. Literal indices: all
 * that gcc and clang share. */
#define RP_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#if RP_LANES == 2
#define RP_SWAP1(v) RP_SHUFFLE(v, v, 1, 0)
#define RP_LOW(a, b) RP_SHUFFLE(a, b, 0, 2)
#define RP_HIGH(a, b) RP_SHUFFLE(a, b, 1, 3)
#define RP_MIX1(a, b) RP_SHUFFLE(a, b, 0, 3)
#elif RP_LANES == 4
#define RP_SWAP1(v) RP_SHUFFLE(v, v, 1, 0, 3, 2)
#define RP_SWAP2(v) RP_SHUFFLE(v, v, 2, 3, 0, 1)
#define RP_LOW(a, b) RP_SHUFFLE(a, b, 0, 4, 1, 5)
#define RP_HIGH(a, b) RP_SHUFFLE(a, b, 2, 6, 3, 7)
#define RP_MIX1(a, b) RP_SHUFFLE(a, b, 0, 5, 2, 7)
#define RP_MIX2(a, b) RP_SHUFFLE(a, b, 0, 1, 6, 7)
#elif RP_LANES == 8
#define RP_SWAP1(v) RP_SHUFFLE(v, v, 1, 0, 3, 2, 5, 4, 7, 6)
#define RP_SWAP2(v) RP_SHUFFLE(v, v, 2, 3, 0, 1, 6, 7, 4, 5)
#define RP_SWAP4(v) RP_SHUFFLE(v, v, 4, 5, 6, 7, 0, 1, 2, 3)
#define RP_LOW(a, b) RP_SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define RP_HIGH(a, b) RP_SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define RP_MIX1(a, b) RP_SHUFFLE(a, b, 0, 9, 2, 11, 4, 13, 6, 15)
#define RP_MIX2(a, b) RP_SHUFFLE(a, b, 0, 1, 10, 11, 4, 5, 14, 15)
#define RP_MIX4(a, b) RP_SHUFFLE(a, b, 0, 1, 2, 3, 12, 13, 14, 15)
#else
#define RP_SWAP1(v)                                                                    \
    RP_SHUFFLE(v, v, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14)
#define RP_SWAP2(v)                                                                    \
    RP_SHUFFLE(v, v, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13)
#define RP_SWAP4(v)                                                                    \
    RP_SHUFFLE(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11)
#define RP_SWAP8(v)                                                                    \
    RP_SHUFFLE(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7)
#define RP_LOW(a, b)                                                                   \
    RP_SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define RP_HIGH(a, b)                                                                  \
    RP_SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define RP_MIX1(a, b)                                                                  \
    RP_SHUFFLE(a, b, 0, 17, 2, 19, 4, 21, 6, 23, 8, 25, 10, 27, 12, 29, 14, 31)
#define RP_MIX2(a, b)                                                                  \
    RP_SHUFFLE(a, b, 0, 1, 18, 19, 4, 5, 22, 23, 8, 9, 26, 27, 12, 13, 30, 31)
#define RP_MIX4(a, b)                                                                  \
    RP_SHUFFLE(a, b, 0, 1, 2, 3, 20, 21, 22, 23, 8, 9, 10, 11, 28, 29, 30, 31)
#define RP_MIX8(a, b)                                                                  \
    RP_SHUFFLE(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 24, 25, 26, 27, 28, 29, 30, 31)
#endif

/* The sums of lanes i and i ^ h, of a where i lacks bit h, else of b. */
#define RP_FOLD(a, b, mix, swap) (mix(a, b) + swap(mix(b, a)))

/* Lane n: the sum of all lanes of x[n]. VL vectors together take a quarter of the steps. */
RP_INLINE V
sum_each(V x[VL])
{
#if RP_LANES > 8
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        x[i] = RP_FOLD(x[i], x[i + 8], RP_MIX8, RP_SWAP8);
#endif
#if RP_LANES > 4
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        x[i] = RP_FOLD(x[i], x[i + 4], RP_MIX4, RP_SWAP4);
#endif
#if RP_LANES > 2
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        x[i] = RP_FOLD(x[i], x[i + 2], RP_MIX2, RP_SWAP2);
#endif
    return RP_FOLD(x[0], x[1], RP_MIX1, RP_SWAP1);
}

/* The sum, or the largest, of all lanes, in every lane; the tree order is fixed. */
RP_INLINE V
sum_lanes(V x)
{
#if RP_LANES > 8
    x += RP_SWAP8(x);
#endif
#if RP_LANES > 4
    x += RP_SWAP4(x);
#endif
#if RP_LANES > 2
    x += RP_SWAP2(x);
#endif
    return x + RP_SWAP1(x);
}

RP_INLINE V
max_lanes(V x)
{
#if RP_LANES > 8
    x = vmax(x, RP_SWAP8(x));
#endif
#if RP_LANES > 4
    x = vmax(x, RP_SWAP4(x));
#endif
#if RP_LANES > 2
    x = vmax(x, RP_SWAP2(x));
#endif
    return vmax(x, RP_SWAP1(x));
}

/* rows[i][j] -> rows[j][i], by log2(VL) rounds of the perfect shuffle. */
RP_INLINE void
transpose(V rows[VL])
{
    V next[VL];
#pragma GCC unroll 4
    for (int round = 1; round < VL; round *= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < VL / 2; i++) {
            next[2 * i] = RP_LOW(rows[i], rows[i + VL / 2]);
            next[2 * i + 1] = RP_HIGH(rows[i], rows[i + VL / 2]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < VL; i++)
            rows[i] = next[i];
    }
}

#endif
