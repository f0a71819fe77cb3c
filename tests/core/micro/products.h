/* products.h: products of matrices: micro-tiles of panels, rows and columns. */
#ifndef RELPOS_TESTS_CORE_MICRO_PRODUCTS_H
#define RELPOS_TESTS_CORE_MICRO_PRODUCTS_H

#include "numbers.h"

static const rp_ahead nowhere = {0, 0};

/* Panels of `columns` lines of `depth` numbers, [k][NR] each. */
static T *
take_panels(source_t *s, int64_t columns, int64_t depth)
{
    return take_line(s, RP_ROUND_UP(columns, NR) * depth);
}

static double
panel_number(const T *panels, int64_t column, int64_t depth, int64_t k)
{
    return (double)panels[column / NR * NR * depth + k * NR + column % NR];
}

/* a . panels, of row i and column n. */
static sum_t
panel_sum(const matrix_t *a, const T *panels, int64_t depth, int64_t i, int64_t n)
{
    sum_t sum = {0};
    for (int64_t k = 0; k < depth; k++)
        add_term(&sum, number(a, i, k) * panel_number(panels, n, depth, k));
    return sum;
}

static void
check_product(source_t *s)
{
    const int rows = once_in(s, 2) ? MR : TAIL_ROWS;
    const int64_t depth = extent(s, 70);
    const matrix_t a = take_matrix(s, rows, depth, RP_OWN, REPEATED);
    const T *b = take_panels(s, NR, depth);
    V acc[MR][2];
    start_kernel();
    product((const T *)a.at, step_of(&a), a.col / (ptrdiff_t)sizeof(T), b, depth,
            nowhere, rows, acc);
    for (int i = 0; i < rows; i++)
        for (int n = 0; n < NR; n++)
            expect_sum(acc[i][n / VL][n % VL], panel_sum(&a, b, depth, i, n), i, n);
}

/* c = a . panels */
static void
check_gemm_set(source_t *s)
{
    const int rows = padded_rows((int)between(s, 1, 3 * MR));
    const int64_t columns = VL * between(s, 0, 5), depth = extent(s, 150);
    const int64_t block = once_in(s, 2) ? RP_MAX(1, depth) : between(s, 1, 64);
    const matrix_t a = take_matrix(s, rows, depth, RP_OWN, PLAIN);
    const matrix_t c = blank_matrix(s, rows, columns, RP_OWN, PLAIN);
    const T *b = take_panels(s, columns, depth);
    start_kernel();
    gemm_set((const T *)a.at, step_of(&a), b, rows, columns, depth, block, (T *)c.at,
             step_of(&c));
    allow_matrix(&c);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t n = 0; n < columns; n++)
            expect_sum((T)number(&c, i, n), panel_sum(&a, b, depth, i, n), i, n);
}

/* c = a . panel plus what c holds or a constant, and the maxima of its rows by lane. */
static void
check_add_panel(source_t *s)
{
    const int few = once_in(s, 3), half = once_in(s, 3), rows = few ? TAIL_HALF : HR;
    const int64_t depth = extent(s, 150), columns = half ? VL : NR;
    const matrix_t a = take_matrix(s, rows, depth, RP_OWN, PLAIN);
    const matrix_t c = take_matrix(s, rows, columns, RP_OWN, PLAIN);
    const matrix_t constant = take_matrix(s, rows, 1, RP_OWN, REPEATED);
    const T *panel = take_panels(s, NR, depth);
    const int is_constant = once_in(s, 2), has_max = once_in(s, 2);
    T *row_max = take_line(s, rows * VL);
    start_kernel();
    add_panel((const T *)a.at, step_of(&a), panel, half, few, depth, nowhere, (T *)c.at,
              step_of(&c), is_constant ? (const T *)constant.at : NULL,
              step_of(&constant), has_max ? row_max : NULL);
    allow_matrix(&c);
    if (has_max)
        allow_line(row_max, rows * VL);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t n = 0; n < columns; n++) {
            sum_t sum = panel_sum(&a, panel, depth, i, n);
            add_term(&sum, is_constant
                               ? number(&constant, i, 0)
                               : (double)*(const T *)before_kernel(cell(&c, i, n)));
            expect_sum((T)number(&c, i, n), sum, i, n);
        }
    for (int64_t n = 0; has_max && n < rows * VL; n++) {
        double top = (double)((const T *)before_kernel(row_max))[n];
        for (int64_t j = n % VL; j < columns; j += VL)
            top = RP_MAX(top, number(&c, n / VL, j));
        expect((double)row_max[n], top, 0, n / VL, n % VL);
    }
}

/* ---- rows and columns ---------------------------------------------------------------- */

/* Makes an operand zero outside a diagonal that its lines have: rows of a or, by columns,
 * columns of a. Returns NULL where there is none. */
static const diagonal_t *
take_diagonal(source_t *s, const matrix_t *a, int by_columns, diagonal_t *diagonal)
{
    const int64_t depth = by_columns ? a->rows : a->columns;
    const ptrdiff_t begin = between(s, -10, depth);
    *diagonal =
        (diagonal_t){begin, begin + between(s, 0, depth + 10), once_in(s, 2) ? 1 : -1};
    if (once_in(s, 2))
        return NULL;
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t j = 0; j < a->columns; j++) {
            const int64_t line = by_columns ? j : i, term = by_columns ? i : j;
            const int64_t at = term - line * diagonal->step;
            if (at < diagonal->begin || at >= diagonal->end)
                *(T *)cell(a, i, j) = 0;
        }
    return diagonal;
}

/* Looks at c += a . b or, by columns, a' . b, without the terms in which a is 0. */
static void
expect_product(const matrix_t *a, int by_columns, const matrix_t *b, const matrix_t *c)
{
    const int64_t depth = by_columns ? a->rows : a->columns;
    allow_matrix(c);
    for (int64_t i = 0; i < c->rows; i++)
        for (int64_t j = 0; j < c->columns; j++) {
            sum_t sum = {0};
            add_term(&sum, (double)*(const T *)before_kernel(cell(c, i, j)));
            for (int64_t k = 0; k < depth; k++) {
                const double x = by_columns ? number(a, k, i) : number(a, i, k);
                if (x != 0)
                    add_term(&sum, x * number(b, k, j));
            }
            expect_sum((T)number(c, i, j), sum, i, j);
        }
}

/* Some terms are 0, and their numbers of b then anything. */
static void
hide_terms(source_t *s, const matrix_t *a, int by_columns, const matrix_t *b)
{
    const int64_t lines = by_columns ? a->columns : a->rows;
    for (int64_t k = 0; k < b->rows; k++) {
        const int hides = (int)pick(s, 3);
        for (int64_t i = 0; hides > 0 && i < lines; i++)
            if (hides == 2 || once_in(s, 2))
                *(T *)(by_columns ? cell(a, k, i) : cell(a, i, k)) = 0;
        for (int64_t j = 0; hides == 2 && j < b->columns; j++)
            *(T *)cell(b, k, j) = once_in(s, 2) ? (T)NAN : (T)INFINITY;
    }
    spoil(s, b);
}

static void
check_gemm_add_rows(source_t *s)
{
    const int rows = padded_rows((int)between(s, 1, 3 * MR));
    const int64_t columns = VL * between(s, 0, 5), depth = extent(s, 150);
    const matrix_t a = take_matrix(s, rows, depth, RP_OWN, PLAIN);
    const matrix_t b = take_matrix(s, depth, columns, RP_OWN, PLAIN);
    const matrix_t c = take_matrix(s, rows, columns, RP_OWN, PLAIN);
    diagonal_t diagonal;
    const diagonal_t *lies = take_diagonal(s, &a, 0, &diagonal);
    start_kernel();
    gemm_add_rows((const T *)a.at, step_of(&a), (const T *)b.at, step_of(&b), rows,
                  columns, depth, lies, (T *)c.at, step_of(&c));
    expect_product(&a, 0, &b, &c);
}

static void
check_gemm_add_rows_selected(source_t *s)
{
    const int64_t rows = between(s, 0, 10), columns = VL * between(s, 0, 3);
    const int64_t depth = extent(s, 150);
    const matrix_t a = take_matrix(s, rows, depth, RP_OWN, PLAIN);
    const matrix_t b = take_matrix(s, depth, columns, RP_OWN, PLAIN);
    const matrix_t c = take_matrix(s, rows, columns, RP_OWN, PLAIN);
    hide_terms(s, &a, 0, &b);
    start_kernel();
    gemm_add_rows_selected((const T *)a.at, step_of(&a), (const T *)b.at, step_of(&b),
                           rows, columns, depth, (T *)c.at, step_of(&c));
    expect_product(&a, 0, &b, &c);
}

/* The product that leaves out zeros has the bits of the one that does not. */
static void
check_add_rows(source_t *s)
{
    const int rows = padded_rows((int)between(s, 1, 2 * MR));
    const int64_t columns = VL * between(s, 1, 3), depth = extent(s, 150);
    const matrix_t a = take_matrix(s, rows, depth, RP_OWN, PLAIN);
    const matrix_t b = take_matrix(s, depth, columns, RP_OWN, PLAIN);
    const matrix_t c = take_matrix(s, rows, columns, RP_OWN, PLAIN);
    const matrix_t again = blank_matrix(s, rows, columns, RP_OWN, PLAIN);
    for (int64_t i = 0; i < rows; i++)
        memcpy(cell(&again, i, 0), cell(&c, i, 0), (size_t)columns * sizeof(T));
    start_kernel();
    add_rows(0, (const T *)a.at, step_of(&a), (const T *)b.at, step_of(&b), rows,
             columns, depth, NULL, (T *)c.at, step_of(&c));
    add_rows(1, (const T *)a.at, step_of(&a), (const T *)b.at, step_of(&b), rows,
             columns, depth, NULL, (T *)again.at, step_of(&again));
    expect_product(&a, 0, &b, &c);
    allow_matrix(&again);
    for (int64_t i = 0; i < rows; i++)
        if (memcmp(cell(&again, i, 0), cell(&c, i, 0), (size_t)columns * sizeof(T)))
            report("row %" PRId64 " has other bits if zeros are left out", i);
}

/* c += a' . b by both of its kernels: where b holds NaN, without the zeros of a. */
static void
check_add_columns(source_t *s)
{
    const int64_t rows = between(s, 0, 4 * MR), columns = VL * between(s, 0, 7);
    const int64_t depth = extent(s, 150);
    matrix_t a = take_matrix(s, depth, RP_ROUND_UP(rows, MR), RP_OWN, PLAIN);
    const matrix_t b = take_matrix(s, depth, columns, RP_OWN, PLAIN);
    const matrix_t c = take_matrix(s, rows, columns, RP_OWN, PLAIN);
    diagonal_t diagonal;
    const diagonal_t *lies = take_diagonal(s, &a, 1, &diagonal);
    const int selected = once_in(s, 2);
    a.columns = rows;
    if (selected)
        hide_terms(s, &a, 1, &b);
    start_kernel();
    add_columns(selected, (const T *)a.at, step_of(&a), (const T *)b.at, step_of(&b),
                rows, columns, depth, lies, (T *)c.at, step_of(&c));
    expect_product(&a, 1, &b, &c);
}

/* ---- a table of few columns, and sums of columns --------------------------------------- */

/* c += a . panels'; rows behind the last are zeros, and so are columns. */
static void
check_add_narrow_rows(source_t *s)
{
    const int64_t valid = between(s, 1, 3 * MR), rows = RP_ROUND_UP(valid, MR);
    const int64_t columns = extent(s, 5 * NR), depth = between(s, 0, 6);
    const matrix_t a = take_matrix(s, rows, RP_ROUND_UP(columns, NR), RP_OWN, PLAIN);
    const matrix_t c = take_matrix(s, rows, depth, RP_OWN, PLAIN);
    const T *panels = take_panels(s, columns, depth);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t n = i < valid ? columns : 0; n < a.columns; n++)
            *(T *)cell(&a, i, n) = 0;
    start_kernel();
    add_narrow_rows((const T *)a.at, step_of(&a), panels, padded_rows((int)valid),
                    columns, depth, (T *)c.at, step_of(&c));
    allow_matrix(&c);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < depth; k++) {
            sum_t sum = {0};
            add_term(&sum, (double)*(const T *)before_kernel(cell(&c, i, k)));
            for (int64_t n = 0; n < columns; n++)
                add_term(&sum, number(&a, i, n) * panel_number(panels, n, depth, k));
            expect_sum((T)number(&c, i, k), sum, i, k);
        }
}

/* sums += b' . a, in whole panels of columns. */
static void
check_add_narrow_columns(source_t *s)
{
    const int rows = (int)between(s, 0, 20);
    const int64_t columns = extent(s, 5 * NR), depth = between(s, 0, 6);
    const int64_t whole = RP_ROUND_UP(columns, NR);
    const matrix_t a = take_matrix(s, rows, whole, RP_OWN, PLAIN);
    const matrix_t b = take_matrix(s, rows, depth, RP_OWN, PLAIN);
    const matrix_t sums = take_matrix(s, depth, whole, RP_OWN, PLAIN);
    start_kernel();
    add_narrow_columns((const T *)a.at, step_of(&a), (const T *)b.at, step_of(&b), rows,
                       columns, depth, (T *)sums.at, step_of(&sums));
    allow_matrix(&sums);
    for (int64_t k = 0; k < depth; k++)
        for (int64_t n = 0; n < whole; n++) {
            sum_t sum = {0};
            add_term(&sum, (double)*(const T *)before_kernel(cell(&sums, k, n)));
            for (int m = 0; m < rows; m++)
                add_term(&sum, number(&b, m, k) * number(&a, m, n));
            expect_sum((T)number(&sums, k, n), sum, k, n);
        }
}

static void
check_column_totals(source_t *s)
{
    const int rows = (int)between(s, 0, 40), columns = (int)extent(s, 20 * VL);
    const int whole = RP_ROUND_UP(columns, VL);
    const matrix_t a = take_matrix(s, rows, whole, RP_OWN, PLAIN);
    T *sums = blank_line(s, whole);
    start_kernel();
    column_totals((const T *)a.at, step_of(&a), rows, columns, sums);
    allow_line(sums, whole);
    for (int n = 0; n < whole; n++) {
        sum_t sum = {0};
        for (int m = 0; m < rows; m++)
            add_term(&sum, number(&a, m, n));
        expect_sum(sums[n], sum, 0, n);
    }
}

#endif
