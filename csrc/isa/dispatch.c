/* dispatch.c: the instruction sets that kernels are compiled for, and the best of them. */
#include "isa.h"

static int
always(void)
{
    return 1;
}

extern const rp_kernels rp_base_f32, rp_base_f64;

#if RP_TABLE_NEON
extern const rp_kernels rp_neon_f32, rp_neon_f64;
#endif

#if RP_TABLE_AVX2
#include <cpuid.h>

extern const rp_kernels rp_avx2_f32, rp_avx2_f64;

/* __builtin_cpu_supports of clang 14 does not know the name. */
static int
has_f16c(void)
{
    unsigned int a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

static int
has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           has_f16c();
}
#endif

#if RP_TABLE_AVX512
extern const rp_kernels rp_avx512_f32, rp_avx512_f64;

static int
has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("fma");
}
#endif

const rp_isa rp_isas[RP_ISAS] = {
    {"base", always, {&rp_base_f32, &rp_base_f64}},
#if RP_TABLE_NEON
    {"neon", always, {&rp_neon_f32, &rp_neon_f64}},
#endif
#if RP_TABLE_AVX2
    {"avx2", has_avx2, {&rp_avx2_f32, &rp_avx2_f64}},
#endif
#if RP_TABLE_AVX512
    {"avx512", has_avx512, {&rp_avx512_f32, &rp_avx512_f64}},
#endif
};

const rp_isa *
rp_best_isa(void)
{
    const rp_isa *best = &rp_isas[0];
    for (int i = 1; i < RP_ISAS; i++)
        if (rp_isas[i].supported())
            best = &rp_isas[i];
    return best;
}
