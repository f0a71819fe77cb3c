/* encodings.h: angles and what they turn, and convolutions. */
#ifndef RELPOS_TESTS_CORE_MICRO_ENCODINGS_H
#define RELPOS_TESTS_CORE_MICRO_ENCODINGS_H

#include "pack.h"

/* ---- sines and cosines ----------------------------------------------------------------- */

/* Sine and cosine of position * (high + low), by libm and the exact error of the product:
 * right to two roundings. */
static void
expect_angle(double position, const angles *block, int n)
{
    const double angle = position * block->high[n];
    const double error =
        fma(position, block->high[n], -angle) + position * block->low[n];
    const double sine = sin(angle) * cos(error) + cos(angle) * sin(error);
    const double cosine = cos(angle) * cos(error) - sin(angle) * sin(error);
    expect(block->sine[n], sine, 0x1p-51, 0, n);
    expect(block->cosine[n], cosine, 0x1p-51, 1, n);
}

/* Frequencies with what doubles leave of them; behind the last are zeros. */
static void
fill_frequencies(source_t *s, angles *block, int count)
{
    memset(block, 0, sizeof *block);
    for (int n = 0; n < count; n++) {
        block->high[n] = draw_unit(s);
        block->low[n] = block->high[n] * 0x1p-54 * draw_unit(s);
    }
}

static double
draw_position(source_t *s, double largest_position)
{
    const double position = largest_position * draw_unit(s);
    return once_in(s, 2) ? nearbyint(position) : position / (double)between(s, 1, 1000);
}

static void
check_sincos_block(source_t *s)
{
    const int count = (int)between(s, 0, ANGLES), is_far = once_in(s, 4);
    const double position = draw_position(s, is_far ? 0x1p30 : 0x1p24);
    int far = 0;
    angles block;
    fill_frequencies(s, &block, count);
    start_kernel();
    const int got = sincos_block(position, &block, count);
    for (int n = 0; n < count; n++)
        if (fabs(position * block.high[n]) < REDUCIBLE)
            expect_angle(position, &block, n);
        else
            far = 1;
    expect_flag(got, far);
}

/* The angle of a sine and a cosine, and a product more. */
static void
check_turn(source_t *s)
{
    const double angle = 3 * draw_unit(s), a = draw_position(s, 0x1p30),
                 b = draw_unit(s);
    const double error = fma(a, b, -(a * b));
    double sine = sin(angle), cosine = cos(angle);
    start_kernel();
    turn(a, b, &sine, &cosine);
    const double there = sin(a * b) * cos(error) + cos(a * b) * sin(error);
    const double along = cos(a * b) * cos(error) - sin(a * b) * sin(error);
    expect(sine, sin(angle) * along + cos(angle) * there, 0x1p-50, 0, 0);
    expect(cosine, cos(angle) * along - sin(angle) * there, 0x1p-50, 0, 1);
}

/* Those beyond the reduction alone, one by one. */
static void
check_sincos_far(source_t *s)
{
    const int count = (int)between(s, 0, 9);
    const double position = draw_position(s, 0x1p40);
    angles block;
    fill_frequencies(s, &block, count);
    start_kernel();
    sincos_far(position, &block, count);
    for (int n = 0; n < count; n++)
        if (fabs(position * block.high[n]) < REDUCIBLE) {
            expect(block.sine[n], 0, 0, 0, n); /* left as it was */
            expect(block.cosine[n], 0, 0, 1, n);
        } else
            expect_angle(position, &block, n);
}

static void
check_load_frequencies(source_t *s)
{
    const matrix_t from = take_matrix(s, 1, between(s, 0, ANGLES), DOUBLES, REPEATED);
    const matrix_t to = blank_matrix(s, 1, ANGLES, DOUBLES, PLAIN);
    start_kernel();
    load_frequencies((double *)to.at, from.at, from.col, (int)from.columns);
    allow_matrix(&to);
    for (int n = 0; n < ANGLES; n++)
        expect(number(&to, 0, n), n < from.columns ? number(&from, 0, n) : 0, 0, 0, n);
}

/* To two rows of any strides, or to pairs. */
static void
check_store_angles(source_t *s)
{
    const int count = (int)between(s, 0, ANGLES), in_pairs = once_in(s, 3);
    matrix_t sine = blank_matrix(s, 1, in_pairs ? 2 * count : count, RP_OWN,
                                 in_pairs ? PLAIN : STRIDED);
    matrix_t cosine = blank_matrix(s, 1, count, RP_OWN, STRIDED);
    angles block;
    for (int n = 0; n < ANGLES; n++) {
        block.sine[n] = draw_unit(s);
        block.cosine[n] = draw_unit(s);
    }
    if (in_pairs) {
        sine.columns = count;
        sine.col *= 2;
        cosine = sine;
        cosine.at += sizeof(T);
    }
    start_kernel();
    store_angles(&block, sine.at, sine.col, cosine.at, cosine.col, count);
    allow_matrix(&sine);
    allow_matrix(&cosine);
    for (int n = 0; n < count; n++) {
        expect(number(&sine, 0, n), (double)(T)block.sine[n], 0, 0, n);
        expect(number(&cosine, 0, n), (double)(T)block.cosine[n], 0, 1, n);
    }
}

/* ---- pairs that are turned ---------------------------------------------------------------- */

enum { MOST_PAIRS = 40 };

/* A table of cosines and of sines, as long as whole vectors of doubles are. */
typedef struct {
    double cosine[2 * MOST_PAIRS + 8], sine[2 * MOST_PAIRS + 8];
} turns_t __attribute__((aligned(64)));

static void
fill_turns(source_t *s, turns_t *turns)
{
    for (int n = 0; n < 2 * MOST_PAIRS + 8; n++) {
        turns->cosine[n] = draw_unit(s);
        turns->sine[n] = draw_unit(s);
    }
}

/* x c + y d, in double, rounded once. */
static void
expect_turned(T got, double x, double c, double y, double d, int64_t n)
{
    const double size = fabs(x * c) + fabs(y * d);
    expect((double)got, x * c + y * d, 4 * ROUNDING * size + LEAST, 0, n);
}

/* (a, b) -> (a c - b s, b c + a s), whose halves lie apart, in place or not. */
static void
check_turn_row_halves(source_t *s)
{
    const int pairs = (int)between(s, 0, MOST_PAIRS), in_place = once_in(s, 2);
    T *a = take_line(s, pairs), *b = take_line(s, pairs);
    T *a_to = in_place ? a : blank_line(s, pairs);
    T *b_to = in_place ? b : blank_line(s, pairs);
    turns_t turns;
    fill_turns(s, &turns);
    start_kernel();
    turn_row_halves(a_to, b_to, a, b, turns.cosine, turns.sine, pairs);
    allow_line(a_to, pairs);
    allow_line(b_to, pairs);
    for (int n = 0; n < pairs; n++) {
        const double x = (double)((const T *)before_kernel(a))[n];
        const double y = (double)((const T *)before_kernel(b))[n];
        expect_turned(a_to[n], x, turns.cosine[n], y, -turns.sine[n], n);
        expect_turned(b_to[n], y, turns.cosine[n], x, turns.sine[n], n);
    }
}

/* The same of a, b, a, b, .., whose table has each cosine twice, and -sine, sine. */
static void
check_turn_row_interleaved(source_t *s)
{
    const int pairs = (int)between(s, 0, MOST_PAIRS);
    T *from = take_line(s, 2 * pairs);
    T *to = once_in(s, 2) ? from : blank_line(s, 2 * pairs);
    turns_t turns;
    fill_turns(s, &turns);
    start_kernel();
    turn_row_interleaved(to, from, turns.cosine, turns.sine, pairs);
    allow_line(to, 2 * pairs);
    for (int n = 0; n < 2 * pairs; n++) {
        const T *x = before_kernel(from);
        expect_turned(to[n], (double)x[n], turns.cosine[n], (double)x[n ^ 1],
                      turns.sine[n], n);
    }
}

/* ---- convolution --------------------------------------------------------------------------- */

/* part += g * x, or += g. */
static void
check_conv_add(source_t *s)
{
    const int64_t count = extent(s, CONV_CHANNELS);
    const matrix_t g = take_matrix(s, 1, count, RP_OWN, REPEATED);
    const matrix_t x = take_matrix(s, 1, count, RP_OWN, REPEATED);
    const int has_x = !once_in(s, 4);
    T *part = take_line(s, count);
    start_kernel();
    conv_add(part, g.at, g.col, has_x ? x.at : NULL, x.col, count);
    allow_line(part, count);
    for (int64_t k = 0; k < count; k++) {
        sum_t sum = {0};
        add_term(&sum, (double)((const T *)before_kernel(part))[k]);
        add_term(&sum, number(&g, 0, k) * (has_x ? number(&x, 0, k) : 1));
        expect_sum(part[k], sum, 0, k);
    }
}

/* A grid of cells, the taps of a kernel, and the cell in work. */
typedef struct {
    int64_t height, width, row, column, down, along;
    matrix_t x, weight, mask;
} grid_t;

/* Cells and taps have a row of channels each; those that the mask hides may hold NaN. */
static grid_t
take_grid(source_t *s, int64_t channels)
{
    const int strides = once_in(s, 2) ? PLAIN : STRIDED;
    grid_t grid = {.height = between(s, 1, 4), .width = between(s, 1, 4)};
    grid.row = pick(s, grid.height);
    grid.column = pick(s, grid.width);
    grid.down = between(s, 1, 4);
    grid.along = between(s, 1, 4);
    const int64_t cells = grid.height * grid.width;
    grid.x = take_matrix(s, cells, channels, RP_OWN, strides);
    grid.weight = take_matrix(s, grid.down * grid.along, channels, RP_OWN, strides);
    grid.mask = take_matrix(s, 1, cells, RP_OWN, REPEATED);
    for (int64_t n = 0; n < cells; n++)
        *(T *)cell(&grid.mask, 0, n) = (T)pick(s, 3);
    for (int64_t n = 0; n < cells; n++)
        for (int64_t e = 0; number(&grid.mask, 0, n) == 0 && e < channels; e++)
            if (n != grid.row * grid.width + grid.column)
                *(T *)cell(&grid.x, n, e) = (T)NAN;
    return grid;
}

/* The taps that fall inside of the grid. */
static taps_t
taps_of(const grid_t *grid, int64_t top, int64_t left)
{
    const int64_t own = grid->row * grid->width + grid->column;
    taps_t taps = {.x = cell(&grid->x, own, 0), .mask = cell(&grid->mask, 0, own)};
    taps.weight = grid->weight.at;
    taps.x_row = grid->width * grid->x.row;
    taps.x_col = grid->x.row;
    taps.x_step = grid->x.col;
    taps.row = grid->along * grid->weight.row;
    taps.col = grid->weight.row;
    taps.step = grid->weight.col;
    taps.mask_row = grid->width * grid->mask.col;
    taps.mask_col = grid->mask.col;
    taps.top = top;
    taps.left = left;
    taps.s0 = RP_MAX(0, top - grid->row);
    taps.s1 = RP_MIN(grid->down, grid->height + top - grid->row);
    taps.t0 = RP_MAX(0, left - grid->column);
    taps.t1 = RP_MIN(grid->along, grid->width + left - grid->column);
    return taps;
}

/* x + bias + sum of weight * x over the taps, whose cells lie inside and are to be seen. */
static sum_t
conv_sum(const grid_t *grid, const matrix_t *bias, int64_t top, int64_t left, int64_t e)
{
    sum_t sum = {0};
    add_term(&sum, number(&grid->x, grid->row * grid->width + grid->column, e));
    add_term(&sum, number(bias, 0, e));
    for (int64_t down = 0; down < grid->down; down++)
        for (int64_t along = 0; along < grid->along; along++) {
            const int64_t r = grid->row + down - top, c = grid->column + along - left;
            const int64_t at = r * grid->width + c;
            if (r >= 0 && r < grid->height && c >= 0 && c < grid->width &&
                number(&grid->mask, 0, at) != 0)
                add_term(&sum, number(&grid->weight, down * grid->along + along, e) *
                                   number(&grid->x, at, e));
        }
    return sum;
}

static void
check_conv_cell(source_t *s)
{
    const int64_t channels = extent(s, 6 * VL);
    const grid_t grid = take_grid(s, channels);
    const int64_t top = between(s, -1, 4), left = between(s, -1, 4);
    const taps_t taps = taps_of(&grid, top, left);
    const matrix_t bias =
        take_matrix(s, 1, channels, RP_OWN, once_in(s, 2) ? PLAIN : REPEATED);
    const matrix_t out =
        blank_matrix(s, 1, channels, RP_OWN, once_in(s, 2) ? PLAIN : STRIDED);
    start_kernel();
    conv_cell(&taps, taps.x, bias.at, bias.col, out.at, out.col, channels);
    allow_matrix(&out);
    for (int64_t e = 0; e < channels; e++)
        expect_sum((T)number(&out, 0, e), conv_sum(&grid, &bias, top, left, e), 0, e);
}

#endif
