/* one_object.c: in place of csrc/isa/dispatch.c, for a program with the kernels of one
 * instruction set alone: ONLY is its name; ONLY_F32 or ONLY_F64 is set if one number type is
 * there. */
#include "../../csrc/isa/isa.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define JOIN_OF(a, b, c) a##b##c
#define JOIN(a, b, c) JOIN_OF(a, b, c)

#ifndef ONLY_F64
extern const rp_kernels JOIN(rp_, ONLY, _f32);
#define KERNELS_F32 &JOIN(rp_, ONLY, _f32)
#else
#define KERNELS_F32 NULL
#endif
#ifndef ONLY_F32
extern const rp_kernels JOIN(rp_, ONLY, _f64);
#define KERNELS_F64 &JOIN(rp_, ONLY, _f64)
#else
#define KERNELS_F64 NULL
#endif

static int
is_there(void)
{
    return 1;
}

/* The others are absent: they have no name and no function. */
const rp_isa rp_isas[RP_ISAS] = {{TEXT(ONLY), is_there, {KERNELS_F32, KERNELS_F64}}};

const rp_isa *
rp_best_isa(void)
{
    return &rp_isas[0];
}
