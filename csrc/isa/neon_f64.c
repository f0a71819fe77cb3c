/* neon_f64.c: every kernel for 64-bit ARM and float64. */
#include "../config.h"

#if RP_TABLE_NEON
#define RP_OBJECT rp_neon_f64
#define RP_IS_F32 0
#include "neon.h"
#include "../kernels/kernels.h"
#endif
