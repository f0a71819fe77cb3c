/* relpos.h: every declaration that the C files share.
 *
 * Dimension letters, fixed for the whole project:
 *   B  batch items (flattened)      H   query heads      Hk  key/value heads
 *   Lq queries    Lk keys           D   head_dim         Dv  value head_dim
 *   R  table rows                   r   relative position = key - query
 *
 * Only module.c knows Python; everything else is plain C11 with GNU vector types. */
#ifndef RELPOS_H
#define RELPOS_H

#include <stddef.h>
#include <stdint.h>

enum { RP_F32, RP_F64, RP_DTYPES };

typedef enum {
    RP_OK,
    RP_NO_MEMORY,
    RP_INTERRUPTED, /* the poll hook has already set Python's exception */
} rp_status;

/* ---- memory.c: the only allocator ---------------------------------------- */

/* count * size bytes, 64-byte aligned, contents undefined; NULL when the product
 * overflows or memory is out. Never called with a lock held. */
void *rp_alloc(size_t count, size_t size);
void rp_free(void *block);
/* *product = a * b; returns 0, and leaves *product alone, when it overflows. */
int rp_multiply(size_t a, size_t b, size_t *product);
/* Test hook: the n-th allocation from now fails (n >= 1), and all later ones too
 * when forever is set; n = 0 switches it off. Also fails pthread_create. Returns what
 * was left of the count before: 0 once the failure has happened. */
int64_t rp_fail_at(int64_t n, int forever);
int rp_should_fail(void);
/* Blocks handed out and not yet freed. */
int64_t rp_live_blocks(void);

/* ---- parallel.c: the only threads; threads.c: their number ----------------- */

typedef void (*rp_body)(void *context, int64_t unit, int worker);

/* Runs body(context, unit, worker) for every unit in [0, units) on at most `threads`
 * threads (caller included); 0 <= worker < threads. Results must not depend on which
 * worker runs a unit, or when. Serial inside a worker or while another caller has
 * the pool. Floating point flags of the caller are left as they were. */
rp_status rp_parallel(int64_t units, rp_body body, void *context, int threads);
/* Inside a body: true once the call is to be abandoned (a signal arrived). Cheap, and
 * on the calling thread it polls for signals: call it once per tile. */
int rp_stopping(void);
/* The poll hook returns non-zero when the call is to be abandoned; it is called at
 * most every 50 ms, from the thread that called rp_parallel only. */
void rp_set_poll(int (*poll)(void));
enum { RP_MAX_THREADS = 1024 };
/* The number of a call that names none: what was set for the process or, where that is 0
 * or never counts, what the hook answers (0 or less: it failed). */
int rp_get_num_threads(void);
void rp_set_num_threads(int threads);
void rp_set_threads_hook(int (*ask)(void));
void rp_always_ask_threads(void);
/* CPUs that this process may use; *limited: fewer than it may run on, by a quota. */
int rp_count_cpus(int *limited);

/* ---- gemm.c: large matrix products ---------------------------------------- */

/* C (m, n) = alpha * A (m, k) . B (k, n) + beta * C, float32 or float64 by dtype.
 * A and B are any strided view (element strides); C has unit column stride. By own
 * tiles, or by OpenBLAS where the build has one and the strides suit. */
rp_status rp_gemm(int dtype, int64_t m, int64_t n, int64_t k, double alpha,
                  const void *a, ptrdiff_t a_row, ptrdiff_t a_col, const void *b,
                  ptrdiff_t b_row, ptrdiff_t b_col, double beta, void *c,
                  ptrdiff_t c_row, int threads);
/* The same with strides of a and b in bytes, that of c in elements. */
typedef struct {
    int64_t m, n, k;
    double alpha, beta;
    const char *a, *b;
    ptrdiff_t a_row, a_col, b_row, b_col;
    void *c;
    ptrdiff_t c_row;
} rp_product;

/* One block of c per unit: rows a multiple of every RP_MR, columns of every two vectors;
 * the packed blocks of a and b fill a 1 MiB second-level cache in float64. */
enum {
    RP_GEMM_ROWS = 192,
    RP_GEMM_COLUMNS = 256,
    RP_GEMM_DEPTH = 256,
    RP_GEMM_FEW = 3, /* rows up to which lines are read in place, not packed */
    RP_GEMM_SCRATCH = (RP_GEMM_ROWS + RP_GEMM_COLUMNS) * RP_GEMM_DEPTH
};

/* The BLAS in use: "none", or kind, path and OpenBLAS's own configuration line. */
const char *rp_blas_info(void);
void rp_blas_set_path(const char *path); /* of the bundled copy, before first use */

/* ---- attention ------------------------------------------------------------- */

/* One operand seen as (B, H, rows, columns). data = NULL: absent. batch[b] is the byte
 * offset of flattened batch item b (NULL: all zero); head, row, col are byte strides. */
typedef struct {
    char *data;
    const ptrdiff_t *batch;
    ptrdiff_t head, row, col;
} rp_array;

enum { RP_CLIP, RP_ZERO }; /* rp_attention.beyond; "raise" is checked before the call */
enum { RP_MASK_NONE, RP_MASK_BOOL, RP_MASK_F32, RP_MASK_F64 };

#define RP_UNBOUNDED INT64_MAX
/* largest |query_offset|, |min_position| */
#define RP_FARTHEST ((INT64_C(1) << 60) - 1)

/* The whole problem, one formula for every scheme (relpos/reference/formula.py).
 *   s_ij  = scale * ((q_i + u).k_j + (q_i + v).A[l] + k_j.C[l]) + b[l] + fire_ij + mask_ij
 *   out_i = sum_j softmax_j(s_i)_j * z_ij * (v_j + W[l])
 * l = clip(r - min_position, 0, rows - 1), r = j - (i + query_offset[b]), or labels;
 * fire_ij = slope * x + intercept of the last line with start <= x (the first if none),
 * x = fire_offsets[j - i + Lq] * fire_queries[i], all of them double. */
typedef struct {
    int64_t B, H, Hk, Lq, Lk, D, Dv;
    rp_array query, key, value;             /* (B, H|Hk, Lq|Lk, D|Dv) */
    rp_array mask;                          /* (B, H, Lq, Lk), type in mask_type */
    rp_array rel_key, rel_query, rel_value; /* (B, H, R, D | D | Dv) */
    rp_array rel_bias;                      /* (B, H, bias_rows, 1) */
    rp_array pos_bias_u, pos_bias_v;        /* (B, H, 1, D) */
    rp_array labels; /* (B, 1, Lq, Lk), integers of label_size bytes */
    /* (B, 1, Lq + Lk, 1), (B, 1, Lq, 1), (B, H, fire_ranges, 3): start, slope, intercept.
     * Offsets lie side by side; lines are those of item 0 for all, starts, which rise,
     * those of its head 0. x falls along a row where fire_signed is set, else up to the
     * query's own position, after which it rises. */
    rp_array fire_offsets, fire_queries, fire_lines;
    int64_t fire_ranges;
    int fire_signed;
    const int64_t *query_offset, *key_lengths; /* (B,), NULL: 0 and Lk */
    /* Edges of a graph, NULL: every pair. Query i attends to the keys indices[e] with
     * indptr[i] <= e < indptr[i + 1] (checked before the call), whose table row is
     * edge_labels[e] (NULL or negative: none). Of the other terms only rel_key and
     * rel_value go with them, and H = Hk. */
    const int64_t *indptr, *indices, *edge_labels;
    int mask_type, label_size, beyond;
    int64_t key_rows, query_rows, value_rows, bias_rows; /* of rel_key, rel_query, .. */
    int64_t min_position, min_bias_position; /* r of row 0 of the tables, of rel_bias */
    int64_t window_left, window_right;       /* r outside [-left, right] is hidden */
    double scale, dropout_p;
    uint64_t seed;
    /* (B, H, Lq, Dv | 1 | Lk); lse, weights may be absent */
    rp_array out, lse, weights;
    /* (B, H, Lq, 1), may be absent: a row's largest logit in units of log 2, and its
     * sum_j 2^(logit - largest). What the backward starts from: lse, rounded to float32,
     * would move all probabilities of a row by more than the rest of its error. */
    rp_array row_max, row_sum;
    int threads;
} rp_attention;

/* Gradients of the same problem: sum(grad_out * out) + sum(grad_lse * lse) with respect to
 * every operand whose gradient array is present. out, row_max and row_sum are inputs.
 * Arrays have the shape of their operand; those of tables, u and v are summed over every
 * axis along which their array has stride 0 (that is how a table that heads or batch items
 * share gets one gradient), grad_key and grad_value over the heads of a group. */
typedef struct {
    rp_attention forward;
    rp_array grad_out, grad_lse; /* (B, H, Lq, Dv | 1); either may be absent */
    rp_array grad_query, grad_key, grad_value;
    rp_array grad_mask; /* (B, H, Lq, Lk), of the problem's dtype */
    rp_array grad_rel_key, grad_rel_query, grad_rel_value, grad_rel_bias;
    rp_array grad_pos_bias_u, grad_pos_bias_v;
    /* Derivatives, in double, of fire_offsets by c and of fire_queries by (c, threshold);
     * (B, H, fire_ranges + 1, 2): sums of dS and of dS x by range, which are the gradients
     * of intercepts and slopes, and in the last row those of c and threshold. */
    rp_array fire_offset_slopes, fire_query_slopes, grad_fire;
} rp_gradients;

/* ---- rotary ------------------------------------------------------------------ */

/* (a, b) -> m * (a cos t - b sin t, b cos t + a sin t), t = position * (high + low), for
 * h pairs of columns of N items of L rows: (c, h + c) or, interleaved, (2c, 2c + 1).
 * Columns from 2h on are copied. */
typedef struct {
    int64_t N, L, D, h;
    int interleaved;
    rp_array x, out;                         /* (N, 1, L, D); out may be x */
    rp_array position, high, low, magnitude; /* (N, 1, L, 1 | h), all of double */
    int threads;
} rp_rotary;

/* ---- ISA tables ------------------------------------------------------------ */

/* A gufunc's inner loop, as NumPy calls it. ptrdiff_t stands for npy_intp. */
typedef void (*rp_loop)(char **args, const ptrdiff_t *dimensions,
                        const ptrdiff_t *steps, void *data);
/* Loops report through these; module.c installs what they do to Python's error state. */
void rp_loop_error(const char *message); /* ValueError */
void rp_loop_status(rp_status status);   /* MemoryError where that is the status */
typedef struct {
    void (*error)(const char *message);
    void (*no_memory)(void);
} rp_loop_hooks;
void rp_set_loop_hooks(rp_loop_hooks hooks);

enum {
#define RP_UFUNC(name, signature, nin, nout, types, doc) RP_UFUNC_##name,
#include "ufuncs.h"
#undef RP_UFUNC
    RP_UFUNCS
};

/* The kernels of one unit: one instruction set and one number type. Each is complete. */
typedef struct {
    int vector_bytes, query_tile; /* width of its vectors; float32 rows of a tile */
    int key_tile, block_tiles, wave_bytes, few_queries, chunk_keys, spans;
    rp_status (*attention_forward)(const rp_attention *problem);
    rp_status (*attention_backward)(const rp_gradients *problem);
    rp_status (*apply_rotary)(const rp_rotary *problem);
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

#if defined(__x86_64__)
enum { RP_ISAS = 3 };
#else
enum { RP_ISAS = 1 };
#endif
extern const rp_isa rp_isas[RP_ISAS]; /* from the plainest to the best */
const rp_isa *rp_best_isa(void);      /* of those that this CPU can run */

/* gemm.c: own tiles of one ISA, never OpenBLAS. */
rp_status rp_gemm_tiles(const rp_isa *isa, int dtype, const rp_product *product,
                        int threads);

#endif
