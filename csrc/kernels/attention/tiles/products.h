/* products.h: products with what a tile holds. */
#ifndef RELPOS_ATTENTION_TILES_PRODUCTS_H
#define RELPOS_ATTENTION_TILES_PRODUCTS_H

#include "../../ground/columns.h"
#include "../../ground/selected.h"
#include "gradients.h"

enum {
    RP_LATER = 8, /* operands of the next query tile that are fetched ahead */
};

/* HR rows of a (row length lda), or TAIL_HALF of them, times a panel or its first half,
 * TERM_BLOCK terms at a time, plus what c holds or, unless that is NULL, plus constant; row
 * maxima into row_max, unless that is NULL. */
RP_INLINE void
add_panel(const T *a, ptrdiff_t lda, const T *panel, int half, int few, ptrdiff_t depth,
          rp_ahead ahead, T *c, ptrdiff_t ldc, const T *constant, ptrdiff_t step,
          T *row_max)
{
    for (ptrdiff_t k = 0; k == 0 || k < depth; k += TERM_BLOCK) {
        const T *b = panel + k * NR, *first = k == 0 ? constant : NULL;
        ptrdiff_t terms = RP_MIN(depth - k, TERM_BLOCK);
        T *top = k + terms >= depth ? row_max : NULL;
        if (few)
            tile_tail(a + k, lda, b, terms, ahead, c, ldc, first, step, top, half);
        else if (half)
            tile_half(a + k, lda, b, terms, ahead, c, ldc, first, step, top);
        else if (first && top)
            tile_offset_max(a + k, lda, b, terms, ahead, c, ldc, first, step, top);
        else if (first)
            tile_offset(a + k, lda, b, terms, ahead, c, ldc, first, step);
        else if (top)
            tile_add_max(a + k, lda, b, terms, ahead, c, ldc, top);
        else
            tile_add(a + k, lda, b, terms, ahead, c, ldc);
        ahead.at += (uintptr_t)(TERM_BLOCK / 2 * ahead.step);
    }
}

/* The keys that rows of a tile see by window, or NULL where they see all. */
RP_INLINE const diagonal_t *
window_of(const tile_t *t)
{
    return t->in_window ? NULL : &t->window;
}

/* The rows of a tile that see a key by window, or NULL where all see all: those that see
 * key 0; each later key is seen one row further. */
RP_INLINE const diagonal_t *
rows_by_key(const tile_t *t, diagonal_t *rows)
{
    *rows = (diagonal_t){1 - t->window.end, 1 - t->window.begin, 1};
    return t->in_window ? NULL : rows;
}

/* Columns of s = left . panels plus what s holds or constant, with row maxima in lane_max, as
 * above. With a `window`, micro-tiles in which it hides every cell are left out, and their
 * cells stay as they are. The micro-tiles of a panel ask for the panel that comes next, a
 * share each; or, where there is `later`, its first half does, and the others for BQ rows of
 * lda at one of those addresses. */
static void
add_panels(const queries_t *q, const tile_t *t, rp_interval columns, T *s,
           const T *left, ptrdiff_t lda, const T *panels, ptrdiff_t depth,
           const diagonal_t *window, const T *constant, ptrdiff_t step, T *lane_max,
           const uintptr_t *later)
{
    const ptrdiff_t size = sizeof(T), tiles = q->rows_pad / HR;
    const ptrdiff_t whole = q->rows_pad / MR * MR;
    for (ptrdiff_t n = columns.begin; n < columns.end; n += NR) {
        const T *panel = panels + (t->j0 + n) * depth;
        uintptr_t other = later && n / NR < RP_LATER ? later[n / NR] : 0;
        ptrdiff_t shares = other ? tiles / 2 : tiles;
        rp_ahead next = {(uintptr_t)(panel + NR * depth), 2 * NR * size / shares};
        rp_ahead rest = {other, 2 * BQ * size / shares};
        ptrdiff_t first = 0, end = q->rows_pad;
        if (window) {
            first = RP_MIN(whole, RP_MAX(0, n - window->end + 1) / HR * HR);
            end = RP_MIN(end, n + NR - window->begin);
        }
        for (ptrdiff_t m = first, taken; m < end; m += taken) {
            int few = TAIL_HALF < HR && m >= whole;
            taken = few ? TAIL_HALF : HR;
            rp_ahead *turn = other && m / HR >= shares ? &rest : &next;
            add_panel(left + m * lda, lda, panel, columns.end - n < NR, few, depth,
                      *turn, s + m * t->ld + n, t->ld,
                      constant ? constant + m * step : NULL, step,
                      lane_max ? lane_max + m * VL : NULL);
            turn->at += (uintptr_t)(depth / 2 * turn->step);
        }
    }
}

/* The whole tile: lane_max takes open columns only, finish_row the others. */
static void
add_product(const queries_t *q, const tile_t *t, T *s, const T *left, ptrdiff_t lda,
            const T *panels, ptrdiff_t depth, const diagonal_t *window,
            const T *constant, ptrdiff_t step, T *lane_max, const uintptr_t *later)
{
    const rp_interval before = {0, t->open.begin}, after = {t->open.end, t->columns};
    for (int i = 0; lane_max && i < q->rows_pad * VL; i++)
        lane_max[i] = -(T)INFINITY;
    add_panels(q, t, before, s, left, lda, panels, depth, window, constant, step, NULL,
               later);
    add_panels(q, t, t->open, s, left, lda, panels, depth, window, constant, step,
               lane_max, later);
    add_panels(q, t, after, s, left, lda, panels, depth, window, constant, step, NULL,
               later);
}

/* Zeros the cells of a buffer outside the skewed rows. What a narrower tile left behind is
 * a band of garbage in the table gradients, so `clean` remembers how wide they are. */
static void
clear_corners(T *buffer, ptrdiff_t lds, const visit_t *x, int *clean)
{
    if (*clean == x->t.columns)
        return;
    *clean = x->t.columns;
    for (int m = 0; m < BQ; m++) {
        T *row = buffer + m * lds;
        int first = BQ - 1 - m, end = first + (m < x->q.rows_pad ? x->t.columns : 0);
        memset(row, 0, (size_t)first * sizeof(T));
        memset(row + end, 0, (size_t)(lds - end) * sizeof(T));
    }
}

/* c += a . b or a' . b. With a diagonal, terms outside of it are left out: a is zero there. If
 * `selected`, b has NaN or infinity, and zeros of a are skipped one by one. */
RP_INLINE void
add_rows(int selected, const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb,
         ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t depth, const diagonal_t *diagonal,
         T *c, ptrdiff_t ldc)
{
    if (selected)
        gemm_add_rows_selected(a, lda, b, ldb, rows, columns, depth, c, ldc);
    else
        gemm_add_rows(a, lda, b, ldb, rows, columns, depth, diagonal, c, ldc);
}

RP_INLINE void
add_columns(int selected, const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb,
            ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t depth,
            const diagonal_t *diagonal, T *c, ptrdiff_t ldc)
{
    if (selected)
        gemm_add_columns_selected(a, lda, b, ldb, rows, columns, depth, c, ldc);
    else
        gemm_add_columns(a, lda, b, ldb, rows, columns, depth, diagonal, c, ldc);
}

/* How many of `rows` rows, TAIL_ROWS or a multiple, a product takes at a time: whole
 * micro-tiles and a tail. */
RP_INLINE int64_t
rows_at_once(int64_t rows)
{
    return padded_rows((int)rows) == rows ? rows : TAIL_ROWS;
}

/* c (lines, columns) += a . b where lines of a, and of c, are there up to a whole tail. */
RP_INLINE void
add_lines(int selected, const T *a, ptrdiff_t lda, int64_t lines, const T *b,
          ptrdiff_t ldb, ptrdiff_t columns, ptrdiff_t depth, T *c, ptrdiff_t ldc)
{
    const int64_t all = RP_ROUND_UP(lines, TAIL_ROWS);
    for (int64_t n = 0, taken; n < all; n += taken) {
        taken = rows_at_once(all - n);
        add_rows(selected, a + n * lda, lda, b, ldb, taken, columns, depth, NULL,
                 c + n * ldc, ldc);
    }
}

/* ---- bands ------------------------------------------------------------------------ */

/* The cells of a score buffer that hold the pairs of a tile, as products of the band read
 * them: by rows of the buffer, or by columns. */
RP_INLINE diagonal_t
band_of(const tile_t *t)
{
    return (diagonal_t){BQ - 1, BQ - 1 + t->columns, -1};
}

/* c = a . panels: band columns up to `end` of a tile, each for the rows whose pairs use it,
 * and those from `whole` on also for the rows whose pairs in the next key tile use it.
 * Columns before `first` are there. */
static void
set_band(const queries_t *q, const tile_t *t, const T *a, ptrdiff_t lda,
         const T *panels, ptrdiff_t depth, ptrdiff_t block, int64_t first, int64_t end,
         int64_t whole, T *c, ptrdiff_t ldc)
{
    first = RP_MAX(first, (BQ - q->rows_pad) / NR * NR); /* before it are no pairs */
    for (int64_t n = first; n < end; n += NR) {
        int64_t m0 = RP_MAX(0, BQ - NR - n) / MR * MR;
        int64_t m1 = RP_ROUND_UP(BQ - 1 - n + t->columns, MR);
        m1 = n >= whole ? q->rows_pad : RP_MIN(m1, q->rows_pad);
        gemm_set(a + m0 * lda, lda, panels + n * depth, m1 - m0, RP_MIN(NR, end - n),
                 depth, block, c + m0 * ldc + n, ldc);
    }
}

/* ---- sums of dS by offset and by key ----------------------------------------------- */

/* sums[c] = sum over `rows` rows of column c, for whole vectors from c = 0 to `columns`:
 * the sums of a few vectors of columns stay in registers over the rows. */
static void
column_totals(const T *a, ptrdiff_t lda, int rows, int columns, T *sums)
{
    enum { GROUP = 6 };
    for (int c = 0; c < columns; c += GROUP * VL) {
        V acc[GROUP] = {{0}};
        int whole = RP_MIN(GROUP, (columns - c + VL - 1) / VL);
        for (int m = 0; m < rows; m++)
#pragma GCC unroll 6
            for (int g = 0; g < GROUP; g++)
                if (g < whole)
                    acc[g] += load(a + m * lda + c + g * VL);
        for (int g = 0; g < whole; g++)
            store(sums + c + g * VL, acc[g]);
    }
}

/* sums[offset of the pair] += dS: the gradient of rel_bias, and of v over a band. These sums
 * are long, and cancel: T within a tile, double beyond. In a skewed buffer they are the
 * columns of the band matrix. */
static void
sum_offsets(const gradients_t *gp, grad_scratch_t *w, const visit_t *x, double *sums)
{
    const plan_t *plan = &gp->plan;
    int64_t first = x->t.w0 - x->chunk * gp->chunk_keys;
    int count = x->t.columns + BQ - 1;
    clear_corners(w->grads, plan->lds, x, &w->clean[1]);
    column_totals(w->grads, plan->lds, x->q.rows, count, w->tile_sums);
    for (int c = 0; c < count; c++)
        sums[first + c] += w->tile_sums[c];
}

/* column_sums[key] += dS, for the gradient of u. */
static void
sum_columns(const gradients_t *gp, const grad_scratch_t *w, const visit_t *x)
{
    double *sums = w->column_sums + x->t.j0 - x->chunk * gp->chunk_keys;
    column_totals(x->d, x->t.ld, x->q.rows, x->t.keys, w->tile_sums);
    for (int n = 0; n < x->t.keys; n++)
        sums[n] += w->tile_sums[n];
}

/* row += sum_n weights[n] * row n of a table or of keys; rows that no pair used may hold
 * NaN, or lie outside. */
static void
add_weighted_row(double *row, double weight, const T *other, ptrdiff_t width)
{
    for (ptrdiff_t k = 0; weight != 0 && k < width; k++)
        row[k] += weight * other[k];
}

static void
write_row_sum(const double *row, T *sums, ptrdiff_t width)
{
    for (ptrdiff_t k = 0; k < width; k++)
        sums[k] = (T)row[k];
}

/* Rows of a table that the pairs of the query tile at i and the chunk can have. Far from
 * the diagonal all of them lie beyond one end: one row. */
static rp_interval
rows_met(const gradients_t *gp, const visit_t *x, int64_t i, const rp_table *table)
{
    const rp_attention *p = gp->plan.p;
    int64_t j0 = x->chunk * gp->chunk_keys, j1 = RP_MIN(p->Lk, j0 + gp->chunk_keys) - 1;
    int64_t at = i + rp_query_offset(p, x->q.b) + table->first, rows = table->rows;
    rp_interval met = {0, rows};
    if (has_labels(p) || rows == 0)
        return met;
    met.begin = RP_MIN(rows - 1, RP_MAX(0, j0 - at - BQ + 1));
    met.end = RP_MIN(rows - 1, RP_MAX(0, j1 - at)) + 1;
    return met;
}

#endif
