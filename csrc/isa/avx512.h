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
/* CPUs of AMD (Zen 4) fetch better by themselves, those of Intel (Sapphire Rapids) do not. */
#define RP_STREAM_AHEAD (__builtin_cpu_is("amd") ? 0 : 32)
#define RP_MEMORY_AHEAD 1
#define RP_ROWS_UNPACKED 12
#define RP_ROWS_UNPACKED_LONG 16
#define RP_SHORT_KEYS (4 * VL)
#define RP_SHORT_ROWS 6
#define RP_STRIP_OF_2 4
#define RP_STRIP_OF_3 4
#define RP_STRIP_OF_6 4

#define RP_FMA_F32(a, b, c) _mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c))
#define RP_FMA_F64(a, b, c) _mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c))
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
