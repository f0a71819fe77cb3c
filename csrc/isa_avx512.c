/* isa_avx512.c: every kernel for x86-64 with AVX-512 (F, DQ, BW, VL): 64-byte vectors. */
#include "kernels/system.h"

#if defined(__x86_64__)

static int
supported(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("fma");
}

#if defined(__clang__)
#pragma clang attribute push(                                                          \
    __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))),            \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma")
#endif

#define RP_ISA avx512
#define RP_VECTOR_BYTES 64
#define RP_MR 8 /* 8 x 2 accumulators; 8 divides the query tile of 32 rows */
#define RP_QUERY_TILE 32
#define RP_HAS_FMA 1
#include "kernels/kernels.h"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#else

static int
supported(void)
{
    return 0;
}

const rp_table rp_table_avx512 = {.name = "avx512", .supported = supported};

#endif
