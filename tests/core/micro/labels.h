/* labels.h: labels of pairs, which name rows of a table; lengths of keys and rows. */
#ifndef RELPOS_TESTS_CORE_MICRO_LABELS_H
#define RELPOS_TESTS_CORE_MICRO_LABELS_H

#include "numbers.h"

/* ---- labels ----------------------------------------------------------------------------------- */

/* Labels of a size, in stretches that stay the same, rise, fall, or are any numbers. */
typedef struct {
    char *at;
    ptrdiff_t step;
    int size;
    int64_t rows; /* of the table: other labels name none */
} labels_t;

static int64_t
label_at(const labels_t *labels, int64_t n)
{
    const char *at = labels->at + n * labels->step;
    const int64_t label = labels->size == 1   ? *(const int8_t *)at
                          : labels->size == 2 ? *(const int16_t *)at
                          : labels->size == 4 ? *(const int32_t *)at
                                              : *(const int64_t *)at;
    return label >= 0 && label < labels->rows ? label : -1;
}

static void
put_label(const labels_t *labels, int64_t n, int64_t label)
{
    char *at = labels->at + n * labels->step;
    if (labels->size == 1)
        *(int8_t *)at = (int8_t)label;
    else if (labels->size == 2)
        *(int16_t *)at = (int16_t)label;
    else if (labels->size == 4)
        *(int32_t *)at = (int32_t)label;
    else
        *(int64_t *)at = label;
}

static labels_t
take_labels(source_t *s, int64_t count)
{
    static const int kinds[] = {BYTES, RP_F16, FLOATS, DOUBLES}, sizes[] = {1, 2, 4, 8};
    const int which = (int)pick(s, 4);
    const matrix_t row = blank_matrix(s, 1, count, kinds[which], REPEATED);
    labels_t labels = {row.at, row.col, sizes[which], between(s, 1, 100)};
    int64_t label = 0, rise = 0;
    for (int64_t n = 0; n < count; n++) {
        const int apart = rise == 2;
        if (n % VL == 0 || once_in(s, 4 * VL)) {
            rise = between(s, -1, 2);
            label = between(s, -1, labels.rows);
        }
        put_label(&labels, n, apart ? between(s, -20, 107) : label);
        label = RP_MIN(120, RP_MAX(-2, label + (rise == 2 ? 0 : rise)));
    }
    return labels;
}

/* s[n] = dots[label], or += */
static void
check_fill_line(source_t *s)
{
    const int count = (int)extent(s, 6 * VL), adds = once_in(s, 2);
    const labels_t labels = take_labels(s, count);
    const T *dots = take_line(s, labels.rows);
    T *row = take_line(s, count);
    start_kernel();
    fill_line(labels.at, labels.step, labels.size, count, labels.rows, dots, adds, row);
    allow_line(row, count);
    for (int n = 0; n < count; n++) {
        const int64_t label = label_at(&labels, n);
        sum_t sum = {0};
        add_term(&sum, label < 0 ? 0 : (double)dots[label]);
        if (adds)
            add_term(&sum, (double)((const T *)before_kernel(row))[n]);
        expect_sum(row[n], sum, 0, n);
    }
}

/* sums[label] += a[n] */
static void
check_sum_line(source_t *s)
{
    const int count = (int)extent(s, 6 * VL);
    const labels_t labels = take_labels(s, count);
    const T *a = take_line(s, count);
    T *sums = take_line(s, labels.rows);
    start_kernel();
    sum_line(labels.at, labels.step, labels.size, count, labels.rows, a, sums);
    allow_line(sums, labels.rows);
    for (int64_t row = 0; row < labels.rows; row++) {
        sum_t sum = {0};
        add_term(&sum, (double)((const T *)before_kernel(sums))[row]);
        for (int n = 0; n < count; n++)
            if (label_at(&labels, n) == row)
                add_term(&sum, (double)a[n]);
        expect_sum(sums[row], sum, 0, row);
    }
}

/* ---- lengths of keys and rows ------------------------------------------------------------------ */

static void
expect_length(T got, const matrix_t *rows)
{
    double most = 0;
    for (int64_t m = 0; m < rows->rows; m++) {
        double square = 0;
        for (int64_t k = 0; k < rows->columns; k++)
            square += number(rows, m, k) * number(rows, m, k);
        most = square < INFINITY ? RP_MAX(most, square) : INFINITY;
        if (most == INFINITY)
            break;
    }
    expect((double)got, sqrt(most),
           ROUNDING * (double)(rows->columns + 4) * sqrt(most) + sqrt(LEAST), 0, 0);
}

static void
check_longest_row(source_t *s)
{
    const matrix_t rows = take_dense(s, between(s, 0, 9), VL * between(s, 0, 5));
    if (once_in(s, 4))
        spoil(s, &rows);
    start_kernel();
    expect_length(longest_row((const T *)rows.at, (int)rows.rows, rows.columns), &rows);
}

/* Keys in panels: those behind the last are zeros. */
static void
check_longest_key(source_t *s)
{
    const int64_t count = extent(s, 4 * NR), depth = between(s, 0, 20);
    const matrix_t keys = take_matrix(s, count, depth, RP_OWN, PLAIN);
    T *panels = blank_line(s, RP_ROUND_UP(count, NR) * depth);
    if (once_in(s, 4))
        spoil(s, &keys);
    for (int64_t j = 0; j < RP_ROUND_UP(count, NR); j++)
        for (int64_t k = 0; k < depth; k++)
            panels[j / NR * NR * depth + k * NR + j % NR] =
                j < count ? (T)number(&keys, j, k) : 0;
    start_kernel();
    expect_length(longest_key(panels, count, depth), &keys);
}

#endif
