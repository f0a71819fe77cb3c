/* embedding.h: a learned table of encodings: rows out, gradients back in. */
#ifndef RELPOS_ENCODINGS_EMBEDDING_H
#define RELPOS_ENCODINGS_EMBEDDING_H

#include "../ground/jobs.h"
#include "../ground/lines.h"

/* Rows [first, last) of one item; neighbours in both arrays are copied together. */
static void
learned_rows(rp_job *job, int64_t item, int64_t first, int64_t last)
{
    const ptrdiff_t *steps = job->steps, line = job->dims[2] * (ptrdiff_t)sizeof(T);
    const char *positions = rp_operand(job, 1, item), *table = rp_operand(job, 0, item);
    char *out = rp_operand(job, 2, item);
    int64_t r = job->dims[1], d = job->dims[2];
    int joined = steps[3] == line && steps[6] == line &&
                 steps[4] == (ptrdiff_t)sizeof(T) && steps[7] == (ptrdiff_t)sizeof(T);
    for (int64_t i = first, count = 1; i < last; i += count) {
        /* looked at as it was read: the caller may change the array meanwhile */
        int64_t at = *(const int64_t *)(positions + i * steps[5]);
        if (at < 0 || at >= r) {
            rp_fail(job);
            return;
        }
        for (count = 1; joined && i + count < last && at + count < r; count++)
            if (*(const int64_t *)(positions + (i + count) * steps[5]) != at + count)
                break;
        copy_run(out + i * steps[6], steps[7], table + at * steps[3], steps[4],
                 count * d);
    }
}

static void
learned_unit(void *context, int64_t unit, int worker)
{
    (void)worker;
    rp_job *job = context;
    int64_t n = job->dims[3], last = RP_MIN((unit + 1) * job->block, job->rows);
    for (int64_t row = unit * job->block, next; row < last; row = next) {
        int64_t item = row / n;
        next = RP_MIN((item + 1) * n, last);
        learned_rows(job, item, row - item * n, next - item * n);
    }
}

static void
learned(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data)
{
    (void)data;
    rp_job job = {.args = args, .dims = dims, .steps = steps};
    if (rp_run_rows(&job, dims[0] * dims[3], dims[2], learned_unit) && job.failed)
        rp_loop_error("learned: a position is outside the table");
}

/* Columns are the units: each is summed in the order of the positions by one writer,
 * whatever the number of threads. `block` is a number of columns here. */
static void
learned_backward_columns(void *context, int64_t unit, int worker)
{
    (void)worker;
    rp_job *job = context;
    const ptrdiff_t *steps = job->steps;
    int64_t n = job->dims[1], d = job->dims[2], r = job->dims[3];
    int64_t blocks = (d + job->block - 1) / job->block, item = unit / blocks;
    int64_t first = unit % blocks * job->block, width = RP_MIN(job->block, d - first);
    const char *grad = rp_operand(job, 0, item) + first * steps[4];
    char *table = rp_operand(job, 2, item) + first * steps[7];
    for (int64_t row = 0; row < r; row++)
        zero_run(table + row * steps[6], steps[7], sizeof(T), width);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = *(const int64_t *)(rp_operand(job, 1, item) + i * steps[5]);
        if (at < 0 || at >= r) {
            rp_fail(job);
            return;
        }
        const char *from = grad + i * steps[3];
        char *to = table + at * steps[6];
        for (int64_t c = 0; c < width; c++)
            *(T *)(to + c * steps[7]) += *(const T *)(from + c * steps[4]);
    }
}

static void
learned_backward(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data)
{
    (void)data;
    enum { LINE = 64 / sizeof(T) }; /* one cache line: no two units write the same */
    rp_job job = {.args = args, .dims = dims, .steps = steps, .block = LINE};
    int64_t units = dims[0] * ((dims[2] + LINE - 1) / LINE);
    int64_t work = dims[0] * dims[2] * (dims[1] + dims[3]);
    rp_status status = rp_parallel(units, learned_backward_columns, &job,
                                   work < RP_UNIT_WORK ? 1 : rp_get_num_threads());
    rp_loop_status(status);
    if (status == RP_OK && job.failed)
        rp_loop_error("learned_backward: a position is outside the table");
}

#endif
