/* streams.h: products of a few rows with many lines, which are read where they lie, and
 * weighted sums of such lines. */
#ifndef RELPOS_TESTS_CORE_MICRO_STREAMS_H
#define RELPOS_TESTS_CORE_MICRO_STREAMS_H

#include "numbers.h"

/* Lines of an array, and the buffer that they are copied to where they do not lie right. */
typedef struct {
    matrix_t matrix;
    rp_array array;
    ptrdiff_t width; /* whole vectors */
    int64_t buffer_size;
    T *buffer;
} operand_lines_t;

static operand_lines_t
take_lines(source_t *s, int64_t count)
{
    const int kind = draw_kind(s), is_whole = once_in(s, 2);
    const int64_t unit = kind == RP_OWN ? VL : 4 * VL;
    const int64_t columns = once_in(s, 8) ? RP_USUAL_WIDTH
                            : is_whole    ? unit * between(s, 0, 6)
                                          : extent(s, 10 * VL);
    operand_lines_t lines = {.width = RP_ROUND_UP(columns, VL)};
    lines.matrix = take_matrix(s, count, columns, kind, is_whole ? PLAIN : REPEATED);
    lines.array = array_of(&lines.matrix);
    lines.buffer_size = RP_MAX(count, RP_LINES_SUMMED) * lines.width;
    lines.buffer = blank_line(s, lines.buffer_size);
    return lines;
}

static void
check_lines_of(source_t *s)
{
    const int64_t count = between(s, 0, 9);
    const operand_lines_t x = take_lines(s, count);
    start_kernel();
    const lines_t lines =
        lines_of(&x.array, 0, 0, 0, count, x.matrix.columns, x.buffer);
    allow_line(x.buffer, count * x.width);
    for (int64_t n = 0; n < count; n++)
        for (int64_t k = 0; k < x.width; k++) {
            const char *at =
                lines.at + n * lines.step + k * (ptrdiff_t)item_of(lines.kind);
            expect(number_of(at, lines.kind),
                   k < x.matrix.columns ? number(&x.matrix, n, k) : 0, 0, n, k);
        }
}

/* s[r][n] += x[r] . line n */
static void
check_add_dots(source_t *s)
{
    const int rows = (int)between(s, 0, 14);
    const int64_t count = extent(s, 3 * VL + 5);
    const operand_lines_t a = take_lines(s, count);
    const matrix_t x = take_matrix(s, rows, a.width, RP_OWN, PLAIN);
    const matrix_t sums = take_matrix(s, rows, count, RP_OWN, PLAIN);
    start_kernel();
    add_dots((const T *)x.at, step_of(&x), rows,
             lines_of(&a.array, 0, 0, 0, count, a.matrix.columns, a.buffer), count,
             a.width, (T *)sums.at, step_of(&sums));
    allow_line(a.buffer, count * a.width);
    allow_matrix(&sums);
    for (int r = 0; r < rows; r++)
        for (int64_t n = 0; n < count; n++) {
            sum_t sum = {0};
            add_term(&sum, (double)*(const T *)before_kernel(cell(&sums, r, n)));
            for (int64_t k = 0; k < a.matrix.columns; k++)
                add_term(&sum, number(&x, r, k) * number(&a.matrix, n, k));
            expect_sum((T)number(&sums, r, n), sum, r, n);
        }
}

/* Weights of rows, of which some are 0; where all of a line's are, it may hold NaN. */
static T *
take_weights(source_t *s, int rows, int64_t count, const matrix_t *lines)
{
    T *weights = take_line(s, RP_MAX(rows - 1, 0) * RP_WEIGHTS_STEP + count);
    const int has_zeros = once_in(s, 2);
    for (int64_t n = 0; n < count; n++) {
        const int hides = has_zeros ? (int)pick(s, 3) : 0;
        for (int r = 0; r < rows; r++) {
            T *weight = weights + r * RP_WEIGHTS_STEP + n;
            *weight = *weight == 0 ? 1 : *weight; /* and no -0 */
            if (hides == 2 || (hides == 1 && once_in(s, 2)))
                *weight = 0;
        }
        for (int64_t k = 0; hides == 2 && k < lines->columns; k++)
            put_number(cell(lines, n, k), lines->kind, once_in(s, 2) ? NAN : INFINITY);
    }
    return weights;
}

/* out[r] += sum of w[r][n] * line n, without the lines whose weight is 0. */
static void
check_weigh_lines(source_t *s)
{
    const int rows = (int)between(s, 0, 14);
    const int64_t count = once_in(s, 3) ? extent(s, 150) : extent(s, 10);
    operand_lines_t a = take_lines(s, count);
    const T *weights = take_weights(s, rows, count, &a.matrix);
    const matrix_t out = take_matrix(s, rows, a.width, RP_OWN, PLAIN);
    start_kernel();
    weigh_lines(weights, rows,
                lines_of(&a.array, 0, 0, 0, count, a.matrix.columns, a.buffer), count,
                a.width, (T *)out.at, step_of(&out));
    allow_line(a.buffer, a.buffer_size);
    allow_matrix(&out);
    for (int r = 0; r < rows; r++)
        for (int64_t k = 0; k < a.width; k++) {
            sum_t sum = {0};
            add_term(&sum, (double)*(const T *)before_kernel(cell(&out, r, k)));
            for (int64_t n = 0; k < a.matrix.columns && n < count; n++) {
                const double weight = (double)weights[r * RP_WEIGHTS_STEP + n];
                if (weight != 0)
                    add_term(&sum, weight * number(&a.matrix, n, k));
            }
            expect_sum((T)number(&out, r, k), sum, r, k);
        }
}

#endif
