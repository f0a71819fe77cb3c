/* line_sums.h: weighted sums of lines of numbers, which are read where they lie, as
 * line_products.h has it. */
#ifndef RELPOS_GROUND_LINE_SUMS_H
#define RELPOS_GROUND_LINE_SUMS_H

#include "line_products.h"

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
        if (whole || kind != RP_OWN)
            weigh_strip(w, w_step, rows, strip, kind, count, width, vectors, 1, out + k,
                        out_step);
        else
            weigh_strip(w, w_step, rows, strip, kind, count, width, vectors, 0, out + k,
                        out_step);
    }
    return k;
}

/* The same over `width` numbers, in strips of `vectors` vectors at first. */
RP_INLINE void
weigh_lines_rows(const T *w, ptrdiff_t w_step, const int rows, lines_t lines,
                 const int kind, int64_t count, ptrdiff_t width, const int vectors,
                 T *out, ptrdiff_t out_step)
{
    const int whole = kind != RP_OWN || all_weigh(w, w_step, rows, count);
    ptrdiff_t k = weigh_strips(w, w_step, rows, lines, kind, count, width, 0, vectors,
                               whole, out, out_step);
    if (vectors > 4)
        k = weigh_strips(w, w_step, rows, lines, kind, count, width, k, 4, whole, out,
                         out_step);
    if (kind == RP_OWN)
        weigh_strips(w, w_step, rows, lines, kind, count, width, k, 1, whole, out,
                     out_step);
}

/* The same of up to RP_ROWS_WEIGHED rows, in a loop for their number. Two rows of lines of 16
 * bits wait less for memory than for registers. */
RP_INLINE void
weigh_lines_some(const T *w, ptrdiff_t w_step, int rows, lines_t lines, const int kind,
                 int64_t count, ptrdiff_t width, T *out, ptrdiff_t out_step)
{
    if (rows == 3)
        weigh_lines_rows(w, w_step, 3, lines, kind, count, width, RP_STRIP_OF_3, out,
                         out_step);
    else if (rows == 2)
        weigh_lines_rows(w, w_step, 2, lines, kind, count, width,
                         kind == RP_OWN ? RP_STRIP_OF_2 : RP_STRIP_OF_3, out, out_step);
    else
        weigh_lines_rows(w, w_step, 1, lines, kind, count, width, 8, out, out_step);
}

/* out[r] += sum_n w[r][n] * line n for `rows` lines of weights and of out, and at most
 * RP_LINES_SUMMED lines. Three rows, which read lines in strips, fetch no next piece: it would
 * not come in order. */
RP_INLINE void
weigh_some_lines(const T *w, ptrdiff_t w_step, int rows, lines_t lines, int64_t count,
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

/* The same of any number of lines, without those of weight 0: hidden pairs may sit on NaN. */
static void
weigh_lines(const T *w, ptrdiff_t w_step, int rows, lines_t lines, int64_t count,
            ptrdiff_t width, T *out, ptrdiff_t out_step)
{
    for (; count > 0; count -= RP_LINES_SUMMED, w += RP_LINES_SUMMED) {
        int64_t some = RP_MIN(RP_LINES_SUMMED, count);
        lines_t summed = lines;
        if (lines.kind != RP_OWN && !all_weigh(w, w_step, rows, some)) {
            for (int64_t n = 0; n < some; n++)
                widen(lines.buffer + n * width, lines.at + n * lines.step, 2,
                      lines.kind, width);
            summed = buffered_lines(lines.buffer, width);
        }
        weigh_some_lines(w, w_step, rows, summed, some, width, out, out_step);
        lines.at += RP_LINES_SUMMED * lines.step;
    }
}

#endif
