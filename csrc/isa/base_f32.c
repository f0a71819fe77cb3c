/* base_f32.c: every kernel for the default target and float32. */
#define RP_OBJECT rp_base_f32
#define RP_IS_F32 1
#include "base.h"
#include "../kernels/kernels.h"
