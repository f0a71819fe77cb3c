/* avx2.h: the parameters of the objects for x86-64 with AVX2, FMA and F16C, and their target
 * region, which end.h closes: 32-byte vectors. */
#ifndef RELPOS_ISA_AVX2_H
#define RELPOS_ISA_AVX2_H

#include "../kernels/ground/system.h" /* system headers stay outside the region */
#include <immintrin.h>

#define RP_VECTOR_BYTES 32
#define RP_MR                                                                          \
    6 /* 6 x 2 accumulators, 2 columns of B and one of A: 15 of 16 registers */
#define RP_QUERY_TILE 48 /* a multiple of both MR and the 16 columns of a micro-tile */
#define RP_HAS_FMA 1

/* base.h says what the thresholds mean. All measurements are of float32 on an AMD EPYC
 * (Zen 3), November 2026.
 *
 * 9 and 10 rows were slower than tiles while rows were multiplied four at a time (1,024 keys:
 * tiles took .86 of the time of rows at 10 to 12 queries, .81 at 16), and are rows since six
 * are. The times of 10 and 12 against their neighbours are not kept: measure 8 to 16 queries
 * against 1,024 and 8,192 keys, by rows and by tiles. */
#define RP_ROWS_UNPACKED 10
#define RP_ROWS_UNPACKED_LONG 12
/* Six to ten queries against at most 32 keys take .75 to .9 of the time by tiles, .8 to .95
 * with tables. */
#define RP_SHORT_KEYS (4 * VL)
#define RP_SHORT_ROWS 5
/* The distance was chosen together with loops that read lines in order: one query took .82
 * to .91 of the time at 1,024 and 8,192 keys, .79 at 65,536 (8 heads of 64, one thread).
 * The times of other distances are not kept, nor those of fetching from memory. Measure one
 * query against 1,024 to 65,536 keys. */
#define RP_STREAM_AHEAD 32
#define RP_MEMORY_AHEAD 0
/* 6 rows of 2 vectors have 12 sums, and so have 3 rows of 4, in 16 registers. 2 rows of 8
 * vectors have more than registers hold, but whole lines of 64 columns are read in order.
 * With 6 rows at a time, four to seven queries took .77 to .92 of the time at 1,024 and
 * 8,192 keys. The times of other widths are not kept: measure 2 to 7 queries against as
 * many keys. */
#define RP_STRIP_OF_2 8
#define RP_STRIP_OF_3 4
#define RP_STRIP_OF_6 2

#define RP_FMA_F32(a, b, c) _mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c))
#define RP_FMA_F64(a, b, c) _mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c))
#if RP_IS_F32
#define RP_PERMUTE(x, lanes) _mm256_permutevar8x32_ps((__m256)(x), (__m256i)(lanes))
#endif
#define RP_MULTIPLY_LOWER(a, b) _mm256_mul_epu32((__m256i)(a), (__m256i)(b))
#define RP_WORD_BITS(words) _mm256_cvtepu16_epi32((__m128i)(words))
#define RP_WIDEN_HALF(words) _mm256_cvtph_ps((__m128i)(words))
#define RP_NARROW_HALF(x)                                                              \
    _mm256_cvtps_ph((__m256)(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))),                 \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

#endif
