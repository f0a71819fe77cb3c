/* shears.h: whole loops over the rows of matrices: sheared rows, and rows of one number. */
#ifndef RELPOS_TESTS_CORE_MICRO_SHEARS_H
#define RELPOS_TESTS_CORE_MICRO_SHEARS_H

#include "numbers.h"

static void
check_index_rows(source_t *s)
{
    const int64_t count = between(s, 0, 9), columns = 1 + extent(s, 5 * VL);
    const double divisor = 1 + fabs(draw_unit(s));
    T *rows = blank_line(s, count * columns);
    start_kernel();
    index_rows(rows, count, columns, divisor);
    allow_line(rows, count * columns);
    for (int64_t n = 0; n < count; n++)
        for (int64_t k = 0; k < columns; k++)
            expect((double)rows[n * columns + k], (double)(T)((double)n / divisor), 0,
                   n, k);
}

/* Runs a loop over two matrices of the same number of rows. */
static void
run_shear(rp_loop loop, const matrix_t *from, const matrix_t *to)
{
    char *args[] = {from->at, to->at};
    const ptrdiff_t dims[] = {1, from->rows, from->columns, to->columns};
    const ptrdiff_t steps[] = {0, 0, from->row, from->col, to->row, to->col};
    start_kernel();
    loop(args, dims, steps, NULL);
    allow_matrix(to);
}

/* y[i, j] = x[i, q - 1 - i + j] */
static void
check_skew(source_t *s)
{
    const int64_t rows = between(s, 1, 9), columns = 1 + extent(s, 40);
    const matrix_t x = take_matrix(s, rows, rows + columns - 1, RP_OWN, REPEATED);
    const matrix_t y = blank_matrix(s, rows, columns, RP_OWN, STRIDED);
    run_shear(skew, &x, &y);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            expect(number(&y, i, j), number(&x, i, rows - 1 - i + j), 0, i, j);
}

/* Every number goes back to where skew has it from; the others are 0. */
static void
check_unskew(source_t *s)
{
    const int64_t rows = between(s, 1, 9), columns = 1 + extent(s, 40);
    const matrix_t y = take_matrix(s, rows, columns, RP_OWN, REPEATED);
    const matrix_t x = blank_matrix(s, rows, rows + columns - 1, RP_OWN, STRIDED);
    run_shear(unskew, &y, &x);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < x.columns; c++) {
            const int64_t j = c - (rows - 1 - i);
            expect(number(&x, i, c), j >= 0 && j < columns ? number(&y, i, j) : 0, 0, i,
                   c);
        }
}

/* Number `at` of the rows of x behind a zero each, one after the other. */
static double
padded_number(const matrix_t *x, int64_t at)
{
    const int64_t column = at % (x->columns + 1) - 1;
    return column < 0 ? 0 : number(x, at / (x->columns + 1), column);
}

static void
check_rel_shift(source_t *s)
{
    const int64_t rows = between(s, 1, 9), columns = 1 + extent(s, 40);
    const matrix_t x = take_matrix(s, rows, columns, RP_OWN, REPEATED);
    const matrix_t y = blank_matrix(s, rows, columns, RP_OWN, STRIDED);
    run_shear(rel_shift, &x, &y);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            expect(number(&y, i, j), padded_number(&x, rows + i * columns + j), 0, i,
                   j);
}

/* Its adjoint: each number of x has the number of y that rel_shift copies it to, or 0. */
static void
check_rel_unshift(source_t *s)
{
    const int64_t rows = between(s, 1, 9), columns = 1 + extent(s, 40);
    const matrix_t y = take_matrix(s, rows, columns, RP_OWN, REPEATED);
    const matrix_t x = blank_matrix(s, rows, columns, RP_OWN, STRIDED);
    run_shear(rel_unshift, &y, &x);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < columns; c++) {
            const int64_t at = i * (columns + 1) + 1 + c - rows;
            expect(number(&x, i, c),
                   at < 0 ? 0 : number(&y, at / columns, at % columns), 0, i, c);
        }
}

#endif
