/* rows.h: rows of numbers: conversions, copies, sums and dot products; and products of a few
 * rows with many lines that are read where they lie. */
#ifndef RELPOS_TESTS_CORE_MICRO_ROWS_H
#define RELPOS_TESTS_CORE_MICRO_ROWS_H

#include "pack.h"

/* ---- conversions -------------------------------------------------------------------- */

/* A row of a kind, any bits of 16 among them. */
static matrix_t
take_row(source_t *s, int64_t count, int kind)
{
    const matrix_t row = take_matrix(s, 1, count, kind, REPEATED);
    spoil(s, &row);
    for (int64_t k = 0; kind != RP_OWN && once_in(s, 2) && k < count; k++) {
        const uint16_t bits = (uint16_t)draw(s);
        memcpy(cell(&row, 0, k), &bits, sizeof bits);
    }
    return row;
}

static void
check_widen(source_t *s)
{
    const int64_t count = extent(s, 5 * VL);
    const matrix_t row = take_row(s, count, draw_kind(s));
    T *to = blank_line(s, count);
    start_kernel();
    widen(to, row.at, row.col, row.kind, count);
    allow_line(to, count);
    for (int64_t k = 0; k < count; k++)
        expect((double)to[k], number(&row, 0, k), 0, 0, k);
}

/* Numbers whose rounding is in doubt: halfway between two, about the ends of a kind. */
static T
hard_number(source_t *s, int kind)
{
    static const double ends[] = {65504, 65519, 65520, 0x1p-14, 0x1p-25, 0x1.8p-24};
    const uint16_t bits = (uint16_t)(draw(s) & 0x7bff);
    double x = kind == RP_F16 ? half_number(bits) : bfloat_number(bits);
    const double next = kind == RP_F16 ? half_number((uint16_t)(bits + 1))
                                       : bfloat_number((uint16_t)(bits + 1));
    if (once_in(s, 2) && fabs(next) < INFINITY)
        x = (x + next) / 2;
    else if (once_in(s, 4))
        x = ends[pick(s, 6)];
    return (T)(once_in(s, 2) ? x : -x);
}

static void
check_narrow(source_t *s)
{
    const int64_t count = extent(s, 5 * VL);
    const int kind = draw_kind(s);
    const matrix_t to = blank_matrix(s, 1, count, kind, STRIDED);
    const matrix_t from = take_matrix(s, 1, count, RP_OWN, PLAIN);
    for (int64_t k = 0; kind != RP_OWN && k < count; k++)
        if (once_in(s, 2))
            *(T *)cell(&from, 0, k) = hard_number(s, kind);
    spoil(s, &from);
    start_kernel();
    narrow(to.at, to.col, kind, (const T *)from.at, count);
    allow_matrix(&to);
    for (int64_t k = 0; k < count; k++) {
        uint64_t want = 0;
        put_number(&want, kind, number(&from, 0, k));
        expect(number(&to, 0, k), number_of(&want, kind), 0, 0, k);
    }
}

static void
check_number_at(source_t *s)
{
    const matrix_t row = take_row(s, 1, draw_kind(s));
    start_kernel();
    expect((double)number_at(row.at, row.kind), number(&row, 0, 0), 0, 0, 0);
}

/* ---- copies ------------------------------------------------------------------------- */

static void
check_copy_run(source_t *s)
{
    const int64_t count = extent(s, 5 * VL);
    const matrix_t from = take_row(s, count, RP_OWN);
    const matrix_t to = blank_matrix(s, 1, count, RP_OWN, STRIDED);
    start_kernel();
    copy_run(to.at, to.col, from.at, from.col, count);
    allow_matrix(&to);
    for (int64_t k = 0; k < count; k++)
        expect(number(&to, 0, k), number(&from, 0, k), 0, 0, k);
}

/* Numbers of 16 bits keep their bits. */
static void
check_copy_numbers(source_t *s)
{
    const int64_t count = extent(s, 5 * VL);
    const matrix_t from = take_row(s, count, draw_kind(s));
    const matrix_t to = blank_matrix(s, 1, count, from.kind, STRIDED);
    const rp_array x = array_of(&from), out = array_of(&to);
    start_kernel();
    copy_numbers(&out, to.at, &x, from.at, count);
    allow_matrix(&to);
    for (int64_t k = 0; k < count; k++)
        if (memcmp(cell(&to, 0, k), cell(&from, 0, k), item_of(from.kind)))
            report("number %" PRId64 " has other bits", k);
}

static void
check_zero_run(source_t *s)
{
    const matrix_t to =
        blank_matrix(s, 1, extent(s, 5 * VL), (int)pick(s, BYTES + 1), STRIDED);
    start_kernel();
    zero_run(to.at, to.col, (ptrdiff_t)item_of(to.kind), to.columns);
    allow_matrix(&to);
    for (int64_t k = 0; k < to.columns; k++)
        expect(number(&to, 0, k), 0, 0, 0, k);
}

/* A row, or none, and zeros behind it. */
static void
check_pack_row(source_t *s)
{
    const int64_t count = extent(s, 5 * VL), padded = count + between(s, 0, VL);
    const matrix_t row = take_row(s, count, draw_kind(s));
    const rp_array a = array_of(&row);
    const int is_there = !once_in(s, 4);
    T *packed = blank_line(s, padded);
    start_kernel();
    pack_row(packed, &a, is_there ? row.at : NULL, count, padded);
    allow_line(packed, padded);
    for (int64_t k = 0; k < padded; k++)
        expect((double)packed[k], is_there && k < count ? number(&row, 0, k) : 0, 0, 0,
               k);
}

static void
check_unpack_row(source_t *s)
{
    const int64_t count = extent(s, 5 * VL);
    const matrix_t row = blank_matrix(s, 1, count, draw_kind(s), STRIDED);
    const rp_array a = array_of(&row);
    const T *values = take_line(s, count);
    start_kernel();
    unpack_row(&a, row.at, values, count);
    allow_matrix(&row);
    for (int64_t k = 0; k < count; k++) {
        uint64_t want = 0;
        put_number(&want, row.kind, (double)values[k]);
        expect(number(&row, 0, k), number_of(&want, row.kind), 0, 0, k);
    }
}

/* The row where it lies, or a copy. */
static void
check_operand_row(source_t *s)
{
    const int64_t count = extent(s, 5 * VL);
    const matrix_t row = take_row(s, count, draw_kind(s));
    const rp_array a = array_of(&row);
    T *buffer = blank_line(s, count);
    start_kernel();
    const T *got = operand_row(&a, 0, 0, 0, count, buffer);
    if (got == buffer)
        allow_line(buffer, count);
    for (int64_t k = 0; k < count; k++)
        expect((double)got[k], number(&row, 0, k), 0, 0, k);
}

static void
check_fetch_ahead(source_t *s)
{
    const matrix_t row = take_row(s, extent(s, 5 * VL), draw_kind(s));
    const rp_array a = array_of(&row);
    start_kernel();
    fetch_ahead(&a, row.at, row.columns); /* it changes nothing */
}

/* A line, which may be scaled in place, to a row. */
static void
check_write_line(source_t *s)
{
    const int64_t count = extent(s, 5 * VL), whole = RP_ROUND_UP(count, VL);
    const matrix_t row = blank_matrix(s, 1, count, draw_kind(s), STRIDED);
    const rp_array a = array_of(&row);
    const T factor = draw_factor(s);
    T *line = take_line(s, whole);
    start_kernel();
    write_line(&a, row.at, line, count, factor);
    allow_matrix(&row);
    allow_line(line, whole);
    for (int64_t k = 0; k < count; k++) {
        uint64_t want = 0;
        put_number(&want, row.kind,
                   (double)(T)(((const T *)before_kernel(line))[k] * factor));
        expect(number(&row, 0, k), number_of(&want, row.kind), 0, 0, k);
    }
}

/* ---- sums --------------------------------------------------------------------------- */

static void
check_add_row(source_t *s)
{
    const int64_t count = extent(s, 5 * VL);
    const matrix_t row = take_matrix(s, 1, count, draw_kind(s), REPEATED);
    const rp_array a = array_of(&row);
    T *acc = take_line(s, count);
    spoil(s, &row);
    start_kernel();
    add_row(acc, &a, row.at, count);
    allow_line(acc, count);
    for (int64_t k = 0; k < count; k++) {
        sum_t sum = {0};
        add_term(&sum, (double)((const T *)before_kernel(acc))[k]);
        add_term(&sum, number(&row, 0, k));
        expect_sum(acc[k], sum, 0, k);
    }
}

/* Whole vectors. */
static void
check_scale_row(source_t *s)
{
    const int64_t count = VL * between(s, 0, 5);
    const T factor = draw_factor(s);
    T *row = take_line(s, count);
    start_kernel();
    scale_row(row, count, factor);
    allow_line(row, count);
    for (int64_t k = 0; k < count; k++)
        expect_scaled(row[k], (double)((const T *)before_kernel(row))[k], 0, factor, 0,
                      k);
}

static void
check_add_scaled(source_t *s)
{
    const int64_t count = extent(s, 5 * VL);
    const T weight = draw_factor(s), *row = take_line(s, count);
    T *acc = take_line(s, count);
    start_kernel();
    add_scaled(acc, weight, row, count);
    allow_line(acc, count);
    for (int64_t k = 0; k < count; k++) {
        sum_t sum = {0};
        add_term(&sum, (double)((const T *)before_kernel(acc))[k]);
        add_term(&sum, (double)weight * (double)row[k]);
        expect_sum(acc[k], sum, 0, k);
    }
}

/* acc += weight * max(0, row) in whole vectors, where a NaN is kept. */
static void
check_add_head(source_t *s)
{
    const int64_t count = VL * between(s, 1, 5), odd = pick(s, 2 * count);
    const T weight = draw_factor(s);
    T *row = take_line(s, count), *acc = take_line(s, count);
    if (odd < count)
        row[odd] = (T)NAN;
    start_kernel();
    add_head(acc, weight, row, count);
    allow_line(acc, count);
    for (int64_t k = 0; k < count; k++) {
        sum_t sum = {0};
        add_term(&sum, (double)((const T *)before_kernel(acc))[k]);
        add_term(&sum, row[k] < 0 ? 0 : (double)weight * (double)row[k]);
        if (k != odd)
            expect_sum(acc[k], sum, 0, k);
        else if (acc[k] == acc[k])
            report("a NaN became %g", (double)acc[k]);
    }
}

/* row (of any stride) += factor * terms */
static void
check_add_partial_row(source_t *s)
{
    const int64_t count = extent(s, 5 * VL);
    const matrix_t row = take_matrix(s, 1, count, RP_OWN, STRIDED);
    const T factor = draw_factor(s), *terms = take_line(s, count);
    start_kernel();
    add_partial_row(row.at, row.col, factor, terms, count);
    allow_matrix(&row);
    for (int64_t k = 0; k < count; k++) {
        sum_t sum = {0};
        add_term(&sum, (double)*(const T *)before_kernel(cell(&row, 0, k)));
        add_term(&sum, (double)factor * (double)terms[k]);
        expect_sum((T)number(&row, 0, k), sum, 0, k);
    }
}

/* The sum of [first, end), whose last vector can be read whole. */
static void
check_sum_run(source_t *s)
{
    const int64_t first = between(s, 0, 2 * VL), end = first + extent(s, 10 * VL);
    const T *p = take_line(s, end + VL);
    sum_t sum = {0};
    start_kernel();
    for (int64_t n = first; n < end; n++)
        add_term(&sum, (double)p[n]);
    expect_sum(sum_run(p, first, end), sum, 0, 0);
}

static void
check_dot(source_t *s)
{
    const int64_t count = extent(s, 10 * VL);
    const T *a = take_line(s, count), *b = take_line(s, count);
    sum_t sum = {0};
    start_kernel();
    for (int64_t n = 0; n < count; n++)
        add_term(&sum, (double)a[n] * (double)b[n]);
    expect_sum(dot(a, b, count), sum, 0, 0);
}

/* In double, with the same bits whatever the strides are. */
static void
check_long_dot(source_t *s)
{
    const int64_t count = extent(s, 150);
    const matrix_t a = take_matrix(s, 1, count, draw_kind(s), REPEATED);
    const matrix_t b = take_matrix(s, 1, count, RP_OWN, REPEATED);
    T *x = blank_line(s, count), *y = blank_line(s, count);
    sum_t sum = {0};
    for (int64_t k = 0; k < count; k++) {
        x[k] = (T)number(&a, 0, k);
        y[k] = (T)number(&b, 0, k);
        add_term(&sum, (double)x[k] * (double)y[k]);
    }
    start_kernel();
    const double apart = long_dot(a.at, a.col, a.kind, b.at, b.col, count);
    const double together =
        long_dot((const char *)x, sizeof(T), RP_OWN, (const char *)y, sizeof(T), count);
    expect(apart, sum.value, 4 * (double)count * 0x1p-53 * sum.size, 0, 0);
    expect(apart, together, 0, 0, 0);
}

/* row += weight * other in double; of weight 0 other may be NaN. */
static void
check_add_weighted_row(source_t *s)
{
    const int64_t width = extent(s, 5 * VL);
    const double weight = once_in(s, 3) ? 0 : (double)draw_factor(s);
    const matrix_t row = take_matrix(s, 1, width, DOUBLES, PLAIN);
    const matrix_t other = take_matrix(s, 1, width, RP_OWN, PLAIN);
    if (weight == 0)
        spoil(s, &other);
    start_kernel();
    add_weighted_row((double *)row.at, weight, (const T *)other.at, width);
    allow_matrix(&row);
    for (int64_t k = 0; k < width; k++) {
        const double before = *(const double *)before_kernel(cell(&row, 0, k));
        const double term = weight == 0 ? 0 : weight * number(&other, 0, k);
        expect(number(&row, 0, k), before + term, 0x1p-51 * (fabs(before) + fabs(term)),
               0, k);
    }
}

static void
check_write_row_sum(source_t *s)
{
    const int64_t width = extent(s, 5 * VL);
    const matrix_t row = take_matrix(s, 1, width, DOUBLES, PLAIN);
    T *sums = blank_line(s, width);
    start_kernel();
    write_row_sum((const double *)row.at, sums, width);
    allow_line(sums, width);
    for (int64_t k = 0; k < width; k++)
        expect((double)sums[k], (double)(T)number(&row, 0, k), 0, 0, k);
}

#endif
