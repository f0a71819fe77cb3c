/* base.h: the parameters of the objects for the compiler's default target (SSE2 on x86-64):
 * 16-byte vectors, which it makes of what there is. What every CPU can run. */
#ifndef RELPOS_ISA_BASE_H
#define RELPOS_ISA_BASE_H

#define RP_VECTOR_BYTES 16
#define RP_MR 4 /* rows of a micro-tile: 4 x 2 accumulators, 3 operands, 16 registers */
#define RP_QUERY_TILE 32 /* rows of a query tile */
#define RP_HAS_FMA 0
#define RP_STREAM_AHEAD 32
#define RP_MEMORY_AHEAD 0
#define RP_ROWS_UNPACKED 8      /* query rows that read keys where they lie, at most */
#define RP_ROWS_UNPACKED_LONG 8 /* the same where a head has many keys */
#define RP_SHORT_KEYS 0         /* keys that are packed for more than RP_SHORT_ROWS */
#define RP_SHORT_ROWS 8
#define RP_STRIP_OF_2 4
#define RP_STRIP_OF_3 2
#define RP_STRIP_OF_6 2

#endif
