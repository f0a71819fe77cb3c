/* labels.h: the labels of pairs, which name rows of a table in place of relative positions,
 * and how what a query gives to each row is spread over its pairs, and summed up again.
 *
 * There may be several arrays of them; a pair has then the sum of the rows that they name.
 * In a grid labels of neighbouring keys are mostly the same, or rise by one: whole vectors
 * are taken at once where they are. */
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

/* ---- a row of a tile ------------------------------------------------------------- */

/* Inlined with a step and a size that are known. */
RP_INLINE void
read_lines(const char *at, ptrdiff_t step, int size, int count, int64_t rows,
           int32_t *labels)
{
    for (int n = 0; n < count; n++)
        labels[n] = (int32_t)rp_label(at + n * step, size, rows);
}

/* Row m of a tile by one of the arrays; -1 up to the end of its last panel. */
static void
read_labels(const rp_label_array *a, const queries_t *q, const tile_t *t, int m,
            int64_t rows, int32_t labels[RP_KEY_TILE])
{
    const ptrdiff_t step = a->array.col;
    const char *at = rp_at(&a->array, q->b, 0, q->i0 + m) + t->j0 * step;
    if (step == 1 && a->size == 1)
        read_lines(at, 1, 1, t->keys, rows, labels);
    else if (step == 2 && a->size == 2)
        read_lines(at, 2, 2, t->keys, rows, labels);
    else if (step == 4 && a->size == 4)
        read_lines(at, 4, 4, t->keys, rows, labels);
    else if (step == 8 && a->size == 8)
        read_lines(at, 8, 8, t->keys, rows, labels);
    else
        read_lines(at, step, a->size, t->keys, rows, labels);
    for (int n = t->keys; n < t->columns; n++)
        labels[n] = -1;
}

enum { RP_SAME, RP_RISING, RP_APART };

/* How the labels of a vector of keys follow each other. */
RP_INLINE int
label_pattern(const int32_t *labels)
{
    int32_t apart = 0, uneven = 0, first = labels[0];
    for (int k = 0; k < VL; k++) {
        apart |= labels[k] ^ first;
        uneven |= labels[k] ^ (first + k);
    }
    return apart == 0 ? RP_SAME : uneven == 0 && first >= 0 ? RP_RISING : RP_APART;
}

/* dots[label] of a vector of keys, 0 where there is none. */
RP_INLINE V
dots_of_labels(const T *dots, const int32_t *labels)
{
    T x[VL];
    int pattern = label_pattern(labels);
    if (pattern == RP_SAME)
        return labels[0] < 0 ? (V){0} : splat(dots[labels[0]]);
    if (pattern == RP_RISING)
        return load(dots + labels[0]);
    for (int k = 0; k < VL; k++)
        x[k] = labels[k] < 0 ? 0 : dots[labels[k]];
    return load(x);
}

/* sums[label] += a of a vector of keys. */
RP_INLINE void
add_to_labels(T *sums, const int32_t *labels, const T *a)
{
    int pattern = label_pattern(labels);
    T *first = sums + labels[0];
    if (pattern == RP_RISING)
        store(first, load(first) + load(a));
    else if (pattern == RP_SAME && labels[0] >= 0)
        *first += sum_lanes(load(a))[0];
    for (int k = 0; pattern == RP_APART && k < VL; k++)
        if (labels[k] >= 0)
            sums[labels[k]] += a[k];
}

/* ---- a tile ---------------------------------------------------------------------- */

/* s[m, n] = sum of dots[m, row of the pair] over the rows that its labels name. */
static void
fill_labels(const rp_attention *p, const queries_t *q, const tile_t *t, T *s,
            const T *dots, ptrdiff_t stride, int64_t rows)
{
    int32_t labels[RP_KEY_TILE];
    for (int m = 0; m < q->rows; m++, s += t->ld, dots += stride)
        for (int a = 0; a < p->labels.count; a++) {
            read_labels(&p->labels.of[a], q, t, m, rows, labels);
            for (int n = 0; n < t->columns; n += VL) {
                V x = dots_of_labels(dots, labels + n);
                store(s + n, a > 0 ? load(s + n) + x : x);
            }
        }
}

/* sums[m, row of the pair] += a[m, n] over the tile, for each row that its labels name. */
static void
sum_by_label(const rp_attention *p, const queries_t *q, const tile_t *t, const T *a,
             T *sums, ptrdiff_t stride, int64_t rows)
{
    int32_t labels[RP_KEY_TILE];
    for (int m = 0; m < q->rows; m++, a += t->ld, sums += stride)
        for (int n = 0; n < p->labels.count; n++) {
            read_labels(&p->labels.of[n], q, t, m, rows, labels);
            for (int k = 0; k < t->columns; k += VL)
                add_to_labels(sums, labels + k, a + k);
        }
}

#endif
