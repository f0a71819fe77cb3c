/* listed.h: the band columns of a tile where an index lists the row of each position.
 *
 * Positions that follow each other mostly have one row, or rows side by side. So a product is
 * made with each packed row that a piece of columns has, once: forward it is spread over the
 * columns, and backward what the columns of a row have is added up before. An index that leaps
 * has short pieces. */
#ifndef RELPOS_ATTENTION_TILES_LISTED_H
#define RELPOS_ATTENTION_TILES_LISTED_H

#include "../../ground/arena.h"
#include "../packed.h"

/* The columns [begin, end) that have a row of the table, and the packed row of each. */
typedef struct {
    const int32_t *rows;
    int begin, end;
} columns_t;

/* Columns [begin, end), and the packed rows that they have: some of [first, past). */
typedef struct {
    int begin, end;
    int64_t first, past;
} piece_t;

/* Numbers of listed_t.products: of BQ queries, and of the packed rows of a piece. */
RP_INLINE int64_t
products_stride(ptrdiff_t lds)
{
    return lds + 3 * NR;
}

static void
lay_out_listed(arena_t *arena, listed_t *listed, ptrdiff_t lds)
{
    listed->rows = take(arena, lds, sizeof(int32_t));
    listed->products = take_numbers(arena, BQ * products_stride(lds));
    listed->same = take_numbers(arena, BQ);
}

/* Finds the rows of `count` columns, of which the first is that of relative position r. */
static columns_t
list_columns(const rp_attention *p, const rp_table *table, int64_t r, int count,
             int32_t *rows)
{
    const int64_t l = r - table->first, last = table->rows - 1;
    const int inside = (int)RP_MIN(count, RP_MAX(0, -l));
    const int past = (int)RP_MIN(count, RP_MAX(inside, last + 1 - l));
    const int32_t low = (int32_t)listed_row(table, 0),
                  high = (int32_t)listed_row(table, last);
    columns_t all = {rows, 0, count};
    for (int c = 0; c < inside; c++)
        rows[c] = low;
    for (int c = inside; c < past; c++)
        rows[c] = (int32_t)listed_row(table, l + c);
    for (int c = past; c < count; c++)
        rows[c] = high;
    if (p->beyond == RP_ZERO) {
        all.begin = inside;
        all.end = past;
    }
    return all;
}

/* The columns from `begin` on, or the first of them, whose rows lie side by side: among as many
 * packed rows as there are columns, or a panel. */
static piece_t
next_piece(const columns_t *all, int begin)
{
    for (int count = all->end - begin;; count = (count + 1) / 2) {
        int32_t low = all->rows[begin], high = low;
        for (int c = begin; c < begin + count; c++) {
            low = RP_MIN(low, all->rows[c]);
            high = RP_MAX(high, all->rows[c]);
        }
        if (high - low < RP_MAX(count, NR))
            return (piece_t){begin, begin + count, low, (int64_t)high + 1};
    }
}

/* ---- products by packed row to columns ----------------------------------------------- */

/* Whether the rows of `count` columns lie less than a vector apart. Then *lanes are those that
 * the columns take of the vector that begins with row *low. */
RP_INLINE int
find_lanes(const int32_t *rows, int count, int32_t *low, VI *lanes)
{
    TI lane[VL] = {0};
    int32_t high = rows[0];
    *low = rows[0];
    for (int i = 0; i < count; i++) {
        *low = RP_MIN(*low, rows[i]);
        high = RP_MAX(high, rows[i]);
    }
    for (int i = 0; i < count; i++)
        lane[i] = rows[i] - *low;
    memcpy(lanes, lane, sizeof lane);
    return high - *low < VL;
}

/* c[m, column] = products[m, packed row of the column, less the first of the piece]. */
static void
spread_piece(const columns_t *all, const piece_t *piece, const T *products,
             ptrdiff_t stride, int rows, T *c, ptrdiff_t ldc)
{
    for (int n = piece->begin; n < piece->end; n += VL) {
        const int32_t *row = all->rows + n;
        const int count = RP_MIN(VL, piece->end - n);
#ifdef RP_PERMUTE /* where one instruction takes any lanes of a vector */
        int32_t low;
        VI lanes;
        if (find_lanes(row, count, &low, &lanes) && count == VL) {
            const T *from = products + (low - piece->first);
            for (int m = 0; m < rows; m++)
                store(c + m * ldc + n, (V)RP_PERMUTE(load(from + m * stride), lanes));
            continue;
        }
#endif
        for (int m = 0; m < rows; m++)
            for (int i = 0; i < count; i++)
                c[m * ldc + n + i] = products[m * stride + (row[i] - piece->first)];
    }
}

/* ---- columns to sums by packed row ---------------------------------------------------- */

/* Clears the sums of a piece, lines of `width` numbers, and those up to a whole micro-tile. */
RP_INLINE void
clear_sums(const piece_t *piece, ptrdiff_t width, T *sums)
{
    int64_t lines = RP_ROUND_UP(piece->past - piece->first, TAIL_ROWS);
    memset(sums, 0, (size_t)(lines * width) * sizeof(T));
}

/* sums[packed row, m] = sum of a[m, column] over the columns of the piece that have the row, in
 * lines of BQ numbers. Rows of a are whole vectors, `lda` apart. */
static void
join_piece(const columns_t *all, const piece_t *piece, const T *a, ptrdiff_t lda,
           int rows, T *sums)
{
    clear_sums(piece, BQ, sums);
    for (int n = piece->begin; n < piece->end; n += VL) {
        const int at = RP_MIN(n, (int)lda - VL), end = RP_MIN(n + VL, piece->end);
        for (int m = 0; m < rows; m += VL) {
            V block[VL];
#pragma GCC unroll 16
            for (int i = 0; i < VL; i++)
                block[i] = load(a + (m + i) * lda + at);
            transpose(block);
            for (int c = n; c < end; c++) {
                T *to = sums + (all->rows[c] - piece->first) * BQ + m;
                store(to, load(to) + block[c - at]);
            }
        }
    }
}

#endif
