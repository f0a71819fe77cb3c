/* running.h: the running softmax, in units of log 2.
 *
 * max and sum of a row are those of the keys seen so far; when more of them raise the
 * maximum, what the row has accumulated is scaled down. A row that has seen nothing, or only
 * hidden keys, has max = -inf: its exponents start from 0, as exp2(-inf - 0) = 0, not NaN. */
#ifndef RELPOS_GROUND_RUNNING_H
#define RELPOS_GROUND_RUNNING_H

#include "exp2.h"
#include "lines.h"

/* ---- one row --------------------------------------------------------------------- */

typedef struct {
    T max, sum; /* largest logit s; sum of 2^(s - max) */
} running_t;

#define RP_NOTHING_SEEN ((running_t){-(T)INFINITY, 0})

/* The number that exponents of a row are taken from: its maximum, or 0 where that is -inf,
 * as -inf - -inf would be NaN. */
RP_INLINE T
running_base(T max)
{
    return max == -(T)INFINITY ? 0 : max;
}

/* Takes the logits s, `count` of them in whole vectors, into the row: they become
 * 2^(s - max), and out, what the row has accumulated, is scaled down where they raise it. */
static void
take_logits(running_t *row, T *s, int64_t count, T *out, ptrdiff_t width)
{
    V top = splat(row->max), sum = (V){0};
    for (int64_t n = 0; n < count; n += VL)
        top = vmax(load(s + n), top);
    T raised = max_lanes(top)[0];
    if (raised > row->max) {
        T factor = vexp2(splat(row->max - raised))[0];
        row->max = raised;
        row->sum *= factor;
        scale_row(out, width, factor);
    }
    T base = running_base(row->max);
    for (int64_t n = 0; n < count; n += VL) {
        V e = vexp2(load(s + n) - base);
        store(s + n, e);
        sum += e;
    }
    row->sum += sum_lanes(sum)[0];
}

/* ---- the rows of a tile, VL at a time --------------------------------------------- */

/* Column by column, VL rows of VL elements. */
RP_INLINE void
load_columns(const T *rows, V columns[VL])
{
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++)
        columns[i] = load(rows + i * VL);
    transpose(columns);
}

/* The sum, or the largest element, of each of VL rows of VL elements, in the tree order of
 * sum_lanes and max_lanes. VL rows at a time cost what two cost alone. */
RP_INLINE V
sum_rows(const T *rows)
{
    V x[VL];
    load_columns(rows, x);
#pragma GCC unroll 4
    for (int half = VL / 2; half > 0; half /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < half; i++)
            x[i] += x[i + half];
    return x[0];
}

RP_INLINE V
max_rows(const T *rows)
{
    V x[VL];
    load_columns(rows, x);
#pragma GCC unroll 4
    for (int half = VL / 2; half > 0; half /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < half; i++)
            x[i] = vmax(x[i], x[i + half]);
    return x[0];
}

/* Raises the maxima of `rows` rows to those of their tile, given by lane: base[m] is what the
 * exponents of row m start from, factor[m] what it has accumulated is to be scaled by. No
 * branch on a row's own maximum: which rows rise is past predicting. */
RP_INLINE void
raise_maxima(T *max, T *sum, const T *lane_max, int rows, T *base, T *factor)
{
    for (int m = 0; m < rows; m += VL) {
        V old = load(max + m);
        V top = vmax(max_rows(lane_max + m * VL), old);
        VI hidden = top == -(T)INFINITY;
        V from = (V)((VI)top & ~hidden), f = vexp2(old - from);
        store(max + m, top);
        store(sum + m, load(sum + m) * f);
        store(base + m, from);
        store(factor + m, f);
    }
}

/* 2^(s - base) in place for one row of a tile of `columns` logits, whole vectors; their sum by
 * lane. */
RP_INLINE V
exponents(T *s, int columns, T base)
{
    V sum0 = (V){0}, sum1 = (V){0}, from = splat(base);
    int n = 0;
    for (; n + 2 * VL <= columns; n += 2 * VL) {
        V p0 = vexp2(load(s + n) - from);
        V p1 = vexp2(load(s + n + VL) - from);
        store(s + n, p0);
        store(s + n + VL, p1);
        sum0 += p0;
        sum1 += p1;
    }
    if (n < columns) {
        V p0 = vexp2(load(s + n) - from);
        store(s + n, p0);
        sum0 += p0;
    }
    return sum0 + sum1;
}

#endif
