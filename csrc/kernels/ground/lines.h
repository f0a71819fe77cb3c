/* lines.h: lines of numbers, strided or contiguous: where one lies, copies, zeros, sums. */
#ifndef RELPOS_GROUND_LINES_H
#define RELPOS_GROUND_LINES_H

#include "widen.h"

enum {
    LINE = 64 / sizeof(T), /* numbers of a line of the cache */
    RP_ROWS_AHEAD = 16, /* rows that are asked for before they are packed or written */
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
    const ptrdiff_t size = size_of(RP_KIND(a));
    uintptr_t ahead = (uintptr_t)at + (uintptr_t)(RP_ROWS_AHEAD * a->row);
    for (ptrdiff_t k = 0; a->col == size && k < count * size; k += 64)
        rp_fetch(ahead + (uintptr_t)k);
}

/* A row as a contiguous one of T: the row itself, or its copy in `buffer`. */
RP_INLINE const T *
operand_row(const rp_array *a, int64_t b, int64_t h, int64_t row, ptrdiff_t count,
            T *buffer)
{
    const char *data = rp_at(a, b, h, row);
    if (is_plain(a) || (RP_KIND(a) == RP_OWN && count <= 1))
        return (const T *)data;
    widen(buffer, data, a->col, RP_KIND(a), count);
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
zero_run(char *to, ptrdiff_t step, ptrdiff_t size, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        memset(to + i * step, 0, (size_t)size);
}

/* A row of `a` at `row` (NULL: zeros) -> `padded` contiguous elements. */
static void
pack_row(T *packed, const rp_array *a, const char *row, ptrdiff_t count,
         ptrdiff_t padded)
{
    if (row)
        widen(packed, row, a->col, RP_KIND(a), count);
    for (ptrdiff_t k = row ? count : 0; k < padded; k++)
        packed[k] = 0;
}

/* `count` contiguous elements -> the row of `a` at `row`. */
RP_INLINE void
unpack_row(const rp_array *a, char *row, const T *values, ptrdiff_t count)
{
    narrow(row, a->col, RP_KIND(a), values, count);
}

/* acc += a row of `a` at `row`. */
static void
add_row(T *acc, const rp_array *a, const char *row, ptrdiff_t count)
{
    for (ptrdiff_t k = 0; k < count; k++)
        acc[k] += number_at(row + k * a->col, RP_KIND(a));
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

/* The sum of p[first] to p[end - 1], whose last vector can be read whole. Zeros behind them
 * change no bit: each vector has its place. */
RP_INLINE T
sum_run(const T *p, int64_t first, int64_t end)
{
    V sums[4] = {{0}};
    for (; first + 4 * VL <= end; first += 4 * VL)
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++)
            sums[c] += load(p + first + c * VL);
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++, first += VL)
        if (first < end)
            sums[c] += first_lanes(load(p + first), (int)(end - first));
    return sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]))[0];
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

/* a . b in double, in 8 sums whatever the column strides: the same bits. */
RP_INLINE void
add_long_dot(double sums[8], const char *a, ptrdiff_t a_step, const char *b,
             ptrdiff_t b_step, ptrdiff_t count)
{
    ptrdiff_t k = 0;
    for (; k + 8 <= count; k += 8)
        for (int i = 0; i < 8; i++)
            sums[i] += (double)*(const T *)(a + (k + i) * a_step) *
                       *(const T *)(b + (k + i) * b_step);
    for (; k < count; k++)
        sums[k % 8] +=
            (double)*(const T *)(a + k * a_step) * *(const T *)(b + k * b_step);
}

/* a . b in double, where the numbers of a are of a kind: widened, 64 at a time, and summed
 * up as add_long_dot does. */
RP_INLINE double
long_dot(const char *a, ptrdiff_t a_step, int kind, const char *b, ptrdiff_t b_step,
         ptrdiff_t count)
{
    enum { BLOCK = 64 };
    double sums[8] = {0};
    T wide[BLOCK];
    if (kind == RP_OWN)
        add_long_dot(sums, a, a_step, b, b_step, count);
    for (ptrdiff_t k = 0; kind != RP_OWN && k < count; k += BLOCK) {
        const ptrdiff_t some = RP_MIN(BLOCK, count - k);
        widen(wide, a + k * a_step, a_step, kind, some);
        add_long_dot(sums, (const char *)wide, sizeof(T), b + k * b_step, b_step, some);
    }
    for (int n = 4; n >= 1; n /= 2)
        for (int i = 0; i < n; i++)
            sums[i] += sums[i + n];
    return sums[0];
}

#endif
