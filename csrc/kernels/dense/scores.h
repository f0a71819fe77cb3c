/* scores.h: dense scores, for looking at and checking the fused kernels.
 *
 *   out[i, j] = scale * ((q_i + u).k_j + (q_i + v).A[l]),  l = j - i - origin
 *
 * with origin = query_offset + relative position of row 0. Row i of (Q + v).A^T holds its
 * position terms in the order of the keys, so a block of rows needs two matrix products,
 * and its position terms are added to the contents as shifted runs. Shaw clips l to the
 * table; elsewhere a pair outside of it has no position term. */
#ifndef RELPOS_DENSE_SCORES_H
#define RELPOS_DENSE_SCORES_H

#include "../ground/jobs.h"
#include "../ground/lines.h"

/* Rows per block: enough to use a product well, and few enough for the position terms of
 * a block, which are (rows + keys) wide, to stay small beside the result. */
#define SCORE_ROWS 64
/* The origin is cut here: far past any array, and sums with its lengths cannot overflow. */
#define SCORE_FARTHEST (INT64_MAX / 8)

typedef struct {
    rp_job job;
    int64_t q, k, d, r;
    int core;   /* number of operands, so index in steps of the first core stride */
    int biased; /* operands 3 and 4 are u and v; scale and query_offset follow */
    int row0;   /* operand with the relative position of row 0; 0: it is min */
    int64_t min;
    int clip;
    T *scratch;
    size_t per_worker;
} score_job_t;

/* Key at which query 0 meets row 0 of the table. */
static int64_t
score_origin(const score_job_t *s, int64_t item)
{
    int64_t offset = *(const int64_t *)rp_operand(&s->job, s->biased ? 6 : 4, item);
    int64_t min = s->min, origin;
    if (s->row0)
        min = *(const int64_t *)rp_operand(&s->job, s->row0, item);
    if (__builtin_add_overflow(offset, min, &origin))
        origin = offset < 0 ? INT64_MIN : INT64_MAX;
    return RP_MIN(RP_MAX(origin, -SCORE_FARTHEST), SCORE_FARTHEST);
}

/* The rows [first, first + rows) of Q of one item, and room for them with a bias added. */
typedef struct {
    int64_t item, first, rows;
    T *added;
} score_rows_t;

/* The other side of a product: n rows of keys or of a table, and what is added to Q. */
typedef struct {
    const char *b;
    const ptrdiff_t *b_steps; /* of rows, of columns */
    int64_t n;
    int bias; /* operand 3 or 4; 0: nothing is added */
} score_side_t;

/* to (rows, n) = scale * (Q + bias) . B^T */
static rp_status
score_product(const score_job_t *s, const score_rows_t *queries,
              const score_side_t *side, T *to)
{
    const ptrdiff_t *steps = s->job.steps, size = sizeof(T);
    ptrdiff_t row = steps[s->core], col = steps[s->core + 1];
    const char *q = rp_operand(&s->job, 0, queries->item) + queries->first * row;
    int scale_operand = s->biased ? 5 : 3;
    if (side->bias) {
        const char *add = rp_operand(&s->job, side->bias, queries->item);
        ptrdiff_t step = steps[s->core + 3 + side->bias];
        for (int64_t i = 0; i < queries->rows; i++)
            for (int64_t c = 0; c < s->d; c++)
                queries->added[i * s->d + c] =
                    *(const T *)(q + i * row + c * col) + *(const T *)(add + c * step);
        q = (const char *)queries->added;
        row = s->d * size;
        col = size;
    }
    rp_product product = {
        .m = queries->rows,
        .n = side->n,
        .k = s->d,
        .alpha = *(const double *)rp_operand(&s->job, scale_operand, queries->item),
        .a = q,
        .a_row = row,
        .a_col = col,
        .b = side->b,
        .b_row = side->b_steps[1], /* B transposed */
        .b_col = side->b_steps[0],
        .c = to,
        .c_row = side->n};
    return rp_gemm(&product, RP_IS_F32 ? RP_F32 : RP_F64, 1);
}

/* Adds the position terms of one row to its contents; position holds the terms of table
 * rows [from, to), and origin is l of key 0, negated. */
RP_INLINE void
add_positions(const score_job_t *s, T *content, const T *position, int64_t from,
              int64_t to, int64_t origin)
{
    int64_t left = RP_MIN(RP_MAX(origin, 0), s->k); /* first key with l >= 0 */
    int64_t right = RP_MIN(RP_MAX(origin + s->r, left), s->k); /* first with l >= r */
    if (s->clip) {
        for (int64_t j = 0; j < left; j++)
            content[j] += position[0];
        for (int64_t j = right; j < s->k; j++)
            content[j] += position[to - from - 1];
    }
    if (left < right) {
        const T *run = position + (left - origin - from);
        for (int64_t j = 0; j < right - left; j++)
            content[left + j] += run[j];
    }
}

static void
score_block(void *context, int64_t unit, int worker)
{
    score_job_t *s = context;
    const ptrdiff_t *key = s->job.steps + s->core + 2, *table = key + 2;
    const ptrdiff_t *core = table + (s->biased ? 4 : 2); /* of out */
    int64_t blocks = (s->q + SCORE_ROWS - 1) / SCORE_ROWS, item = unit / blocks;
    int64_t first = unit % blocks * SCORE_ROWS, rows = RP_MIN(SCORE_ROWS, s->q - first);
    T *content = s->scratch + (size_t)worker * s->per_worker;
    T *added = content + SCORE_ROWS * s->k, *position = added + SCORE_ROWS * s->d;
    score_rows_t queries = {item, first, rows, added};
    /* the table rows that these queries meet; the end rows stand for all beyond them */
    int64_t origin = score_origin(s, item) + first;
    int64_t from = RP_MIN(RP_MAX(1 - rows - origin, 0), s->r - 1);
    int64_t to = RP_MIN(RP_MAX(s->k - origin, 1), s->r);
    score_side_t keys = {.b = rp_operand(&s->job, 1, item),
                         .b_steps = key,
                         .n = s->k,
                         .bias = s->biased ? 3 : 0};
    rp_status status = score_product(s, &queries, &keys, content);
    if (status == RP_OK && s->r > 0) {
        score_side_t met = {.b = rp_operand(&s->job, 2, item) + from * table[0],
                            .b_steps = table,
                            .n = to - from,
                            .bias = s->biased ? 4 : 0};
        status = score_product(s, &queries, &met, position);
    }
    if (status != RP_OK) {
        rp_fail(&s->job);
        return;
    }
    char *out = rp_operand(&s->job, s->core - 1, item) + first * core[0];
    for (int64_t i = 0; i < rows; i++) {
        T *row = content + i * s->k;
        if (s->r > 0)
            add_positions(s, row, position + i * (to - from), from, to, origin + i);
        copy_run(out + i * core[0], core[1], (const char *)row, sizeof(T), s->k);
    }
}

static void
score_loop(score_job_t *s)
{
    const ptrdiff_t *dims = s->job.dims;
    s->q = dims[1], s->d = dims[2], s->k = dims[3], s->r = dims[4];
    int64_t units = dims[0] * ((s->q + SCORE_ROWS - 1) / SCORE_ROWS);
    if (units == 0 || s->k == 0)
        return;
    int64_t work = dims[0] * s->q * s->k * RP_MAX(s->d, 1);
    int threads = work < RP_UNIT_WORK ? 1 : (int)RP_MIN(units, rp_get_num_threads());
    size_t width =
        (size_t)s->k + (size_t)s->d + (size_t)RP_MIN(s->r, s->k + SCORE_ROWS);
    s->per_worker = SCORE_ROWS * width;
    s->scratch = rp_alloc((size_t)threads * SCORE_ROWS, width * sizeof(T));
    if (s->scratch == NULL) {
        rp_loop_status(RP_NO_MEMORY);
        return;
    }
    rp_status status = rp_parallel(units, score_block, s, threads);
    rp_free(s->scratch);
    rp_loop_status(status == RP_OK && s->job.failed ? RP_NO_MEMORY : status);
}

/* (q,d),(k,d),(r,d), scale, query_offset -> (q,k): clips, and row (r - 1) / 2 is
 * relative position 0 */
static void
shaw_scores(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data)
{
    (void)data;
    score_job_t s = {.job = {.args = args, .dims = dims, .steps = steps}, .core = 6};
    if (dims[4] % 2 == 0) {
        rp_loop_error("shaw_scores: rel_key must have an odd number of rows, 2k + 1");
        return;
    }
    s.clip = 1;
    s.min = -(dims[4] - 1) / 2;
    score_loop(&s);
}

/* (q,d),(k,d),(r,d), scale, query_offset, min_relative_position -> (q,k) */
static void
skewed_scores(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data)
{
    (void)data;
    score_job_t s = {.job = {.args = args, .dims = dims, .steps = steps}, .core = 7};
    s.row0 = 5;
    score_loop(&s);
}

/* (q,d),(k,d),(r,d),(d),(d), scale, query_offset -> (q,k): row 0 is -(k - 1) */
static void
transformer_xl_scores(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                      void *data)
{
    (void)data;
    score_job_t s = {.job = {.args = args, .dims = dims, .steps = steps}, .core = 8};
    s.biased = 1;
    s.min = -(dims[3] - 1);
    score_loop(&s);
}

#endif
