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

/* Loads from an address that was ordered come after it, and what makes an ordered vector comes
 * before: the compiler keeps the order of these statements. */
#define RP_ORDER_ADDRESS(p) __asm__ volatile("" : "+r"(p))
#if defined(__x86_64__)
#define RP_ORDER_VECTOR(x) __asm__ volatile("" : "+v"(x))
#elif defined(__aarch64__)
#define RP_ORDER_VECTOR(x) __asm__ volatile("" : "+w"(x))
#else
#define RP_ORDER_VECTOR(x) __asm__ volatile("" : "+m"(x))
#endif

RP_INLINE V
splat(T x)
{
    return x - (V){0}; /* x - 0 keeps the sign of -0 */
}

/* a * b + c. Where the CPU rounds once, every loop does: left to itself, a compiler may join the
 * product and the sum in one loop and not in another, whose results are to have equal bits. */
RP_INLINE V
multiply_add(V a, V b, V c)
{
#if !RP_HAS_FMA
    return a * b + c;
#elif RP_IS_F32
    return (V)RP_FMA_F32(a, b, c);
#else
    return (V)RP_FMA_F64(a, b, c);
#endif
}

/* The bits of the first `count` lanes. */
RP_INLINE VI
lanes_before(int count)
{
    static const TI lanes[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    VI lane;
    memcpy(&lane, lanes, sizeof lane);
    return lane < (VI){0} + (TI)count;
}

/* The first `count` lanes of x, zeros beyond. */
RP_INLINE V
first_lanes(V x, int count)
{
    return (V)((VI)x & lanes_before(count));
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

/* Lane-wise smaller, of NaN as vmax. */
RP_INLINE V
vmin(V a, V b)
{
    T x[VL], y[VL];
    memcpy(x, &a, sizeof a);
    memcpy(y, &b, sizeof b);
#pragma omp simd
    for (int i = 0; i < VL; i++)
        x[i] = x[i] < y[i] ? x[i] : y[i];
    memcpy(&a, x, sizeof a);
    return a;
}

/* Lanes of a where those of `chosen` are all ones, and of b where they are 0. */
RP_INLINE V
choose(VI chosen, V a, V b)
{
    return (V)((chosen & (VI)a) | (~chosen & (VI)b));
}

/* The first `count` lanes of x, and those of `other` beyond. */
RP_INLINE V
keep_lanes(V x, int count, V other)
{
    return choose(lanes_before(count), x, other);
}

/* RP_SWAPh exchanges lanes i and i ^ h; RP_LOW and RP_HIGH interleave the lower and the upper
 * halves of two vectors. Literal indices: all that gcc and clang share. */
#define RP_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#if RP_LANES == 2
#define RP_SWAP1(v) RP_SHUFFLE(v, v, 1, 0)
#define RP_LOW(a, b) RP_SHUFFLE(a, b, 0, 2)
#define RP_HIGH(a, b) RP_SHUFFLE(a, b, 1, 3)
#elif RP_LANES == 4
#define RP_SWAP1(v) RP_SHUFFLE(v, v, 1, 0, 3, 2)
#define RP_SWAP2(v) RP_SHUFFLE(v, v, 2, 3, 0, 1)
#define RP_LOW(a, b) RP_SHUFFLE(a, b, 0, 4, 1, 5)
#define RP_HIGH(a, b) RP_SHUFFLE(a, b, 2, 6, 3, 7)
#elif RP_LANES == 8
#define RP_SWAP1(v) RP_SHUFFLE(v, v, 1, 0, 3, 2, 5, 4, 7, 6)
#define RP_SWAP2(v) RP_SHUFFLE(v, v, 2, 3, 0, 1, 6, 7, 4, 5)
#define RP_SWAP4(v) RP_SHUFFLE(v, v, 4, 5, 6, 7, 0, 1, 2, 3)
#define RP_LOW(a, b) RP_SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define RP_HIGH(a, b) RP_SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
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
#endif

/* RP_MIXh takes the lanes i in which i & h is set from b, and the others from a. */
#ifdef RP_BLEND
#define RP_MIX1(a, b) ((V)RP_BLEND(0xaaaa, a, b))
#define RP_MIX2(a, b) ((V)RP_BLEND(0xcccc, a, b))
#define RP_MIX4(a, b) ((V)RP_BLEND(0xf0f0, a, b))
#define RP_MIX8(a, b) ((V)RP_BLEND(0xff00, a, b))
#elif RP_LANES == 2
#define RP_MIX1(a, b) RP_SHUFFLE(a, b, 0, 3)
#elif RP_LANES == 4
#define RP_MIX1(a, b) RP_SHUFFLE(a, b, 0, 5, 2, 7)
#define RP_MIX2(a, b) RP_SHUFFLE(a, b, 0, 1, 6, 7)
#elif RP_LANES == 8
#define RP_MIX1(a, b) RP_SHUFFLE(a, b, 0, 9, 2, 11, 4, 13, 6, 15)
#define RP_MIX2(a, b) RP_SHUFFLE(a, b, 0, 1, 10, 11, 4, 5, 14, 15)
#define RP_MIX4(a, b) RP_SHUFFLE(a, b, 0, 1, 2, 3, 12, 13, 14, 15)
#else
#define RP_MIX1(a, b)                                                                  \
    RP_SHUFFLE(a, b, 0, 17, 2, 19, 4, 21, 6, 23, 8, 25, 10, 27, 12, 29, 14, 31)
#define RP_MIX2(a, b)                                                                  \
    RP_SHUFFLE(a, b, 0, 1, 18, 19, 4, 5, 22, 23, 8, 9, 26, 27, 12, 13, 30, 31)
#define RP_MIX4(a, b)                                                                  \
    RP_SHUFFLE(a, b, 0, 1, 2, 3, 20, 21, 22, 23, 8, 9, 10, 11, 28, 29, 30, 31)
#define RP_MIX8(a, b)                                                                  \
    RP_SHUFFLE(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 24, 25, 26, 27, 28, 29, 30, 31)
#endif

/* A join adds lanes i and i + h of every 2 h lanes of a, and of b, in two shuffles and one
 * addition: h = VL / 2 first, then half of it each time. The lanes of VL vectors that are so
 * joined two by two have their sums, which RP_IN_ORDER puts in order. */
#if RP_LANES == 2
#define RP_JOIN_FIRST(a, b) (RP_SHUFFLE(a, b, 0, 2) + RP_SHUFFLE(a, b, 1, 3))
#elif RP_LANES == 4
#define RP_JOIN_FIRST(a, b)                                                            \
    (RP_SHUFFLE(a, b, 0, 1, 4, 5) + RP_SHUFFLE(a, b, 2, 3, 6, 7))
#define RP_JOIN_SECOND(a, b)                                                           \
    (RP_SHUFFLE(a, b, 0, 2, 4, 6) + RP_SHUFFLE(a, b, 1, 3, 5, 7))
#elif RP_LANES == 8
#define RP_JOIN_FIRST(a, b)                                                            \
    (RP_SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11) +                                      \
     RP_SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15))
#define RP_JOIN_SECOND(a, b)                                                           \
    (RP_SHUFFLE(a, b, 0, 1, 8, 9, 4, 5, 12, 13) +                                      \
     RP_SHUFFLE(a, b, 2, 3, 10, 11, 6, 7, 14, 15))
#define RP_JOIN_LAST(a, b)                                                             \
    (RP_SHUFFLE(a, b, 0, 2, 8, 10, 4, 6, 12, 14) +                                     \
     RP_SHUFFLE(a, b, 1, 3, 9, 11, 5, 7, 13, 15))
#define RP_IN_ORDER(v) RP_SHUFFLE(v, v, 0, 4, 1, 5, 2, 6, 3, 7)
#else
#define RP_JOIN_FIRST(a, b)                                                            \
    (RP_SHUFFLE(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +        \
     RP_SHUFFLE(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
#define RP_JOIN_SECOND(a, b)                                                           \
    (RP_SHUFFLE(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +      \
     RP_SHUFFLE(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31))
#define RP_JOIN_THIRD(a, b)                                                            \
    (RP_SHUFFLE(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +      \
     RP_SHUFFLE(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31))
#define RP_JOIN_LAST(a, b)                                                             \
    (RP_SHUFFLE(a, b, 0, 2, 16, 18, 4, 6, 20, 22, 8, 10, 24, 26, 12, 14, 28, 30) +     \
     RP_SHUFFLE(a, b, 1, 3, 17, 19, 5, 7, 21, 23, 9, 11, 25, 27, 13, 15, 29, 31))
#define RP_IN_ORDER(v)                                                                 \
    RP_SHUFFLE(v, v, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)
#endif

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

/* rows[i][l] = rows[i + l][l] for i < VL, of 2 VL - 1 rows: lane l moves up l rows, one bit of
 * l in each of log2(VL) rounds. */
RP_INLINE void
shear(V rows[2 * VL - 1])
{
#if RP_LANES > 8
#pragma GCC unroll 32
    for (int i = 0; i < VL + 7; i++)
        rows[i] = RP_MIX8(rows[i], rows[i + 8]);
#endif
#if RP_LANES > 4
#pragma GCC unroll 32
    for (int i = 0; i < VL + 3; i++)
        rows[i] = RP_MIX4(rows[i], rows[i + 4]);
#endif
#if RP_LANES > 2
#pragma GCC unroll 32
    for (int i = 0; i < VL + 1; i++)
        rows[i] = RP_MIX2(rows[i], rows[i + 2]);
#endif
#pragma GCC unroll 32
    for (int i = 0; i < VL; i++)
        rows[i] = RP_MIX1(rows[i], rows[i + 1]);
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
