/* pairs.h: rows of pairs: hidden ones, weights and gradients, masks and their classes. */
#ifndef RELPOS_TESTS_CORE_MICRO_PAIRS_H
#define RELPOS_TESTS_CORE_MICRO_PAIRS_H

#include "vectors.h"

/* ---- logits, weights, gradients ----------------------------------------------------------- */

static void
check_hide(source_t *s)
{
    const int64_t count = extent(s, 5 * VL), end = between(s, 0, count);
    const int64_t first = between(s, 0, end + 2); /* which may lie behind the end */
    T *row = take_line(s, count);
    start_kernel();
    hide(row, first, end);
    if (first < end)
        allow_line(row + first, end - first);
    for (int64_t n = first; n < end; n++)
        expect((double)row[n], -INFINITY, 0, 0, n);
}

/* The largest of whole vectors from an address on, by lane. */
static void
check_largest(source_t *s)
{
    const int64_t first = between(s, 0, VL), end = first + VL * between(s, 0, 6);
    const T *row = take_logits_line(s, end), *start = take_line(s, VL);
    start_kernel();
    const V top = largest(row, first, end, load(start));
    for (int i = 0; i < VL; i++) {
        double want = (double)start[i];
        for (int64_t n = first + i; n < end; n += VL)
            want = RP_MAX(want, (double)row[n]);
        expect((double)top[i], want, 0, 0, i);
    }
}

/* Logits become weights, 2^(s - max) / sum; hidden ones 0. */
static void
check_write_weights(source_t *s)
{
    const int64_t count = extent(s, 5 * VL);
    const matrix_t row = take_matrix(s, 1, count, RP_OWN, STRIDED);
    const rp_array weights = array_of(&row);
    const T *logits = take_logits_line(s, count);
    running_t running = {-(T)INFINITY, (T)(1 + fabs(draw_unit(s)))};
    for (int64_t n = 0; n < count; n++) {
        *(T *)cell(&row, 0, n) = logits[n];
        running.max = RP_MAX(running.max, logits[n]);
    }
    start_kernel();
    write_weights(&weights, 0, 0, 0, count, running);
    allow_matrix(&row);
    for (int64_t n = 0; n < count; n++) {
        const double x = (double)(logits[n] - running.max), sum = (double)running.sum;
        if (logits[n] == -(T)INFINITY)
            expect(number(&row, 0, n), 0, 0, 0, n);
        else
            expect(number(&row, 0, n), exp2(x) / sum, 2 * power_error(x) / sum, 0, n);
    }
}

/* p = 2^(s - max) norm, dS = p (dP - delta), and the sums of both by lane. */
static void
check_grad_row(source_t *s)
{
    const int columns = VL * (int)between(s, 0, 6), is_nan = once_in(s, 8);
    T *logits = take_logits_line(s, columns), *d = take_line(s, columns);
    const T max = (T)(20 + fabs(draw_unit(s))), delta = draw_factor(s);
    const T norm = is_nan ? (T)NAN : (T)fabs(draw_unit(s));
    const int hidden = is_nan || once_in(s, 2);
    sum_t ds[VL] = {{0}}, shares[VL] = {{0}};
    V sums[2];
    for (int n = 0; n < columns; n++)
        if (logits[n] == -(T)INFINITY && hidden)
            d[n] = once_in(s, 2) ? (T)NAN : d[n];
        else if (logits[n] == -(T)INFINITY)
            logits[n] = 1;
    start_kernel();
    grad_row(logits, d, columns, max, norm, delta, hidden, sums);
    allow_line(logits, columns);
    allow_line(d, columns);
    for (int n = 0; n < columns; n++) {
        const double x = (double)(((const T *)before_kernel(logits))[n] - max);
        const double dp = (double)((const T *)before_kernel(d))[n];
        const double p = x == -INFINITY ? 0 : exp2(x) * (double)norm;
        const double error = x == -INFINITY ? 0 : 2 * power_error(x) * (double)norm;
        const double difference = dp - (double)delta;
        const double size = fabs(dp) + fabs((double)delta);
        expect((double)logits[n], p, error, 0, n);
        expect((double)d[n], p == 0 ? 0 : p * difference,
               error * fabs(difference) + 4 * ROUNDING * p * size + LEAST, 1, n);
        add_term(&ds[n % VL], (double)d[n]);
        add_term(&shares[n % VL], (double)logits[n]);
    }
    for (int i = 0; i < VL; i++) {
        expect_powers(sums[0][i], ds[i], i);
        expect_powers(sums[1][i], shares[i], i);
    }
}

static void
check_scale_by_dropout(source_t *s)
{
    const int count = (int)extent(s, 5 * VL);
    const matrix_t keep = blank_matrix(s, 1, count, BYTES, PLAIN);
    const T factor = draw_factor(s);
    T *row = take_line(s, count);
    for (int n = 0; n < count; n++)
        *cell(&keep, 0, n) = (char)pick(s, 2);
    start_kernel();
    scale_by_dropout(row, (const unsigned char *)keep.at, count, factor);
    allow_line(row, count);
    for (int n = 0; n < count; n++) {
        const double x = (double)((const T *)before_kernel(row))[n];
        expect_scaled(row[n], *cell(&keep, 0, n) ? x : 0, 0, factor, 0, n);
    }
}

/* Philox4x32-10: ten rounds of two products, whose halves and keys are mixed. */
static void
check_rp_philox(source_t *s)
{
    uint32_t counter[4], words[4], want[4],
        key[2] = {(uint32_t)draw(s), (uint32_t)draw(s)};
    for (int n = 0; n < 4; n++)
        want[n] = counter[n] = (uint32_t)draw(s);
    start_kernel();
    rp_philox((uint64_t)key[1] << 32 | key[0], counter, words);
    for (int round = 0; round < 10; round++) {
        const uint64_t even = UINT64_C(0xD2511F53) * want[0];
        const uint64_t odd = UINT64_C(0xCD9E8D57) * want[2];
        const uint32_t mixed[] = {
            (uint32_t)(odd >> 32) ^ want[1] ^ key[0], (uint32_t)odd,
            (uint32_t)(even >> 32) ^ want[3] ^ key[1], (uint32_t)even};
        memcpy(want, mixed, sizeof want);
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
    for (int n = 0; n < 4; n++)
        expect(words[n], want[n], 0, 0, n);
}

/* ---- masks ---------------------------------------------------------------------------------- */

static int
mask_kind(int type)
{
    return type == RP_MASK_BOOL ? BYTES : type == RP_MASK_F32 ? FLOATS : DOUBLES;
}

/* Numbers of a mask: some 0, some -inf, some others; of truth values any bits. */
static void
fill_mask(source_t *s, const matrix_t *m)
{
    static const double special[] = {0, -INFINITY, INFINITY, NAN, 1e39, -1e308};
    const int64_t rarest = between(s, 1, 6), choices = between(s, 1, 6);
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t n = 0; n < m->columns; n++)
            if (m->kind == BYTES)
                *cell(m, i, n) =
                    (char)(once_in(s, 3) ? draw(s) : (uint64_t)choices % 2);
            else if (once_in(s, rarest))
                put_number(cell(m, i, n), m->kind, special[pick(s, choices)]);
}

/* What a row of a mask, in units of log 2, makes of logits. */
static void
expect_mask(const matrix_t *mask, int biased, const T *row)
{
    const double most = (double)RP_LARGEST_TERM;
    for (int64_t n = 0; n < mask->columns; n++) {
        const double before = (double)((const T *)before_kernel(row))[n];
        double x = number(mask, 0, n);
        if (mask->kind == BYTES) {
            expect((double)row[n], x != 0 ? before : -INFINITY, 0, 0, n);
            continue;
        }
        if (fabs(x) < INFINITY)
            x = RP_MIN(most, RP_MAX(-most, x * RP_LOG2E));
        const int hides = x == -INFINITY || (biased && before == -INFINITY);
        const double size =
            isfinite(x) && isfinite(before) ? fabs(x) + fabs(before) : 0;
        expect((double)row[n], hides ? -INFINITY : before + x,
               4 * ROUNDING * size + LEAST, 0, n);
    }
}

static void
check_add_mask_run(source_t *s)
{
    const int types[] = {RP_MASK_BOOL, RP_MASK_F32, RP_MASK_F64};
    const int type = types[pick(s, 3)], biased = once_in(s, 2);
    const matrix_t mask =
        take_matrix(s, 1, extent(s, 5 * VL), mask_kind(type), REPEATED);
    T *row = take_logits_line(s, mask.columns);
    fill_mask(s, &mask);
    start_kernel();
    add_mask_run(type, mask.at, mask.col, mask.columns, biased, row);
    allow_line(row, mask.columns);
    expect_mask(&mask, biased, row);
}

/* Many numbers at a time have the bits of one after the other, but where x * log2e has fewer
 * bits than a float: beside logits of usual sizes those are 0. */
static void
check_add_numbers(source_t *s)
{
    const int type = once_in(s, 3) ? RP_MASK_F64 : RP_MASK_F32, biased = once_in(s, 2);
    const matrix_t mask = take_matrix(s, 1, extent(s, 5 * VL), mask_kind(type),
                                      once_in(s, 2) ? PLAIN : REPEATED);
    T *row = take_logits_line(s, mask.columns);
    fill_mask(s, &mask);
    start_kernel();
    add_numbers(type, mask.at, mask.col, mask.columns, biased, row);
    allow_line(row, mask.columns);
    expect_mask(&mask, biased, row);
    for (int64_t n = 0; n < mask.columns; n++) {
        const double x = number(&mask, 0, n);
        const T before = ((const T *)before_kernel(row))[n], term = log2_units(x);
        if (fabs(x) < 0x1p-100)
            continue;
        expect((double)row[n],
               (double)(biased ? add_unless_hidden(before, term)
                               : add_or_hide(before, term)),
               0, 0, n);
    }
}

/* A kind of 16 bits where there are any. */
static int
draw_short_kind(source_t *s)
{
    return RP_IS_F32 ? RP_F16 + (int)pick(s, 2) : RP_OWN;
}

static void
check_add_wide_mask(source_t *s)
{
    const int biased = once_in(s, 2);
    const matrix_t mask =
        take_matrix(s, 1, extent(s, 150), draw_short_kind(s), REPEATED);
    const rp_array array = array_of(&mask);
    T *row = take_logits_line(s, mask.columns);
    fill_mask(s, &mask);
    start_kernel();
    if (!RP_IS_F32) /* where there are no numbers of 16 bits */
        return;
    add_wide_mask(&array, mask.at, mask.columns, biased, row);
    allow_line(row, mask.columns);
    expect_mask(&mask, biased, row);
}

/* What the numbers [first, end) of some rows of a mask do. */
static int
class_of(const matrix_t *mask, int64_t rows, int64_t first, int64_t end)
{
    int shows = 0, hides = 0, adds = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t n = first; n < end; n++) {
            const double x = number(mask, i, n);
            const int is_truth = mask->kind == BYTES;
            shows |= is_truth ? x != 0 : x == 0;
            hides |= is_truth ? x == 0 : x == -INFINITY;
            adds |= !is_truth && x != 0 && x != -INFINITY;
        }
    return adds ? RP_SHOWS | RP_HIDES : shows * RP_SHOWS | hides * RP_HIDES;
}

static void
check_class_of_run(source_t *s)
{
    const int types[] = {RP_MASK_BOOL, RP_MASK_F32, RP_MASK_F64};
    const int type = types[pick(s, 3)];
    const matrix_t mask = take_matrix(s, 1, extent(s, 40), mask_kind(type), REPEATED);
    fill_mask(s, &mask);
    start_kernel();
    expect_flag(class_of_run(type, mask.at, mask.col, mask.columns),
                class_of(&mask, 1, 0, mask.columns));
}

/* Classes of blocks of keys, which may have some already. */
static unsigned char *
take_classes(source_t *s, int64_t blocks)
{
    const matrix_t classes = blank_matrix(s, 1, blocks, BYTES, PLAIN);
    for (int64_t n = 0; n < blocks; n++)
        *cell(&classes, 0, n) = (char)pick(s, 4);
    return (unsigned char *)classes.at;
}

static void
expect_classes(const matrix_t *mask, const unsigned char *classes, int64_t blocks,
               int adds)
{
    allow(classes, (size_t)blocks);
    for (int64_t n = 0; n < blocks; n++) {
        const int before =
            adds ? ((const unsigned char *)before_kernel(classes))[n] : 0;
        const int64_t first = n * RP_CLASS_KEYS;
        expect_flag(classes[n],
                    before | class_of(mask, mask->rows, first,
                                      RP_MIN(first + RP_CLASS_KEYS, mask->columns)));
    }
}

static void
check_class_row(source_t *s)
{
    const int types[] = {RP_MASK_BOOL, RP_MASK_F32, RP_MASK_F64};
    const int type = types[pick(s, 3)];
    const int64_t blocks = between(s, 0, 5);
    const matrix_t mask =
        take_matrix(s, 1, blocks * RP_CLASS_KEYS, mask_kind(type), REPEATED);
    unsigned char *classes = take_classes(s, blocks);
    fill_mask(s, &mask);
    start_kernel();
    class_row(type, mask.at, mask.col, blocks, classes);
    expect_classes(&mask, classes, blocks, 1);
}

static void
check_class_truths(source_t *s)
{
    const int64_t blocks = once_in(s, 8) ? between(s, 60, 130) : between(s, 0, 5);
    const matrix_t mask =
        take_matrix(s, between(s, 0, 5), blocks * RP_CLASS_KEYS, BYTES, PLAIN);
    unsigned char *classes = take_classes(s, blocks);
    fill_mask(s, &mask);
    start_kernel();
    class_truths(mask.at, mask.row, mask.rows, blocks, classes);
    expect_classes(&mask, classes, blocks, 0);
}

static void
check_class_wide_row(source_t *s)
{
    const int64_t count = extent(s, 5 * RP_CLASS_KEYS);
    const int64_t blocks = (count + RP_CLASS_KEYS - 1) / RP_CLASS_KEYS;
    const matrix_t mask = take_matrix(s, 1, count, draw_short_kind(s), REPEATED);
    const rp_array array = array_of(&mask);
    unsigned char *classes = take_classes(s, blocks);
    fill_mask(s, &mask);
    start_kernel();
    if (!RP_IS_F32) /* likewise */
        return;
    class_wide_row(&array, mask.at, count, classes);
    expect_classes(&mask, classes, blocks, 1);
}

/* Which numbers a mask has; one of the others is enough to know. */
static void
check_mask_numbers(source_t *s)
{
    static const double special[] = {0, 1, -0.0, 1, 0.5, NAN, -1};
    const int64_t count = 1 + (once_in(s, 4) ? extent(s, 200 * VL) : extent(s, 40));
    const matrix_t row = take_matrix(s, 1, count, RP_OWN, REPEATED);
    const int64_t first = pick(s, 4);
    int want = 0;
    for (int64_t n = 0; n < count; n++)
        put_number(cell(&row, 0, n), RP_OWN, special[first]);
    for (int64_t n = pick(s, 3), choices = between(s, 2, 7); n > 0; n--)
        put_number(cell(&row, 0, pick(s, count)), RP_OWN, special[pick(s, choices)]);
    for (int64_t n = 0; n < count; n++) {
        const double x = number(&row, 0, n);
        want |= x == 0 ? RP_ZEROS : x == 1 ? RP_ONES : RP_OTHERS;
    }
    start_kernel();
    const int got = mask_numbers(row.at, row.col, count);
    if (want & RP_OTHERS)
        expect_flag(got & RP_OTHERS, RP_OTHERS);
    else
        expect_flag(got, want);
}

#endif
