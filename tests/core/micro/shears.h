/* shears.h: diagonals of lines, and whole loops over the rows of matrices: sheared rows, and
 * rows of one number. */
#ifndef RELPOS_TESTS_CORE_MICRO_SHEARS_H
#define RELPOS_TESTS_CORE_MICRO_SHEARS_H

#include "products.h"

/* ---- products by band column ----------------------------------------------------------- */

static void
check_shear(source_t *s)
{
    const matrix_t from = take_matrix(s, 2 * VL - 1, VL, RP_OWN, PLAIN);
    V rows[2 * VL - 1];
    spoil(s, &from);
    for (int i = 0; i < 2 * VL - 1; i++)
        memcpy(&rows[i], cell(&from, i, 0), sizeof rows[i]);
    start_kernel();
    shear(rows);
    for (int i = 0; i < VL; i++)
        for (int l = 0; l < VL; l++)
            expect((double)rows[i][l], number(&from, i + l, l), 0, i, l);
}

/* Lines of NR numbers side by side, of which the first `columns` count. */
static matrix_t
blank_lines(source_t *s, int64_t count, int64_t columns)
{
    return (matrix_t){(char *)blank_line(s, count * NR),
                      NR * (ptrdiff_t)sizeof(T),
                      (ptrdiff_t)sizeof(T),
                      count,
                      columns,
                      RP_OWN};
}

/* lines = table rows times a panel, or its first half. */
static void
check_set_lines(source_t *s)
{
    const int64_t rows = TAIL_ROWS * between(s, -1, (BQ + NR) / TAIL_ROWS);
    const int64_t depth = extent(s, 70), keys = once_in(s, 3) ? VL : NR;
    const matrix_t table = take_matrix(s, RP_MAX(rows, 0), depth, RP_OWN, PLAIN);
    const matrix_t lines = blank_lines(s, RP_MAX(rows, 0), keys);
    const T *panel = take_panels(s, NR, depth);
    start_kernel();
    set_lines((const T *)table.at, step_of(&table), rows, panel, keys, depth,
              (T *)lines.at);
    allow_matrix(&lines);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t n = 0; n < keys; n++)
            expect_sum((T)number(&lines, i, n), panel_sum(&table, panel, depth, i, n),
                       i, n);
}

/* A tile of logits, and what the pair of row m and key n adds. */
static void
expect_added(const matrix_t *tile, const matrix_t *constant, int64_t m, int64_t n,
             double term)
{
    sum_t sum = {0};
    add_term(&sum, constant ? number(constant, m, 0)
                            : (double)*(const T *)before_kernel(cell(tile, m, n)));
    add_term(&sum, term);
    expect_sum((T)number(tile, m, n), sum, m, n);
}

static void
check_add_sheared(source_t *s)
{
    const int rows = VL * (int)between(s, 1, BQ / VL), keys = once_in(s, 3) ? VL : NR;
    const matrix_t lines = take_dense(s, BQ, NR), before = take_dense(s, NR, NR);
    const matrix_t tile = take_matrix(s, rows, keys, RP_OWN, PLAIN);
    const matrix_t constant = take_matrix(s, rows, 1, RP_OWN, REPEATED);
    const matrix_t *one = once_in(s, 2) ? &constant : NULL;
    const int is_one_line = once_in(s, 3);
    start_kernel();
    add_sheared((const T *)lines.at, (const T *)before.at, is_one_line ? 0 : NR, rows,
                keys, one ? (const T *)one->at : NULL, step_of(&constant), (T *)tile.at,
                step_of(&tile));
    allow_matrix(&tile);
    for (int64_t m = 0; m < rows; m++)
        for (int64_t n = 0; n < keys; n++) {
            const int64_t c = n - m + BQ - 1;
            expect_added(&tile, one, m, n,
                         c < BQ ? number(&lines, c, n)
                                : number(&before, is_one_line ? 0 : c - BQ, n));
        }
}

/* Every number of d goes back to the line that add_sheared has it from. */
static void
check_shear_back(source_t *s)
{
    const int rows = VL * (int)between(s, 1, BQ / VL), keys = once_in(s, 3) ? VL : NR;
    const matrix_t d = take_matrix(s, rows, keys, RP_OWN, PLAIN);
    const matrix_t lines = blank_lines(s, BQ, NR), before = take_dense(s, NR, NR);
    start_kernel();
    shear_back((const T *)d.at, step_of(&d), rows, keys, (T *)lines.at, (T *)before.at);
    allow_matrix(&lines);
    allow_matrix(&before);
    for (int64_t c = 0; c < BQ + NR; c++)
        for (int64_t n = 0; n < NR; n++) {
            const matrix_t *to = c < BQ ? &lines : &before;
            const int64_t m = n - c + BQ - 1, line = c < BQ ? c : c - BQ;
            sum_t sum = {0};
            if (n < keys && 0 <= m && m < rows)
                add_term(&sum, number(&d, m, n));
            if (c >= BQ)
                add_term(&sum, (double)*(const T *)before_kernel(cell(to, line, n)));
            expect_sum((T)number(to, line, n), sum, line, n);
        }
}

static void
check_join_lines(source_t *s)
{
    const int count = (int)between(s, 1, BQ);
    const matrix_t lines = take_dense(s, RP_MAX(count, TAIL_ROWS), NR);
    start_kernel();
    join_lines((T *)lines.at, count);
    allow((T *)lines.at, TAIL_ROWS * NR * sizeof(T));
    for (int64_t n = 0; n < NR; n++) {
        sum_t sum = {0};
        for (int64_t c = 0; c < count; c++)
            add_term(&sum, *(const T *)before_kernel(cell(&lines, c, n)));
        expect_sum((T)number(&lines, 0, n), sum, 0, n);
        for (int64_t c = 1; c < TAIL_ROWS; c++)
            expect(number(&lines, c, n), 0, 0, c, n);
    }
}

static void
check_add_line(source_t *s)
{
    const int rows = (int)between(s, 0, BQ), keys = once_in(s, 3) ? VL : NR;
    const matrix_t line = take_dense(s, 1, NR);
    const matrix_t tile = take_matrix(s, rows, keys, RP_OWN, PLAIN);
    const matrix_t constant = take_matrix(s, rows, 1, RP_OWN, REPEATED);
    const matrix_t *one = once_in(s, 2) ? &constant : NULL;
    start_kernel();
    add_line((const T *)line.at, rows, keys, one ? (const T *)one->at : NULL,
             step_of(&constant), (T *)tile.at, step_of(&tile));
    allow_matrix(&tile);
    for (int64_t m = 0; m < rows; m++)
        for (int64_t n = 0; n < keys; n++)
            expect_added(&tile, one, m, n, number(&line, 0, n));
}

/* ---- whole loops ----------------------------------------------------------------------- */

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
