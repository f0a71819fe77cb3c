/* avx512.h: the parameters of the objects for x86-64 with AVX-512 (F, DQ, BW, VL), and their
 * target region, which end.h closes: 64-byte vectors. */
#ifndef RELPOS_ISA_AVX512_H
#define RELPOS_ISA_AVX512_H

#include "../kernels/ground/system.h" /* system headers stay outside the region */

#define RP_VECTOR_BYTES 64
#define RP_MR 8 /* 8 x 2 accumulators; 8 divides the query tile of 32 rows */
#define RP_QUERY_TILE 32
#define RP_HAS_FMA 1
#define RP_STREAM_AHEAD 0 /* Zen 4 fetches better by itself */
#define RP_ROWS_UNPACKED 12
#define RP_ROWS_UNPACKED_LONG 16
#define RP_STRIP_OF_2 4
#define RP_STRIP_OF_3 4 /* 24 sums */

#if defined(__clang__)
#pragma clang attribute push(                                                          \
    __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))),            \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")
#endif

#endif
