/* line_products.h: products of a few lines of numbers with many, which are read where they
 * lie, one after the other. Memory is what these loops wait for: a line that comes from it
 * meets all of the few before the next but some is read. */
#ifndef RELPOS_GROUND_LINE_PRODUCTS_H
#define RELPOS_GROUND_LINE_PRODUCTS_H

#include "lines.h"

/* Whether lines of 16 bits have loops of their own, which widen vectors as they are read: not
 * without an instruction for that, nor in objects of double. */
#if RP_IS_F32 && defined(RP_NATIVE_HALF)
#define RP_SHORT_LINES 1
#else
#define RP_SHORT_LINES 0
#endif

enum {
    RP_LINES_SUMMED = 64, /* lines whose weighted sum is made before it is added */
    RP_LINES_JOINED = RP_MIN(4, VL), /* lines whose sums registers hold */
    RP_ROWS_DOTTED = 4,              /* rows that meet a line at a time, at most */
    RP_ROWS_WEIGHED = 3,             /* rows of weights that do */
    RP_USUAL_WIDTH = 64, /* of lines whose products have loops of their own */
};

/* Lines of whole vectors side by side, `step` bytes apart. */
typedef struct {
    const char *at;
    ptrdiff_t step;
    uintptr_t ahead; /* bytes to the line that is fetched while one is read */
    uintptr_t next;  /* the same, by the last of several parts of the rows */
    int cold;        /* no row met these lines before */
    int kind;        /* of the numbers: vectors are widened as they are read */
} lines_t;

/* Whether lines are read where they lie. */
RP_INLINE int
lie_in_place(const rp_array *a, ptrdiff_t columns)
{
    const int kind = RP_KIND(a), is_read = kind == RP_OWN || RP_SHORT_LINES;
    return is_read && a->col == size_of(kind) && columns % VL == 0;
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
                         RP_KIND(a)};
    for (int64_t n = 0; n < count; n++)
        pack_row(buffer + n * padded, a, at + n * a->row, columns, padded);
    return (lines_t){
        (const char *)buffer, padded * (ptrdiff_t)sizeof(T), 0, 0, 0, RP_OWN};
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
    if (RP_STREAM_AHEAD > 0 && k % line_numbers(kind) == 0)
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

/* The same lines, as rows that come later meet them. */
RP_INLINE lines_t
warm_lines(lines_t lines)
{
    return (lines_t){lines.at, lines.step, 0, 0, 0, lines.kind};
}

/* The same lines, as a later part of rows that were given together meets them. Memory would
 * rest while the last part multiplies what the caches hold: it asks for the next piece. */
RP_INLINE lines_t
later_lines(lines_t lines, int is_last)
{
    return (lines_t){lines.at,   lines.step, is_last ? lines.next : 0,
                     lines.next, 0,          lines.kind};
}

/* ---- one product for each line ------------------------------------------------------ */

/* sum[r] += x[r] * a vector of a line. */
RP_INLINE void
dot_part(const T *x, ptrdiff_t x_step, const int rows, V part, V *sum)
{
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        sum[r] += load(x + r * x_step) * part;
}

/* sum[r] = x[r] . line by lane. The compiler would mix the loads of several lines, which the
 * CPU's own prefetch does not follow. */
RP_INLINE void
dot_line(const T *x, ptrdiff_t x_step, const int rows, const char *line,
         uintptr_t ahead, const int kind, ptrdiff_t width, V *sum)
{
    ptrdiff_t k = 0;
    RP_ORDER_ADDRESS(line);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        sum[r] = (V){0};
    for (; k + 4 * VL <= width; k += 4 * VL)
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++)
            dot_part(x + k + c * VL, x_step, rows,
                     read_vector(line, k + c * VL, ahead, kind), sum);
    for (; k < width; k += VL)
        dot_part(x + k, x_step, rows, read_vector(line, k, ahead, kind), sum);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        RP_ORDER_VECTOR(sum[r]);
}

/* The products of RP_LINES_JOINED lines from line `first` on, those past `last` as that one:
 * sums by lane are joined as they come. */
RP_INLINE void
dot_lines(const T *x, ptrdiff_t x_step, const int rows, lines_t lines, const int kind,
          int first, int last, ptrdiff_t width, V *sum)
{
    V next[RP_LINES_JOINED][RP_ROWS_DOTTED];
#pragma GCC unroll 4
    for (int n = 0; n < RP_LINES_JOINED; n++) {
        dot_line(x, x_step, rows, lines.at + RP_MIN(first + n, last) * lines.step,
                 lines.ahead, kind, width, next[n]);
        if (n % 2 == 1)
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                next[n - 1][r] = RP_JOIN_FIRST(next[n - 1][r], next[n][r]);
    }
#pragma GCC unroll 4
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
#pragma GCC unroll 4
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

/* The same for `count` lines. Of 16 bits no width has a loop of its own. */
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

/* The same of up to RP_ROWS_DOTTED rows, in a loop for their number. */
RP_INLINE void
add_dots_some(const T *x, ptrdiff_t x_step, int rows, lines_t lines, const int kind,
              int64_t count, ptrdiff_t width, T *s, ptrdiff_t s_step)
{
    if (rows == 4)
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

/* ---- weighted sums of lines --------------------------------------------------------- */

/* sums[r] += w[r] * line over `vectors` vectors, unless w[r] is 0, which its bits tell
 * soonest; `whole`: none of them is. */
RP_INLINE void
weigh_line(const T *w, ptrdiff_t w_step, const int rows, const char *line,
           uintptr_t ahead, const int kind, const int vectors, const int whole,
           V (*sums)[8])
{
    V part[8];
#pragma GCC unroll 8
    for (int c = 0; c < vectors; c++)
        part[c] = read_vector(line, c * VL, ahead, kind);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        TI bits;
        memcpy(&bits, w + r * w_step, sizeof bits);
        if (whole || bits != 0)
#pragma GCC unroll 8
            for (int c = 0; c < vectors; c++)
                sums[r][c] += w[r * w_step] * part[c];
    }
}

/* out[r] += sum_n w[r][n] * line n over `vectors` vectors: even and odd lines apart, since in
 * one sum each addition of a row alone would wait for the one before. Where the strip is
 * narrow, lines that are cold are read whole, in order: `width` numbers each. */
RP_INLINE void
weigh_strip(const T *w, ptrdiff_t w_step, const int rows, lines_t lines, const int kind,
            int64_t count, ptrdiff_t width, const int vectors, const int whole, T *out,
            ptrdiff_t out_step)
{
    V even[RP_ROWS_WEIGHED][8] = {{{0}}}, odd[RP_ROWS_WEIGHED][8] = {{{0}}};
    const char *at = lines.at;
    const ptrdiff_t step = line_numbers(kind);
    for (int64_t n = 0; n < count; n += 2, at += 2 * lines.step) {
        for (ptrdiff_t k = RP_ROUND_UP(vectors * VL, step) + step - VL;
             vectors * VL < 4 * LINE && lines.cold && k < width; k += step) {
            V first = load_as(at, k, kind);
            V second = load_as(at + (n + 1 < count) * lines.step, k, kind);
            RP_ORDER_VECTOR(first);
            RP_ORDER_VECTOR(second);
        }
        weigh_line(w + n, w_step, rows, at, lines.ahead, kind, vectors, whole, even);
        if (n + 1 < count)
            weigh_line(w + n + 1, w_step, rows, at + lines.step, lines.ahead, kind,
                       vectors, whole, odd);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++, out += out_step)
#pragma GCC unroll 8
        for (int c = 0; c < vectors; c++)
            store(out + c * VL, load(out + c * VL) + (even[r][c] + odd[r][c]));
}

/* Whether no weight of `count` lines is 0. */
RP_INLINE int
all_weigh(const T *w, ptrdiff_t w_step, int rows, int64_t count)
{
    VI zeros = {0};
    uint64_t parts[RP_VECTOR_BYTES / 8], found = 0;
    int64_t n = 0;
    for (int r = 0; r < rows; r++)
        for (n = 0; n + VL <= count; n += VL)
            zeros |= (VI)load(w + r * w_step + n) == 0;
    memcpy(parts, &zeros, sizeof parts);
    for (int i = 0; i < RP_VECTOR_BYTES / 8; i++)
        found |= parts[i];
    return n == count && found == 0;
}

/* The same of all strips of `vectors` vectors from column k on; returns the next column. */
RP_INLINE ptrdiff_t
weigh_strips(const T *w, ptrdiff_t w_step, const int rows, lines_t lines,
             const int kind, int64_t count, ptrdiff_t width, ptrdiff_t k,
             const int vectors, int whole, T *out, ptrdiff_t out_step)
{
    for (; k + vectors * VL <= width; k += vectors * VL) {
        lines_t strip = lines;
        strip.at += k * size_of(kind);
        strip.cold = k == 0 && lines.cold;
        if (whole)
            weigh_strip(w, w_step, rows, strip, kind, count, width, vectors, 1, out + k,
                        out_step);
        else
            weigh_strip(w, w_step, rows, strip, kind, count, width, vectors, 0, out + k,
                        out_step);
    }
    return k;
}

/* The same over `width` numbers, RP_LINES_SUMMED lines at a time, in strips of `vectors`
 * vectors at first. */
RP_INLINE void
weigh_lines_rows(const T *w, ptrdiff_t w_step, const int rows, lines_t lines,
                 const int kind, int64_t count, ptrdiff_t width, const int vectors,
                 T *out, ptrdiff_t out_step)
{
    for (; count > 0; count -= RP_LINES_SUMMED, w += RP_LINES_SUMMED) {
        int64_t some = RP_MIN(RP_LINES_SUMMED, count);
        const int whole = kind == RP_OWN && all_weigh(w, w_step, rows, some);
        ptrdiff_t k = weigh_strips(w, w_step, rows, lines, kind, some, width, 0,
                                   vectors, whole, out, out_step);
        if (vectors > 4)
            k = weigh_strips(w, w_step, rows, lines, kind, some, width, k, 4, whole,
                             out, out_step);
        weigh_strips(w, w_step, rows, lines, kind, some, width, k, 1, whole, out,
                     out_step);
        lines.at += RP_LINES_SUMMED * lines.step;
    }
}

/* The same of up to RP_ROWS_WEIGHED rows, in a loop for their number. */
RP_INLINE void
weigh_lines_some(const T *w, ptrdiff_t w_step, int rows, lines_t lines, const int kind,
                 int64_t count, ptrdiff_t width, T *out, ptrdiff_t out_step)
{
    if (rows == 3)
        weigh_lines_rows(w, w_step, 3, lines, kind, count, width, RP_STRIP_OF_3, out,
                         out_step);
    else if (rows == 2)
        weigh_lines_rows(w, w_step, 2, lines, kind, count, width, RP_STRIP_OF_2, out,
                         out_step);
    else
        weigh_lines_rows(w, w_step, 1, lines, kind, count, width, 8, out, out_step);
}

/* out[r] += sum_n w[r][n] * line n for `rows` lines of weights and of out, without lines of
 * weight 0: hidden pairs may sit on NaN. Three rows, which read lines in strips, fetch no next
 * piece: it would not come in order. */
static void
weigh_lines(const T *w, ptrdiff_t w_step, int rows, lines_t lines, int64_t count,
            ptrdiff_t width, T *out, ptrdiff_t out_step)
{
    for (int taken; rows > 0; lines = later_lines(lines, rows <= 2)) {
        taken = even_part(rows, RP_ROWS_WEIGHED);
        if (RP_SHORT_LINES && lines.kind == RP_F16)
            weigh_lines_some(w, w_step, taken, lines, RP_F16, count, width, out,
                             out_step);
        else if (RP_SHORT_LINES && lines.kind == RP_BF16)
            weigh_lines_some(w, w_step, taken, lines, RP_BF16, count, width, out,
                             out_step);
        else
            weigh_lines_some(w, w_step, taken, lines, RP_OWN, count, width, out,
                             out_step);
        w += taken * w_step;
        out += taken * out_step;
        rows -= taken;
    }
}

#endif
