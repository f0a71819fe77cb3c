/* isa_base.c: every kernel for the compiler's default target (SSE2 on x86-64, NEON on
 * arm64): 16-byte vectors. The table that every CPU can run. */
#include "kernels/system.h"

#define RP_ISA base
#define RP_VECTOR_BYTES 16
#define RP_MR 4 /* 4 x 2 accumulators and 3 operands fit 16 registers */
#define RP_QUERY_TILE 32
#define RP_HAS_FMA 0

static int
supported(void)
{
    return 1;
}

#include "kernels/kernels.h"
