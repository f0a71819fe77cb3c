/* micro.h: the micro-kernels that every product of a tile is made of.
 *
 * A micro-tile is MR rows by NR = 2 vectors, held in registers over the whole inner
 * dimension. Three forms of the operands:
 *   panels   rows of queries times a packed panel [k][NR] of keys or table rows
 *   rows     probabilities, row-major, times rows of values
 *   columns  probabilities, transposed, times rows of queries (columns.h)
 * Sums run over k in ascending order with one accumulator a cell, so a cell's bits do not
 * depend on its place in a tile. `set` and `add` are separate: a run-time switch in the
 * epilogue costs 2-3 %. */
#ifndef RELPOS_GROUND_MICRO_H
#define RELPOS_GROUND_MICRO_H

#include "diagonal.h"

#define MR RP_MR
#define HR (MR / 2)
#define NR (2 * VL)
#define TAIL_ROWS 4 /* of the last micro-tile, where they will do */
#define TAIL_HALF (MR % TAIL_ROWS ? 2 : HR) /* of one that takes half the rows */
#define TERM_BLOCK 64 /* of the products q.k and grad_out.v: two sums of half as many */

/* Rows as micro-tiles take them: whole ones, and a last one of TAIL_ROWS or of MR. */
RP_INLINE int
padded_rows(int rows)
{
    int last = rows % MR;
    return last > 0 && last <= TAIL_ROWS ? rows - last + TAIL_ROWS
                                         : RP_ROUND_UP(rows, MR);
}

/* ---- panels --------------------------------------------------------------------- */

/* acc += one term of a product: a column of a, of up to HR rows, times a row of b, which is
 * `vectors` = 1 or 2 vectors wide. */
RP_INLINE void
product_step(const T *a, ptrdiff_t row, const T *b, const int rows, const int vectors,
             V acc[HR][2])
{
    V bk[2];
#pragma GCC unroll 2
    for (int j = 0; j < vectors; j++)
        bk[j] = load(b + j * VL);
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        V ai = splat(a[i * row]);
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            acc[i][j] += ai * bk[j];
    }
}

/* acc += one term of a product of MR or TAIL_ROWS rows, in two halves: clang unrolls no
 * loop that is shorter than a pragma says, and keeps its sums in memory. */
RP_INLINE void
product_term(const T *a, ptrdiff_t row, const T *b, const int rows, V acc[MR][2])
{
    product_step(a, row, b, rows / 2, 2, acc);
    product_step(a + rows / 2 * row, row, b, rows / 2, 2, acc + rows / 2);
}

/* acc = a . panel b. Term k of row i stands at a[i * row + k * term]; `ahead` is asked for
 * every two terms. */
RP_INLINE void
product(const T *a, const ptrdiff_t row, const ptrdiff_t term, const T *b,
        ptrdiff_t depth, rp_ahead ahead, const int rows, V acc[MR][2])
{
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        acc[i][0] = acc[i][1] = (V){0};
    ptrdiff_t k = 0;
    for (; k + 2 <= depth; k += 2, a += 2 * term, b += 2 * NR) {
        product_term(a, row, b, rows, acc);
        product_term(a + term, row, b + NR, rows, acc);
        rp_fetch(ahead.at);
        ahead.at += (uintptr_t)ahead.step;
    }
    if (k < depth)
        product_term(a, row, b, rows, acc);
}

RP_INLINE void
store_tile(V acc[MR][2], T *c, ptrdiff_t ldc, const int rows)
{
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++) {
        store(c + i * ldc, acc[i][0]);
        store(c + i * ldc + VL, acc[i][1]);
    }
}

/* c (`rows` rows) = a . panel b */
RP_INLINE void
tile_set(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, rp_ahead ahead, T *c,
         ptrdiff_t ldc, const int rows)
{
    V acc[MR][2];
    product(a, lda, 1, b, depth, ahead, rows, acc);
    store_tile(acc, c, ldc, rows);
}

/* c = a . panel b, as the sum of sums of `block` terms; it stays in registers. */
RP_INLINE void
tile_set_blocks(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, ptrdiff_t block,
                rp_ahead ahead, T *c, ptrdiff_t ldc, const int rows)
{
    V acc[MR][2], sum[MR][2];
    product(a, lda, 1, b, RP_MIN(block, depth), ahead, rows, sum);
    for (ptrdiff_t k = block; k < depth; k += block) {
        ahead.at += (uintptr_t)(block / 2 * ahead.step);
        product(a + k, lda, 1, b + k * NR, RP_MIN(block, depth - k), ahead, rows, acc);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            sum[i][0] += acc[i][0];
            sum[i][1] += acc[i][1];
        }
    }
    store_tile(sum, c, ldc, rows);
}

/* c = a . the first half of panel b, as the sum of sums of `block` terms. */
RP_INLINE void
tile_set_half(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, ptrdiff_t block,
              T *c, ptrdiff_t ldc, const int rows)
{
    V sum[MR] = {{0}};
    for (ptrdiff_t end = 0, k = 0; k < depth;) {
        V acc[MR] = {{0}};
        end = RP_MIN(depth, end + block);
        for (; k < end; k++) {
            V bk = load(b + k * NR);
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                acc[i] += splat(a[i * lda + k]) * bk;
        }
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
            sum[i] += acc[i];
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        store(c + i * ldc, sum[i]);
}

static RP_NOINLINE void
tile_set_whole(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, ptrdiff_t block,
               rp_ahead ahead, T *c, ptrdiff_t ldc, int half)
{
    if (half)
        tile_set_half(a, lda, b, depth, block, c, ldc, MR);
    else if (block >= depth)
        tile_set(a, lda, b, depth, ahead, c, ldc, MR);
    else
        tile_set_blocks(a, lda, b, depth, block, ahead, c, ldc, MR);
}

static RP_NOINLINE void
tile_set_tail(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, ptrdiff_t block,
              rp_ahead ahead, T *c, ptrdiff_t ldc, int half)
{
    if (half)
        tile_set_half(a, lda, b, depth, block, c, ldc, TAIL_ROWS);
    else
        tile_set_blocks(a, lda, b, depth, block, ahead, c, ldc, TAIL_ROWS);
}

/* c (rows, columns) = a (row-major) . panels b: rows as padded_rows says, columns a multiple of
 * VL; `block` terms at a time. Each micro-tile asks for its share of the next panel. */
static void
gemm_set(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t rows, ptrdiff_t columns,
         ptrdiff_t depth, ptrdiff_t block, T *c, ptrdiff_t ldc)
{
    const ptrdiff_t size = sizeof(T), step = 2 * NR * size * MR / rows;
    for (ptrdiff_t n = 0; n < columns; n += NR, b += NR * depth) {
        rp_ahead ahead = {(uintptr_t)b + (uintptr_t)(NR * depth * size), step};
        for (ptrdiff_t m = 0; m < rows; m += MR) {
            const T *left = a + m * lda;
            T *cell = c + m * ldc + n;
            if (rows - m >= MR)
                tile_set_whole(left, lda, b, depth, block, ahead, cell, ldc,
                               columns - n < NR);
            else
                tile_set_tail(left, lda, b, depth, block, ahead, cell, ldc,
                              columns - n < NR);
            ahead.at += (uintptr_t)(depth / 2 * step);
        }
    }
}

/* Half the rows of a micro-tile or less, as the sum of two sums of half the terms each: float32
 * errors of out and gradients come to 0.6 to 0.9 of those of one long sum, and the
 * registers hold both sums, so that no memory is read or written in between. acc: where
 * the first sum starts, then the result. */
RP_INLINE void
product_halves(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, rp_ahead ahead,
               const int rows, const int vectors, V acc[HR][2])
{
    const ptrdiff_t half = depth / 2;
    const T *a_rest = a + half, *b_rest = b + half * NR;
    V rest[HR][2];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
        rest[i][0] = rest[i][1] = (V){0};
    for (ptrdiff_t k = 0; k < half; k++) {
        product_step(a + k, lda, b + k * NR, rows, vectors, acc);
        product_step(a_rest + k, lda, b_rest + k * NR, rows, vectors, rest);
        rp_fetch(ahead.at);
        ahead.at += (uintptr_t)ahead.step;
    }
    if (depth & 1)
        product_step(a_rest + half, lda, b_rest + half * NR, rows, vectors, acc);
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            acc[i][j] += rest[i][j];
}

/* c (`rows` rows, `vectors` wide) = a . panel b plus c or, unless that is NULL, plus
 * constant[i * step]; where row_max is not NULL, row_max[i] = lane-wise larger of itself and
 * the new c. Whole panels know at compile time whether both are NULL. */
RP_INLINE void
tile_halves(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, rp_ahead ahead,
            T *c, ptrdiff_t ldc, const T *constant, ptrdiff_t step, T *row_max,
            const int rows, const int vectors)
{
    V acc[HR][2];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
        acc[i][0] = acc[i][1] = constant ? splat(constant[i * step]) : (V){0};
    product_halves(a, lda, b, depth, ahead, rows, vectors, acc);
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++) {
        T *row = c + i * ldc;
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) {
            if (!constant)
                acc[i][j] += load(row + j * VL);
            store(row + j * VL, acc[i][j]);
        }
        if (row_max) {
            T *m = row_max + i * VL;
            V top = vectors == 2 ? vmax(acc[i][0], acc[i][1]) : acc[i][0];
            store(m, vmax(top, load(m)));
        }
    }
}

static RP_NOINLINE void
tile_add(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, rp_ahead ahead, T *c,
         ptrdiff_t ldc)
{
    tile_halves(a, lda, b, depth, ahead, c, ldc, NULL, 0, NULL, HR, 2);
}

static RP_NOINLINE void
tile_add_max(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, rp_ahead ahead,
             T *c, ptrdiff_t ldc, T *row_max)
{
    tile_halves(a, lda, b, depth, ahead, c, ldc, NULL, 0, row_max, HR, 2);
}

static RP_NOINLINE void
tile_offset(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, rp_ahead ahead,
            T *c, ptrdiff_t ldc, const T *constant, ptrdiff_t step)
{
    tile_halves(a, lda, b, depth, ahead, c, ldc, constant, step, NULL, HR, 2);
}

static RP_NOINLINE void
tile_offset_max(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, rp_ahead ahead,
                T *c, ptrdiff_t ldc, const T *constant, ptrdiff_t step, T *row_max)
{
    tile_halves(a, lda, b, depth, ahead, c, ldc, constant, step, row_max, HR, 2);
}

/* c = a . the first half of panel b, plus what c holds or constant: of HR rows at a time.
 * */
static RP_NOINLINE void
tile_half(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, rp_ahead ahead, T *c,
          ptrdiff_t ldc, const T *constant, ptrdiff_t step, T *row_max)
{
    tile_halves(a, lda, b, depth, ahead, c, ldc, constant, step, row_max, HR, 1);
}

/* c = a . panel b or its first half, plus what c holds or constant: of TAIL_HALF rows at a
 * time, for the last rows of a tile. */
static RP_NOINLINE void
tile_tail(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, rp_ahead ahead, T *c,
          ptrdiff_t ldc, const T *constant, ptrdiff_t step, T *row_max, int half)
{
    if (half)
        tile_halves(a, lda, b, depth, ahead, c, ldc, constant, step, row_max, TAIL_HALF,
                    1);
    else
        tile_halves(a, lda, b, depth, ahead, c, ldc, constant, step, row_max, TAIL_HALF,
                    2);
}

/* ---- rows ------------------------------------------------------------------------ */

/* c (`rows` rows, `vectors` = 1 or 2 vectors wide) += a (row-major) . b (depth rows).
 * c joins at the end: one running sum over all keys of a long row would lose digits with
 * the square root of its length. */
RP_INLINE void
tile_add_rows(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb, ptrdiff_t depth,
              rp_ahead ahead, T *c, ptrdiff_t ldc, const int rows, const int vectors)
{
    V acc[MR][2];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            acc[i][j] = (V){0};
    for (ptrdiff_t k = 0; k < depth; k++, a++, b += ldb) {
        V bk[2];
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            bk[j] = load(b + j * VL);
        rp_fetch(ahead.at);
        ahead.at += (uintptr_t)ahead.step;
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            V ai = splat(a[i * lda]);
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++)
                acc[i][j] += ai * bk[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            store(c + i * ldc + j * VL, load(c + i * ldc + j * VL) + acc[i][j]);
}

/* c += a . b of TAIL_ROWS rows, the last of a tile; half: one vector of columns, not two.
 * */
static RP_NOINLINE void
tile_add_tail(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb, ptrdiff_t depth,
              rp_ahead ahead, T *c, ptrdiff_t ldc, int half)
{
    if (half)
        tile_add_rows(a, lda, b, ldb, depth, ahead, c, ldc, TAIL_ROWS, 1);
    else
        tile_add_rows(a, lda, b, ldb, depth, ahead, c, ldc, TAIL_ROWS, 2);
}

/* c (rows, columns) += a (rows, depth) . b (depth, columns): rows as padded_rows says,
 * columns a multiple of VL. Of a it takes the diagonal, or everything if that is NULL.
 * DEPTH_BLOCK terms outside: such a block of a and b is read from the second-level cache
 * once, and while it is used the next one is asked for. c takes the sum of every block,
 * which keeps the rounding of long sums that of short ones. */
static void
gemm_add_rows(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb, ptrdiff_t rows,
              ptrdiff_t columns, ptrdiff_t depth, const diagonal_t *diagonal, T *c,
              ptrdiff_t ldc)
{
    const ptrdiff_t size = sizeof(T), panels = (columns + NR - 1) / NR;
    const ptrdiff_t step = ldb * size / RP_MAX((rows + HR) / MR * panels, 1);
    for (ptrdiff_t k = 0; k < depth; k += DEPTH_BLOCK) {
        rp_ahead ahead = {(uintptr_t)b + (uintptr_t)((k + DEPTH_BLOCK) * ldb * size),
                          step};
        for (ptrdiff_t j = 0; j < columns; j += NR)
            for (ptrdiff_t i = 0; i < rows; i += MR) {
                const terms_t block = terms_of(diagonal, i, MR, k, depth);
                const T *left = a + i * lda + block.begin;
                const T *right = b + block.begin * ldb + j;
                ptrdiff_t terms = block.end - block.begin;
                T *cell = c + i * ldc + j;
                if (terms <= 0)
                    continue;
                if (rows - i < MR)
                    tile_add_tail(left, lda, right, ldb, terms, ahead, cell, ldc,
                                  columns - j < NR);
                else if (columns - j >= NR)
                    tile_add_rows(left, lda, right, ldb, terms, ahead, cell, ldc, MR,
                                  2);
                else
                    tile_add_rows(left, lda, right, ldb, terms, ahead, cell, ldc, MR,
                                  1);
                ahead.at += (uintptr_t)(terms * step); /* their own share, if few */
            }
    }
}

#endif
