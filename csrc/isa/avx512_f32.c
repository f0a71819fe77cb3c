/* avx512_f32.c: every kernel for AVX-512 and float32. */
#include "../config.h"

#if RP_TABLE_AVX512
#define RP_OBJECT rp_avx512_f32
#define RP_IS_F32 1
#include "avx512.h"
#include "../kernels/kernels.h"
#include "end.h"
#endif
