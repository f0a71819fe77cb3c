/* pack.h: operands of any strides and kinds as products read them, and large products. */
#ifndef RELPOS_TESTS_CORE_MICRO_PACK_H
#define RELPOS_TESTS_CORE_MICRO_PACK_H

#include "numbers.h"

/* x times a factor, or two numbers and a factor: a rounding or two. */
static void
expect_scaled(T got, double x, double shift, T factor, int64_t row, int64_t column)
{
    const double want = (x + shift) * (double)factor;
    const double size = (fabs(x) + fabs(shift)) * fabs((double)factor);
    const double off = trial.is_exact ? 0 : 2 * (2 * ROUNDING * size + LEAST);
    expect((double)got, want, off, row, column);
}

/* NR rows, of which some are absent, to a panel. */
static void
check_pack_panel(source_t *s)
{
    const int kind = draw_kind(s);
    const int64_t depth = extent(s, 5 * VL);
    const matrix_t a = take_matrix(s, NR, depth, kind, REPEATED);
    const T factor = draw_factor(s);
    T *panel = blank_line(s, NR * depth);
    const char *rows[NR];
    spoil(s, &a);
    for (int i = 0; i < NR; i++)
        rows[i] = once_in(s, 4) ? NULL : cell(&a, i, 0);
    start_kernel();
    pack_panel(panel, rows, a.col, kind, depth, factor, NR * a.row);
    allow_line(panel, NR * depth);
    for (int i = 0; i < NR; i++)
        for (int64_t k = 0; k < depth; k++)
            expect_scaled(panel[k * NR + i], rows[i] ? number(&a, i, k) : 0, 0, factor,
                          i, k);
}

/* (rows + bias) * factor in whole vectors, and rows of zeros. */
static void
check_pack_sums(source_t *s)
{
    const int kind = draw_kind(s), is_plain_row = once_in(s, 2),
              has_bias = once_in(s, 2);
    const int64_t valid = between(s, 0, 9), count = valid + between(s, 0, 3);
    const int64_t columns = extent(s, 5 * VL), padded = RP_ROUND_UP(columns, VL);
    const int strides = is_plain_row ? PLAIN : REPEATED;
    const matrix_t a = take_matrix(s, valid, columns, kind, strides);
    const matrix_t bias = take_matrix(s, 1, columns, RP_OWN, strides);
    const rp_array array = array_of(&a);
    const rp_array row = has_bias ? array_of(&bias) : (rp_array){0};
    const T factor = draw_factor(s);
    T *packed = blank_line(s, count * padded);
    spoil(s, &a);
    start_kernel();
    pack_sums(packed, &array, &row, 0, 0, 0, valid, count, columns, factor);
    allow_line(packed, count * padded);
    for (int64_t m = 0; m < count; m++)
        for (int64_t k = 0; k < padded; k++) {
            const int is_zero = m >= valid || k >= columns;
            expect_scaled(packed[m * padded + k], is_zero ? 0 : number(&a, m, k),
                          !is_zero && has_bias ? number(&bias, 0, k) : 0, factor, m, k);
        }
}

static void
check_pack_query(source_t *s)
{
    const int kind = draw_kind(s), bias_kind = draw_kind(s), has_bias = once_in(s, 2);
    const int64_t columns = extent(s, 5 * VL), padded = RP_ROUND_UP(columns, VL);
    const matrix_t a = take_matrix(s, 1, columns, kind, REPEATED);
    const matrix_t bias = take_matrix(s, 1, columns, bias_kind, REPEATED);
    const rp_array array = array_of(&a);
    const rp_array row = has_bias ? array_of(&bias) : (rp_array){0};
    const T factor = draw_factor(s);
    T *to = blank_line(s, padded);
    start_kernel();
    pack_query(to, &array, &row, 0, 0, 0, columns, padded, factor);
    allow_line(to, padded);
    for (int64_t k = 0; k < padded; k++)
        expect_scaled(to[k], k < columns ? number(&a, 0, k) : 0,
                      has_bias && k < columns ? number(&bias, 0, k) : 0, factor, 0, k);
}

static void
check_scale_query(source_t *s)
{
    const int64_t columns = extent(s, 5 * VL);
    const matrix_t a = take_matrix(s, 1, columns, draw_kind(s), REPEATED);
    const rp_array array = array_of(&a);
    const double scale = draw_unit(s);
    T *query = blank_line(s, columns);
    start_kernel();
    scale_query(&array, 0, 0, 0, columns, scale, query);
    allow_line(query, columns);
    for (int64_t k = 0; k < columns; k++) {
        const double want = number(&a, 0, k) * scale * 1.4426950408889634074;
        expect((double)query[k], want, 4 * ROUNDING * fabs(want) + LEAST, 0, k);
    }
}

/* ---- the search for NaN and infinity ---------------------------------------------------- */

static int
is_bad(const matrix_t *a)
{
    int bad = 0;
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t k = 0; k < a->columns; k++)
            bad |= !isfinite(number(a, i, k));
    return bad;
}

static void
expect_flag(int got, int want)
{
    if (got != want)
        report("returns %d, expected %d", got, want);
}

static void
check_rows_of_not_finite(source_t *s)
{
    const matrix_t a =
        take_matrix(s, between(s, 0, 5), extent(s, 10 * VL), draw_kind(s), REPEATED);
    const rp_array array = array_of(&a);
    spoil(s, &a);
    start_kernel();
    expect_flag(rows_of_not_finite(&array, 0, 0, 0, a.rows, a.columns), is_bad(&a));
}

static void
check_not_finite(source_t *s)
{
    const matrix_t a =
        take_matrix(s, between(s, 0, 5), extent(s, 10 * VL), RP_OWN, REPEATED);
    spoil(s, &a);
    start_kernel();
    expect_flag(not_finite(a.at, a.row, a.col, a.rows, a.columns), is_bad(&a));
}

static void
check_rows_not_finite(source_t *s)
{
    const matrix_t a = take_dense(s, between(s, 0, 5), extent(s, 10 * VL));
    spoil(s, &a);
    start_kernel();
    expect_flag(rows_not_finite((const T *)a.at, a.rows, a.columns), is_bad(&a));
}

/* ---- blocks of a large product ---------------------------------------------------------- */

/* A number of rows or columns: a few, or about a whole block. */
static int64_t
product_extent(source_t *s, int64_t block)
{
    return once_in(s, 20) ? between(s, block - 3, block + 9) : extent(s, 40);
}

static void
check_gemm_pack_left(source_t *s)
{
    const int64_t rows = between(s, 0, 4 * MR), depth = extent(s, 40);
    const matrix_t a = take_matrix(s, rows, depth, RP_OWN, REPEATED);
    const rp_product p = {
        .alpha = (double)draw_factor(s), .a_row = a.row, .a_col = a.col};
    const int64_t blocks = RP_ROUND_UP(rows, MR);
    T *packed = blank_line(s, blocks * depth);
    start_kernel();
    gemm_pack_left(packed, &p, a.at, rows, depth);
    allow_line(packed, blocks * depth);
    for (int64_t i = 0; i < blocks; i++)
        for (int64_t k = 0; k < depth; k++)
            expect_scaled(packed[i / MR * MR * depth + k * MR + i % MR],
                          i < rows ? number(&a, i, k) : 0, 0, (T)p.alpha, i, k);
}

static void
check_gemm_pack_right(source_t *s)
{
    const int64_t columns = extent(s, 3 * NR), depth = extent(s, 40);
    const matrix_t b = take_matrix(s, depth, columns, RP_OWN, REPEATED);
    const rp_product p = {.b_row = b.row, .b_col = b.col};
    const int64_t whole = RP_ROUND_UP(columns, NR);
    T *panels = blank_line(s, whole * depth);
    start_kernel();
    gemm_pack_right(panels, &p, b.at, columns, depth);
    allow_line(panels, whole * depth);
    for (int64_t n = 0; n < whole; n++)
        for (int64_t k = 0; k < depth; k++)
            expect((double)panels[n / NR * NR * depth + k * NR + n % NR],
                   n < columns ? number(&b, k, n) : 0, 0, n, k);
}

/* c = acc + beta * c; of beta 0 c may be NaN. */
static void
check_gemm_store(source_t *s)
{
    const int64_t rows = between(s, 0, MR), columns = between(s, 0, NR);
    const matrix_t c = take_matrix(s, rows, columns, RP_OWN, PLAIN);
    const T beta = once_in(s, 2) ? 0 : draw_factor(s);
    const T *sums = take_line(s, MR * NR);
    V acc[MR][2];
    memcpy(acc, sums, sizeof acc);
    if (beta == 0)
        spoil(s, &c);
    start_kernel();
    gemm_store(acc, rows, columns, beta, (T *)c.at, step_of(&c));
    allow_matrix(&c);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            sum_t sum = {0};
            add_term(&sum, (double)sums[i * NR + j]);
            if (beta != 0)
                add_term(&sum, (double)beta *
                                   (double)*(const T *)before_kernel(cell(&c, i, j)));
            expect_sum((T)number(&c, i, j), sum, i, j);
        }
}

/* The cells of c from (row, column) on are alpha * a . b + beta * c. */
static void
expect_block(const rp_product *p, const matrix_t *a, const matrix_t *b,
             const matrix_t *c, int64_t row, int64_t column)
{
    const int64_t rows = RP_MIN(p->m, row + RP_GEMM_ROWS);
    const int64_t columns = RP_MIN(p->n, column + RP_GEMM_COLUMNS);
    for (int64_t i = row; i < rows; i++)
        for (int64_t j = column; j < columns; j++) {
            sum_t sum = {0};
            allow(cell(c, i, j), sizeof(T));
            for (int64_t k = 0; k < p->k; k++)
                add_term(&sum, p->alpha * number(a, i, k) * number(b, k, j));
            if (p->beta != 0)
                add_term(&sum,
                         p->beta * (double)*(const T *)before_kernel(cell(c, i, j)));
            sum.terms += 2;
            expect_sum((T)number(c, i, j), sum, i, j);
        }
}

static rp_product
product_of(source_t *s, const matrix_t *a, const matrix_t *b, const matrix_t *c)
{
    rp_product p = {.m = c->rows, .n = c->columns, .k = a->columns};
    p.alpha = (double)draw_factor(s);
    p.beta = once_in(s, 2) ? 0 : (double)draw_factor(s);
    p.a = a->at, p.a_row = a->row, p.a_col = a->col;
    p.b = b->at, p.b_row = b->row, p.b_col = b->col;
    p.c = c->at, p.c_row = step_of(c);
    if (p.beta == 0)
        spoil(s, c);
    return p;
}

static void
check_gemm_block(source_t *s)
{
    const int64_t m = product_extent(s, RP_GEMM_ROWS);
    const int64_t n = product_extent(s, RP_GEMM_COLUMNS);
    const int64_t depth =
        m + n > 100 ? between(s, 0, 5) : product_extent(s, RP_GEMM_DEPTH);
    const matrix_t a = take_matrix(s, m, depth, RP_OWN, REPEATED);
    const matrix_t b = take_matrix(s, depth, n, RP_OWN, REPEATED);
    const matrix_t c = take_matrix(s, m, n, RP_OWN, PLAIN);
    const rp_product p = product_of(s, &a, &b, &c);
    const int64_t row = m > RP_GEMM_ROWS ? RP_GEMM_ROWS * pick(s, 2) : 0;
    const int64_t column = n > RP_GEMM_COLUMNS ? RP_GEMM_COLUMNS * pick(s, 2) : 0;
    T *scratch = checked(aligned_alloc(64, RP_GEMM_SCRATCH * sizeof(T)));
    memset(scratch, trial.filling, RP_GEMM_SCRATCH * sizeof(T));
    start_kernel();
    if (m > 0 && n > 0) /* or there is no block */
        gemm_block(&p, row, column, scratch);
    free(scratch);
    expect_block(&p, &a, &b, &c, row, column);
}

/* Rows and columns that are read where they lie. */
static void
check_gemm_few_rows(source_t *s)
{
    const int64_t m = between(s, 1, RP_GEMM_FEW), n = product_extent(s, 64);
    const int64_t depth = VL * between(s, 0, 5);
    const matrix_t a = take_matrix(s, m, depth, RP_OWN, PLAIN);
    const matrix_t lines = take_matrix(s, n, depth, RP_OWN, PLAIN);
    const matrix_t c = take_matrix(s, m, n, RP_OWN, PLAIN);
    matrix_t b = lines; /* transposed */
    b.row = lines.col, b.col = lines.row, b.rows = depth, b.columns = n;
    const rp_product p = product_of(s, &a, &b, &c);
    expect_flag(gemm_in_place(&p), 1);
    start_kernel();
    gemm_few_rows(&p, 0, n);
    expect_block(&p, &a, &b, &c, 0, 0);
}

#endif
