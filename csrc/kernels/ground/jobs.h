/* jobs.h: what the gufunc loops share: units of work and strided runs. */
#ifndef RELPOS_GROUND_JOBS_H
#define RELPOS_GROUND_JOBS_H

#include "system.h"

/* Elements a unit of work touches: tens of microseconds, so that waking a thread pays
 * and a signal is seen in time. Units are cut from shapes only, never from threads. */
enum { RP_UNIT_WORK = 1 << 15 };

/* A gufunc call as its units see it: NumPy's own arrays, valid for the whole call. */
typedef struct {
    char **args;
    const ptrdiff_t *dims, *steps;
    int64_t rows, block; /* of the call; of one unit */
    int failed;          /* set by any unit, through rp_fail, read after the last */
} rp_job;

RP_INLINE char *
rp_operand(const rp_job *job, int operand, int64_t item)
{
    return job->args[operand] + item * job->steps[operand];
}

RP_INLINE void
rp_fail(rp_job *job)
{
    __atomic_store_n(&job->failed, 1, __ATOMIC_RELAXED);
}

/* Runs body over units of rows of `width` elements; 0 after an error was reported. */
RP_INLINE int
rp_run_rows(rp_job *job, int64_t rows, int64_t width, rp_body body)
{
    if (rows <= 0)
        return 1;
    job->rows = rows;
    job->block = RP_MAX(1, RP_UNIT_WORK / RP_MAX(width, 1));
    int64_t units = (rows + job->block - 1) / job->block;
    rp_status status = rp_parallel(units, body, job, rp_get_num_threads());
    rp_loop_status(status);
    return status == RP_OK;
}

#endif
