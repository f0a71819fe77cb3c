/* avx2_f64.c: every kernel for AVX2 and float64. */
#if defined(__x86_64__)
#define RP_OBJECT rp_avx2_f64
#define RP_IS_F32 0
#include "avx2.h"
#include "../kernels/kernels.h"
#include "end.h"
#endif
