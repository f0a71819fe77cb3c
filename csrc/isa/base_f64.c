/* base_f64.c: every kernel for the default target and float64. */
#define RP_OBJECT rp_base_f64
#define RP_IS_F32 0
#include "base.h"
#include "../kernels/kernels.h"
