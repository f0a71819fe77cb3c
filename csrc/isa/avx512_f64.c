/* avx512_f64.c: every kernel for AVX-512 and float64. */
#include "../config.h"

#if RP_TABLE_AVX512
#define RP_OBJECT rp_avx512_f64
#define RP_IS_F32 0
#include "avx512.h"
#include "../kernels/kernels.h"
#include "end.h"
#endif
