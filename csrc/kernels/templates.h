/* templates.h: the kernels, in dependency order; included once per dtype by kernels.h. */
#include "loops.h"
#include "vector.h"

#include "attention_forward.h"
#include "fma_loop.h"

#include "skew.h"
#include "embedding.h"
#include "merge.h"
#include "sinusoid.h"
#include "attention_ufuncs.h"

#include "vector_end.h"
