/* merge.h: joins attention over two disjoint sets of keys.
 *
 *   lse = log(exp(lse_a) + exp(lse_b))
 *   out = exp(lse_a - lse) * out_a + exp(lse_b - lse) * out_b
 * The weights are computed in double; a side with lse = -inf saw no key and is not read,
 * so nothing of it can leak. */
#ifndef RELPOS_DENSE_MERGE_H
#define RELPOS_DENSE_MERGE_H

#include "../ground/jobs.h"
#include "../ground/lines.h"

RP_INLINE void
merge_row(const rp_job *job, int64_t row)
{
    const ptrdiff_t *steps = job->steps;
    const char *out_a = rp_operand(job, 0, row), *out_b = rp_operand(job, 2, row);
    double a = *(const T *)rp_operand(job, 1, row),
           b = *(const T *)rp_operand(job, 3, row);
    char *out = rp_operand(job, 4, row);
    int64_t v = job->dims[1];
    T *lse = (T *)rp_operand(job, 5, row);
    /* A side without keys has no weight, and its out may be anything, NaN included. */
    if (a == -INFINITY || b == -INFINITY) {
        int only_b = a == -INFINITY;
        *lse = (T)(only_b ? b : a);
        if (only_b && b == -INFINITY)
            zero_run(out, steps[8], sizeof(T), v);
        else
            copy_run(out, steps[8], only_b ? out_b : out_a,
                     only_b ? steps[7] : steps[6], v);
        return;
    }
    double gap = exp(-fabs(a - b)); /* weight of the smaller side over the larger's */
    double large = 1 / (1 + gap), small = gap / (1 + gap);
    T weight_a = (T)(a >= b ? large : small), weight_b = (T)(a >= b ? small : large);
    *lse = (T)((a >= b ? a : b) + log1p(gap));
    for (int64_t c = 0; c < v; c++)
        *(T *)(out + c * steps[8]) = weight_a * *(const T *)(out_a + c * steps[6]) +
                                     weight_b * *(const T *)(out_b + c * steps[7]);
}

static void
merge_rows(void *context, int64_t unit, int worker)
{
    (void)worker;
    const rp_job *job = context;
    int64_t last = RP_MIN((unit + 1) * job->block, job->rows);
    for (int64_t row = unit * job->block; row < last; row++)
        merge_row(job, row);
}

static void
merge(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data)
{
    (void)data;
    enum { WEIGHTS = 16 }; /* exp and log1p cost about as much as 16 elements */
    rp_job job = {.args = args, .dims = dims, .steps = steps};
    rp_run_rows(&job, dims[0], dims[1] + WEIGHTS, merge_rows);
}

#endif
