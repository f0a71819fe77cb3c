/* templates.h: the kernels, in dependency order; included once per dtype by kernels.h. */
#include "vector.h"

#include "attention_forward.h"
#include "fma_loop.h"

#include "vector_end.h"
