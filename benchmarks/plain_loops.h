/* plain_loops.h: vectors of this CPU, for the loops that plain_loops.py compiles. */
#ifndef RELPOS_BENCHMARKS_PLAIN_LOOPS_H
#define RELPOS_BENCHMARKS_PLAIN_LOOPS_H

#include <stdint.h>
#include <string.h>

#ifndef DIM
#define DIM 64
#endif

#if defined(__AVX512F__)
#define BYTES 64
#elif defined(__AVX__)
#define BYTES 32
#else
#define BYTES 16
#endif

typedef float vector __attribute__((vector_size(BYTES)));
typedef int32_t integers __attribute__((vector_size(BYTES)));
typedef float loaded __attribute__((vector_size(BYTES), aligned(4), may_alias));
typedef uint32_t bits __attribute__((vector_size(BYTES), aligned(4), may_alias));
enum { LANES = BYTES / 4, VECTORS = DIM / LANES };

#endif
