/* gemm.c: large matrix products, in blocks of the result that are cut from the shapes
 * alone and shared out by rp_parallel: the same bits for any number of threads. A block
 * is done by this project's own tiles, or by an OpenBLAS where the build has one and the
 * strides suit it.
 *
 * The build says which (config.h):
 *   none     own tiles only (also when there is no relpos_config.h).
 *   bundled  a private copy beside the extension. Its SONAME is generic, so a link would
 *            bind to any copy already loaded, and loading it starts a thread: it is
 *            opened by absolute path at the first product, and then set to one thread.
 *            Not the default, because that first product is then not safe everywhere:
 *            a child forked meanwhile crashes in its own, short memory ends the process
 *            in exit(1), and where no thread can be created it raises SIGINT.
 *   system   linked; it may be the one that NumPy uses, so its thread count is not ours
 *            to set. It stays in the calling thread up to m n k = 2^18. */
#define _GNU_SOURCE /* dladdr */

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "../config.h"
#include "../isa/isa.h"
#include "symbols.h"

/* ---- own tiles --------------------------------------------------------------- */

typedef struct {
    const rp_product *product;
    void (*block)(const rp_product *product, int64_t row, int64_t column,
                  void *scratch);
    char *scratch;
    size_t scratch_size; /* per worker */
    int64_t across;      /* blocks in a row of blocks */
} tiles_call;

static int64_t
blocks(int64_t length, int64_t block)
{
    return (length + block - 1) / block;
}

static void
tiles_unit(void *context, int64_t unit, int worker)
{
    const tiles_call *call = context;
    call->block(call->product, unit / call->across * RP_GEMM_ROWS,
                unit % call->across * RP_GEMM_COLUMNS,
                call->scratch + (size_t)worker * call->scratch_size);
}

rp_status
rp_gemm_tiles(const rp_isa *isa, int dtype, const rp_product *p, int threads)
{
    size_t item = dtype == RP_F32 ? sizeof(float) : sizeof(double);
    tiles_call call = {.product = p,
                       .block = isa->kernels[dtype]->gemm_block,
                       .scratch_size = RP_GEMM_SCRATCH * item,
                       .across = blocks(p->n, RP_GEMM_COLUMNS)};
    int64_t units = blocks(p->m, RP_GEMM_ROWS) * call.across;
    if (p->m <= 0 || p->n <= 0)
        return RP_OK;
    if (threads > units)
        threads = (int)units;
    call.scratch = rp_alloc((size_t)(threads < 1 ? 1 : threads), call.scratch_size);
    if (call.scratch == NULL)
        return RP_NO_MEMORY;
    rp_status status = rp_parallel(units, tiles_unit, &call, threads);
    rp_free(call.scratch);
    return status;
}

/* ---- OpenBLAS ------------------------------------------------------------------ */

typedef void sgemm_function(int order, int transpose_a, int transpose_b, int m, int n,
                            int k, float alpha, const float *a, int lda, const float *b,
                            int ldb, float beta, float *c, int ldc);
typedef void dgemm_function(int order, int transpose_a, int transpose_b, int m, int n,
                            int k, double alpha, const double *a, int lda,
                            const double *b, int ldb, double beta, double *c, int ldc);

enum { ROW_MAJOR = 101, AS_IS = 111, TRANSPOSED = 112 }; /* CBLAS's numbers */

static struct {
    sgemm_function *sgemm; /* NULL: no OpenBLAS */
    dgemm_function *dgemm;
    int rows, columns, depth;  /* of one call */
    char info[PATH_MAX + 512]; /* OpenBLAS says about 100 characters of itself */
} blas = {.info = "none"};

static pthread_once_t blas_once = PTHREAD_ONCE_INIT;
static char bundled_path[PATH_MAX];

void
rp_blas_set_path(const char *path)
{
    snprintf(bundled_path, sizeof bundled_path, "%s", path);
}

#if defined(RELPOS_BLAS_BUNDLED)

static void
open_blas(void)
{
    void (*set_num_threads)(int);
    char *(*get_config)(void);
    void *library = dlopen(bundled_path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL || !find_symbol(library, "scipy_cblas_dgemm", &blas.dgemm) ||
        !find_symbol(library, "scipy_openblas_set_num_threads", &set_num_threads) ||
        !find_symbol(library, "scipy_openblas_get_config", &get_config) ||
        !find_symbol(library, "scipy_cblas_sgemm", &blas.sgemm)) {
        const char *reason = dlerror();
        blas.sgemm = NULL;
        snprintf(blas.info, sizeof blas.info, "none (bundled OpenBLAS not usable: %s)",
                 reason != NULL ? reason : "no reason given");
        return;
    }
    set_num_threads(1);
    /* large enough to hide OpenBLAS's packing of its two operands */
    blas.rows = 256;
    blas.columns = 512;
    blas.depth = 4096; /* a block takes about 20 ms, then signals are seen */
    snprintf(blas.info, sizeof blas.info, "bundled %s, %s", get_config(), bundled_path);
}

#elif defined(RELPOS_BLAS_SYSTEM)

extern sgemm_function cblas_sgemm;
extern dgemm_function cblas_dgemm;
extern char *openblas_get_config(void);

static void
open_blas(void)
{
    Dl_info where;
    blas.sgemm = cblas_sgemm;
    blas.dgemm = cblas_dgemm;
    blas.rows = blas.columns = blas.depth = 64; /* 64^3 = 2^18 */
    snprintf(blas.info, sizeof blas.info, "system %s, %s", openblas_get_config(),
             dladdr((void *)cblas_sgemm, &where) ? where.dli_fname : "path unknown");
}

#else

static void
open_blas(void)
{
}

#endif

const char *
rp_blas_info(void)
{
    pthread_once(&blas_once, open_blas);
    return blas.info;
}

/* How BLAS is to read a matrix of (rows, columns), byte strides row and col. */
typedef struct {
    int transpose, ld;
} blas_layout;

/* One stride must be one element, the other at least a whole line: BLAS takes no zero
 * and no negative strides, and prints a complaint instead of returning an error. */
static int
blas_suits(ptrdiff_t row, ptrdiff_t col, int64_t rows, int64_t columns, ptrdiff_t item,
           blas_layout *layout)
{
    for (int transpose = 0; transpose < 2; transpose++) {
        ptrdiff_t along = transpose ? row : col, across = transpose ? col : row;
        int64_t length = transpose ? rows : columns, lines = transpose ? columns : rows;
        if (lines <= 1)
            across = length * item; /* never used to step */
        if ((along == item || length <= 1) && across % item == 0 &&
            across / item >= length && across / item <= INT_MAX) {
            layout->transpose = transpose ? TRANSPOSED : AS_IS;
            layout->ld = (int)(across / item);
            return layout->ld > 0;
        }
    }
    return 0;
}

typedef struct {
    const rp_product *product;
    blas_layout a, b;
    int dtype;
    int64_t across;
} blas_call;

static void
blas_unit(void *context, int64_t unit, int worker)
{
    const blas_call *call = context;
    const rp_product *p = call->product;
    int64_t row = unit / call->across * blas.rows;
    int64_t column = unit % call->across * blas.columns;
    int m = (int)(p->m - row < blas.rows ? p->m - row : blas.rows);
    int n = (int)(p->n - column < blas.columns ? p->n - column : blas.columns);
    (void)worker;
    for (int64_t start = 0; start < p->k && !rp_stopping(); start += blas.depth) {
        int k = (int)(p->k - start < blas.depth ? p->k - start : blas.depth);
        const char *a = p->a + row * p->a_row + start * p->a_col;
        const char *b = p->b + start * p->b_row + column * p->b_col;
        double beta = start == 0 ? p->beta : 1;
        ptrdiff_t c = row * p->c_row + column;
        if (call->dtype == RP_F32)
            blas.sgemm(ROW_MAJOR, call->a.transpose, call->b.transpose, m, n, k,
                       (float)p->alpha, (const float *)a, call->a.ld, (const float *)b,
                       call->b.ld, (float)beta, (float *)p->c + c, (int)p->c_row);
        else
            blas.dgemm(ROW_MAJOR, call->a.transpose, call->b.transpose, m, n, k,
                       p->alpha, (const double *)a, call->a.ld, (const double *)b,
                       call->b.ld, beta, (double *)p->c + c, (int)p->c_row);
    }
}

/* ---- the entry ----------------------------------------------------------------- */

rp_status
rp_gemm(const rp_product *p, int dtype, int threads)
{
    ptrdiff_t item = dtype == RP_F32 ? sizeof(float) : sizeof(double);
    blas_call call = {.product = p, .dtype = dtype};
    pthread_once(&blas_once, open_blas);
    if (blas.sgemm == NULL || p->m <= 0 || p->n <= 0 || p->k <= 0 || p->c_row < p->n ||
        p->c_row > INT_MAX ||
        !blas_suits(p->a_row, p->a_col, p->m, p->k, item, &call.a) ||
        !blas_suits(p->b_row, p->b_col, p->k, p->n, item, &call.b))
        return rp_gemm_tiles(rp_best_isa(), dtype, p, threads);
    call.across = blocks(p->n, blas.columns);
    return rp_parallel(blocks(p->m, blas.rows) * call.across, blas_unit, &call,
                       threads);
}
