/* labels.h: the labels of pairs, which name rows of a table in place of relative positions,
 * and how what a query gives to each row is spread over its pairs, and summed up again.
 *
 * There may be several arrays of them; a pair has then the sum of the rows that they name.
 * In a grid labels of neighbouring keys are mostly the same, or rise or fall by one: whole
 * vectors are taken at once where they are. */
#ifndef RELPOS_ATTENTION_LABELS_H
#define RELPOS_ATTENTION_LABELS_H

#include "logits.h"
#include "tiles/tile.h"

RP_INLINE int
has_labels(const rp_attention *p)
{
    return p->labels.count > 0;
}

/* Rows of a table that a pair has: the one of its relative position, or one by each array
 * of labels. */
RP_INLINE int
rows_of_pair(const rp_attention *p)
{
    return RP_MAX(1, p->labels.count);
}

/* The label of a pair as a row of a table with `rows` rows; -1 outside. Labels were
 * checked before the call; checking each again keeps a caller who changes them during
 * the call from reading outside the table. */
RP_INLINE int64_t
rp_label(const char *at, int size, int64_t rows)
{
    int64_t label = size == 1   ? *(const int8_t *)at
                    : size == 2 ? *(const int16_t *)at
                    : size == 4 ? *(const int32_t *)at
                                : *(const int64_t *)at;
    return label >= 0 && label < rows ? label : -1;
}

/* ---- vectors of keys ------------------------------------------------------------- */

enum { RP_FALLING = -1, RP_SAME, RP_RISING, RP_APART };

/* How the labels of a vector of keys follow each other, where they lie side by side: words
 * of them are compared with what they would be by the first two. Inlined with a size that
 * is known. */
RP_INLINE int
label_pattern(const char *at, int size, int64_t first, int64_t rows)
{
    const int bytes = RP_MIN(8, VL * size), lanes = bytes / size;
    const int64_t largest = INT64_MAX >> (64 - 8 * size);
    const int64_t step = rp_label(at + size, size, rows) - first;
    uint64_t unit = 0, ramp = 0, uneven = 0;
    for (int k = 0; k < lanes; k++) {
        unit |= UINT64_C(1) << 8 * size * k;
        ramp |= (uint64_t)k << 8 * size * k;
    }
    if (first < 0 || step < RP_FALLING || step > RP_RISING ||
        (step == RP_FALLING && first < VL - 1) ||
        (step == RP_RISING && first + VL > RP_MIN(rows, largest)))
        return RP_APART;
    const uint64_t even = unit * (uint64_t)first + ramp * (uint64_t)step;
    const uint64_t next = unit * (uint64_t)lanes * (uint64_t)step;
    for (int n = 0; n < VL / lanes; n++) {
        uint64_t word = 0;
        memcpy(&word, at + n * bytes, (size_t)bytes);
        uneven |= word ^ (even + next * (uint64_t)n);
    }
    return uneven == 0 ? (int)step : RP_APART;
}

/* The lanes of x in the order from the last to the first. */
RP_INLINE V
reversed(V x)
{
#if RP_LANES > 8
    x = RP_SWAP8(x);
#endif
#if RP_LANES > 4
    x = RP_SWAP4(x);
#endif
#if RP_LANES > 2
    x = RP_SWAP2(x);
#endif
    return RP_SWAP1(x);
}

/* s[n] = dots[label] of `count` keys, 0 where there is none; or is added to. */
RP_INLINE void
fill_line(const char *at, ptrdiff_t step, int size, int count, int64_t rows,
          const T *dots, int adds, T *s)
{
    int n = 0;
    for (; n + VL <= count; n += VL) {
        const char *labels = at + n * step;
        int64_t first = rp_label(labels, size, rows);
        int pattern =
            step == size ? label_pattern(labels, size, first, rows) : RP_APART;
        T x[VL];
        V found;
        if (pattern == RP_SAME)
            found = splat(dots[first]);
        else if (pattern == RP_RISING)
            found = load(dots + first);
        else if (pattern == RP_FALLING)
            found = reversed(load(dots + first - VL + 1));
        else {
            for (int k = 0; k < VL; k++) {
                int64_t l = rp_label(labels + k * step, size, rows);
                x[k] = l < 0 ? 0 : dots[l];
            }
            found = load(x);
        }
        store(s + n, adds ? load(s + n) + found : found);
    }
    for (; n < count; n++) {
        int64_t l = rp_label(at + n * step, size, rows);
        s[n] = (adds ? s[n] : 0) + (l < 0 ? 0 : dots[l]);
    }
}

/* sums[label] += a[n] of `count` keys. */
RP_INLINE void
sum_line(const char *at, ptrdiff_t step, int size, int count, int64_t rows, const T *a,
         T *sums)
{
    _Alignas(int64_t) char near[VL * sizeof(int64_t)];
    for (int n = 0; n < count; n += VL) {
        const char *labels = at + n * step;
        if (step != size && n + VL <= count) { /* the same sums in the same order */
            for (int k = 0; k < VL; k++)
                memcpy(near + k * size, labels + k * step, (size_t)size);
            labels = near;
        }
        int64_t first = rp_label(labels, size, rows);
        int pattern =
            n + VL <= count ? label_pattern(labels, size, first, rows) : RP_APART;
        if (pattern == RP_SAME)
            sums[first] += sum_lanes(load(a + n))[0];
        else if (pattern == RP_RISING)
            store(sums + first, load(sums + first) + load(a + n));
        else if (pattern == RP_FALLING)
            store(sums + first - VL + 1,
                  load(sums + first - VL + 1) + reversed(load(a + n)));
        else
            for (int k = 0; k < RP_MIN(VL, count - n); k++) {
                int64_t l = rp_label(at + (n + k) * step, size, rows);
                if (l >= 0)
                    sums[l] += a[n + k];
            }
    }
}

/* ---- a tile ---------------------------------------------------------------------- */

/* The labels of row m of a tile; those of the next row are fetched. */
RP_INLINE const char *
labels_of_row(const rp_label_array *a, const queries_t *q, const tile_t *t, int m)
{
    const char *at = rp_at(&a->array, q->b, 0, q->i0 + m) + t->j0 * a->array.col;
    const uintptr_t next = (uintptr_t)at + (uintptr_t)a->array.row;
    for (ptrdiff_t n = 0; a->array.col == a->size && n < t->keys * a->size; n += 64)
        rp_fetch(next + (uintptr_t)n);
    return at;
}

/* s[m, n] = sum of dots[m, row of the pair] over the rows that its labels name. */
static void
fill_labels(const rp_attention *p, const queries_t *q, const tile_t *t, T *s,
            const T *dots, ptrdiff_t stride, int64_t rows)
{
    for (int m = 0; m < q->rows; m++, s += t->ld, dots += stride)
        for (int n = 0; n < p->labels.count; n++) {
            const rp_label_array *a = &p->labels.of[n];
            const ptrdiff_t step = a->array.col;
            const char *at = labels_of_row(a, q, t, m);
            if (step == 2 && a->size == 2)
                fill_line(at, 2, 2, t->keys, rows, dots, n > 0, s);
            else if (step == 4 && a->size == 4)
                fill_line(at, 4, 4, t->keys, rows, dots, n > 0, s);
            else
                fill_line(at, step, a->size, t->keys, rows, dots, n > 0, s);
            memset(s + t->keys, 0, (size_t)(t->columns - t->keys) * sizeof(T));
        }
}

/* sums[m, row of the pair] += a[m, n] over the tile, for each row that its labels name. */
static void
sum_by_label(const rp_attention *p, const queries_t *q, const tile_t *t, const T *a,
             T *sums, ptrdiff_t stride, int64_t rows)
{
    for (int m = 0; m < q->rows; m++, a += t->ld, sums += stride)
        for (int n = 0; n < p->labels.count; n++) {
            const rp_label_array *of = &p->labels.of[n];
            const ptrdiff_t step = of->array.col;
            const char *at = labels_of_row(of, q, t, m);
            if (step == 2 && of->size == 2)
                sum_line(at, 2, 2, t->keys, rows, a, sums);
            else if (step == 4 && of->size == 4)
                sum_line(at, 4, 4, t->keys, rows, a, sums);
            else
                sum_line(at, step, of->size, t->keys, rows, a, sums);
        }
}

#endif
