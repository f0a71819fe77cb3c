/* neon_f32.c: every kernel for 64-bit ARM and float32. */
#include "../config.h"

#if RP_TABLE_NEON
#define RP_OBJECT rp_neon_f32
#define RP_IS_F32 1
#include "neon.h"
#include "../kernels/kernels.h"
#endif
