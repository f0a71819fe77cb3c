/* isa.h: the kernels of each instruction set and number type, and which ones there are. */
#ifndef RELPOS_ISA_H
#define RELPOS_ISA_H

#include "../config.h"
#include "../problems.h"

enum {
#define RP_UFUNC(name, signature, nin, nout, types, doc) RP_UFUNC_##name,
#include "../ufuncs.h"
#undef RP_UFUNC
    RP_UFUNCS
};

/* Numbers of a mask. */
enum { RP_ZEROS = 1, RP_ONES = 2, RP_OTHERS = 4 };

/* The kernels of one object: one instruction set and one number type. Each is complete. */
typedef struct {
    /* With `bytes` these only count: what memory the call would take is written there. */
    rp_status (*attention_forward)(const rp_attention *problem, size_t *bytes);
    rp_status (*attention_backward)(const rp_gradients *problem, size_t *bytes);
    rp_status (*graph_forward)(const rp_graph *problem, size_t *bytes);
    rp_status (*graph_backward)(const rp_graph_gradients *problem, size_t *bytes);
    rp_status (*indexer_top_k)(const rp_indexer *problem);
    rp_status (*apply_rotary)(const rp_rotary *problem);
    /* rows[n][c] = n / divisor, C-contiguous, in the object's number type */
    rp_status (*index_rows)(void *rows, int64_t count, int64_t columns, double divisor);
    /* which of RP_ZEROS, RP_ONES and RP_OTHERS a line holds; stops soon after the first
     * other number */
    int (*mask_numbers)(const char *line, ptrdiff_t step, int64_t count);
    /* 128 bits of `count` bytes, the same of every object */
    void (*checksum)(const char *bytes, size_t count, uint64_t result[2]);
    void (*gemm_block)(const rp_product *product, int64_t row, int64_t column,
                       void *scratch);
    /* flops done by `rounds` rounds of independent fused multiply-adds in registers */
    double (*fma_loop)(int64_t rounds);
    rp_loop loops[RP_UFUNCS];
} rp_kernels;

/* An instruction set. */
typedef struct {
    const char *name;
    int (*supported)(void); /* whether this CPU can run it */
    const rp_kernels *kernels[RP_DTYPES];
} rp_isa;

enum { RP_ISAS = 1 + RP_TABLE_AVX2 + RP_TABLE_AVX512 + RP_TABLE_NEON };
extern const rp_isa rp_isas[RP_ISAS]; /* from the plainest to the best */
const rp_isa *rp_best_isa(void);      /* of those that this CPU can run */

/* gemm.c: own tiles of one ISA, never OpenBLAS. */
rp_status rp_gemm_tiles(const rp_isa *isa, int dtype, const rp_product *product,
                        int threads);

#endif
