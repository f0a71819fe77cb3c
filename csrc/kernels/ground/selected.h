/* selected.h: products of micro.h where the right operand holds NaN or infinity. */
#ifndef RELPOS_GROUND_SELECTED_H
#define RELPOS_GROUND_SELECTED_H

#include "micro.h"

/* c += a . b without the terms in which a is 0, in the order of the kernels above and with
 * their bits: b holds NaN or infinity in rows that hidden pairs must not touch. Term k of
 * row i stands at a[i * row_step + k * term_step]. */
RP_INLINE void
gemm_add_selected(const T *a, ptrdiff_t row_step, ptrdiff_t term_step, const T *b,
                  ptrdiff_t ldb, ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t depth,
                  T *c, ptrdiff_t ldc)
{
    for (ptrdiff_t i = 0; i < rows; i++, a += row_step)
        for (ptrdiff_t j = 0; j < columns; j += VL)
            for (ptrdiff_t k0 = 0; k0 < depth; k0 += DEPTH_BLOCK) {
                V sum = (V){0};
                for (ptrdiff_t k = k0; k < RP_MIN(depth, k0 + DEPTH_BLOCK); k++)
                    if (a[k * term_step] != 0)
                        sum += splat(a[k * term_step]) * load(b + k * ldb + j);
                T *cell = c + i * ldc + j;
                store(cell, load(cell) + sum);
            }
}

static void
gemm_add_rows_selected(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb,
                       ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t depth, T *c,
                       ptrdiff_t ldc)
{
    gemm_add_selected(a, lda, 1, b, ldb, rows, columns, depth, c, ldc);
}

static void
gemm_add_columns_selected(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb,
                          ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t depth, T *c,
                          ptrdiff_t ldc)
{
    gemm_add_selected(a, 1, lda, b, ldb, rows, columns, depth, c, ldc);
}

#endif
