/* isa_avx2.c: every kernel for x86-64 with AVX2 and FMA: 32-byte vectors. */
#include "kernels/system.h"

#if defined(__x86_64__)

static int
supported(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif

#define RP_ISA avx2
#define RP_VECTOR_BYTES 32
/* 6 x 2 accumulators, 2 columns of B and one of A: 15 of 16 registers */
#define RP_MR 6
/* rows: a multiple of both MR and the 16 columns of a micro-tile */
#define RP_QUERY_TILE 48
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

const rp_table rp_table_avx2 = {.name = "avx2", .supported = supported};

#endif
