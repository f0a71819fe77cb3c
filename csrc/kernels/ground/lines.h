/* lines.h: lines of numbers, strided or contiguous: where one lies, copies, zeros, sums, and
 * products of one with many that are read where they lie. Memory is what those wait for: each
 * line asks for the one RP_ROWS_AHEAD on, since the hardware loses the stream at every page. */
#ifndef RELPOS_GROUND_LINES_H
#define RELPOS_GROUND_LINES_H

#include "vector.h"

enum {
    RP_ROWS_AHEAD = 16,    /* lines that are fetched before they are read */
    LINE = 64 / sizeof(T), /* numbers of a line of the cache */
};

/* Byte address of row `row` of batch item b, head h. */
RP_INLINE char *
rp_at(const rp_array *a, int64_t b, int64_t h, int64_t row)
{
    return a->data + (a->batch ? a->batch[b] : 0) + h * a->head + row * a->row;
}

/* Asks for the line of `count` numbers that is RP_ROWS_AHEAD lines of an array after `at`. */
RP_INLINE void
fetch_ahead(const rp_array *a, const char *at, ptrdiff_t count)
{
    uintptr_t ahead = (uintptr_t)at + (uintptr_t)(RP_ROWS_AHEAD * a->row);
    for (ptrdiff_t k = 0; a->col == (ptrdiff_t)sizeof(T) && k < count; k += LINE)
        rp_fetch(ahead + (uintptr_t)k * sizeof(T));
}

/* A strided row of T as a contiguous one: the row itself, or its copy in `buffer`. */
RP_INLINE const T *
row_of(const char *data, ptrdiff_t step, ptrdiff_t count, T *buffer)
{
    if (step == (ptrdiff_t)sizeof(T) || count <= 1)
        return (const T *)data;
    for (ptrdiff_t k = 0; k < count; k++)
        buffer[k] = *(const T *)(data + k * step);
    return buffer;
}

/* n elements from one strided run to another. */
RP_INLINE void
copy_run(char *to, ptrdiff_t to_step, const char *from, ptrdiff_t from_step, int64_t n)
{
    if (n <= 0)
        return;
    if (to_step == (ptrdiff_t)sizeof(T) && from_step == (ptrdiff_t)sizeof(T)) {
        memcpy(to, from, (size_t)n * sizeof(T));
        return;
    }
    for (int64_t i = 0; i < n; i++)
        *(T *)(to + i * to_step) = *(const T *)(from + i * from_step);
}

RP_INLINE void
zero_run(char *to, ptrdiff_t step, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        *(T *)(to + i * step) = 0;
}

/* One row (column stride `step` bytes, NULL: zeros) -> `padded` contiguous elements. */
static void
pack_row(T *packed, const char *row, ptrdiff_t step, ptrdiff_t count, ptrdiff_t padded)
{
    ptrdiff_t k = 0;
    if (row && step == (ptrdiff_t)sizeof(T)) {
        memcpy(packed, row, (size_t)count * sizeof(T));
        k = count;
    } else if (row) {
        for (; k < count; k++)
            packed[k] = *(const T *)(row + k * step);
    }
    for (; k < padded; k++)
        packed[k] = 0;
}

/* `count` contiguous elements -> a row with column stride `step` bytes. */
RP_INLINE void
unpack_row(char *row, ptrdiff_t step, const T *values, ptrdiff_t count)
{
    if (step == (ptrdiff_t)sizeof(T))
        memcpy(row, values, (size_t)count * sizeof(T));
    else
        for (ptrdiff_t k = 0; k < count; k++)
            *(T *)(row + k * step) = values[k];
}

RP_INLINE void
scale_row(T *row, ptrdiff_t count, T factor)
{
    for (ptrdiff_t k = 0; k < count; k += VL)
        store(row + k, load(row + k) * factor);
}

/* acc += weight * row, both contiguous */
RP_INLINE void
add_scaled(T *acc, T weight, const T *row, ptrdiff_t count)
{
    ptrdiff_t k = 0;
    for (; k + VL <= count; k += VL)
        store(acc + k, load(acc + k) + weight * load(row + k));
    for (; k < count; k++)
        acc[k] += weight * row[k];
}

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
