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
#define RP_STREAM_AHEAD 32 /* lines that are fetched before they are multiplied */
#define RP_MEMORY_AHEAD 0  /* whether they are, too, where they come from memory */
#define RP_ROWS_UNPACKED 10
#define RP_ROWS_UNPACKED_LONG 12
#define RP_SHORT_KEYS (4 * VL)
#define RP_SHORT_ROWS 5
/* Vectors of a line that 2 rows, 3, or 4 to 6 sum at a time. Of 2 they are more than registers
 * hold, but whole lines of 64 columns are read in order. */
#define RP_STRIP_OF_2 8
#define RP_STRIP_OF_3 4
#define RP_STRIP_OF_6 2

#define RP_FMA_F32(a, b, c) _mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c))
#define RP_FMA_F64(a, b, c) _mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c))
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
