/* skew.h: the maps between "one column per relative position" and "one per key".
 *
 *   skew        y[i, j] = x[i, q - 1 - i + j]      x (q, r), y (q, s), r = q + s - 1
 *   unskew      its adjoint: every entry goes back, the rest of x is 0
 *   rel_shift   Transformer-XL's pad, reshape, drop: with p the rows of x behind one
 *               zero each, written one after the other, y is p from its q-th entry on
 *   rel_unshift its adjoint
 * Each row is at most two runs and a zero; no padded copy exists. */
#ifndef RELPOS_DENSE_SKEW_H
#define RELPOS_DENSE_SKEW_H

#include "../ground/jobs.h"
#include "../ground/lines.h"

static void
skew_rows(void *context, int64_t unit, int worker)
{
    (void)worker;
    const rp_job *job = context;
    const ptrdiff_t *steps = job->steps, q = job->dims[1], s = job->dims[3];
    int64_t last = RP_MIN((unit + 1) * job->block, job->rows);
    for (int64_t row = unit * job->block; row < last; row++) {
        int64_t i = row % q;
        const char *x = rp_operand(job, 0, row / q) + i * steps[2];
        char *y = rp_operand(job, 1, row / q) + i * steps[4];
        copy_run(y, steps[5], x + (q - 1 - i) * steps[3], steps[3], s);
    }
}

static void
unskew_rows(void *context, int64_t unit, int worker)
{
    (void)worker;
    const rp_job *job = context;
    const ptrdiff_t *steps = job->steps, q = job->dims[1], s = job->dims[2];
    int64_t last = RP_MIN((unit + 1) * job->block, job->rows);
    for (int64_t row = unit * job->block; row < last; row++) {
        int64_t i = row % q, first = q - 1 - i;
        const char *y = rp_operand(job, 0, row / q) + i * steps[2];
        char *x = rp_operand(job, 1, row / q) + i * steps[4];
        zero_run(x, steps[5], sizeof(T), first);
        copy_run(x + first * steps[5], steps[5], y, steps[3], s);
        zero_run(x + (first + s) * steps[5], steps[5], sizeof(T), i);
    }
}

static void
skew(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data)
{
    (void)data;
    rp_job job = {.args = args, .dims = dims, .steps = steps};
    if (dims[1] > 0 && dims[2] != dims[1] + dims[3] - 1) {
        rp_loop_error("skew: out must have r - q + 1 columns for x of shape (q, r)");
        return;
    }
    rp_run_rows(&job, dims[0] * dims[1], dims[3], skew_rows);
}

static void
unskew(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data)
{
    (void)data;
    rp_job job = {.args = args, .dims = dims, .steps = steps};
    if (dims[1] > 0 && dims[3] != dims[1] + dims[2] - 1) {
        rp_loop_error("unskew: out must have q + s - 1 columns for y of shape (q, s)");
        return;
    }
    rp_run_rows(&job, dims[0] * dims[1], dims[3], unskew_rows);
}

/* One row of the shift. Entry `at` of p is row at / (k + 1) of x behind its zero. */
static void
rel_shift_rows(void *context, int64_t unit, int worker)
{
    (void)worker;
    const rp_job *job = context;
    const ptrdiff_t *steps = job->steps, q = job->dims[1], k = job->dims[2];
    int64_t last = RP_MIN((unit + 1) * job->block, job->rows);
    for (int64_t row = unit * job->block; row < last; row++) {
        int64_t i = row % q, at = q + i * k;
        int64_t from = at / (k + 1),
                column = at % (k + 1) - 1; /* -1: the zero itself */
        const char *x = rp_operand(job, 0, row / q) + from * steps[2];
        char *y = rp_operand(job, 1, row / q) + i * steps[4];
        int64_t first = column < 0 ? 0 : RP_MIN(k - column, k);
        copy_run(y, steps[5], x + column * steps[3], steps[3], first);
        if (first == k)
            continue;
        *(T *)(y + first * steps[5]) = 0;
        if (column >= 0)
            x += steps[2]; /* past the zero in front of the next row */
        copy_run(y + (first + 1) * steps[5], steps[5], x, steps[3], k - first - 1);
    }
}

/* One row of x: its entry c is entry i * (k + 1) + 1 + c - q of y, where there is one. */
static void
rel_unshift_rows(void *context, int64_t unit, int worker)
{
    (void)worker;
    const rp_job *job = context;
    const ptrdiff_t *steps = job->steps, q = job->dims[1], k = job->dims[2];
    int64_t last = RP_MIN((unit + 1) * job->block, job->rows);
    for (int64_t row = unit * job->block; row < last; row++) {
        int64_t i = row % q, at = i * (k + 1) + 1 - q;
        int64_t dropped = at < 0 ? RP_MIN(-at, k) : 0;
        char *x = rp_operand(job, 1, row / q) + i * steps[4];
        zero_run(x, steps[5], sizeof(T), dropped);
        at += dropped;
        for (int64_t c = dropped; c < k;) {
            int64_t column = at % k, run = RP_MIN(k - column, k - c);
            const char *y = rp_operand(job, 0, row / q) + at / k * steps[2];
            copy_run(x + c * steps[5], steps[5], y + column * steps[3], steps[3], run);
            c += run;
            at += run;
        }
    }
}

static void
rel_shift(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data)
{
    (void)data;
    rp_job job = {.args = args, .dims = dims, .steps = steps};
    rp_run_rows(&job, dims[0] * dims[1], dims[2], rel_shift_rows);
}

static void
rel_unshift(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data)
{
    (void)data;
    rp_job job = {.args = args, .dims = dims, .steps = steps};
    rp_run_rows(&job, dims[0] * dims[1], dims[2], rel_unshift_rows);
}

#endif
