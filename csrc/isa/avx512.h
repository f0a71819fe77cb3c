/* avx512.h: the parameters of the objects for x86-64 with AVX-512 (F, DQ, BW, VL), and their
 * target region, which end.h closes: 64-byte vectors. */
#ifndef RELPOS_ISA_AVX512_H
#define RELPOS_ISA_AVX512_H

#include "../kernels/ground/system.h" /* system headers stay outside the region */
#include <immintrin.h>

#define RP_VECTOR_BYTES 64
#define RP_MR 8 /* 8 x 2 accumulators; 8 divides the query tile of 32 rows */
#define RP_QUERY_TILE 32
#define RP_HAS_FMA 1

/* base.h says what the thresholds mean. All measurements are of float32, November 2026.
 *
 * The times that chose 12 and 16 are not kept. Measure 8 to 20 queries against 1,024 and 8,192
 * keys, by rows and by tiles, on a CPU of AMD and on one of Intel. */
#define RP_ROWS_UNPACKED 12
#define RP_ROWS_UNPACKED_LONG 16
/* Seven to twelve queries against at most 64 keys take .75 to .95 of the time by tiles,
 * seven and eight with tables .5 to .95; six do not gain (Intel Xeon, Sapphire or Emerald
 * Rapids). */
#define RP_SHORT_KEYS (4 * VL)
#define RP_SHORT_ROWS 6
/* CPUs of AMD (Zen 4) fetch better by themselves, those of Intel (Sapphire Rapids) do not:
 * there one query against 8,192 keys takes .84 of the time, .54 in bfloat16. The times on
 * Zen 4 are not kept: measure one query against 1,024 to 65,536 keys with 0 and with 32. */
#define RP_STREAM_AHEAD (__builtin_cpu_is("amd") ? 0 : 32)
#define RP_MEMORY_AHEAD 1
/* 6 rows of 4 vectors have 24 sums, in 32 registers. With 6 rows at a time, four to seven
 * queries took .75 to .96 of the time at 1,024 and 8,192 keys (Sapphire Rapids). The times
 * of other widths are not kept: measure 2 to 7 queries against as many keys. */
#define RP_STRIP_OF_2 4
#define RP_STRIP_OF_3 4
#define RP_STRIP_OF_6 4

#define RP_FMA_F32(a, b, c) _mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c))
#define RP_FMA_F64(a, b, c) _mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c))
/* gcc 12 makes permutations of shuffles that are blends, at half the rate of these. */
#if RP_IS_F32
#define RP_BLEND(lanes, a, b)                                                          \
    _mm512_mask_blend_ps((__mmask16)(lanes), (__m512)(a), (__m512)(b))
#else
#define RP_BLEND(lanes, a, b)                                                          \
    _mm512_mask_blend_pd((__mmask8)(lanes), (__m512d)(a), (__m512d)(b))
#endif
#if RP_IS_F32
#define RP_PERMUTE(x, lanes) _mm512_permutexvar_ps((__m512i)(lanes), (__m512)(x))
#else
#define RP_PERMUTE(x, lanes) _mm512_permutexvar_pd((__m512i)(lanes), (__m512d)(x))
#endif
#define RP_MULTIPLY_LOWER(a, b) _mm512_mul_epu32((__m512i)(a), (__m512i)(b))
#define RP_WORD_BITS(words) _mm512_cvtepu16_epi32((__m256i)(words))
#define RP_WIDEN_HALF(words) _mm512_cvtph_ps((__m256i)(words))
#define RP_NARROW_HALF(x)                                                              \
    _mm512_cvtps_ph((__m512)(x), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

#if defined(__clang__)
#pragma clang attribute push(                                                          \
    __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))),            \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")
#endif

#endif
