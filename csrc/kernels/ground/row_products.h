/* row_products.h: products of one query with rows that are read where they lie: its dot
 * products with them, and their weighted sum. Memory is what these wait for: each row asks
 * for the one RP_ROWS_AHEAD rows on, since the hardware loses the stream at every page. */
#ifndef RELPOS_GROUND_ROW_PRODUCTS_H
#define RELPOS_GROUND_ROW_PRODUCTS_H

#include "pack.h"

RP_INLINE T
dot(const T *a, const T *b, ptrdiff_t count)
{
    V sum0 = (V){0}, sum1 = (V){0};
    ptrdiff_t k = 0;
    for (; k + 2 * VL <= count; k += 2 * VL) {
        sum0 += load(a + k) * load(b + k);
        sum1 += load(a + k + VL) * load(b + k + VL);
    }
    for (; k + VL <= count; k += VL)
        sum0 += load(a + k) * load(b + k);
    T total = sum_lanes(sum0 + sum1)[0];
    for (; k < count; k++)
        total += a[k] * b[k];
    return total;
}

/* Lane n = x . row n, the bits of dot, for rows of whole vectors. The sums of VL rows
 * are folded together, which takes a quarter of the steps. */
RP_INLINE V
dots(const T *x, const char *rows, ptrdiff_t step, ptrdiff_t count)
{
    V sums[VL];
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++) {
        const T *row = (const T *)(rows + i * step);
        uintptr_t ahead = (uintptr_t)row + (uintptr_t)(RP_ROWS_AHEAD * step);
        V sum0 = (V){0}, sum1 = (V){0};
        ptrdiff_t k = 0;
        for (; k + 2 * VL <= count; k += 2 * VL) {
            rp_fetch(ahead + (uintptr_t)k * sizeof(T));
            rp_fetch(ahead + (uintptr_t)(k + VL) * sizeof(T));
            sum0 += load(x + k) * load(row + k);
            sum1 += load(x + k + VL) * load(row + k + VL);
        }
        for (; k + VL <= count; k += VL)
            sum0 += load(x + k) * load(row + k);
        sums[i] = sum0 + sum1;
    }
#pragma GCC unroll 4
    for (int n = VL / 2; n >= 1; n /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < n; i++)
            sums[i] = RP_LOW(sums[i], sums[i + n]) + RP_HIGH(sums[i], sums[i + n]);
    return sums[0];
}

/* s[n] += x . row `first` + n, for n in [0, count). `gathered`: room for a strided row. */
static void
add_dots(const rp_array *rows, int64_t b, int64_t h, int64_t first, int64_t count,
         const T *x, ptrdiff_t columns, T *gathered, T *s)
{
    const char *row = rp_at(rows, b, h, first);
    int64_t n = 0;
    if (rows->col == (ptrdiff_t)sizeof(T) && columns % VL == 0)
        for (; n + VL <= count; n += VL)
            store(s + n,
                  load(s + n) + dots(x, row + n * rows->row, rows->row, columns));
    for (; n < count; n++)
        s[n] +=
            dot(x, row_of(row + n * rows->row, rows->col, columns, gathered), columns);
}

/* out += sum_n w[n] * row n over four vectors, without rows of weight 0: hidden pairs may
 * sit on NaN. */
RP_INLINE void
weigh_rows(const T *w, const char *rows, ptrdiff_t step, int64_t count, T *out)
{
    V acc[4] = {{0}};
    for (int64_t n = 0; n < count; n++, rows += step) {
        const T *row = (const T *)rows;
        if (w[n] == 0)
            continue;
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) {
            rp_fetch((uintptr_t)(row + c * VL) + (uintptr_t)(RP_ROWS_AHEAD * step));
            acc[c] += w[n] * load(row + c * VL);
        }
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++)
        store(out + c * VL, load(out + c * VL) + acc[c]);
}

#endif
