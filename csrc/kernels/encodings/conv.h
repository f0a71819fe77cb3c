/* conv.h: depthwise convolution over a grid of h x w cells, added to what it encodes.
 *
 *   y[r, c] = x[r, c] + b + sum_{s, t} weight[s, t] * x[r + s - top, c + t - left]
 * channel by channel, over the cells that lie inside the grid and whose mask is not 0. A
 * cell whose mask is 0 comes back as it came. The gradient of x is the same sum with the
 * kernel turned round. A sequence is a grid of one row. */
#ifndef RELPOS_ENCODINGS_CONV_H
#define RELPOS_ENCODINGS_CONV_H

#include "../ground/jobs.h"
#include "../ground/lines.h"

/* Vectors of channels that stay in registers over the taps. */
#define CONV_STRIP 4
/* Channels to a unit of the gradients: its sums stay in the first-level cache. */
#define CONV_CHANNELS 64
/* Terms to a block of a sum of the gradients; blocks are added up in double. */
#define CONV_TERMS 64
/* |top|, |left| are cut here: far past any array, and sums of two cannot overflow. */
#define CONV_FARTHEST (INT64_MAX / 4)

/* What a cell's sum runs over: the taps [s0, s1) x [t0, t1) that fall inside the grid. x
 * and mask are the cell's own, which lies under tap (top, left). */
typedef struct {
    const char *x, *weight, *mask;
    ptrdiff_t x_row, x_col, x_step, row, col, step, mask_row, mask_col;
    int64_t top, left, s0, s1, t0, t1;
} taps_t;

RP_INLINE int64_t
conv_pad(const rp_job *job, int operand, int64_t item)
{
    int64_t pad = *(const int64_t *)rp_operand(job, operand, item);
    return RP_MIN(RP_MAX(pad, -CONV_FARTHEST), CONV_FARTHEST);
}

/* The cell under tap (s, t): which row of x, weight and whether it is to be seen. */
RP_INLINE int
conv_tap(const taps_t *taps, int64_t s, int64_t t, const char **x, const char **w)
{
    int64_t dr = s - taps->top, dc = t - taps->left;
    *x = taps->x + dr * taps->x_row + dc * taps->x_col;
    *w = taps->weight + s * taps->row + t * taps->col;
    return *(const T *)(taps->mask + dr * taps->mask_row + dc * taps->mask_col) != 0;
}

/* acc[q] = sum over the taps of vectors [q] of x and weight from channel e on. */
RP_INLINE void
conv_strip(const taps_t *taps, int64_t e, int vectors, V *acc)
{
    for (int q = 0; q < vectors; q++)
        acc[q] = (V){0};
    for (int64_t s = taps->s0; s < taps->s1; s++)
        for (int64_t t = taps->t0; t < taps->t1; t++) {
            const char *x, *w;
            if (!conv_tap(taps, s, t, &x, &w))
                continue;
#pragma GCC unroll 4
            for (int q = 0; q < vectors; q++)
                acc[q] +=
                    load((const T *)x + e + q * VL) * load((const T *)w + e + q * VL);
        }
}

/* Sum over the taps of x and weight in channel e, whatever the strides of channels. */
RP_INLINE T
conv_channel(const taps_t *taps, int64_t e)
{
    T sum = 0;
    for (int64_t s = taps->s0; s < taps->s1; s++)
        for (int64_t t = taps->t0; t < taps->t1; t++) {
            const char *x, *w;
            if (!conv_tap(taps, s, t, &x, &w))
                continue;
            sum +=
                *(const T *)(x + e * taps->x_step) * *(const T *)(w + e * taps->step);
        }
    return sum;
}

/* The sums of all channels of one cell, with x and bias added, into `out`. */
static void
conv_cell(const taps_t *taps, const char *x, const char *bias, ptrdiff_t b_step,
          char *out, ptrdiff_t out_step, int64_t channels)
{
    const ptrdiff_t unit = sizeof(T);
    int64_t e = 0;
    V acc[CONV_STRIP];
    if (taps->x_step == unit && taps->step == unit && b_step == unit &&
        out_step == unit) {
        const T *from = (const T *)x, *add = (const T *)bias;
        for (; e + CONV_STRIP * VL <= channels; e += CONV_STRIP * VL) {
            conv_strip(taps, e, CONV_STRIP, acc);
#pragma GCC unroll 4
            for (int q = 0; q < CONV_STRIP; q++)
                store((T *)out + e + q * VL,
                      load(from + e + q * VL) + (acc[q] + load(add + e + q * VL)));
        }
        for (; e + VL <= channels; e += VL) {
            conv_strip(taps, e, 1, acc);
            store((T *)out + e, load(from + e) + (acc[0] + load(add + e)));
        }
    }
    for (; e < channels; e++)
        *(T *)(out + e * out_step) =
            *(const T *)(x + e * taps->x_step) +
            (conv_channel(taps, e) + *(const T *)(bias + e * b_step));
}

static void
conv_cells(void *context, int64_t unit, int worker)
{
    (void)worker;
    const rp_job *job = context;
    const ptrdiff_t *steps = job->steps + 7, *dims = job->dims;
    int64_t h = dims[1], w = dims[2];
    int64_t last = RP_MIN((unit + 1) * job->block, job->rows);
    for (int64_t cell = unit * job->block; cell < last; cell++) {
        int64_t item = cell / (h * w), r = cell / w % h, c = cell % w;
        int64_t top = conv_pad(job, 4, item), left = conv_pad(job, 5, item);
        const char *x = rp_operand(job, 0, item) + r * steps[0] + c * steps[1];
        const char *mask = rp_operand(job, 3, item) + r * steps[7] + c * steps[8];
        char *out = rp_operand(job, 6, item) + r * steps[9] + c * steps[10];
        if (*(const T *)mask == 0) {
            copy_run(out, steps[11], x, steps[2], dims[3]);
            continue;
        }
        taps_t taps = {.x = x, .mask = mask, .top = top, .left = left};
        taps.weight = rp_operand(job, 1, item);
        taps.x_row = steps[0], taps.x_col = steps[1], taps.x_step = steps[2];
        taps.row = steps[3], taps.col = steps[4], taps.step = steps[5];
        taps.mask_row = steps[7], taps.mask_col = steps[8];
        taps.s0 = RP_MAX(0, top - r), taps.s1 = RP_MIN(dims[4], h + top - r);
        taps.t0 = RP_MAX(0, left - c), taps.t1 = RP_MIN(dims[5], w + left - c);
        conv_cell(&taps, x, rp_operand(job, 2, item), steps[6], out, steps[11],
                  dims[3]);
    }
}

/* x (h,w,e), weight (i,j,e), bias (e), mask (h,w), top, left -> (h,w,e) */
static void
conv_encoding(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data)
{
    (void)data;
    rp_job job = {.args = args, .dims = dims, .steps = steps};
    int64_t taps = RP_MIN(dims[4], RP_UNIT_WORK) * RP_MIN(dims[5], RP_UNIT_WORK);
    int64_t width = RP_MIN(dims[3], RP_UNIT_WORK) * (taps + 1);
    if (dims[3] > 0)
        rp_run_rows(&job, dims[0] * dims[1] * dims[2], width, conv_cells);
}

/* ---- gradients of weight and bias --------------------------------------------------- */

/* part += g * x over `count` channels; x = NULL stands for ones. */
RP_INLINE void
conv_add(T *part, const char *g, ptrdiff_t g_step, const char *x, ptrdiff_t x_step,
         int64_t count)
{
    int64_t k = 0;
    if (x == NULL) {
        for (; k < count; k++)
            part[k] += *(const T *)(g + k * g_step);
        return;
    }
    if (g_step == (ptrdiff_t)sizeof(T) && x_step == (ptrdiff_t)sizeof(T))
        for (; k + VL <= count; k += VL)
            store(part + k,
                  load(part + k) + load((const T *)g + k) * load((const T *)x + k));
    for (; k < count; k++)
        part[k] += *(const T *)(g + k * g_step) * *(const T *)(x + k * x_step);
}

/* total = sum over the cells of g[r, c] * x[r + dr, c + dc], both visible; is_bias: of
 * g[r, c] alone. All from channel e on. */
static void
conv_tap_sum(const rp_job *job, int64_t item, int64_t dr, int64_t dc, int is_bias,
             int64_t e, int64_t count, double *total)
{
    const ptrdiff_t *steps = job->steps + 7, *dims = job->dims;
    const char *grad = rp_operand(job, 0, item) + e * steps[2];
    const char *x = rp_operand(job, 1, item) + e * steps[5];
    const char *mask = rp_operand(job, 2, item);
    int64_t r1 = RP_MIN(dims[1], dims[1] - dr), c1 = RP_MIN(dims[2], dims[2] - dc);
    int64_t c0 = RP_MAX(0, -dc);
    T part[CONV_CHANNELS];
    memset(total, 0, (size_t)count * sizeof *total);
    for (int64_t r = RP_MAX(0, -dr); c0 < c1 && r < r1; r++)
        for (int64_t first = c0; first < c1; first += CONV_TERMS) {
            if (rp_stopping())
                return;
            memset(part, 0, sizeof part);
            for (int64_t c = first; c < RP_MIN(first + CONV_TERMS, c1); c++) {
                const char *there = mask + (r + dr) * steps[6] + (c + dc) * steps[7];
                if (*(const T *)(mask + r * steps[6] + c * steps[7]) != 0 &&
                    *(const T *)there != 0)
                    conv_add(part, grad + r * steps[0] + c * steps[1], steps[2],
                             is_bias ? NULL
                                     : x + (r + dr) * steps[3] + (c + dc) * steps[4],
                             steps[5], count);
            }
            for (int64_t k = 0; k < count; k++)
                total[k] += part[k];
        }
}

/* A unit is one tap, or behind the last tap the bias, of a block of channels of an item:
 * one writer, one order. */
static void
conv_gradient_unit(void *context, int64_t unit, int worker)
{
    (void)worker;
    const rp_job *job = context;
    const ptrdiff_t *steps = job->steps + 7, *dims = job->dims;
    int64_t taps = dims[4] * dims[5], tap = unit % (taps + 1),
            block = unit / (taps + 1);
    int64_t blocks = (dims[3] + CONV_CHANNELS - 1) / CONV_CHANNELS;
    int64_t item = block / blocks, e = block % blocks * CONV_CHANNELS;
    int64_t count = RP_MIN(CONV_CHANNELS, dims[3] - e), dr = 0, dc = 0;
    int is_bias = tap == taps;
    double total[CONV_CHANNELS];
    char *to = rp_operand(job, 6, item) + e * steps[11];
    ptrdiff_t step = steps[11];
    if (!is_bias) {
        int64_t s = tap / dims[5], t = tap % dims[5];
        dr = s - conv_pad(job, 3, item);
        dc = t - conv_pad(job, 4, item);
        to = rp_operand(job, 5, item) + s * steps[8] + t * steps[9] + e * steps[10];
        step = steps[10];
    }
    conv_tap_sum(job, item, dr, dc, is_bias, e, count, total);
    for (int64_t k = 0; k < count; k++)
        *(T *)(to + k * step) = (T)total[k];
}

/* grad_out (h,w,e), x (h,w,e), mask (h,w), top, left -> weight (i,j,e), bias (e) */
static void
conv_encoding_backward(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                       void *data)
{
    (void)data;
    rp_job job = {.args = args, .dims = dims, .steps = steps};
    int64_t blocks = (dims[3] + CONV_CHANNELS - 1) / CONV_CHANNELS;
    int64_t units = dims[0] * blocks * (dims[4] * dims[5] + 1);
    rp_loop_status(rp_parallel(units, conv_gradient_unit, &job, rp_get_num_threads()));
}

/* ---- the activation behind wav2vec 2.0's convolution -------------------------------- */

/* y = x F(x) and dy/dx = F(x) + x f(x), F and f the normal distribution and its density,
 * in double: erfc keeps the digits of F far to the left. */
static void
gelu_rows(void *context, int64_t unit, int worker)
{
    (void)worker;
    const rp_job *job = context;
    int64_t last = RP_MIN((unit + 1) * job->block, job->rows);
    int64_t n = job->dims[1];
    const ptrdiff_t *steps = job->steps + 3;
    for (int64_t row = unit * job->block; row < last; row++) {
        int64_t item = row / n, k = row % n;
        double x = *(const T *)(rp_operand(job, 0, item) + k * steps[0]);
        double below = 0.5 * erfc(-x * 0.70710678118654752440);
        double density = 0.39894228040143267794 * exp(-0.5 * x * x);
        int far = fabs(x) == INFINITY; /* infinity * 0 */
        *(T *)(rp_operand(job, 1, item) + k * steps[1]) =
            (T)(far ? RP_MAX(x, 0) : x * below);
        *(T *)(rp_operand(job, 2, item) + k * steps[2]) =
            (T)(below + (far ? 0 : x * density));
    }
}

/* x (n) -> values (n), derivatives (n) */
static void
gelu(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data)
{
    (void)data;
    enum { WORK = 32 }; /* erfc and exp cost about as much as 32 elements */
    rp_job job = {.args = args, .dims = dims, .steps = steps};
    rp_run_rows(&job, dims[0] * dims[1], WORK, gelu_rows);
}

#endif
