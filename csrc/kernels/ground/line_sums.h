/* line_sums.h: weighted sums of lines of numbers, which are read where they lie, as
 * line_products.h has it. */
#ifndef RELPOS_GROUND_LINE_SUMS_H
#define RELPOS_GROUND_LINE_SUMS_H

#include "line_products.h"

enum { RP_WEIGHTS_STEP = 512 }; /* numbers from a row of weights to the next */

/* sums[r] += w[r] * part, `vectors` vectors of a line, unless w[r] is 0, which its bits tell
 * soonest; `whole`: none of them is. */
RP_INLINE void
weigh_part(const T *w, const int rows, const V *part, const int vectors,
           const int whole, V (*sums)[8])
{
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        TI bits;
        memcpy(&bits, w + r * RP_WEIGHTS_STEP, sizeof bits);
        if (whole || bits != 0)
#pragma GCC unroll 8
            for (int c = 0; c < vectors; c++)
                sums[r][c] =
                    multiply_add(splat(w[r * RP_WEIGHTS_STEP]), part[c], sums[r][c]);
    }
}

/* sums[r] += w[r] * a line; what lies `ahead` bytes further on is fetched meanwhile. */
RP_INLINE void
weigh_line(const T *w, const int rows, const char *line, uintptr_t ahead,
           const int kind, const int vectors, const int whole, V (*sums)[8])
{
    V part[8];
#pragma GCC unroll 8
    for (int c = 0; c < vectors; c++)
        part[c] = read_vector(line, c * VL, ahead, kind);
    weigh_part(w, rows, part, vectors, whole, sums);
}

/* Lines that are fetched in order, one line of the cache after the other. */
typedef struct {
    uintptr_t at;
    ptrdiff_t k, bytes, step; /* of a line: what is fetched, its size, to the next */
} fetched_t;

RP_INLINE void
fetch_some(fetched_t *next, const int count)
{
#pragma GCC unroll 4
    for (int i = 0; i < count; i++) {
        rp_fetch_second(next->at + (uintptr_t)next->k);
        next->k += 64;
        if (next->k >= next->bytes) {
            next->k = 0;
            next->at += (uintptr_t)next->step;
        }
    }
}

/* out[r] += sum_n w[r][n] * line n over `vectors` vectors: even and odd lines apart, since in
 * one sum each addition of a row alone would wait for the one before. Registers hold one half
 * of the sums, so that the odd lines come after the even ones. Memory would rest meanwhile:
 * each step fetches its share of the next piece. */
RP_INLINE void
weigh_halves(const T *w, const int rows, lines_t lines, const int kind, int64_t count,
             fetched_t *next, const int vectors, const int whole, T *out,
             ptrdiff_t out_step)
{
    V held[2][RP_ROWS_WEIGHED][8];
#pragma GCC unroll 1
    for (int half = 0; half < 2; half++) {
        V part[8], sums[RP_ROWS_WEIGHED][8] = {{{0}}};
        const char *at = lines.at + half * lines.step;
        for (int64_t n = half; n < count; n += 2, at += 2 * lines.step) {
            fetch_some(next, RP_MAX(1, vectors * VL * size_of(kind) / 64));
#pragma GCC unroll 8
            for (int c = 0; c < vectors; c++)
                part[c] = load_as(at, c * VL, kind);
            weigh_part(w + n, rows, part, vectors, whole, sums);
        }
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
            for (int c = 0; c < vectors; c++)
                held[half][r][c] = sums[r][c];
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++, out += out_step)
#pragma GCC unroll 8
        for (int c = 0; c < vectors; c++)
            store(out + c * VL, load(out + c * VL) + (held[0][r][c] + held[1][r][c]));
}

/* out[r] += sum_n w[r][n] * line n over `vectors` vectors, for one or two rows. These wait
 * for memory, so lines are read in order. Where the strip is narrow, lines that are cold
 * are read whole: `width` numbers each. */
RP_INLINE void
weigh_strip(const T *w, const int rows, lines_t lines, const int kind, int64_t count,
            ptrdiff_t width, const int vectors, const int whole, T *out,
            ptrdiff_t out_step)
{
    V even[2][8] = {{{0}}}, odd[2][8] = {{{0}}};
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
        weigh_line(w + n, rows, at, lines.ahead, kind, vectors, whole, even);
        if (n + 1 < count)
            weigh_line(w + n + 1, rows, at + lines.step, lines.ahead, kind, vectors,
                       whole, odd);
    }
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++, out += out_step)
#pragma GCC unroll 8
        for (int c = 0; c < vectors; c++)
            store(out + c * VL, load(out + c * VL) + (even[r][c] + odd[r][c]));
}

/* Whether no weight of `count` lines is 0. */
RP_INLINE int
all_weigh(const T *w, int rows, int64_t count)
{
    VI zeros = {0};
    uint64_t parts[RP_VECTOR_BYTES / 8], found = 0;
    int64_t n = 0;
    for (int r = 0; r < rows; r++)
        for (n = 0; n + VL <= count; n += VL)
            zeros |= (VI)load(w + r * RP_WEIGHTS_STEP + n) == 0;
    memcpy(parts, &zeros, sizeof parts);
    for (int i = 0; i < RP_VECTOR_BYTES / 8; i++)
        found |= parts[i];
    return n == count && found == 0;
}

/* out[r] += sum_n w[r][n] * line n in strips of `vectors` vectors from column k on, as many
 * as fit; returns the column after them. */
RP_INLINE ptrdiff_t
weigh_strips(const T *w, const int rows, lines_t lines, const int kind, int64_t count,
             ptrdiff_t width, ptrdiff_t k, fetched_t *next, const int vectors,
             const int whole, T *out, ptrdiff_t out_step)
{
    for (; k + vectors * VL <= width; k += vectors * VL) {
        lines_t strip = lines;
        strip.at += k * size_of(kind);
        strip.cold = k == 0 && lines.cold;
        if (rows > 2)
            weigh_halves(w, rows, strip, kind, count, next, vectors, whole, out + k,
                         out_step);
        else
            weigh_strip(w, rows, strip, kind, count, width, vectors, whole, out + k,
                        out_step);
    }
    return k;
}

/* out[r] += sum_n w[r][n] * line n over `width` numbers: in strips of `vectors` vectors,
 * then in narrower ones. */
RP_INLINE void
weigh_width(const T *w, const int rows, lines_t lines, const int kind, int64_t count,
            ptrdiff_t width, const int vectors, const int whole, T *out,
            ptrdiff_t out_step)
{
    fetched_t next = {(uintptr_t)lines.at + lines.next, 0, width * size_of(kind),
                      lines.step};
    ptrdiff_t k = weigh_strips(w, rows, lines, kind, count, width, 0, &next, vectors,
                               whole, out, out_step);
    if (vectors > 4)
        k = weigh_strips(w, rows, lines, kind, count, width, k, &next, 4, whole, out,
                         out_step);
    if (kind == RP_OWN)
        weigh_strips(w, rows, lines, kind, count, width, k, &next, 1, whole, out,
                     out_step);
}

/* out[r] += sum_n w[r][n] * line n of up to RP_ROWS_WEIGHED rows: each number of rows has a
 * loop; more than RP_ROWS_ZEROS of them only if no weight is 0. Two rows of lines of 16
 * bits wait less for memory than for registers, so their strips are those of more rows. */
RP_INLINE void
weigh_lines_some(const T *w, int rows, lines_t lines, const int kind, int64_t count,
                 ptrdiff_t width, const int whole, T *out, ptrdiff_t out_step)
{
    if (whole && rows == 6)
        weigh_width(w, 6, lines, kind, count, width, RP_STRIP_OF_6, 1, out, out_step);
    else if (whole && rows == 5)
        weigh_width(w, 5, lines, kind, count, width, RP_STRIP_OF_6, 1, out, out_step);
    else if (whole && rows == 4)
        weigh_width(w, 4, lines, kind, count, width, RP_STRIP_OF_6, 1, out, out_step);
    else if (rows == 3)
        weigh_width(w, 3, lines, kind, count, width, RP_STRIP_OF_3, whole, out,
                    out_step);
    else if (rows == 2)
        weigh_width(w, 2, lines, kind, count, width,
                    kind == RP_OWN ? RP_STRIP_OF_2 : RP_STRIP_OF_6, whole, out,
                    out_step);
    else
        weigh_width(w, 1, lines, kind, count, width, 8, whole, out, out_step);
}

/* out[r] += sum_n w[r][n] * line n for `rows` lines of weights and of out, and at most
 * RP_LINES_SUMMED lines. The first part of the rows alone fetches: what it asked for is there
 * when the others come. */
RP_INLINE void
weigh_some_lines(const T *w, int rows, lines_t lines, int64_t count, ptrdiff_t width,
                 T *out, ptrdiff_t out_step)
{
    const int whole = lines.kind != RP_OWN || all_weigh(w, rows, count);
    for (int taken; rows > 0; lines = warm_lines(lines)) {
        taken = even_part(rows, whole ? RP_ROWS_WEIGHED : RP_ROWS_ZEROS);
        if (RP_SHORT_LINES && lines.kind == RP_F16)
            weigh_lines_some(w, taken, lines, RP_F16, count, width, 1, out, out_step);
        else if (RP_SHORT_LINES && lines.kind == RP_BF16)
            weigh_lines_some(w, taken, lines, RP_BF16, count, width, 1, out, out_step);
        else if (whole)
            weigh_lines_some(w, taken, lines, RP_OWN, count, width, 1, out, out_step);
        else
            weigh_lines_some(w, taken, lines, RP_OWN, count, width, 0, out, out_step);
        w += taken * RP_WEIGHTS_STEP;
        out += taken * out_step;
        rows -= taken;
    }
}

/* out[r] += sum_n w[r][n] * line n of any number of rows and lines, without the lines whose
 * weight is 0: hidden pairs may sit on NaN. */
static void
weigh_lines(const T *w, int rows, lines_t lines, int64_t count, ptrdiff_t width, T *out,
            ptrdiff_t out_step)
{
    for (; count > 0; count -= RP_LINES_SUMMED, w += RP_LINES_SUMMED) {
        int64_t some = RP_MIN(RP_LINES_SUMMED, count);
        lines_t summed = lines;
        if (lines.kind != RP_OWN && !all_weigh(w, rows, some)) {
            for (int64_t n = 0; n < some; n++)
                widen(lines.buffer + n * width, lines.at + n * lines.step, 2,
                      lines.kind, width);
            summed = buffered_lines(lines.buffer, width);
        }
        weigh_some_lines(w, rows, summed, some, width, out, out_step);
        lines.at += RP_LINES_SUMMED * lines.step;
    }
}

#endif
