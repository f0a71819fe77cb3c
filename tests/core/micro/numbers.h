/* numbers.h: the numbers of operands, in plain C: any strides, any way of storing them, and
 * what results may differ by. */
#ifndef RELPOS_TESTS_CORE_MICRO_NUMBERS_H
#define RELPOS_TESTS_CORE_MICRO_NUMBERS_H

#include "area.h"

/* How numbers are stored, behind the kinds of relpos.h. */
enum { DOUBLES = RP_BF16 + 1, FLOATS, BYTES };

/* Half the distance from 1 to the next T, and the least number above 0. */
#define ROUNDING (RP_IS_F32 ? 0x1p-24 : 0x1p-53)
#define LEAST (RP_IS_F32 ? 0x1p-149 : 0x1p-1074)

/* ---- one number ------------------------------------------------------------------- */

static size_t
item_of(int kind)
{
    static const size_t sizes[] = {sizeof(T), 2, 2, sizeof(double), sizeof(float), 1};
    return sizes[kind];
}

static double
half_number(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size =
        exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31)
        size = fraction ? NAN : INFINITY;
    return bits >> 15 ? -size : size;
}

static double
bfloat_number(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &word, sizeof x);
    return (double)x;
}

/* The bits of the number of 16 bits next to x, of even ones where two are: `digits` binary
 * digits, the least number 2^least. */
static uint16_t
round_bits(double x, int digits, int least)
{
    const int infinite = (1 << 15) - (1 << (digits - 1));
    int bits = infinite, exponent;
    if (x != x)
        return (uint16_t)(infinite + 1);
    if (x == 0)
        bits = 0;
    else if (fabs(x) < INFINITY) {
        frexp(x, &exponent);
        const int unit = RP_MAX(exponent - digits, least);
        const double count = nearbyint(ldexp(fabs(x), -unit));
        bits =
            (unit - least + 1) * (1 << (digits - 1)) + (int)count - (1 << (digits - 1));
    }
    bits = RP_MIN(bits, infinite);
    return (uint16_t)(bits | (signbit(x) ? 1 << 15 : 0));
}

static double
number_of(const void *at, int kind)
{
    uint16_t bits;
    memcpy(&bits, at, kind == BYTES ? 1 : sizeof bits);
    return kind == RP_OWN    ? (double)*(const T *)at
           : kind == DOUBLES ? *(const double *)at
           : kind == FLOATS  ? (double)*(const float *)at
           : kind == BYTES   ? *(const unsigned char *)at
           : kind == RP_F16  ? half_number(bits)
                             : bfloat_number(bits);
}

static void
put_number(void *at, int kind, double x)
{
    uint16_t bits = kind == RP_F16 ? round_bits(x, 11, -24) : round_bits(x, 8, -133);
    if (kind == RP_OWN)
        *(T *)at = (T)x;
    else if (kind == DOUBLES)
        *(double *)at = x;
    else if (kind == FLOATS)
        *(float *)at = (float)x;
    else if (kind == BYTES)
        *(unsigned char *)at = (unsigned char)x;
    else
        memcpy(at, &bits, sizeof bits);
}

/* A number of a trial: a small integer; or of order 1, and of some trials also a denormal. */
static double
draw_number(source_t *s, int kind)
{
    const int is_short = kind == RP_F16 || kind == RP_BF16;
    const int least = kind == RP_F16       ? -20
                      : is_short           ? -130
                      : item_of(kind) == 4 ? -140
                                           : -1060;
    if (trial.is_exact)
        return (double)between(s, -8, 8);
    if (trial.seed % 4 == 3 && once_in(s, 3))
        return ldexp(draw_unit(s), least);
    return is_short ? (double)between(s, -128, 128) / 32 : draw_unit(s);
}

/* A factor that keeps exact what is. */
static T
draw_factor(source_t *s)
{
    static const T exact[] = {1, 2, (T)-0.5, 3};
    return trial.is_exact ? exact[pick(s, 4)] : (T)draw_unit(s);
}

/* How numbers of a call may be stored. */
static int
draw_kind(source_t *s)
{
    return RP_IS_F32 ? (int)pick(s, 3) : RP_OWN;
}

/* A number of numbers up to `most`: often 0, 1, or near a multiple of what a vector has. */
static int64_t
extent(source_t *s, int64_t most)
{
    const int64_t near = VL * between(s, 0, most / VL) + between(s, -1, 1);
    return once_in(s, 2) ? between(s, 0, most) : RP_MIN(most, RP_MAX(near, 0));
}

/* ---- rows and columns of them ------------------------------------------------------ */

/* Strides are in bytes. */
typedef struct {
    char *at;
    ptrdiff_t row, col;
    int64_t rows, columns;
    int kind;
} matrix_t;

/* What strides may be: columns side by side, rows forwards; nothing of both; any, and 0. */
enum { PLAIN, STRIDED, REPEATED };

static char *
cell(const matrix_t *m, int64_t row, int64_t column)
{
    return m->at + row * m->row + column * m->col;
}

static double
number(const matrix_t *m, int64_t row, int64_t column)
{
    return number_of(cell(m, row, column), m->kind);
}

/* A matrix whose numbers nobody has filled. */
static matrix_t
blank_matrix(source_t *s, int64_t rows, int64_t columns, int kind, int strides)
{
    static const ptrdiff_t steps[] = {1, 1, 2, 3, -1, -2, 0};
    const ptrdiff_t item = (ptrdiff_t)item_of(kind);
    const int choices = strides == PLAIN ? 1 : strides == STRIDED ? 6 : 7;
    matrix_t m = {.rows = rows, .columns = columns, .kind = kind};
    m.col = item * steps[pick(s, choices)];
    m.row = item * (columns * RP_MAX(1, RP_MAX(m.col, -m.col) / item) + pick(s, 5));
    if (strides != PLAIN && once_in(s, 4)) { /* columns lie apart, rows side by side */
        m.row = item * steps[pick(s, choices)];
        m.col = item * (rows * RP_MAX(1, RP_MAX(m.row, -m.row) / item) + pick(s, 5));
    } else if (strides != PLAIN && once_in(s, 4))
        m.row = -m.row;
    else if (strides == REPEATED && once_in(s, 6))
        m.row = 0;
    const ptrdiff_t down = (rows - 1) * m.row, along = (columns - 1) * m.col;
    const ptrdiff_t size = RP_MAX(down, -down) + RP_MAX(along, -along) + item;
    const int is_empty = rows == 0 || columns == 0;
    m.at = take_area(s, is_empty ? 0 : (size_t)size, (size_t)item);
    if (!is_empty)
        m.at += RP_MAX(0, -down) + RP_MAX(0, -along);
    return m;
}

static matrix_t
take_matrix(source_t *s, int64_t rows, int64_t columns, int kind, int strides)
{
    matrix_t m = blank_matrix(s, rows, columns, kind, strides);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            put_number(cell(&m, i, j), kind, draw_number(s, kind));
    return m;
}

/* Rows of T that lie side by side, `columns` numbers of each filled. */
static matrix_t
take_dense(source_t *s, int64_t rows, int64_t columns)
{
    matrix_t m = take_matrix(s, 1, rows * columns, RP_OWN, PLAIN);
    m.rows = rows;
    m.columns = columns;
    m.row = columns * (ptrdiff_t)sizeof(T);
    return m;
}

/* `count` numbers T side by side: filled, or not. */
static T *
take_line(source_t *s, int64_t count)
{
    return (T *)take_matrix(s, 1, count, RP_OWN, PLAIN).at;
}

static T *
blank_line(source_t *s, int64_t count)
{
    return (T *)blank_matrix(s, 1, count, RP_OWN, PLAIN).at;
}

/* From a row of T to the next, in numbers. */
static ptrdiff_t
step_of(const matrix_t *m)
{
    return m->row / (ptrdiff_t)sizeof(T);
}

/* A matrix as the kernels see it: batch item 0 and head 0 of an array. */
static rp_array
array_of(const matrix_t *m)
{
    return (rp_array){.data = m->at, .row = m->row, .col = m->col, .kind = m->kind};
}

/* Makes some numbers NaN or infinite. */
static void
spoil(source_t *s, const matrix_t *m)
{
    static const double others[] = {NAN, INFINITY, -INFINITY};
    for (int64_t n = pick(s, 4); n > 0 && m->rows * m->columns > 0; n--)
        put_number(cell(m, pick(s, m->rows), pick(s, m->columns)), m->kind,
                   others[pick(s, 3)]);
}

static void
allow_matrix(const matrix_t *m)
{
    for (int64_t i = 0; i < m->rows; i++)
        for (int64_t j = 0; j < m->columns; j++)
            allow(cell(m, i, j), item_of(m->kind));
}

static void
allow_line(const T *line, int64_t count)
{
    allow(line, (size_t)count * sizeof(T));
}

/* ---- what a result may be ---------------------------------------------------------- */

/* A sum of terms, and the sum of their sizes. */
typedef struct {
    double value, size;
    int64_t terms;
} sum_t;

static void
add_term(sum_t *sum, double term)
{
    sum->value += term;
    sum->size += fabs(term);
    sum->terms++;
}

static void
expect(double got, double want, double off, int64_t row, int64_t column)
{
    if (got == want || (got != got && want != want) || fabs(got - want) <= off)
        return;
    report("(%" PRId64 ", %" PRId64 ") is %.17g, expected %.17g within %.3g", row,
           column, got, want, off);
}

/* A sum of n terms, added up in any order, is off by n roundings of their sizes at most, and
 * so is the sum in double if T is double. Products below the normal range are rounded to
 * multiples of the least number. */
static void
expect_sum(T got, sum_t want, int64_t row, int64_t column)
{
    const double terms = (double)want.terms + 4;
    const double off = 2 * terms * (ROUNDING * want.size + LEAST);
    expect((double)got, want.value, trial.is_exact ? 0 : off, row, column);
}

#endif
