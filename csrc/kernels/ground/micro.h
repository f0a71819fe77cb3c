/* micro.h: the micro-kernels that every product of a tile is made of.
 *
 * A micro-tile is MR rows by NR = 2 vectors, held in registers over the whole inner
 * dimension. Three forms of the operands:
 *   panels   rows of queries times a packed panel [k][NR] of keys or table rows
 *   rows     probabilities, row-major, times rows of values
 *   columns  probabilities, transposed, times rows of queries
 * Sums run over k in ascending order with one accumulator a cell, so a cell's bits do not
 * depend on its place in a tile. `set` and `add` are separate: a run-time switch in the
 * epilogue costs 2-3 %. */
#ifndef RELPOS_GROUND_MICRO_H
#define RELPOS_GROUND_MICRO_H

#include "vector.h"

#define MR RP_MR
#define HR (MR / 2)
#define NR (2 * VL)
#define TERM_BLOCK 64 /* of the products q.k and grad_out.v: two sums of half as many */
#define DEPTH_BLOCK 64 /* of products with a tile's keys as terms */

/* ---- panels --------------------------------------------------------------------- */

/* One term of HR rows, `vectors` = 1 or 2 vectors wide. */
RP_INLINE void
product_step(const T *a, ptrdiff_t row, const T *b, const int vectors, V acc[HR][2])
{
    V bk[2];
#pragma GCC unroll 2
    for (int j = 0; j < vectors; j++)
        bk[j] = load(b + j * VL);
#pragma GCC unroll 4
    for (int i = 0; i < HR; i++) {
        V ai = splat(a[i * row]);
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            acc[i][j] += ai * bk[j];
    }
}

/* One term of MR rows, in two halves: clang unrolls no loop that is shorter than a pragma
 * says, and keeps its sums in memory. */
RP_INLINE void
product_term(const T *a, ptrdiff_t row, const T *b, V acc[MR][2])
{
    product_step(a, row, b, 2, acc);
    product_step(a + HR * row, row, b, 2, acc + HR);
}

/* acc = a . panel b. Term k of row i stands at a[i * row + k * term]; `ahead` is asked for
 * every two terms. */
RP_INLINE void
product(const T *a, const ptrdiff_t row, const ptrdiff_t term, const T *b,
        ptrdiff_t depth, rp_ahead ahead, V acc[MR][2])
{
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
        acc[i][0] = acc[i][1] = (V){0};
    ptrdiff_t k = 0;
    for (; k + 2 <= depth; k += 2, a += 2 * term, b += 2 * NR) {
        product_term(a, row, b, acc);
        product_term(a + term, row, b + NR, acc);
        rp_fetch(ahead.at);
        ahead.at += (uintptr_t)ahead.step;
    }
    if (k < depth)
        product_term(a, row, b, acc);
}

RP_INLINE void
store_tile(V acc[MR][2], T *c, ptrdiff_t ldc)
{
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        store(c + i * ldc, acc[i][0]);
        store(c + i * ldc + VL, acc[i][1]);
    }
}

/* c (MR rows) = a . panel b */
static void
tile_set(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, rp_ahead ahead, T *c,
         ptrdiff_t ldc)
{
    V acc[MR][2];
    product(a, lda, 1, b, depth, ahead, acc);
    store_tile(acc, c, ldc);
}

/* The same as the sum of sums of `block` terms, which stays in registers. */
static void
tile_set_blocks(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, ptrdiff_t block,
                rp_ahead ahead, T *c, ptrdiff_t ldc)
{
    V acc[MR][2], sum[MR][2];
    product(a, lda, 1, b, RP_MIN(block, depth), ahead, sum);
    for (ptrdiff_t k = block; k < depth; k += block) {
        ahead.at += (uintptr_t)(block / 2 * ahead.step);
        product(a + k, lda, 1, b + k * NR, RP_MIN(block, depth - k), ahead, acc);
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            sum[i][0] += acc[i][0];
            sum[i][1] += acc[i][1];
        }
    }
    store_tile(sum, c, ldc);
}

/* The same with the first half of a panel. */
static void
tile_set_half(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, ptrdiff_t block,
              T *c, ptrdiff_t ldc)
{
    V sum[MR] = {{0}};
    for (ptrdiff_t end = 0, k = 0; k < depth;) {
        V acc[MR] = {{0}};
        end = RP_MIN(depth, end + block);
        for (; k < end; k++) {
            V bk = load(b + k * NR);
#pragma GCC unroll 8
            for (int i = 0; i < MR; i++)
                acc[i] += splat(a[i * lda + k]) * bk;
        }
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++)
            sum[i] += acc[i];
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
        store(c + i * ldc, sum[i]);
}

/* c (rows, columns) = a (row-major) . panels b: rows a multiple of MR, columns of VL;
 * `block` terms at a time. Each micro-tile asks for its share of the next panel. */
static void
gemm_set(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t rows, ptrdiff_t columns,
         ptrdiff_t depth, ptrdiff_t block, T *c, ptrdiff_t ldc)
{
    const ptrdiff_t size = sizeof(T), step = 2 * NR * size * MR / rows;
    for (ptrdiff_t n = 0; n < columns; n += NR, b += NR * depth) {
        rp_ahead ahead = {(uintptr_t)b + (uintptr_t)(NR * depth * size), step};
        for (ptrdiff_t m = 0; m < rows; m += MR) {
            if (columns - n < NR)
                tile_set_half(a + m * lda, lda, b, depth, block, c + m * ldc + n, ldc);
            else if (block >= depth)
                tile_set(a + m * lda, lda, b, depth, ahead, c + m * ldc + n, ldc);
            else
                tile_set_blocks(a + m * lda, lda, b, depth, block, ahead,
                                c + m * ldc + n, ldc);
            ahead.at += (uintptr_t)(depth / 2 * step);
        }
    }
}

/* Half the rows of a micro-tile, as the sum of two sums of half the terms each: float32
 * errors of out and gradients come to 0.6 to 0.9 of those of one long sum, and the
 * registers hold both sums, so that no memory is read or written in between. acc: where
 * the first sum starts, then the result. */
RP_INLINE void
product_halves(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, rp_ahead ahead,
               const int vectors, V acc[HR][2])
{
    const ptrdiff_t half = depth / 2;
    const T *a_rest = a + half, *b_rest = b + half * NR;
    V rest[HR][2];
#pragma GCC unroll 4
    for (int i = 0; i < HR; i++)
        rest[i][0] = rest[i][1] = (V){0};
    for (ptrdiff_t k = 0; k < half; k++) {
        product_step(a + k, lda, b + k * NR, vectors, acc);
        product_step(a_rest + k, lda, b_rest + k * NR, vectors, rest);
        rp_fetch(ahead.at);
        ahead.at += (uintptr_t)ahead.step;
    }
    if (depth & 1)
        product_step(a_rest + half, lda, b_rest + half * NR, vectors, acc);
#pragma GCC unroll 4
    for (int i = 0; i < HR; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            acc[i][j] += rest[i][j];
}

/* c (HR rows, `vectors` wide) = a . panel b plus c or, unless that is NULL, plus
 * constant[i * step]; where row_max is not NULL, row_max[i] = lane-wise larger of itself and
 * the new c. Whole panels know at compile time whether both are NULL. */
RP_INLINE void
tile_halves(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, rp_ahead ahead,
            T *c, ptrdiff_t ldc, const T *constant, ptrdiff_t step, T *row_max,
            const int vectors)
{
    V acc[HR][2];
#pragma GCC unroll 4
    for (int i = 0; i < HR; i++)
        acc[i][0] = acc[i][1] = constant ? splat(constant[i * step]) : (V){0};
    product_halves(a, lda, b, depth, ahead, vectors, acc);
#pragma GCC unroll 4
    for (int i = 0; i < HR; i++) {
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
    tile_halves(a, lda, b, depth, ahead, c, ldc, NULL, 0, NULL, 2);
}

static RP_NOINLINE void
tile_add_max(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, rp_ahead ahead,
             T *c, ptrdiff_t ldc, T *row_max)
{
    tile_halves(a, lda, b, depth, ahead, c, ldc, NULL, 0, row_max, 2);
}

static RP_NOINLINE void
tile_offset(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, rp_ahead ahead,
            T *c, ptrdiff_t ldc, const T *constant, ptrdiff_t step)
{
    tile_halves(a, lda, b, depth, ahead, c, ldc, constant, step, NULL, 2);
}

static RP_NOINLINE void
tile_offset_max(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, rp_ahead ahead,
                T *c, ptrdiff_t ldc, const T *constant, ptrdiff_t step, T *row_max)
{
    tile_halves(a, lda, b, depth, ahead, c, ldc, constant, step, row_max, 2);
}

/* With the first half of a panel. */
static RP_NOINLINE void
tile_half(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t depth, rp_ahead ahead, T *c,
          ptrdiff_t ldc, const T *constant, ptrdiff_t step, T *row_max)
{
    tile_halves(a, lda, b, depth, ahead, c, ldc, constant, step, row_max, 1);
}

/* ---- rows ------------------------------------------------------------------------ */

/* c (MR rows, `vectors` = 1 or 2 vectors wide) += a (MR rows, row-major) . b (depth rows).
 * c joins at the end: one running sum over all keys of a long row would lose digits with
 * the square root of its length. */
RP_INLINE void
tile_add_rows(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb, ptrdiff_t depth,
              rp_ahead ahead, T *c, ptrdiff_t ldc, const int vectors)
{
    V acc[MR][2];
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
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
        for (int i = 0; i < MR; i++) {
            V ai = splat(a[i * lda]);
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++)
                acc[i][j] += ai * bk[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            store(c + i * ldc + j * VL, load(c + i * ldc + j * VL) + acc[i][j]);
}

/* c (rows, columns) += a (rows, depth) . b (depth, columns): rows a multiple of MR,
 * columns of VL. DEPTH_BLOCK terms outside: such a block of a and b is read from the
 * second-level cache once, and while it is used the next one is asked for. c takes the sum
 * of every block, which keeps the rounding of long sums that of short ones. */
static void
gemm_add_rows(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb, ptrdiff_t rows,
              ptrdiff_t columns, ptrdiff_t depth, T *c, ptrdiff_t ldc)
{
    const ptrdiff_t size = sizeof(T), panels = (columns + NR - 1) / NR;
    const ptrdiff_t step = ldb * size / RP_MAX(rows / MR * panels, 1);
    for (ptrdiff_t k = 0; k < depth; k += DEPTH_BLOCK) {
        rp_ahead ahead = {(uintptr_t)b + (uintptr_t)((k + DEPTH_BLOCK) * ldb * size),
                          step};
        for (ptrdiff_t j = 0; j < columns; j += NR)
            for (ptrdiff_t i = 0; i < rows; i += MR) {
                const T *left = a + i * lda + k, *right = b + k * ldb + j;
                ptrdiff_t terms = RP_MIN(DEPTH_BLOCK, depth - k);
                T *cell = c + i * ldc + j;
                if (columns - j >= NR)
                    tile_add_rows(left, lda, right, ldb, terms, ahead, cell, ldc, 2);
                else
                    tile_add_rows(left, lda, right, ldb, terms, ahead, cell, ldc, 1);
                ahead.at += (uintptr_t)(terms * step); /* their own share, if few */
            }
    }
}

/* ---- columns ----------------------------------------------------------------------- */

/* c (`valid` rows up to `rows`, `vectors` wide) += a' . b, a (depth, rows) of row length
 * lda. */
RP_INLINE void
tile_add_columns(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb, ptrdiff_t depth,
                 T *c, ptrdiff_t ldc, const int rows, const int vectors, int valid)
{
    V acc[MR][4];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            acc[i][j] = (V){0};
    for (ptrdiff_t k = 0; k < depth; k++, a += lda, b += ldb) {
        V bk[4];
#pragma GCC unroll 4
        for (int j = 0; j < vectors; j++)
            bk[j] = load(b + j * VL);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            V ai = splat(a[i]);
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++)
                acc[i][j] += ai * bk[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        if (i < valid)
#pragma GCC unroll 4
            for (int j = 0; j < vectors; j++) {
                T *cell = c + i * ldc + j * VL;
                store(cell, load(cell) + acc[i][j]);
            }
}

/* `vectors` columns of gemm_add_columns. */
RP_INLINE void
add_columns_strip(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb, ptrdiff_t rows,
                  ptrdiff_t depth, T *c, ptrdiff_t ldc, const int height,
                  const int vectors)
{
    for (ptrdiff_t k = 0; k < depth; k += DEPTH_BLOCK)
        for (ptrdiff_t i = 0; i < rows; i += height) {
            const T *left = a + k * lda + i, *right = b + k * ldb;
            ptrdiff_t terms = RP_MIN(DEPTH_BLOCK, depth - k);
            if (rows - i >= height) /* no comparisons at its end */
                tile_add_columns(left, lda, right, ldb, terms, c + i * ldc, ldc, height,
                                 vectors, height);
            else
                tile_add_columns(left, lda, right, ldb, terms, c + i * ldc, ldc, height,
                                 vectors, (int)(rows - i));
        }
}

/* c (rows, columns) += a' . b: a (depth, rows), b (depth, columns); columns a multiple of
 * VL. Reads a up to the next multiple of MR columns. Four vectors a strip where there are as
 * many: a, whose lines lie far apart, is read half as often. */
static void
gemm_add_columns(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb, ptrdiff_t rows,
                 ptrdiff_t columns, ptrdiff_t depth, T *c, ptrdiff_t ldc)
{
    for (; columns >= 4 * VL; columns -= 4 * VL, b += 4 * VL, c += 4 * VL)
        add_columns_strip(a, lda, b, ldb, rows, depth, c, ldc, HR, 4);
    for (; columns >= 2 * VL; columns -= 2 * VL, b += 2 * VL, c += 2 * VL)
        add_columns_strip(a, lda, b, ldb, rows, depth, c, ldc, MR, 2);
    if (columns > 0)
        add_columns_strip(a, lda, b, ldb, rows, depth, c, ldc, MR, 1);
}

#endif
