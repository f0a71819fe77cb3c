/* tile_gemm.h: the micro-kernels that every product of a tile is made of.
 *
 * A micro-tile is MR rows by NR = 2 vectors, held in registers over the whole inner
 * dimension. Two forms of the left operand:
 *   packed  [k][MR]: q times a packed panel [k][NR] of keys or table rows
 *   rows    row-major, any stride: probabilities times rows of values
 * Sums run over k in ascending order with one accumulator a cell, so a cell's bits do not
 * depend on its place in a tile. `set` and `add` are separate: a run-time switch in the
 * epilogue costs 2-3 %. */

#define MR RP_MR
#define NR (2 * VL)
#define TERM_BLOCK 32  /* of the products q.k and grad_out.v */
#define DEPTH_BLOCK 64 /* of products with a tile's keys as terms */

RP_INLINE void
FN(product_packed)(const T *a, const T *b, ptrdiff_t depth, V acc[MR][2])
{
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
        acc[i][0] = acc[i][1] = (V){0};
    for (ptrdiff_t k = 0; k < depth; k++, a += MR, b += NR) {
        V b0 = FN(load)(b), b1 = FN(load)(b + VL);
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            V ai = FN(splat)(a[i]);
            acc[i][0] += ai * b0;
            acc[i][1] += ai * b1;
        }
    }
}

/* c (MR rows, stride ldc) = packed a . panel b */
static void
FN(tile_set)(const T *a, const T *b, ptrdiff_t depth, T *c, ptrdiff_t ldc)
{
    V acc[MR][2];
    FN(product_packed)(a, b, depth, acc);
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        FN(store)(c + i * ldc, acc[i][0]);
        FN(store)(c + i * ldc + VL, acc[i][1]);
    }
}

/* c += packed a . panel b; row_max[i] = lane-wise larger of itself and the new c */
static void
FN(tile_add_max)(const T *a, const T *b, ptrdiff_t depth, T *c, ptrdiff_t ldc,
                 T *row_max)
{
    V acc[MR][2];
    FN(product_packed)(a, b, depth, acc);
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        T *row = c + i * ldc, *m = row_max + i * VL;
        V s0 = FN(load)(row) + acc[i][0], s1 = FN(load)(row + VL) + acc[i][1];
        FN(store)(row, s0);
        FN(store)(row + VL, s1);
        FN(store)(m, FN(vmax)(FN(vmax)(s0, s1), FN(load)(m)));
    }
}

/* c = constant[i * step] of the row + packed a . panel b, with row_max as above */
static void
FN(tile_offset_max)(const T *a, const T *b, ptrdiff_t depth, T *c, ptrdiff_t ldc,
                    const T *constant, ptrdiff_t step, T *row_max)
{
    V acc[MR][2];
    FN(product_packed)(a, b, depth, acc);
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++) {
        T *row = c + i * ldc, *m = row_max + i * VL;
        V s0 = constant[i * step] + acc[i][0], s1 = constant[i * step] + acc[i][1];
        FN(store)(row, s0);
        FN(store)(row + VL, s1);
        FN(store)(m, FN(vmax)(FN(vmax)(s0, s1), FN(load)(m)));
    }
}

/* c (MR rows, `vectors` = 1 or 2 vectors wide) += a (MR rows, row-major) . b (depth rows).
 * c joins at the end: one running sum over all keys of a long row would lose digits with
 * the square root of its length. */
RP_INLINE void
FN(tile_add_rows)(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb, ptrdiff_t depth,
                  T *c, ptrdiff_t ldc, const int vectors)
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
            bk[j] = FN(load)(b + j * VL);
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            V ai = FN(splat)(a[i * lda]);
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++)
                acc[i][j] += ai * bk[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            FN(store)(c + i * ldc + j * VL, FN(load)(c + i * ldc + j * VL) + acc[i][j]);
}

/* c (rows, columns) += a (rows, depth) . b (depth, columns): rows a multiple of MR,
 * columns of VL. Column panels outside, so that a panel of b stays in L1 over the rows;
 * c takes the sum of every DEPTH_BLOCK terms, which keeps the rounding of long sums that
 * of short ones. */
static void
FN(gemm_add_rows)(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb, ptrdiff_t rows,
                  ptrdiff_t columns, ptrdiff_t depth, T *c, ptrdiff_t ldc)
{
    for (ptrdiff_t j = 0; j < columns; j += NR)
        for (ptrdiff_t k = 0; k < depth; k += DEPTH_BLOCK)
            for (ptrdiff_t i = 0; i < rows; i += MR) {
                const T *left = a + i * lda + k, *right = b + k * ldb + j;
                ptrdiff_t terms = RP_MIN(DEPTH_BLOCK, depth - k);
                T *cell = c + i * ldc + j;
                if (columns - j >= NR)
                    FN(tile_add_rows)(left, lda, right, ldb, terms, cell, ldc, 2);
                else
                    FN(tile_add_rows)(left, lda, right, ldb, terms, cell, ldc, 1);
            }
}

/* c (`valid` rows up to MR, `vectors` wide) += a' . b, a (depth, MR) of row length lda */
RP_INLINE void
FN(tile_add_columns)(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb,
                     ptrdiff_t depth, T *c, ptrdiff_t ldc, const int vectors, int valid)
{
    V acc[MR][2];
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
        acc[i][0] = acc[i][1] = (V){0};
    for (ptrdiff_t k = 0; k < depth; k++, a += lda, b += ldb) {
        V bk[2];
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            bk[j] = FN(load)(b + j * VL);
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            V ai = FN(splat)(a[i]);
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++)
                acc[i][j] += ai * bk[j];
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
        if (i < valid)
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++) {
                T *cell = c + i * ldc + j * VL;
                FN(store)(cell, FN(load)(cell) + acc[i][j]);
            }
}

/* c (rows, columns) += a' . b: a (depth, rows), b (depth, columns); columns a multiple of
 * VL. Reads a up to the next multiple of MR columns. */
static void
FN(gemm_add_columns)(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb,
                     ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t depth, T *c,
                     ptrdiff_t ldc)
{
    for (ptrdiff_t j = 0; j < columns; j += NR)
        for (ptrdiff_t k = 0; k < depth; k += DEPTH_BLOCK)
            for (ptrdiff_t i = 0; i < rows; i += MR) {
                const T *left = a + k * lda + i, *right = b + k * ldb + j;
                ptrdiff_t terms = RP_MIN(DEPTH_BLOCK, depth - k);
                int valid = (int)RP_MIN(MR, rows - i);
                T *cell = c + i * ldc + j;
                if (columns - j >= NR)
                    FN(tile_add_columns)(left, lda, right, ldb, terms, cell, ldc, 2,
                                         valid);
                else
                    FN(tile_add_columns)(left, lda, right, ldb, terms, cell, ldc, 1,
                                         valid);
            }
}

/* c (rows, columns) = packed a . panels b: rows a multiple of MR, columns of NR; `block`
 * terms at a time. */
static void
FN(gemm_set)(const T *a, const T *b, ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t depth,
             ptrdiff_t block, T *c, ptrdiff_t ldc)
{
    T unused[MR * VL] = {0};
    for (ptrdiff_t n = 0; n < columns; n += NR)
        for (ptrdiff_t m = 0; m < rows; m += MR) {
            const T *left = a + m * depth, *panel = b + n * depth;
            T *cell = c + m * ldc + n;
            FN(tile_set)(left, panel, RP_MIN(depth, block), cell, ldc);
            for (ptrdiff_t k = block; k < depth; k += block)
                FN(tile_add_max)(left + k * MR, panel + k * NR,
                                 RP_MIN(depth - k, block), cell, ldc, unused);
        }
}

/* c += a . b without the terms in which a is 0, in the order of the kernels above and with
 * their bits: b holds NaN or infinity in rows that hidden pairs must not touch. Term k of
 * row i stands at a[i * row_step + k * term_step]. */
RP_INLINE void
FN(gemm_add_selected)(const T *a, ptrdiff_t row_step, ptrdiff_t term_step, const T *b,
                      ptrdiff_t ldb, ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t depth,
                      T *c, ptrdiff_t ldc)
{
    for (ptrdiff_t i = 0; i < rows; i++, a += row_step)
        for (ptrdiff_t j = 0; j < columns; j += VL)
            for (ptrdiff_t k0 = 0; k0 < depth; k0 += DEPTH_BLOCK) {
                V sum = (V){0};
                for (ptrdiff_t k = k0; k < RP_MIN(depth, k0 + DEPTH_BLOCK); k++)
                    if (a[k * term_step] != 0)
                        sum += FN(splat)(a[k * term_step]) * FN(load)(b + k * ldb + j);
                T *cell = c + i * ldc + j;
                FN(store)(cell, FN(load)(cell) + sum);
            }
}

static void
FN(gemm_add_rows_selected)(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb,
                           ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t depth, T *c,
                           ptrdiff_t ldc)
{
    FN(gemm_add_selected)(a, lda, 1, b, ldb, rows, columns, depth, c, ldc);
}

static void
FN(gemm_add_columns_selected)(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb,
                              ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t depth, T *c,
                              ptrdiff_t ldc)
{
    FN(gemm_add_selected)(a, 1, lda, b, ldb, rows, columns, depth, c, ldc);
}
