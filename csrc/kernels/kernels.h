/* kernels.h: every kernel of one object, that is of one instruction set and one number
 * type, and the object's table, its only symbol. Everything else is static and has a plain
 * name.
 *
 * An object sets RP_OBJECT, the name of its table, and RP_IS_F32, 1 for float32, 0 for
 * float64; its instruction set's header (isa/) sets
 *   RP_VECTOR_BYTES  width of its vectors       RP_HAS_FMA  fused multiply-add exists
 *   RP_MR            rows of a micro-tile
 *   RP_QUERY_TILE    rows of a query tile
 * and thresholds, which base.h explains. */
#include "../isa/isa.h"
#include "attention/attention.h"
#include "attention/ufuncs.h"
#include "dense/checksum.h"
#include "dense/mask.h"
#include "dense/merge.h"
#include "dense/scores.h"
#include "dense/skew.h"
#include "encodings/conv.h"
#include "encodings/embedding.h"
#include "encodings/naive.h"
#include "encodings/rotary.h"
#include "encodings/sinusoid.h"
#include "graph/backward.h"
#include "graph/indexer.h"
#include "ground/fma_loop.h"
#include "ground/gemm_block.h"

const rp_kernels RP_OBJECT = {
    .attention_forward = attention_forward,
    .attention_backward = attention_backward,
    .graph_forward = graph_forward,
    .graph_backward = graph_backward,
    .indexer_top_k = indexer_top_k,
    .apply_rotary = apply_rotary,
    .index_rows = index_rows,
    .mask_numbers = mask_numbers,
    .checksum = checksum,
    .gemm_block = gemm_block,
    .fma_loop = fma_loop,
    .loops =
        {
#define RP_UFUNC(name, signature, nin, nout, types, doc) [RP_UFUNC_##name] = name,
#include "../ufuncs.h"
#undef RP_UFUNC
        },
};
