/* base.h: the parameters of the objects for the compiler's default target (SSE2 on x86-64):
 * 16-byte vectors, which it makes of what there is. What every CPU can run. */
#ifndef RELPOS_ISA_BASE_H
#define RELPOS_ISA_BASE_H

#define RP_VECTOR_BYTES 16
#define RP_MR 4 /* rows of a micro-tile: 4 x 2 accumulators, 3 operands, 16 registers */
#define RP_QUERY_TILE 32 /* rows of a query tile */
#define RP_HAS_FMA 0

/* The thresholds of few queries, which `python -m benchmarks decode` measures: up to so
 * many query rows of a key head, without tables, keys are read where they lie and not
 * packed for tiles. The first counts for most heads, the second where keys and values of a
 * head are large (RP_LONG_HEAD). Neither was measured for this object: 8 is RP_FEW_QUERIES.
 * */
#define RP_ROWS_UNPACKED 8
#define RP_ROWS_UNPACKED_LONG 8
/* Up to so many keys packing is cheap: more than RP_SHORT_ROWS rows take tiles. Measured
 * for this object, which did not gain; the times are not kept. Measure 4 to 12 queries
 * against 16, 32 and 64 keys, by rows and by tiles. */
#define RP_SHORT_KEYS 0
#define RP_SHORT_ROWS 8

/* Lines that are fetched before they are multiplied, and whether they are, too, where they
 * come from memory and not from a cache. The times that chose them for this object are not
 * kept: measure one query against 1,024 to 65,536 keys. */
#define RP_STREAM_AHEAD 32
#define RP_MEMORY_AHEAD 0
/* Vectors of a line of values that 2 rows, 3, or 4 to 6 sum at a time. 6 rows of 2 vectors
 * have 12 sums, in 16 registers. The times of other widths are not kept: measure 2 to 7
 * queries against 1,024 and 8,192 keys. */
#define RP_STRIP_OF_2 4
#define RP_STRIP_OF_3 2
#define RP_STRIP_OF_6 2

#endif
