/* listed.h: products by packed row to the columns that an index lists rows for, and sums of
 * columns by packed row. */
#ifndef RELPOS_TESTS_CORE_MICRO_LISTED_H
#define RELPOS_TESTS_CORE_MICRO_LISTED_H

#include "products.h"

/* The packed rows of `count` columns, of which the first piece is returned: they stay, rise or
 * fall by one from column to column, or leap. */
static piece_t
take_columns(source_t *s, int count, columns_t *all)
{
    int32_t *rows = take_area(s, (size_t)count * sizeof *rows, sizeof *rows);
    const int way = (int)pick(s, 3);
    int32_t row = (int32_t)between(s, 0, 200);
    for (int c = 0; c < count; c++) {
        rows[c] = row;
        row = way == 2 && once_in(s, 5) ? (int32_t)between(s, 0, 200)
              : once_in(s, 2)           ? row
              : way == 0                ? row + 1
                                        : RP_MAX(row - 1, 0);
    }
    *all = (columns_t){rows, (int)pick(s, count), count};
    return next_piece(all, all->begin);
}

/* The rows of a piece, and how they lie. */
static int64_t
rows_of_piece(const columns_t *all, const piece_t *piece)
{
    const int count = piece->end - piece->begin;
    const int64_t rows = piece->past - piece->first;
    for (int c = piece->begin; c < piece->end; c++)
        if (all->rows[c] < piece->first || all->rows[c] >= piece->past)
            report("column %d lies outside of its piece", c);
    if (rows > RP_MAX(count, NR))
        report("%d columns have a piece of %" PRId64 " rows", count, rows);
    return rows;
}

static void
check_find_lanes(source_t *s)
{
    columns_t all;
    take_columns(s, VL, &all);
    const int count = (int)between(s, 1, VL);
    int32_t low = 0, least = all.rows[0], most = all.rows[0];
    VI lanes;
    for (int i = 0; i < count; i++) {
        least = RP_MIN(least, all.rows[i]);
        most = RP_MAX(most, all.rows[i]);
    }
    start_kernel();
    const int is_near = find_lanes(all.rows, count, &low, &lanes);
    expect(is_near, most - least < VL, 0, 0, 0);
    expect(low, least, 0, 0, 0);
    for (int i = 0; i < count; i++)
        expect((double)lanes[i], all.rows[i] - least, 0, 0, i);
}

static void
check_spread_piece(source_t *s)
{
    columns_t all;
    const piece_t piece = take_columns(s, (int)between(s, 1, 5 * VL), &all);
    const int64_t of = rows_of_piece(&all, &piece), rows = between(s, 0, 6);
    /* a whole vector is read from any row on */
    const matrix_t products = take_matrix(s, rows, of + VL, RP_OWN, PLAIN);
    const matrix_t c = blank_matrix(s, rows, all.end, RP_OWN, PLAIN);
    start_kernel();
    spread_piece(&all, &piece, (const T *)products.at, step_of(&products), (int)rows,
                 (T *)c.at, step_of(&c));
    for (int64_t m = 0; m < rows; m++) {
        allow(cell(&c, m, piece.begin), (size_t)(piece.end - piece.begin) * sizeof(T));
        for (int n = piece.begin; n < piece.end; n++)
            expect(number(&c, m, n), number(&products, m, all.rows[n] - piece.first), 0,
                   m, n);
    }
}

static void
check_join_piece(source_t *s)
{
    columns_t all;
    const int count = (int)between(s, VL, 5 * VL);
    const piece_t piece = take_columns(s, count, &all);
    const int64_t lines = RP_ROUND_UP(rows_of_piece(&all, &piece), TAIL_ROWS);
    const int rows = (int)between(s, 0, BQ);
    const matrix_t a = take_dense(s, BQ, count);
    T *sums = blank_line(s, lines * BQ);
    start_kernel();
    join_piece(&all, &piece, (const T *)a.at, count, rows, sums);
    allow_line(sums, lines * BQ);
    for (int64_t line = 0; line < lines; line++)
        for (int m = 0; m < rows; m++) {
            sum_t sum = {0};
            for (int n = piece.begin; n < piece.end; n++)
                if (all.rows[n] - piece.first == line)
                    add_term(&sum, number(&a, m, n));
            expect_sum(sums[line * BQ + m], sum, line, m);
        }
}

static void
check_add_line_to(source_t *s)
{
    const T *line = take_line(s, NR);
    T *sums = take_line(s, NR);
    start_kernel();
    add_line_to(line, sums);
    allow_line(sums, NR);
    for (int64_t n = 0; n < NR; n++) {
        sum_t sum = {0};
        add_term(&sum, (double)*(const T *)before_kernel(&sums[n]));
        add_term(&sum, (double)line[n]);
        expect_sum(sums[n], sum, 0, n);
    }
}

/* c += a . b, of lines up to a whole tail. */
static void
check_add_lines(source_t *s)
{
    const int64_t lines = between(s, 0, 3 * MR), all = RP_ROUND_UP(lines, TAIL_ROWS);
    const int64_t columns = VL * between(s, 1, 3), depth = extent(s, 90);
    const matrix_t a = take_matrix(s, all, depth, RP_OWN, PLAIN);
    const matrix_t b = take_matrix(s, depth, columns, RP_OWN, PLAIN);
    const matrix_t c = take_matrix(s, all, columns, RP_OWN, PLAIN);
    start_kernel();
    add_lines(once_in(s, 3), (const T *)a.at, step_of(&a), lines, (const T *)b.at,
              step_of(&b), columns, depth, (T *)c.at, step_of(&c));
    expect_product(&a, 0, &b, &c);
}

#endif
