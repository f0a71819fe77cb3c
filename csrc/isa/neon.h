/* neon.h: the parameters of the objects for 64-bit ARM, whose every CPU has 16-byte vectors,
 * fused multiply-add and 32 registers: no target region. */
#ifndef RELPOS_ISA_NEON_H
#define RELPOS_ISA_NEON_H

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

#define RP_VECTOR_BYTES 16
#define RP_MR 8 /* 8 x 2 accumulators, 2 columns of B and 8 of A: 26 of 32 registers */
#define RP_QUERY_TILE 32
#define RP_HAS_FMA 1

/* base.h says what the thresholds mean and how to measure them. None was measured on an ARM
 * CPU: they are those of base. */
#define RP_ROWS_UNPACKED 8
#define RP_ROWS_UNPACKED_LONG 8
#define RP_SHORT_KEYS 0
#define RP_SHORT_ROWS 8
#define RP_STREAM_AHEAD 32
#define RP_MEMORY_AHEAD 0
/* 6 rows of 4 vectors have 24 sums, in 32 registers. */
#define RP_STRIP_OF_2 4
#define RP_STRIP_OF_3 4
#define RP_STRIP_OF_6 4

#define RP_FMA_F32(a, b, c)                                                            \
    vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b))
#define RP_FMA_F64(a, b, c)                                                            \
    vfmaq_f64((float64x2_t)(c), (float64x2_t)(a), (float64x2_t)(b))
#define RP_WIDEN_HALF(words) vcvt_f32_f16(vreinterpret_f16_u16((uint16x4_t)(words)))
#define RP_NARROW_HALF(x) vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)(x)))

#endif
