/* gemm_block.h: one block of rp_gemm's result, of any strides: packed with pack.h,
 * multiplied with micro.h. */
#ifndef RELPOS_GROUND_GEMM_BLOCK_H
#define RELPOS_GROUND_GEMM_BLOCK_H

#include "line_products.h"
#include "pack.h"

/* c (rows, columns) = acc + beta * c; c is not read when beta is 0, as it may be NaN. */
static void
gemm_store(V acc[MR][2], int64_t rows, int64_t columns, T beta, T *c, ptrdiff_t ldc)
{
    T tile[MR * NR];
    for (int i = 0; i < MR; i++) {
        store(tile + i * NR, acc[i][0]);
        store(tile + i * NR + VL, acc[i][1]);
    }
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            T *cell = c + i * ldc + j;
            *cell = tile[i * NR + j] + (beta != 0 ? beta * *cell : 0);
        }
}

/* `count` contiguous elements of each of `depth` lines, times `factor`, to panels
 * [depth][width], zeros past them: a few lines at a time, as lines a power of two apart
 * push each other out of the cache, and the next ones asked for. */
RP_INLINE void
gemm_pack_lines(T *panels, const char *data, ptrdiff_t step, int64_t count,
                int64_t depth, const int width, T factor)
{
    enum { LINES = 8 };
    for (int64_t first = 0; first < depth; first += LINES)
        for (int64_t j = 0; j < count; j += width) {
            T *to = panels + j * depth + first * width;
            int64_t end = RP_MIN(first + LINES, depth);
            for (int64_t k = first; k < end; k++, to += width) {
                const T *from = (const T *)(data + k * step) + j;
                T line[RP_MAX(MR, NR)] = {0}; /* apart from both, to become vectors */
                rp_fetch((uintptr_t)from + LINES * (uintptr_t)step);
                if (j + width <= count)
                    for (int i = 0; i < width; i++)
                        line[i] = from[i] * factor;
                else
                    for (int i = 0; i < count - j; i++)
                        line[i] = from[i] * factor;
                memcpy(to, line, (size_t)width * sizeof(T));
            }
        }
}

/* Packs a (rows, depth) at `data`, times alpha, into blocks [depth][MR]. */
static void
gemm_pack_left(T *blocks, const rp_product *p, const char *data, int64_t rows,
               int64_t depth)
{
    if (p->a_row == (ptrdiff_t)sizeof(T))
        gemm_pack_lines(blocks, data, p->a_col, rows, depth, MR, (T)p->alpha);
    else
        pack_left(blocks, data, p->a_row, p->a_col, rows, rows, depth, (T)p->alpha);
}

/* Packs b (depth, columns) at `data` into panels [depth][NR], zeros past the columns. */
static void
gemm_pack_right(T *panels, const rp_product *p, const char *data, int64_t columns,
                int64_t depth)
{
    if (p->b_col == (ptrdiff_t)sizeof(T)) {
        gemm_pack_lines(panels, data, p->b_row, columns, depth, NR, 1);
        return;
    }
    for (int64_t j = 0; j < columns; j += NR, panels += depth * NR) {
        const char *lines[NR];
        for (int i = 0; i < NR; i++)
            lines[i] = j + i < columns ? data + (j + i) * p->b_col : NULL;
        pack_panel(panels, lines, p->b_row, RP_OWN, depth, 1, NR * p->b_col);
    }
}

/* Whether lines of a and b are read as they lie: for a product of few rows packing would
 * read and write all of b. */
RP_INLINE int
gemm_in_place(const rp_product *p)
{
    const ptrdiff_t size = sizeof(T);
    return p->m <= RP_GEMM_FEW && p->a_col == size && p->b_row == size &&
           p->k % VL == 0;
}

static void
gemm_few_rows(const rp_product *p, int64_t column, int64_t columns)
{
    enum { STRIP = 64 };
    const rp_array lines = {.data = (char *)p->b, .row = p->b_col, .col = sizeof(T)};
    const T alpha = (T)p->alpha, beta = (T)p->beta;
    for (int64_t first = 0; first < columns && !rp_stopping(); first += STRIP) {
        T sums[RP_GEMM_FEW * STRIP] = {0};
        int64_t count = RP_MIN(STRIP, columns - first);
        add_dots((const T *)p->a, p->a_row / (ptrdiff_t)sizeof(T), (int)p->m,
                 lines_of(&lines, 0, 0, column + first, count, p->k, NULL), count, p->k,
                 sums, STRIP);
        for (int64_t row = 0; row < p->m; row++) {
            T *c = (T *)p->c + row * p->c_row + column + first;
            for (int64_t j = 0; j < count; j++)
                c[j] = alpha * sums[row * STRIP + j] + (beta != 0 ? beta * c[j] : 0);
        }
    }
}

/* The block of c whose first cell is (row, column); scratch holds RP_GEMM_SCRATCH T. */
static void
gemm_block(const rp_product *p, int64_t row, int64_t column, void *scratch)
{
    int64_t rows = RP_MIN(p->m - row, RP_GEMM_ROWS);
    int64_t columns = RP_MIN(p->n - column, RP_GEMM_COLUMNS);
    T *left = scratch, *right = left + RP_GEMM_ROWS * RP_GEMM_DEPTH;
    T *c = (T *)p->c + row * p->c_row + column;
    int64_t start = 0;
    if (gemm_in_place(p)) {
        gemm_few_rows(p, column, columns);
        return;
    }
    do { /* once even for k = 0: then c = beta * c */
        int64_t depth = RP_MIN(p->k - start, RP_GEMM_DEPTH);
        T beta = start == 0 ? (T)p->beta : 1;
        gemm_pack_left(left, p, p->a + row * p->a_row + start * p->a_col, rows, depth);
        gemm_pack_right(right, p, p->b + start * p->b_row + column * p->b_col, columns,
                        depth);
        for (int64_t j = 0; j < columns; j += NR)
            for (int64_t i = 0; i < rows; i += MR) {
                V acc[MR][2];
                rp_ahead ahead = {(uintptr_t)(right + j * depth), 0};
                product(left + i * depth, 1, MR, right + j * depth, depth, ahead, MR,
                        acc);
                gemm_store(acc, RP_MIN(rows - i, MR), RP_MIN(columns - j, NR), beta,
                           c + i * p->c_row + j, p->c_row);
            }
        start += depth;
    } while (start < p->k && !rp_stopping());
}

#endif
