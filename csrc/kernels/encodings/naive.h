/* naive.h: the encoding by the index, P[n][c] = n / divisor. */
#ifndef RELPOS_ENCODINGS_NAIVE_H
#define RELPOS_ENCODINGS_NAIVE_H

#include "../ground/jobs.h"
#include "../ground/vector.h"

typedef struct {
    T *rows;
    int64_t count, columns, block;
    double divisor;
} index_job_t;

static void
index_unit(void *context, int64_t unit, int worker)
{
    (void)worker;
    const index_job_t *job = context;
    int64_t last = RP_MIN((unit + 1) * job->block, job->count), columns = job->columns;
    for (int64_t n = unit * job->block; n < last; n++) {
        T value = (T)((double)n / job->divisor), *row = job->rows + n * columns;
        int64_t c = 0;
        for (; c + VL <= columns; c += VL)
            store(row + c, splat(value));
        for (; c < columns; c++)
            row[c] = value;
    }
}

static rp_status
index_rows(void *rows, int64_t count, int64_t columns, double divisor)
{
    index_job_t job = {rows, count, columns, RP_MAX(1, RP_UNIT_WORK / columns),
                       divisor};
    int64_t units = (count + job.block - 1) / job.block;
    return rp_parallel(units, index_unit, &job, rp_get_num_threads());
}

#endif
