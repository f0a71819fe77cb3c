/* relpos.h: every declaration that the C files share.
 *
 * Dimension letters, fixed for the whole project:
 *   B  batch items (flattened)      H   query heads      Hk  key/value heads
 *   Lq queries    Lk keys           D   head_dim         Dv  value head_dim
 *   Dp columns of rel_key: D, unless a position query has others
 *   R  table rows                   r   relative position = key - query
 *
 * Only csrc/python knows Python; everything else is plain C11 with GNU vector types. */
#ifndef RELPOS_H
#define RELPOS_H

#include <stddef.h>
#include <stdint.h>

enum { RP_F32, RP_F64, RP_DTYPES };

typedef enum {
    RP_OK,
    RP_NO_MEMORY,
    RP_INTERRUPTED, /* the poll hook has set Python's exception, or the process was forked */
} rp_status;

/* What a caller has promised. Builds for debugging and those with sanitizers end the process
 * where it does not hold (RELPOS_BUILD of setup.py); a release does not look. */
#ifdef RELPOS_ASSERTS
#undef NDEBUG
#include <assert.h>
#define rp_assert(condition) assert(condition)
#else
#define rp_assert(condition) ((void)sizeof(!(condition)))
#endif

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
/* The threads of an OpenMP library, by its GOMP_parallel and omp_get_max_threads: calls that
 * do not need more threads run on them. Processes forked from this one do not. */
typedef void (*rp_run_team)(void (*body)(void *), void *context, unsigned threads,
                            unsigned flags);
void rp_set_team(rp_run_team run, int (*size)(void));
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

/* c (m, n) = alpha * a (m, k) . b (k, n) + beta * c. Strides of a and b are in bytes, any of
 * them; that of c is in elements, and its columns lie side by side. */
typedef struct {
    int64_t m, n, k;
    double alpha, beta;
    const char *a, *b;
    ptrdiff_t a_row, a_col, b_row, b_col;
    void *c;
    ptrdiff_t c_row;
} rp_product;

/* float32 or float64 by dtype. By own tiles, or by OpenBLAS where the build has one and the
 * strides suit. */
rp_status rp_gemm(const rp_product *product, int dtype, int threads);

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

/* ---- arrays ---------------------------------------------------------------- */

/* How the numbers of an array are stored: as the array's own type says or, of problems in
 * float32, in 16 bits: IEEE's half, or bfloat16, the upper half of a float32. */
enum { RP_OWN, RP_F16, RP_BF16 };

/* One operand seen as (B, H, rows, columns). data = NULL: absent. batch[b] is the byte
 * offset of flattened batch item b (NULL: all zero); head, row, col are byte strides. */
typedef struct {
    char *data;
    const ptrdiff_t *batch;
    ptrdiff_t head, row, col;
    int kind;
} rp_array;

/* ---- errors.c: what loops report ---------------------------------------------- */

/* A gufunc's inner loop, as NumPy calls it. ptrdiff_t stands for npy_intp. */
typedef void (*rp_loop)(char **args, const ptrdiff_t *dimensions,
                        const ptrdiff_t *steps, void *data);
/* Loops report through these; csrc/python installs what they do to Python's error state. */
void rp_loop_error(const char *message); /* ValueError */
void rp_loop_status(rp_status status);   /* the exception of a status */
typedef struct {
    void (*error)(const char *message);
    void (*status)(rp_status status); /* which is not RP_OK */
} rp_loop_hooks;
void rp_set_loop_hooks(const rp_loop_hooks *hooks); /* which stay where they are */

#endif
