/* columns.h: products of a transposed operand, as micro.h makes the others: probabilities or
 * their gradients, a line for each query, times lines of queries. */
#ifndef RELPOS_GROUND_COLUMNS_H
#define RELPOS_GROUND_COLUMNS_H

#include "micro.h"

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
                  ptrdiff_t depth, const diagonal_t *diagonal, T *c, ptrdiff_t ldc,
                  const int height, const int vectors)
{
    const int few = height == HR ? TAIL_HALF : height;
    for (ptrdiff_t k = 0; k < depth; k += DEPTH_BLOCK)
        for (ptrdiff_t i = 0, taken; i < rows; i += taken) {
            int short_of = few < height && (rows - i == few || rows - i == 2 * few);
            taken = short_of ? few : height;
            const terms_t block = terms_of(diagonal, i, taken, k, depth);
            const T *left = a + block.begin * lda + i, *right = b + block.begin * ldb;
            ptrdiff_t terms = block.end - block.begin;
            if (terms <= 0)
                continue;
            if (short_of)
                tile_add_columns(left, lda, right, ldb, terms, c + i * ldc, ldc, few,
                                 vectors, few);
            else if (rows - i >= height) /* no comparisons at its end */
                tile_add_columns(left, lda, right, ldb, terms, c + i * ldc, ldc, height,
                                 vectors, height);
            else
                tile_add_columns(left, lda, right, ldb, terms, c + i * ldc, ldc, height,
                                 vectors, (int)(rows - i));
        }
}

/* c (rows, columns) += a' . b: a (depth, rows), b (depth, columns); columns a multiple of
 * VL. Of a' it takes the diagonal, or everything if that is NULL. Reads a up to the next
 * multiple of MR columns. Four vectors a strip where there are as many: a, whose lines lie
 * far apart, is read half as often. */
static void
gemm_add_columns(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb, ptrdiff_t rows,
                 ptrdiff_t columns, ptrdiff_t depth, const diagonal_t *diagonal, T *c,
                 ptrdiff_t ldc)
{
    for (; columns >= 4 * VL; columns -= 4 * VL, b += 4 * VL, c += 4 * VL)
        add_columns_strip(a, lda, b, ldb, rows, depth, diagonal, c, ldc, HR, 4);
    for (; columns >= 2 * VL; columns -= 2 * VL, b += 2 * VL, c += 2 * VL)
        add_columns_strip(a, lda, b, ldb, rows, depth, diagonal, c, ldc, MR, 2);
    if (columns > 0)
        add_columns_strip(a, lda, b, ldb, rows, depth, diagonal, c, ldc, MR, 1);
}

#endif
