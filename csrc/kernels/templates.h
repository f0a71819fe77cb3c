/* templates.h: the kernels, in dependency order; included once per dtype by kernels.h. */
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

#undef MR
#undef NR
#undef HR
#undef DEPTH_BLOCK
#undef TERM_BLOCK
#undef VALUE_BLOCK
#undef BQ
#undef DV
#undef DL
#undef ANGLES
#undef RP_LARGEST_TERM
#include "vector_end.h"
