/* embedding.h: a learned table of encodings: rows out, gradients back in. */
#ifndef RELPOS_ENCODINGS_EMBEDDING_H
#define RELPOS_ENCODINGS_EMBEDDING_H

#include "../ground/jobs.h"
#include "../ground/lines.h"

static void
learned_rows(void *context, int64_t unit, int worker)
{
    (void)worker;
    rp_job *job = context;
    const ptrdiff_t *steps = job->steps;
    int64_t r = job->dims[1], d = job->dims[2], n = job->dims[3];
    int64_t last = RP_MIN((unit + 1) * job->block, job->rows);
    for (int64_t row = unit * job->block; row < last; row++) {
        int64_t item = row / n, i = row % n;
        /* read once: the caller may change the array meanwhile */
        int64_t at = *(const int64_t *)(rp_operand(job, 1, item) + i * steps[5]);
        if (at < 0 || at >= r) {
            rp_fail(job);
            return;
        }
        copy_run(rp_operand(job, 2, item) + i * steps[6], steps[7],
                 rp_operand(job, 0, item) + at * steps[3], steps[4], d);
    }
}

static void
learned(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data)
{
    (void)data;
    rp_job job = {.args = args, .dims = dims, .steps = steps};
    if (rp_run_rows(&job, dims[0] * dims[3], dims[2], learned_rows) && job.failed)
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
        zero_run(table + row * steps[6], steps[7], width);
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
