/* avx2_f32.c: every kernel for AVX2 and float32. */
#include "../config.h"

#if RP_TABLE_AVX2
#define RP_OBJECT rp_avx2_f32
#define RP_IS_F32 1
#include "avx2.h"
#include "../kernels/kernels.h"
#include "end.h"
#endif
