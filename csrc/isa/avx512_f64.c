/* avx512_f64.c: every kernel for AVX-512 and float64. */
#if defined(__x86_64__)
#define RP_OBJECT rp_avx512_f64
#define RP_IS_F32 0
#include "avx512.h"
#include "../kernels/kernels.h"
#include "end.h"
#endif
