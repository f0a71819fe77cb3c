/* pack.h: strided operands -> the layouts of micro.h. */
#ifndef RELPOS_GROUND_PACK_H
#define RELPOS_GROUND_PACK_H

#include "lines.h"
#include "micro.h"

/* pack_panel of one kind. */
RP_INLINE void
pack_panel_as(T *panel, const char *const rows[NR], ptrdiff_t step, int kind,
              ptrdiff_t depth, T factor, ptrdiff_t ahead)
{
    ptrdiff_t k = 0;
    int used[NR / VL] = {0}; /* the last panel of a short sequence has an empty half */
    for (int i = 0; i < NR; i++)
        used[i / VL] |= rows[i] != NULL;
    if (step == size_of(kind))
        for (; k + VL <= depth; k += VL)
            for (int half = 0; half < NR; half += VL) {
                V block[VL];
                if (!used[half / VL]) {
                    for (int i = 0; i < VL; i++)
                        store(panel + (k + i) * NR + half, (V){0});
                    continue;
                }
#pragma GCC unroll 16
                for (int i = 0; i < VL; i++) {
                    const char *row = rows[half + i];
                    block[i] = (V){0};
                    if (row) {
                        block[i] = load_as(row, k, kind) * factor;
                        rp_fetch((uintptr_t)row + (uintptr_t)(k * step + ahead));
                    }
                }
                transpose(block);
#pragma GCC unroll 16
                for (int i = 0; i < VL; i++)
                    store(panel + (k + i) * NR + half, block[i]);
            }
    for (; k < depth; k++)
        for (int i = 0; i < NR; i++)
            panel[k * NR + i] =
                rows[i] ? number_at(rows[i] + k * step, kind) * factor : 0;
}

/* NR rows of `depth` elements, column stride `step` bytes (NULL: a row of zeros), times
 * `factor` -> panel [depth][NR]. Full blocks of VL columns go through a register
 * transpose: 3 times as fast as element by element. What lies `ahead` bytes further is
 * asked for: the rows that come next. */
static void
pack_panel(T *panel, const char *const rows[NR], ptrdiff_t step, int kind,
           ptrdiff_t depth, T factor, ptrdiff_t ahead)
{
    if (kind == RP_OWN)
        pack_panel_as(panel, rows, step, RP_OWN, depth, factor, ahead);
    else
        pack_panel_as(panel, rows, step, kind, depth, factor, ahead);
}

/* (rows of a plus one row, unless that is NULL) * factor as rows of `columns` elements, whole
 * vectors of them: contiguous rows, the next ones asked for. */
RP_INLINE void
pack_sums_whole(T *packed, const char *rows, ptrdiff_t row_step, int kind,
                const T *shift, int64_t count, ptrdiff_t columns, T factor)
{
    for (int64_t m = 0; m < count; m++, rows += row_step)
        for (ptrdiff_t k = 0; k < columns; k += VL, packed += VL) {
            V x = load_as(rows, k, kind);
            if (shift)
                x += load(shift + k);
            rp_fetch((uintptr_t)(rows + k * size_of(kind)) +
                     (uintptr_t)(RP_ROWS_AHEAD * row_step));
            store(packed, x * factor);
        }
}

/* (rows of a plus the row of bias, if there is one) * factor as `count` rows of whole
 * vectors, from rows of any strides. a has `valid` of them, and may be absent where that is 0:
 * the others are zeros. */
static void
pack_sums(T *packed, const rp_array *a, const rp_array *bias, int64_t b, int64_t h,
          int64_t first, int64_t valid, int64_t count, ptrdiff_t columns, T factor)
{
    const ptrdiff_t size = sizeof(T), padded = RP_ROUND_UP(columns, VL);
    const char *rows = valid > 0 ? rp_at(a, b, h, first) : NULL;
    const char *shift = bias->data ? rp_at(bias, b, h, 0) : NULL;
    memset(packed + valid * padded, 0, (size_t)((count - valid) * padded) * sizeof(T));
    const int kind = RP_KIND(a), whole = a->col == size_of(kind) && columns == padded;
    if (whole && !shift && kind == RP_OWN)
        pack_sums_whole(packed, rows, a->row, RP_OWN, NULL, valid, columns, factor);
    else if (whole && (!shift || bias->col == size))
        pack_sums_whole(packed, rows, a->row, kind, (const T *)shift, valid, columns,
                        factor);
    else
        for (int64_t m = 0; m < valid; m++, rows += a->row, packed += padded) {
            pack_row(packed, a, rows, columns, padded);
            for (ptrdiff_t k = 0; shift && k < columns; k++)
                packed[k] += *(const T *)(shift + k * bias->col);
            for (ptrdiff_t k = 0; k < columns; k++)
                packed[k] *= factor;
        }
}

/* `count` numbers of a line, whole vectors of memory, times `factor` -> the row of `a` at `at`;
 * the rows that come next are asked for. */
RP_INLINE void
write_line(const rp_array *a, char *at, T *line, ptrdiff_t count, T factor)
{
    fetch_ahead(a, at, count);
    if (is_plain(a) && count % VL == 0) {
        for (ptrdiff_t k = 0; k < count; k += VL)
            store((T *)at + k, load(line + k) * factor);
    } else {
        scale_row(line, count, factor);
        unpack_row(a, at, line, count);
    }
}

/* Up to VL rows of one block of pack_left, from lane `first` on. */
RP_INLINE void
pack_left_block(T *packed, const char *rows, ptrdiff_t row_step, ptrdiff_t step,
                int first, int valid, ptrdiff_t depth, T factor)
{
    const int lanes = RP_MIN(VL, MR - first);
    ptrdiff_t k = 0;
    if (step == (ptrdiff_t)sizeof(T))
        for (; k + VL <= depth; k += VL) {
            V block[VL];
#pragma GCC unroll 16
            for (int i = 0; i < VL; i++)
                block[i] = i < lanes && first + i < valid
                               ? load((const T *)(rows + i * row_step) + k) * factor
                               : (V){0};
            transpose(block);
#pragma GCC unroll 16
            for (int i = 0; i < VL; i++)
                memcpy(packed + (k + i) * MR + first, &block[i],
                       (size_t)lanes * sizeof(T));
        }
    for (; k < depth; k++)
        for (int i = 0; i < lanes; i++) {
            T x = first + i < valid ? *(const T *)(rows + i * row_step + k * step) : 0;
            packed[k * MR + first + i] = x * factor;
        }
}

/* rows * factor -> blocks [depth][MR], the left operand of gemm_block.h; rows past `valid`
 * are zeros. */
static void
pack_left(T *packed, const char *rows, ptrdiff_t row_step, ptrdiff_t step,
          int64_t valid, int64_t count, ptrdiff_t depth, T factor)
{
    for (int64_t block = 0; block < count; block += MR, packed += depth * MR)
        for (int first = 0; first < MR; first += VL)
            pack_left_block(packed, rows + (block + first) * row_step, row_step, step,
                            first, (int)RP_MIN(valid - block, MR), depth, factor);
}

/* 1 when any of the elements is NaN or infinite: x * 0 is 0 only for finite x. */
RP_INLINE int
not_finite_as(const char *rows, ptrdiff_t row_step, ptrdiff_t step, int kind,
              int64_t count, ptrdiff_t columns)
{
    T total = 0;
    V sums[4] = {{0}};
    for (int64_t i = 0; i < count; i++, rows += row_step) {
        ptrdiff_t k = 0, whole = step == size_of(kind) ? columns : 0;
        for (; k + 4 * VL <= whole; k += 4 * VL)
#pragma GCC unroll 4
            for (int c = 0; c < 4; c++)
                sums[c] += load_as(rows, k + c * VL, kind) * 0;
        for (; k + VL <= whole; k += VL)
            sums[0] += load_as(rows, k, kind) * 0;
        for (; k < columns; k++)
            total += number_at(rows + k * step, kind) * 0;
    }
    return total + sum_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]))[0] != 0;
}

/* 1 when any of the elements, which are T, is NaN or infinite. */
static int
not_finite(const char *rows, ptrdiff_t row_step, ptrdiff_t step, int64_t count,
           ptrdiff_t columns)
{
    return not_finite_as(rows, row_step, step, RP_OWN, count, columns);
}

/* 1 when any element of `count` rows of an array of any kind is NaN or infinite. */
static int
rows_of_not_finite(const rp_array *a, int64_t b, int64_t h, int64_t first,
                   int64_t count, ptrdiff_t columns)
{
    const char *rows = rp_at(a, b, h, first);
    if (RP_KIND(a) == RP_OWN)
        return not_finite(rows, a->row, a->col, count, columns);
    return not_finite_as(rows, a->row, a->col, RP_KIND(a), count, columns);
}

#endif
