/* lines.h: lines of numbers, strided or contiguous: where one lies, copies, zeros, sums, and
 * products of one with many that are read where they lie. Memory is what those wait for: each
 * line asks for one that is far enough ahead to have come when its turn is there. */
#ifndef RELPOS_GROUND_LINES_H
#define RELPOS_GROUND_LINES_H

#include "vector.h"

enum {
    LINE = 64 / sizeof(T), /* numbers of a line of the cache */
    RP_ROWS_AHEAD = 16, /* rows that are asked for before they are packed or written */
    RP_STREAM_AHEAD = 32, /* lines that are asked for before they are multiplied */
    RP_LINES_SUMMED = 64, /* lines whose weighted sum is made before it is added */
    /* lines that are multiplied by the same others at a time: their sums fill registers */
    RP_LINES_TOGETHER = RP_VECTOR_BYTES == 64 ? 4 : 2,
};

/* Byte address of row `row` of batch item b, head h. */
RP_INLINE char *
rp_at(const rp_array *a, int64_t b, int64_t h, int64_t row)
{
    return a->data + (a->batch ? a->batch[b] : 0) + h * a->head + row * a->row;
}

/* Asks for the line of `count` numbers that is RP_ROWS_AHEAD lines of an array after `at`. */
RP_INLINE void
fetch_ahead(const rp_array *a, const char *at, ptrdiff_t count)
{
    uintptr_t ahead = (uintptr_t)at + (uintptr_t)(RP_ROWS_AHEAD * a->row);
    for (ptrdiff_t k = 0; a->col == (ptrdiff_t)sizeof(T) && k < count; k += LINE)
        rp_fetch(ahead + (uintptr_t)k * sizeof(T));
}

/* A strided row of T as a contiguous one: the row itself, or its copy in `buffer`. */
RP_INLINE const T *
row_of(const char *data, ptrdiff_t step, ptrdiff_t count, T *buffer)
{
    if (step == (ptrdiff_t)sizeof(T) || count <= 1)
        return (const T *)data;
    for (ptrdiff_t k = 0; k < count; k++)
        buffer[k] = *(const T *)(data + k * step);
    return buffer;
}

RP_INLINE const T *
operand_row(const rp_array *a, int64_t b, int64_t h, int64_t row, ptrdiff_t count,
            T *buffer)
{
    return row_of(rp_at(a, b, h, row), a->col, count, buffer);
}

/* n elements from one strided run to another. */
RP_INLINE void
copy_run(char *to, ptrdiff_t to_step, const char *from, ptrdiff_t from_step, int64_t n)
{
    if (n <= 0)
        return;
    if (to_step == (ptrdiff_t)sizeof(T) && from_step == (ptrdiff_t)sizeof(T)) {
        memcpy(to, from, (size_t)n * sizeof(T));
        return;
    }
    for (int64_t i = 0; i < n; i++)
        *(T *)(to + i * to_step) = *(const T *)(from + i * from_step);
}

RP_INLINE void
zero_run(char *to, ptrdiff_t step, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        *(T *)(to + i * step) = 0;
}

/* One row (column stride `step` bytes, NULL: zeros) -> `padded` contiguous elements. */
static void
pack_row(T *packed, const char *row, ptrdiff_t step, ptrdiff_t count, ptrdiff_t padded)
{
    ptrdiff_t k = 0;
    if (row && step == (ptrdiff_t)sizeof(T)) {
        memcpy(packed, row, (size_t)count * sizeof(T));
        k = count;
    } else if (row) {
        for (; k < count; k++)
            packed[k] = *(const T *)(row + k * step);
    }
    for (; k < padded; k++)
        packed[k] = 0;
}

/* `count` contiguous elements -> a row with column stride `step` bytes. */
RP_INLINE void
unpack_row(char *row, ptrdiff_t step, const T *values, ptrdiff_t count)
{
    if (step == (ptrdiff_t)sizeof(T))
        memcpy(row, values, (size_t)count * sizeof(T));
    else
        for (ptrdiff_t k = 0; k < count; k++)
            *(T *)(row + k * step) = values[k];
}

RP_INLINE void
scale_row(T *row, ptrdiff_t count, T factor)
{
    for (ptrdiff_t k = 0; k < count; k += VL)
        store(row + k, load(row + k) * factor);
}

/* acc += weight * row, both contiguous */
RP_INLINE void
add_scaled(T *acc, T weight, const T *row, ptrdiff_t count)
{
    ptrdiff_t k = 0;
    for (; k + VL <= count; k += VL)
        store(acc + k, load(acc + k) + weight * load(row + k));
    for (; k < count; k++)
        acc[k] += weight * row[k];
}

/* The sum of p[first] to p[end - 1], whose last vector can be read whole. Zeros behind them
 * change no bit: each vector has its place. */
RP_INLINE T
sum_run(const T *p, int64_t first, int64_t end)
{
    V sums[4] = {{0}};
    for (; first + 4 * VL <= end; first += 4 * VL)
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++)
            sums[c] += load(p + first + c * VL);
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++, first += VL)
        if (first < end)
            sums[c] += first_lanes(load(p + first), (int)(end - first));
    return sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]))[0];
}

RP_INLINE T
dot(const T *a, const T *b, ptrdiff_t count)
{
    V sum0 = (V){0}, sum1 = (V){0};
    ptrdiff_t k = 0;
    for (; k + 2 * VL <= count; k += 2 * VL) {
        sum0 += load(a + k) * load(b + k);
        sum1 += load(a + k + VL) * load(b + k + VL);
    }
    for (; k + VL <= count; k += VL)
        sum0 += load(a + k) * load(b + k);
    T total = sum_lanes(sum0 + sum1)[0];
    for (; k < count; k++)
        total += a[k] * b[k];
    return total;
}

/* a . b in double, in 8 sums whatever the column strides: the same bits. */
RP_INLINE double
long_dot(const char *a, ptrdiff_t a_step, const char *b, ptrdiff_t b_step,
         ptrdiff_t count)
{
    double sums[8] = {0};
    ptrdiff_t k = 0;
    for (; k + 8 <= count; k += 8)
        for (int i = 0; i < 8; i++)
            sums[i] += (double)*(const T *)(a + (k + i) * a_step) *
                       *(const T *)(b + (k + i) * b_step);
    for (; k < count; k++)
        sums[k % 8] +=
            (double)*(const T *)(a + k * a_step) * *(const T *)(b + k * b_step);
    for (int n = 4; n >= 1; n /= 2)
        for (int i = 0; i < n; i++)
            sums[i] += sums[i + n];
    return sums[0];
}

/* ---- products of one line with many ------------------------------------------------ */

/* Lines of whole vectors side by side, `step` bytes apart. */
typedef struct {
    const char *at;
    ptrdiff_t step;
    uintptr_t ahead; /* bytes to the line that is fetched while one is read */
} lines_t;

/* Whether lines are read where they lie. */
RP_INLINE int
lie_in_place(const rp_array *a, ptrdiff_t columns)
{
    return a->col == (ptrdiff_t)sizeof(T) && columns % VL == 0;
}

/* Lines [first, first + count) of an array: where they lie or, if that will not do, a copy in
 * `buffer`, padded with zeros. */
RP_INLINE lines_t
lines_of(const rp_array *a, int64_t b, int64_t h, int64_t first, int64_t count,
         ptrdiff_t columns, T *buffer)
{
    const char *at = rp_at(a, b, h, first);
    const ptrdiff_t padded = RP_ROUND_UP(columns, VL);
    if (lie_in_place(a, columns))
        return (lines_t){at, a->row, (uintptr_t)(RP_STREAM_AHEAD * a->row)};
    for (int64_t n = 0; n < count; n++)
        pack_row(buffer + n * padded, at + n * a->row, a->col, columns, padded);
    return (lines_t){(const char *)buffer, padded * (ptrdiff_t)sizeof(T), 0};
}

/* s[r][n] += x[r] . line n for `rows` lines x and VL lines, those past `last` as that one. */
RP_INLINE void
add_dots_lanes(const T *x, ptrdiff_t x_step, const int rows, lines_t lines, int last,
               ptrdiff_t width, T *s, ptrdiff_t s_step)
{
    V sums[RP_LINES_TOGETHER][VL];
#pragma GCC unroll 4
    for (int n = 0; n < VL; n++) {
        const T *line = (const T *)(lines.at + RP_MIN(n, last) * lines.step);
        V sum[RP_LINES_TOGETHER] = {{0}};
        for (ptrdiff_t k = 0; k < width; k += VL) {
            V part = load(line + k);
            rp_fetch((uintptr_t)(line + k) + lines.ahead);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                sum[r] += load(x + r * x_step + k) * part;
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            sums[r][n] = sum[r];
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        store(s + r * s_step, load(s + r * s_step) + sum_each(sums[r]));
}

/* The same for `count` lines. */
RP_INLINE void
add_dots_rows(const T *x, ptrdiff_t x_step, const int rows, lines_t lines,
              int64_t count, ptrdiff_t width, T *s, ptrdiff_t s_step)
{
    T rest[RP_LINES_TOGETHER * VL] = {0};
    int64_t n = 0;
    for (; n + VL <= count; n += VL, lines.at += VL * lines.step)
        if (width == 4 * VL)
            add_dots_lanes(x, x_step, rows, lines, VL - 1, 4 * VL, s + n, s_step);
        else
            add_dots_lanes(x, x_step, rows, lines, VL - 1, width, s + n, s_step);
    if (n < count)
        add_dots_lanes(x, x_step, rows, lines, (int)(count - n) - 1, width, rest, VL);
    for (int i = 0; n < count; n++, i++)
        for (int r = 0; r < rows; r++)
            s[r * s_step + n] += rest[r * VL + i];
}

/* s[r][n] += x[r] . line n for `rows` lines x of `width` numbers, whole vectors, and `count`
 * lines, which are fetched by the first of the rows. */
static void
add_dots(const T *x, ptrdiff_t x_step, int rows, lines_t lines, int64_t count,
         ptrdiff_t width, T *s, ptrdiff_t s_step)
{
    while (rows > 0) {
        int taken = rows >= RP_LINES_TOGETHER ? RP_LINES_TOGETHER : rows >= 2 ? 2 : 1;
        if (taken == RP_LINES_TOGETHER)
            add_dots_rows(x, x_step, RP_LINES_TOGETHER, lines, count, width, s, s_step);
        else if (taken == 2)
            add_dots_rows(x, x_step, 2, lines, count, width, s, s_step);
        else
            add_dots_rows(x, x_step, 1, lines, count, width, s, s_step);
        lines.ahead = 0;
        rows -= taken;
        x += taken * x_step;
        s += taken * s_step;
    }
}

/* sums[r] += w[r] * line over `vectors` vectors, unless w[r] is 0, which its bits tell
 * soonest. */
RP_INLINE void
weigh_line(const T *w, ptrdiff_t w_step, const int rows, const char *at,
           uintptr_t ahead, const int vectors, V (*sums)[8])
{
    const T *line = (const T *)at;
    V part[8];
#pragma GCC unroll 8
    for (int c = 0; c < vectors; c++) {
        rp_fetch((uintptr_t)(line + c * VL) + ahead);
        part[c] = load(line + c * VL);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        TI bits;
        memcpy(&bits, w + r * w_step, sizeof bits);
        if (bits != 0)
#pragma GCC unroll 8
            for (int c = 0; c < vectors; c++)
                sums[r][c] += w[r * w_step] * part[c];
    }
}

/* out[r] += sum_n w[r][n] * line n over `vectors` vectors: even and odd lines apart, since in
 * one sum each addition of a row alone would wait for the one before. Both sums side by side
 * where registers will do, else one after the other, for the same bits. */
RP_INLINE void
weigh_strip(const T *w, ptrdiff_t w_step, const int rows, lines_t lines, int64_t count,
            const int vectors, T *out, ptrdiff_t out_step)
{
    const int aside = rows * vectors <= 2 * RP_LINES_TOGETHER;
    V even[RP_LINES_TOGETHER][8] = {{{0}}}, odd[RP_LINES_TOGETHER][8] = {{{0}}};
    const ptrdiff_t step = lines.step;
    const char *at = lines.at;
    for (int64_t n = 0; n < count; n += 2, at += 2 * step) {
        weigh_line(w + n, w_step, rows, at, lines.ahead, vectors, even);
        if (aside && n + 1 < count)
            weigh_line(w + n + 1, w_step, rows, at + step, lines.ahead, vectors, odd);
    }
    at = lines.at + step;
    for (int64_t n = 1; !aside && n < count; n += 2, at += 2 * step)
        weigh_line(w + n, w_step, rows, at, lines.ahead, vectors, odd);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++, out += out_step)
#pragma GCC unroll 8
        for (int c = 0; c < vectors; c++)
            store(out + c * VL, load(out + c * VL) + (even[r][c] + odd[r][c]));
}

/* The same over `width` numbers, RP_LINES_SUMMED lines at a time. */
RP_INLINE void
weigh_lines_rows(const T *w, ptrdiff_t w_step, const int rows, lines_t lines,
                 int64_t count, ptrdiff_t width, T *out, ptrdiff_t out_step)
{
    const ptrdiff_t size = sizeof(T);
    for (; count > 0; count -= RP_LINES_SUMMED, w += RP_LINES_SUMMED) {
        int64_t some = RP_MIN(RP_LINES_SUMMED, count);
        lines_t strip = lines;
        ptrdiff_t k = 0;
        for (; RP_LINES_TOGETHER / rows >= 2 && k + 8 * VL <= width; k += 8 * VL) {
            weigh_strip(w, w_step, rows, strip, some, 8, out + k, out_step);
            strip.at += 8 * VL * size;
        }
        for (; k + 4 * VL <= width; k += 4 * VL) {
            weigh_strip(w, w_step, rows, strip, some, 4, out + k, out_step);
            strip.at += 4 * VL * size;
        }
        for (; k < width; k += VL) {
            weigh_strip(w, w_step, rows, strip, some, 1, out + k, out_step);
            strip.at += VL * size;
        }
        lines.at += RP_LINES_SUMMED * lines.step;
    }
}

/* out[r] += sum_n w[r][n] * line n for `rows` lines of weights and of out, without lines of
 * weight 0: hidden pairs may sit on NaN. */
static void
weigh_lines(const T *w, ptrdiff_t w_step, int rows, lines_t lines, int64_t count,
            ptrdiff_t width, T *out, ptrdiff_t out_step)
{
    while (rows > 0) {
        int taken = rows >= RP_LINES_TOGETHER ? RP_LINES_TOGETHER : rows >= 2 ? 2 : 1;
        if (taken == RP_LINES_TOGETHER)
            weigh_lines_rows(w, w_step, RP_LINES_TOGETHER, lines, count, width, out,
                             out_step);
        else if (taken == 2)
            weigh_lines_rows(w, w_step, 2, lines, count, width, out, out_step);
        else
            weigh_lines_rows(w, w_step, 1, lines, count, width, out, out_step);
        lines.ahead = 0;
        rows -= taken;
        w += taken * w_step;
        out += taken * out_step;
    }
}

#endif
