/* kernels.h: every kernel of one unit, that is of one instruction set and one number type,
 * and the unit's table, its only symbol. Everything else is static and has a plain name.
 *
 * A unit sets RP_UNIT, the name of its table, and RP_IS_F32, 1 for float32, 0 for float64;
 * its instruction set's header (isa/) sets
 *   RP_VECTOR_BYTES  width of its vectors       RP_HAS_FMA  fused multiply-add exists
 *   RP_MR            rows of a micro-tile
 *   RP_QUERY_TILE    rows of a query tile in float32, half as many in float64 */
#include "system.h"
#include "loops.h"
#include "vector.h"

#include "exp2.h"
#include "tile_gemm.h"
#include "pack.h"

#include "fire.h"
#include "attention_plan.h"
#include "attention_waves.h"
#include "attention_scores.h"
#include "attention_values.h"
#include "row_products.h"
#include "attention_rows.h"
#include "graph_edges.h"
#include "graph.h"
#include "attention_forward.h"
#include "gradients_plan.h"
#include "gradients_tile.h"
#include "gradients_ends.h"
#include "gradients_unit.h"
#include "rows_backward.h"
#include "graph_backward.h"
#include "attention_backward.h"
#include "gemm_block.h"
#include "fma_loop.h"

#include "skew.h"
#include "embedding.h"
#include "conv.h"
#include "merge.h"
#include "sinusoid.h"
#include "rotary.h"
#include "scores.h"
#include "attention_ufuncs.h"

const rp_kernels RP_UNIT = {
    .vector_bytes = RP_VECTOR_BYTES,
    .query_tile = RP_QUERY_TILE,
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .apply_rotary = apply_rotary,
    .gemm_block = gemm_block,
    .fma_loop = fma_loop,
    .loops =
        {
#define RP_UFUNC(name, signature, nin, nout, types, doc) [RP_UFUNC_##name] = name,
#include "../ufuncs.h"
#undef RP_UFUNC
        },
};
