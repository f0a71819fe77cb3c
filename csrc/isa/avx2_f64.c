/* avx2_f64.c: every kernel for AVX2 and float64. */
#include "../config.h"

#if RP_TABLE_AVX2
#define RP_OBJECT rp_avx2_f64
#define RP_IS_F32 0
#include "avx2.h"
#include "../kernels/kernels.h"
#include "end.h"
#endif
