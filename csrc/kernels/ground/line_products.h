/* line_products.h: products of a few lines of numbers with many, which are read where they
 * lie, one after the other. Memory is what these loops wait for: a line that comes from it
 * meets all of the few before the next but some is read. */
#ifndef RELPOS_GROUND_LINE_PRODUCTS_H
#define RELPOS_GROUND_LINE_PRODUCTS_H

#include "lines.h"

/* Whether lines of 16 bits have loops of their own, which widen vectors as they are read: not
 * without an instruction for that, nor in objects of double. They take widths of whole
 * 4 * VL numbers, and weights other than 0; all else is widened into a buffer first. */
#if RP_IS_F32 && defined(RP_NATIVE_HALF)
#define RP_SHORT_LINES 1
#else
#define RP_SHORT_LINES 0
#endif

enum {
    RP_LINES_SUMMED = 64, /* lines whose weighted sum is made before it is added */
    RP_LINES_JOINED = RP_MIN(4, VL), /* lines whose sums registers hold */
    RP_ROWS_DOTTED = 6,              /* rows that meet a line at a time, at most */
    RP_ROWS_WEIGHED = 6,             /* rows of weights that do */
    RP_ROWS_ZEROS = 3,               /* the same where some weights are 0 */
    RP_USUAL_WIDTH = 64, /* of lines whose products have loops of their own */
};

/* Lines of whole vectors side by side, `step` bytes apart. */
typedef struct {
    const char *at;
    ptrdiff_t step;
    uintptr_t ahead; /* bytes to the line that is fetched while one is read */
    uintptr_t next;  /* bytes to the next piece, which one part of the rows fetches */
    int cold;        /* no row met these lines before */
    int kind;        /* of the numbers: vectors are widened as they are read */
    T *buffer;       /* of lines of 16 bits: room for RP_LINES_SUMMED of T */
} lines_t;

/* Whether lines are read where they lie. */
RP_INLINE int
lie_in_place(const rp_array *a, ptrdiff_t columns)
{
    const int kind = RP_KIND(a);
    if (kind == RP_OWN)
        return a->col == (ptrdiff_t)sizeof(T) && columns % VL == 0;
    return RP_SHORT_LINES && a->col == 2 && columns % (4 * VL) == 0;
}

/* Lines of `width` numbers in a buffer. */
RP_INLINE lines_t
buffered_lines(const T *buffer, ptrdiff_t width)
{
    return (lines_t){.at = (const char *)buffer,
                     .step = width * (ptrdiff_t)sizeof(T),
                     .kind = RP_OWN};
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
        return (lines_t){at,
                         a->row,
                         (uintptr_t)(RP_STREAM_AHEAD * a->row),
                         (uintptr_t)(RP_LINES_SUMMED * a->row),
                         1,
                         RP_KIND(a),
                         buffer};
    for (int64_t n = 0; n < count; n++)
        pack_row(buffer + n * padded, a, at + n * a->row, columns, padded);
    return buffered_lines(buffer, padded);
}

/* Numbers of a kind that a line of the cache holds. */
RP_INLINE ptrdiff_t
line_numbers(const int kind)
{
    return 64 / size_of(kind);
}

/* Vector k of a line, whose cache line `ahead` bytes further on is asked for. */
RP_INLINE V
read_vector(const char *line, ptrdiff_t k, uintptr_t ahead, const int kind)
{
    if (k % line_numbers(kind) == 0)
        rp_fetch((uintptr_t)(line + k * size_of(kind)) + ahead);
    return load_as(line, k, kind);
}

/* How many of `rows` come first, where as few parts as can be of at most `most` are even. */
RP_INLINE int
even_part(int rows, int most)
{
    int parts = (rows + most - 1) / most;
    return (rows + parts - 1) / parts;
}

/* Lines for rows that meet them after others did: they lie in a cache, and nothing is
 * fetched. */
RP_INLINE lines_t
warm_lines(lines_t lines)
{
    lines.ahead = lines.next = 0;
    lines.cold = 0;
    return lines;
}

/* Lines for a later part of rows that were given together: they lie in a cache. Memory
 * would rest while the last part multiplies what the caches hold: it asks for the next
 * piece. */
RP_INLINE lines_t
later_lines(lines_t lines, int is_last)
{
    lines.ahead = is_last ? lines.next : 0;
    lines.cold = 0;
    return lines;
}

/* sum[r] += x[r] * a vector of a line. */
RP_INLINE void
dot_part(const T *x, ptrdiff_t x_step, const int rows, V part, V *sum)
{
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
        sum[r] = multiply_add(load(x + r * x_step), part, sum[r]);
}

/* Lines that are read by turns. Up to three rows of T wait for memory, which comes fastest
 * line by line; more read each of their vectors once for two lines. Of 16 bits there are as
 * many as registers have sums for, since the sums of one line alone wait for each other. */
RP_INLINE int
lines_by_turns(const int kind, const int rows)
{
    return rows > 3 ? 2 : kind == RP_OWN ? 1 : 4;
}

/* sum[n][r] = x[r] . line n by lane, of `some` lines. */
RP_INLINE void
dot_by_turns(const T *x, ptrdiff_t x_step, const int rows, const char **line,
             const int some, uintptr_t ahead, const int kind, ptrdiff_t width,
             V (*sum)[RP_ROWS_DOTTED])
{
    ptrdiff_t k = 0;
#pragma GCC unroll 4
    for (int n = 0; n < some; n++)
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
            sum[n][r] = (V){0};
    for (; k + 4 * VL <= width; k += 4 * VL)
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++)
#pragma GCC unroll 4
            for (int n = 0; n < some; n++)
                dot_part(x + k + c * VL, x_step, rows,
                         read_vector(line[n], k + c * VL, ahead, kind), sum[n]);
    for (; kind == RP_OWN && k < width; k += VL)
#pragma GCC unroll 4
        for (int n = 0; n < some; n++)
            dot_part(x + k, x_step, rows, read_vector(line[n], k, ahead, kind), sum[n]);
}

/* The products of RP_LINES_JOINED lines from line `first` on, those past `last` as that one:
 * sums by lane are joined as they come. Lines of T are read in order: the compiler would mix
 * the loads of several, which the CPU's own prefetch does not follow. */
RP_INLINE void
dot_lines(const T *x, ptrdiff_t x_step, const int rows, lines_t lines, const int kind,
          int first, int last, ptrdiff_t width, V *sum)
{
    V next[RP_LINES_JOINED][RP_ROWS_DOTTED];
    const int some = lines_by_turns(kind, rows);
#pragma GCC unroll 4
    for (int n = 0; n < RP_LINES_JOINED; n += some) {
        const char *line[RP_LINES_JOINED];
#pragma GCC unroll 4
        for (int m = 0; m < some; m++) {
            line[m] = lines.at + RP_MIN(first + n + m, last) * lines.step;
            RP_ORDER_ADDRESS(line[m]);
        }
        dot_by_turns(x, x_step, rows, line, some, lines.ahead, kind, width, next + n);
        if (kind == RP_OWN)
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++)
                RP_ORDER_VECTOR(next[n][r]);
#pragma GCC unroll 2
        for (int m = n | 1; m < n + some; m += 2)
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++)
                next[m - 1][r] = RP_JOIN_FIRST(next[m - 1][r], next[m][r]);
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#if RP_LANES == 2
        sum[r] = next[0][r];
#else
        sum[r] = RP_JOIN_SECOND(next[0][r], next[2][r]);
#endif
}

/* s[r][n] += x[r] . line n for `rows` lines x and VL lines, those past `last` as that one. */
RP_INLINE void
add_dots_lanes(const T *x, ptrdiff_t x_step, const int rows, lines_t lines,
               const int kind, int last, ptrdiff_t width, T *s, ptrdiff_t s_step)
{
    V sums[VL / RP_LINES_JOINED][RP_ROWS_DOTTED];
#pragma GCC unroll 1
    for (int n = 0; n < VL / RP_LINES_JOINED; n++)
        dot_lines(x, x_step, rows, lines, kind, n * RP_LINES_JOINED, last, width,
                  sums[n]);
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
#if RP_LANES == 16
        sums[0][r] = RP_JOIN_THIRD(sums[0][r], sums[1][r]);
        sums[1][r] = RP_JOIN_THIRD(sums[2][r], sums[3][r]);
#endif
#if RP_LANES > 4
        sums[0][r] = RP_JOIN_LAST(sums[0][r], sums[1][r]);
        sums[0][r] = RP_IN_ORDER(sums[0][r]);
#endif
        store(s + r * s_step, load(s + r * s_step) + sums[0][r]);
    }
}

/* s[r][n] += x[r] . line n for `count` lines, VL of them at a time. Two usual widths have
 * loops of their own, but not for numbers of 16 bits. */
RP_INLINE void
add_dots_rows(const T *x, ptrdiff_t x_step, const int rows, lines_t lines,
              const int kind, int64_t count, ptrdiff_t width, T *s, ptrdiff_t s_step)
{
    T rest[RP_ROWS_DOTTED * VL] = {0};
    for (int64_t n = 0; n < count; n += VL, lines.at += VL * lines.step) {
        const int last = (int)RP_MIN(VL, count - n) - 1, whole = last == VL - 1;
        if (whole && width == RP_USUAL_WIDTH && kind == RP_OWN)
            add_dots_lanes(x, x_step, rows, lines, kind, VL - 1, RP_USUAL_WIDTH, s + n,
                           s_step);
        else if (whole && width == 4 * VL && kind == RP_OWN)
            add_dots_lanes(x, x_step, rows, lines, kind, VL - 1, 4 * VL, s + n, s_step);
        else
            add_dots_lanes(x, x_step, rows, lines, kind, last, width,
                           whole ? s + n : rest, whole ? s_step : VL);
        for (int i = 0; !whole && i <= last; i++)
            for (int r = 0; r < rows; r++)
                s[r * s_step + n + i] += rest[r * VL + i];
    }
}

/* s[r][n] += x[r] . line n of up to RP_ROWS_DOTTED rows: each number of rows has a loop,
 * whose sums stay in registers. */
RP_INLINE void
add_dots_some(const T *x, ptrdiff_t x_step, int rows, lines_t lines, const int kind,
              int64_t count, ptrdiff_t width, T *s, ptrdiff_t s_step)
{
    if (rows == 6)
        add_dots_rows(x, x_step, 6, lines, kind, count, width, s, s_step);
    else if (rows == 5)
        add_dots_rows(x, x_step, 5, lines, kind, count, width, s, s_step);
    else if (rows == 4)
        add_dots_rows(x, x_step, 4, lines, kind, count, width, s, s_step);
    else if (rows == 3)
        add_dots_rows(x, x_step, 3, lines, kind, count, width, s, s_step);
    else if (rows == 2)
        add_dots_rows(x, x_step, 2, lines, kind, count, width, s, s_step);
    else
        add_dots_rows(x, x_step, 1, lines, kind, count, width, s, s_step);
}

/* s[r][n] += x[r] . line n for `rows` lines x of `width` numbers, whole vectors, and `count`
 * lines. */
static void
add_dots(const T *x, ptrdiff_t x_step, int rows, lines_t lines, int64_t count,
         ptrdiff_t width, T *s, ptrdiff_t s_step)
{
    for (int taken; rows > 0; lines = later_lines(lines, rows <= RP_ROWS_DOTTED)) {
        taken = even_part(rows, RP_ROWS_DOTTED);
        if (RP_SHORT_LINES && lines.kind == RP_F16)
            add_dots_some(x, x_step, taken, lines, RP_F16, count, width, s, s_step);
        else if (RP_SHORT_LINES && lines.kind == RP_BF16)
            add_dots_some(x, x_step, taken, lines, RP_BF16, count, width, s, s_step);
        else
            add_dots_some(x, x_step, taken, lines, RP_OWN, count, width, s, s_step);
        x += taken * x_step;
        s += taken * s_step;
        rows -= taken;
    }
}

#endif
