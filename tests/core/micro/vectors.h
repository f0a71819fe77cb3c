/* vectors.h: what is done with one vector, powers of 2, and the running softmax. */
#ifndef RELPOS_TESTS_CORE_MICRO_VECTORS_H
#define RELPOS_TESTS_CORE_MICRO_VECTORS_H

#include "pack.h"

/* ---- one vector ---------------------------------------------------------------------- */

/* VL numbers, NaN and infinity among them. */
static T *
take_lanes(source_t *s)
{
    const matrix_t lanes = take_matrix(s, 1, VL, RP_OWN, PLAIN);
    spoil(s, &lanes);
    return (T *)lanes.at;
}

static void
expect_lanes(V got, const double *want)
{
    for (int i = 0; i < VL; i++)
        expect((double)got[i], want[i], 0, 0, i);
}

static void
check_load(source_t *s)
{
    const T *from = take_lanes(s);
    double want[VL];
    start_kernel();
    for (int i = 0; i < VL; i++)
        want[i] = (double)from[i];
    expect_lanes(load(from), want);
}

static void
check_store(source_t *s)
{
    const T *from = take_lanes(s);
    T *to = blank_line(s, VL);
    V x;
    memcpy(&x, from, sizeof x);
    start_kernel();
    store(to, x);
    allow_line(to, VL);
    if (memcmp(to, from, sizeof x))
        report("other bits than those of the vector");
}

static void
check_splat(source_t *s)
{
    const T x = once_in(s, 4) ? -(T)0 : *take_lanes(s);
    start_kernel();
    const V all = splat(x);
    for (int i = 0; i < VL; i++) {
        expect((double)all[i], (double)x, 0, 0, i);
        if (!signbit(all[i]) != !signbit(x) && x == x)
            report("lane %d has the other sign", i);
    }
}

static void
check_first_lanes(source_t *s)
{
    const T *from = take_lanes(s);
    const int count = (int)between(s, 0, VL);
    double want[VL];
    start_kernel();
    for (int i = 0; i < VL; i++)
        want[i] = i < count ? (double)from[i] : 0;
    expect_lanes(first_lanes(load(from), count), want);
}

static void
check_keep_lanes(source_t *s)
{
    const T *from = take_lanes(s), *other = take_lanes(s);
    const int count = (int)between(s, 0, VL);
    double want[VL];
    start_kernel();
    for (int i = 0; i < VL; i++)
        want[i] = (double)(i < count ? from[i] : other[i]);
    expect_lanes(keep_lanes(load(from), count, load(other)), want);
}

/* A NaN of b is kept, one of a is dropped. */
static void
check_vmax(source_t *s)
{
    const T *a = take_lanes(s), *b = take_lanes(s);
    double want[VL];
    start_kernel();
    for (int i = 0; i < VL; i++)
        want[i] = (double)(a[i] > b[i] ? a[i] : b[i]);
    expect_lanes(vmax(load(a), load(b)), want);
}

static void
check_sum_lanes(source_t *s)
{
    const T *from = take_line(s, VL);
    sum_t sum = {0};
    start_kernel();
    for (int i = 0; i < VL; i++)
        add_term(&sum, (double)from[i]);
    const V all = sum_lanes(load(from));
    for (int i = 0; i < VL; i++)
        expect_sum(all[i], sum, 0, i);
}

static void
check_max_lanes(source_t *s)
{
    const T *from = take_line(s, VL);
    double top = -INFINITY;
    start_kernel();
    for (int i = 0; i < VL; i++)
        top = RP_MAX(top, (double)from[i]);
    const V all = max_lanes(load(from));
    for (int i = 0; i < VL; i++)
        expect((double)all[i], top, 0, 0, i);
}

static void
check_transpose(source_t *s)
{
    const T *from = take_line(s, VL * VL);
    V rows[VL];
    memcpy(rows, from, sizeof rows);
    start_kernel();
    transpose(rows);
    for (int i = 0; i < VL; i++)
        for (int j = 0; j < VL; j++)
            expect((double)rows[i][j], (double)from[j * VL + i], 0, i, j);
}

/* ---- powers of 2 ------------------------------------------------------------------------ */

/* 2^x for x <= 0: 0 below a limit, exactly 1 for 0, off by five roundings at most, of which
 * the polynomial has two. Where it is 0 the power is too small to count beside 1. */
static void
expect_power(T got, double x)
{
    const double want = exp2(x), least = RP_IS_F32 ? -100 : -980;
    expect((double)got, x < least ? 0 : want, x == 0 ? 0 : 5 * ROUNDING * want, 0, 0);
}

/* Exponents of all sizes, and what is no number. */
static T
draw_exponent(source_t *s)
{
    static const double special[] = {0, -INFINITY, -1, -0.5, -100, -980};
    const double size = once_in(s, 2) ? 8 : RP_IS_F32 ? 110 : 1000;
    return (T)(once_in(s, 8) ? special[pick(s, 6)] : -size * fabs(draw_unit(s)));
}

static void
check_vexp2(source_t *s)
{
    T *x = blank_line(s, VL);
    for (int i = 0; i < VL; i++)
        x[i] = once_in(s, 40) ? (T)NAN : draw_exponent(s);
    start_kernel();
    const V power = vexp2(load(x));
    for (int i = 0; i < VL; i++)
        expect_power(power[i], (double)x[i]);
}

/* Logits in whole vectors, some of them hidden. */
static T *
take_logits_line(source_t *s, int64_t count)
{
    T *line = blank_line(s, count);
    const int hides = (int)pick(s, 3);
    for (int64_t n = 0; n < count; n++)
        line[n] = hides == 2 || (hides == 1 && once_in(s, 3)) ? -(T)INFINITY
                                                              : (T)(20 * draw_unit(s));
    return line;
}

/* A sum of powers: each is off by five roundings. */
static void
expect_powers(T got, sum_t sum, int64_t lane)
{
    const double terms = (double)sum.terms + 8;
    expect((double)got, sum.value, 2 * terms * ROUNDING * sum.size, 0, lane);
}

/* A power of a difference: the difference is rounded, too. */
static double
power_error(double x)
{
    return (6 + fabs(x)) * ROUNDING * exp2(x) + LEAST;
}

static void
check_exponents(source_t *s)
{
    const int columns = VL * (int)between(s, 0, 9);
    T *line = take_logits_line(s, columns);
    const T base = (T)(20 + fabs(draw_unit(s)));
    sum_t lanes[VL] = {{0}};
    start_kernel();
    const V sums = exponents(line, columns, base);
    allow_line(line, columns);
    for (int n = 0; n < columns; n++) {
        const double x = (double)(((const T *)before_kernel(line))[n] - base);
        expect((double)line[n], exp2(x), x == -INFINITY ? 0 : power_error(x), 0, n);
        add_term(&lanes[n % VL], (double)line[n]);
    }
    for (int i = 0; i < VL; i++)
        expect_powers(sums[i], lanes[i], i);
}

static void
check_take_logits(source_t *s)
{
    const int64_t count = VL * between(s, 0, 9), width = VL * between(s, 0, 4);
    T *line = take_logits_line(s, count), *out = take_line(s, width);
    running_t row = {once_in(s, 3) ? -(T)INFINITY : (T)(20 * draw_unit(s)), 0};
    row.sum = row.max == -(T)INFINITY ? 0 : (T)(1 + fabs(draw_unit(s)));
    const running_t before = row;
    double top = (double)row.max;
    start_kernel();
    take_logits(&row, line, count, out, width);
    allow_line(line, count);
    allow_line(out, width);
    for (int64_t n = 0; n < count; n++)
        top = RP_MAX(top, (double)((const T *)before_kernel(line))[n]);
    expect((double)row.max, top, 0, 0, 0);
    const double factor =
        top == (double)before.max ? 1 : exp2((double)before.max - top);
    sum_t sum = {0};
    add_term(&sum, factor * (double)before.sum);
    for (int64_t n = 0; n < count; n++) {
        const double x = (double)((const T *)before_kernel(line))[n];
        const double power = x == -INFINITY ? -INFINITY : x - top;
        expect((double)line[n], exp2(power), x == -INFINITY ? 0 : power_error(power), 0,
               n);
        add_term(&sum, (double)line[n]);
    }
    sum.terms += 50; /* the factor is a power of a difference below 40 */
    expect_powers(row.sum, sum, 0);
    for (int64_t k = 0; k < width; k++) {
        const double x = (double)((const T *)before_kernel(out))[k];
        expect((double)out[k], x * factor,
               factor == 1 ? 0 : fabs(x) * 50 * ROUNDING * factor + LEAST, 0, k);
    }
}

static void
check_sum_rows(source_t *s)
{
    const T *rows = take_line(s, VL * VL);
    start_kernel();
    const V sums = sum_rows(rows);
    for (int i = 0; i < VL; i++) {
        sum_t sum = {0};
        for (int j = 0; j < VL; j++)
            add_term(&sum, (double)rows[i * VL + j]);
        expect_sum(sums[i], sum, 0, i);
    }
}

/* The maxima of rows and those of their tile, in whole vectors of rows. */
static void
check_raise_maxima(source_t *s)
{
    const int rows = (int)between(s, 0, BQ), whole = RP_ROUND_UP(rows, VL);
    T *max = take_logits_line(s, whole), *sum = take_line(s, whole);
    T *base = blank_line(s, whole), *factor = blank_line(s, whole);
    const T *lane_max = take_logits_line(s, whole * VL);
    start_kernel();
    raise_maxima(max, sum, lane_max, rows, base, factor);
    allow_line(max, whole);
    allow_line(sum, whole);
    allow_line(base, whole);
    allow_line(factor, whole);
    for (int m = 0; m < rows; m++) {
        const double old = (double)((const T *)before_kernel(max))[m];
        double top = old;
        for (int i = 0; i < VL; i++)
            top = RP_MAX(top, (double)lane_max[m * VL + i]);
        const double from = top == -INFINITY ? 0 : top, power = exp2(old - from);
        const double error =
            old == from || old == -INFINITY ? 0 : power_error(old - from);
        const double x = (double)((const T *)before_kernel(sum))[m];
        expect((double)max[m], top, 0, 0, m);
        expect((double)base[m], from, 0, 0, m);
        expect((double)factor[m], power, error, 0, m);
        expect((double)sum[m], x * power, fabs(x) * (error + ROUNDING * power) + LEAST,
               0, m);
    }
}

/* A sink as what a softmax starts from: cut where units of log 2 end. */
static void
check_start_softmax(source_t *s)
{
    static const double special[] = {INFINITY, -INFINITY, 1e38, -1e308};
    const matrix_t sink = take_matrix(s, 1, 1, RP_OWN, PLAIN);
    const rp_array sinks = array_of(&sink), none = {0};
    const double most = (double)RP_LARGEST;
    if (once_in(s, 2))
        *(T *)sink.at = (T)special[pick(s, 4)];
    start_kernel();
    const double x = number(&sink, 0, 0);
    const double want = fabs(x) == INFINITY         ? x
                        : fabs(x) > most / RP_LOG2E ? copysign(most, x)
                                                    : x * RP_LOG2E;
    const running_t row = start_softmax(&sinks, 0, 0, 0),
                    empty = start_softmax(&none, 0, 0, 0);
    expect((double)row.max, want, 2 * ROUNDING * fabs(want) + LEAST, 0, 0);
    if (x != INFINITY)
        expect((double)row.sum, x == -INFINITY ? 0 : 1, 0, 0, 1);
    expect((double)empty.max, -INFINITY, 0, 1, 0);
    expect((double)empty.sum, 0, 0, 1, 1);
}

/* 2^(sink - max) norm */
static void
check_sink_share(source_t *s)
{
    const T sink = draw_exponent(s), max = (T)fabs(draw_unit(s));
    const double norm = fabs(draw_unit(s)), x = (double)(sink - max);
    start_kernel();
    const double share = sink_share(sink, max, norm), want = exp2(x) * norm;
    const double least = RP_IS_F32 ? 0x1p-100 : 0x1p-980; /* less may be 0 */
    expect(share, want, x == -INFINITY ? 0 : power_error(x) * norm + least, 0, 0);
}

/* ---- the cap ------------------------------------------------------------------------------ */

/* c tanh(x / c) of a row, its slopes, and its largest by lane of whole vectors. The functions
 * are right to 16 roundings of their own size, or of 1. */
static void
check_cap_row(source_t *s)
{
    const int64_t count = extent(s, 6 * VL);
    const double cap = once_in(s, 2) ? 1 : 30 * (1 + draw_unit(s)) + 0.5;
    const double spread = once_in(s, 2) ? cap / 2 : 20 * cap;
    const matrix_t row = take_matrix(s, 1, count, RP_OWN, PLAIN);
    const int has_slopes = once_in(s, 2);
    T *x = (T *)row.at, *slopes = blank_line(s, count);
    double top = -INFINITY;
    for (int64_t n = 0; n < count; n++)
        x[n] = (T)(spread * draw_unit(s));
    spoil(s, &row);
    start_kernel();
    const V largest_lanes =
        cap_row(softcap_of(cap), x, count, has_slopes ? slopes : NULL);
    allow_line(x, count);
    if (has_slopes)
        allow_line(slopes, count);
    const double own_cap = (double)(T)cap;
    for (int64_t n = 0; n < count; n++) {
        const double y = (double)((const T *)before_kernel(x))[n] / own_cap;
        const double want = tanh(y), slope = 1 / (cosh(y) * cosh(y));
        expect((double)x[n], own_cap * want, 16 * ROUNDING * own_cap * fabs(want), 0,
               n);
        if (has_slopes)
            expect((double)slopes[n], slope, 16 * ROUNDING, 1, n);
        if (n < count / VL * VL && x[n] == x[n])
            top = RP_MAX(top, (double)x[n]);
    }
    for (int i = 0; i < VL; i++)
        if ((double)largest_lanes[i] > top)
            report("lane %d of the largest is %g, more than %g", i,
                   (double)largest_lanes[i], top);
    if (!trial.is_wrong && count >= VL)
        expect((double)max_lanes(largest_lanes)[0], top, 0, 2, 0);
}

/* d *= slope in whole vectors; what is 0 stays 0, whatever the slope is. */
static void
check_pass_cap(source_t *s)
{
    const int64_t count = VL * between(s, 0, 5);
    const matrix_t slopes = take_matrix(s, 1, count, RP_OWN, PLAIN);
    T *d = take_line(s, count);
    for (int64_t n = 0; n < count; n++)
        d[n] = once_in(s, 4) ? 0 : d[n];
    spoil(s, &slopes);
    start_kernel();
    pass_cap(d, (const T *)slopes.at, count);
    allow_line(d, count);
    for (int64_t n = 0; n < count; n++) {
        const T before = ((const T *)before_kernel(d))[n];
        expect_scaled(d[n], before == 0 ? 0 : (double)before, 0,
                      before == 0 ? 0 : (T)number(&slopes, 0, n), 0, n);
    }
}

#endif
