/* kernels.h: compiles every template for float32 and float64 and emits this ISA's table.
 *
 * Parameters, set by isa_*.c and undefined at the end:
 *   RP_ISA           its name                 RP_VECTOR_BYTES  width of its vectors
 *   RP_MR            rows of a micro-tile     RP_HAS_FMA       fused multiply-add exists
 *   RP_QUERY_TILE    rows of a query tile in float32, half as many in float64
 *   supported        whether this CPU can run it
 * Parameters of one template pass:
 *   T                float or double          RP_DTYPE         f32 or f64
 *   RP_IS_F32        1 or 0                   FN(name)         rp_<name>_<dtype>_<isa> */

#define FN(name) RP_JOIN4(rp, name, RP_DTYPE, RP_ISA)

#define T float
#define RP_DTYPE f32
#define RP_IS_F32 1
#include "templates.h"
#undef T
#undef RP_DTYPE
#undef RP_IS_F32

#define T double
#define RP_DTYPE f64
#define RP_IS_F32 0
#include "templates.h"
#undef T
#undef RP_DTYPE
#undef RP_IS_F32
#undef FN

#define RP_NAME_(isa) #isa
#define RP_NAME(isa) RP_NAME_(isa)
#define RP_TABLE_(isa) rp_table_##isa
#define RP_TABLE(isa) RP_TABLE_(isa)
#define RP_BOTH(name) {RP_JOIN4(rp, name, f32, RP_ISA), RP_JOIN4(rp, name, f64, RP_ISA)}

const rp_table RP_TABLE(RP_ISA) = {
    .name = RP_NAME(RP_ISA),
    .supported = supported,
    .vector_bytes = RP_VECTOR_BYTES,
    .query_tile = RP_QUERY_TILE,
    .attention_forward = RP_BOTH(attention_forward),
    .attention_backward = RP_BOTH(attention_backward),
    .apply_rotary = RP_BOTH(apply_rotary),
    .gemm_block = RP_BOTH(gemm_block),
    .fma_loop = RP_BOTH(fma_loop),
    .loops =
        {
#define RP_UFUNC(name, signature, nin, nout, types, doc)                               \
    [RP_UFUNC_##name] = RP_BOTH(name),
#include "../ufuncs.h"
#undef RP_UFUNC
        },
};

#undef RP_BOTH
#undef RP_TABLE
#undef RP_TABLE_
#undef RP_NAME
#undef RP_NAME_
#undef RP_ISA
#undef RP_VECTOR_BYTES
#undef RP_MR
#undef RP_HAS_FMA
#undef RP_QUERY_TILE
