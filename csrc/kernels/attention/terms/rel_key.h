/* rel_key.h: the term scale * (q + v).A[l], or (e + v).A[l] where a position query e takes
 * the query's place, and the way back to q or e, A and v.
 *
 * The band. A tile of BQ x BK pairs (BK = plan->key_tile) touches BQ + BK - 1 consecutive
 * relative positions. The buffer first holds Q_rel . A_band' with row length lds = BK + BQ,
 * column c = n - m + BQ - 1 for query m and key n of the tile. The content product is then
 * added into the same memory seen from BQ - 1 on with row length lds - 1, in which row m
 * begins at column BQ - 1 - m: the skew costs nothing. The last BQ band columns of a tile
 * are the first of the next one and are saved before the content is added. Cells outside the
 * skewed rows are left out where a micro-tile holds no other.
 *
 * Backward, with zeros in the cells outside the skewed rows, the buffer of dS read with its
 * plain row length is the band matrix, so the table's gradient is a plain product too. */
#ifndef RELPOS_ATTENTION_TERMS_REL_KEY_H
#define RELPOS_ATTENTION_TERMS_REL_KEY_H

#include "../tiles/listed.h"
#include "../tiles/partials.h"
#include "../tiles/products.h"

/* ---- forward --------------------------------------------------------------------- */

/* (q + v).A of `rows` queries with the whole table: by row. */
static void
dot_rel_key(const plan_t *plan, int64_t b, int64_t h, const T *relative, int64_t rows,
            T *dots)
{
    const ptrdiff_t stride = plan->rel_key.stride;
    gemm_set(relative, plan->Dp_pad, copy_of(&plan->rel_key, b, h), rows, stride,
             plan->p->Dp, plan->p->Dp, dots, stride);
}

/* Fills the tile with (q + v).A by band column. The last BQ columns of a key tile are the
 * first of the next one, and are saved for it. */
static void
fill_band(const plan_t *plan, scratch_t *w, queries_t *q, const tile_t *t)
{
    const rp_attention *p = plan->p;
    const T *table = copy_of(&plan->rel_key, q->b, q->h) - plan->band.first * p->Dp;
    int64_t end = RP_MIN(t->columns + BQ, plan->band.end - t->w0);
    int there = q->saved_column == t->w0;
    int saves = q->saved && end == t->columns + BQ && t->j0 + t->columns < q->seen.end;
    for (int m = 0; there && m < q->rows_pad; m++)
        memcpy(w->scores + m * plan->lds, q->saved + m * BQ, BQ * sizeof(T));
    set_band(q, t, q->relative, plan->Dp_pad, table + t->w0 * p->Dp, p->Dp, p->Dp,
             there ? BQ : 0, end, saves ? t->columns : end, w->scores, plan->lds);
    q->saved_column = saves ? t->w0 + t->columns : -1;
    for (int m = 0; saves && m < q->rows_pad; m++)
        memcpy(q->saved + m * BQ, w->scores + m * plan->lds + t->columns,
               BQ * sizeof(T));
}

/* The same where an index lists the rows; or returns the one value of each row, `*step` apart,
 * where all columns have one row of the table. */
static const T *
fill_listed(const plan_t *plan, scratch_t *w, const queries_t *q, const tile_t *t,
            ptrdiff_t *step)
{
    const rp_attention *p = plan->p;
    const ptrdiff_t stride = products_stride(plan->lds);
    const T *panels = copy_of(&plan->rel_key, q->b, q->h);
    const int count = t->columns + BQ - 1;
    columns_t all = list_columns(p, &p->rel_key, position_of(p, q, t, BQ - 1, 0), count,
                                 w->listed.rows);
    for (int c = all.begin; c < all.end;) {
        piece_t piece = next_piece(&all, c);
        const int one = piece.past - piece.first == 1;
        const int64_t first = piece.first / NR * NR;
        gemm_set(q->relative, plan->Dp_pad, panels + first * p->Dp, q->rows_pad,
                 RP_ROUND_UP(piece.past - first, VL), p->Dp, p->Dp, w->listed.products,
                 stride);
        const T *products = w->listed.products + (piece.first - first);
        if (one && piece.end - piece.begin == count) {
            for (int m = 0; m < q->rows_pad; m++)
                w->listed.same[m] = products[m * stride];
            *step = 1;
            return w->listed.same;
        }
        spread_piece(&all, &piece, products, stride, q->rows_pad, w->scores, plan->lds);
        c = piece.end;
    }
    for (int m = 0; m < q->rows_pad; m++) {
        T *row = w->scores + m * plan->lds;
        memset(row, 0, (size_t)all.begin * sizeof(T));
        memset(row + all.end, 0, (size_t)(count - all.end) * sizeof(T));
    }
    return NULL;
}

/* Fills the tile with the term and returns NULL, or returns its one value in each row, a
 * row's `*step` from the next. */
static const T *
fill_rel_key(const plan_t *plan, scratch_t *w, queries_t *q, const tile_t *t,
             ptrdiff_t *step)
{
    static const T zero = 0;
    *step = 0;
    if (!is_used(&plan->rel_key))
        return &zero;
    if (by_row(&plan->rel_key))
        return fill_dots(plan->p, q, t, t->s, q->key_dots, plan->rel_key.stride,
                         &plan->p->rel_key, step);
    if (lies_beyond(plan->p, q, t, &plan->p->rel_key)) {
        q->saved_column = -1;
        return &zero;
    }
    if (by_list(&plan->rel_key))
        return fill_listed(plan, w, q, t, step);
    fill_band(plan, w, q, t);
    return NULL;
}

/* ---- backward -------------------------------------------------------------------- */

/* c (rows, depth) += a (rows, columns) . panels' of a band of `depth` columns, few. Whole
 * panels of a are read, zeros behind the last column. */
static void
add_narrow_rows(const T *a, ptrdiff_t lda, const T *panels, ptrdiff_t rows,
                ptrdiff_t columns, ptrdiff_t depth, T *c, ptrdiff_t ldc)
{
    for (ptrdiff_t m = 0; m < rows; m += MR, a += MR * lda, c += MR * ldc)
        for (ptrdiff_t k = 0; k < depth; k++) {
            V acc[MR][2] = {{{0}}};
            const T *b = panels + k * NR;
            for (ptrdiff_t n = 0; n < columns; n += NR, b += NR * depth) {
                V b0 = load(b), b1 = load(b + VL);
#pragma GCC unroll 8
                for (int i = 0; i < MR; i++) {
                    acc[i][0] += load(a + i * lda + n) * b0;
                    acc[i][1] += load(a + i * lda + n + VL) * b1;
                }
            }
            for (int i = 0; i < MR; i++)
                c[i * ldc + k] += sum_lanes(acc[i][0] + acc[i][1])[0];
        }
}

/* sums (depth, columns) += b' . a, a (rows, columns), b (rows, depth): likewise. */
static void
add_narrow_columns(const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb, int rows,
                   ptrdiff_t columns, ptrdiff_t depth, T *sums, ptrdiff_t stride)
{
    enum { GROUP = 8 };
    columns = RP_ROUND_UP(columns, NR);
    for (ptrdiff_t c = 0; c < columns; c += GROUP * VL)
        for (ptrdiff_t k = 0; k < depth; k++) {
            V acc[GROUP] = {{0}};
            int whole = (int)RP_MIN(GROUP, (columns - c) / VL);
            for (int m = 0; m < rows; m++) {
                V weight = splat(b[m * ldb + k]);
#pragma GCC unroll 8
                for (int g = 0; g < GROUP; g++)
                    if (g < whole)
                        acc[g] += load(a + m * lda + c + g * VL) * weight;
            }
            for (int g = 0; g < whole; g++) {
                T *at = sums + k * stride + c + g * VL;
                store(at, load(at) + acc[g]);
            }
        }
}

static void
band_products(const gradients_t *gp, grad_scratch_t *w, const visit_t *x)
{
    const plan_t *plan = &gp->plan;
    const ptrdiff_t width = plan->Dp_pad;
    const T *table =
        copy_of(&gp->key_rows, x->q.b, x->q.h) + (x->t.w0 - plan->band.first) * width;
    int64_t columns = RP_MIN(x->t.columns + BQ - 1, plan->band.end - x->t.w0);
    const diagonal_t band = band_of(&x->t);
    clear_corners(w->grads, plan->lds, x, &w->clean[1]);
    if (lies_beyond(plan->p, &x->q, &x->t, &plan->p->rel_key))
        return;
    if (x->grad_relative && gp->narrow && !gp->key_rows_bad)
        add_narrow_rows(w->grads, plan->lds,
                        copy_of(&plan->rel_key, x->q.b, x->q.h) +
                            (x->t.w0 - plan->band.first) * plan->p->Dp,
                        x->q.rows_pad, columns, plan->p->Dp,
                        x->grad_relative + x->q.i0 * width, width);
    else if (x->grad_relative)
        add_rows(gp->key_rows_bad, w->grads, plan->lds, table, width, x->q.rows_pad,
                 width, columns, &band, x->grad_relative + x->q.i0 * width, width);
    T *sums = partial_of(gp, RP_GRAD_KEY, x->index, x->chunk);
    int64_t first = x->t.w0 - x->chunk * gp->chunk_keys;
    if (sums && gp->narrow && !x->selected)
        add_narrow_columns(w->grads, plan->lds, x->head->rows_v + x->q.i0 * width,
                           width, x->q.rows, columns, plan->p->Dp,
                           w->narrow_sums + first, gp->chunk_keys + plan->Lq_pad);
    else if (sums)
        add_columns(x->selected, w->grads, plan->lds, x->head->rows_v + x->q.i0 * width,
                    width, columns, width, x->q.rows, &band, sums + first * width,
                    width);
}

/* The same where an index lists the rows. */
static void
listed_products(const gradients_t *gp, grad_scratch_t *w, const visit_t *x)
{
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    const ptrdiff_t width = plan->Dp_pad;
    const T *table = copy_of(&gp->key_rows, x->q.b, x->q.h);
    const T *queries = x->head->rows_v + x->q.i0 * width;
    T *sums = partial_of(gp, RP_GRAD_KEY, x->index, x->chunk);
    T *joined = w->forward.listed.products;
    clear_corners(w->grads, plan->lds, x, &w->clean[1]);
    columns_t all =
        list_columns(p, &p->rel_key, position_of(p, &x->q, &x->t, BQ - 1, 0),
                     x->t.columns + BQ - 1, w->forward.listed.rows);
    for (int c = all.begin; c < all.end;) {
        piece_t piece = next_piece(&all, c);
        const int64_t count = piece.past - piece.first;
        join_piece(&all, &piece, w->grads, plan->lds, x->q.rows, joined);
        if (x->grad_relative)
            add_columns(gp->key_rows_bad, joined, BQ, table + piece.first * width,
                        width, x->q.rows, width, count, NULL,
                        x->grad_relative + x->q.i0 * width, width);
        if (sums)
            add_lines(x->selected, joined, BQ, count, queries, width, width, x->q.rows,
                      sums + piece.first * width, width);
        c = piece.end;
    }
}

/* s = scale * (q + v).A: grad_relative and grad of rel_key. */
static void
rel_key_grads(const gradients_t *gp, grad_scratch_t *w, const visit_t *x)
{
    const packed_t *table = &gp->plan.rel_key;
    if (by_band(table))
        band_products(gp, w, x);
    else if (by_list(table))
        listed_products(gp, w, x);
    else if (by_row(table))
        sum_by_table_row(gp->plan.p, &x->q, &x->t, x->d, w->totals,
                         w->key_sums + x->q.i0 * table->stride, table->stride,
                         &gp->plan.p->rel_key);
}

/* Adds what add_narrow_columns has summed up to the rows of the partial sums. */
static void
finish_narrow(const gradients_t *gp, const grad_scratch_t *w, rp_interval tiles,
              T *sums)
{
    const plan_t *plan = &gp->plan;
    const int64_t stride = gp->chunk_keys + plan->Lq_pad;
    rp_interval span = partial_span(gp, &gp->partials[RP_GRAD_KEY], tiles);
    for (int64_t n = span.begin; n < span.end; n++)
        for (ptrdiff_t k = 0; k < plan->p->Dp; k++)
            sums[n * plan->Dp_pad + k] += w->narrow_sums[k * stride + n];
}

/* Turns what query tiles have summed up by table row into gradients: of rel_key, and of
 * what it is dotted with. */
static void
finish_rel_key(const gradients_t *gp, const grad_scratch_t *w, const visit_t *x,
               rp_interval tiles, int bad)
{
    const plan_t *plan = &gp->plan;
    const ptrdiff_t Dp = plan->Dp_pad, stride = plan->rel_key.stride;
    T *sums = partial_of(gp, RP_GRAD_KEY, x->index, x->chunk);
    if (sums && gp->narrow)
        finish_narrow(gp, w, tiles, sums);
    if (!by_row(&plan->rel_key))
        return;
    for (int64_t i = tiles.begin * BQ; i < tiles.end * BQ; i += BQ) {
        rp_interval met = rows_met(gp, x, i, &plan->p->rel_key);
        int64_t rows = RP_MIN(BQ, plan->p->Lq - i);
        int one = met.end - met.begin == 1;
        const T *dots = w->key_sums + i * stride + met.begin;
        const T *table = copy_of(&gp->key_rows, x->q.b, x->q.h) + met.begin * Dp;
        if (x->grad_relative)
            add_rows(gp->key_rows_bad || one, dots, stride, table, Dp,
                     padded_rows((int)rows), Dp, met.end - met.begin, NULL,
                     x->grad_relative + i * Dp, Dp);
        if (sums)
            add_columns(bad || one, dots, stride, x->head->rows_v + i * Dp, Dp,
                        met.end - met.begin, Dp, rows, NULL, sums + met.begin * Dp, Dp);
    }
}

/* The packed row of rel_key that a band column has; -1: none. */
RP_INLINE int64_t
key_row_of(const gradients_t *gp, int64_t b, int64_t column)
{
    const plan_t *plan = &gp->plan;
    const rp_table *table = &plan->p->rel_key;
    if (by_band(&plan->rel_key))
        return column - plan->band.first;
    int64_t l = rp_table_row(position_of_column(plan, b, column), table->first,
                             table->rows, plan->p->beyond);
    return l < 0 ? -1 : listed_row(table, l);
}

/* dv = scale * sum_l (sum of dS over the pairs of l) A_l */
static void
finish_v(const gradients_t *gp, grad_scratch_t *w, const visit_t *x, rp_interval tiles)
{
    const plan_t *plan = &gp->plan;
    T *sums = partial_of(gp, RP_GRAD_V, x->index, x->chunk);
    const int64_t Lq = plan->p->Lq;
    int64_t chunk_key = x->chunk * gp->chunk_keys; /* band column of v_sums[0] */
    if (!sums)
        return;
    const T *table = copy_of(&gp->key_rows, x->q.b, x->q.h);
    memset(w->row, 0, (size_t)plan->Dp_pad * sizeof(double));
    if (in_band(&plan->rel_key)) {
        int64_t low = RP_MAX(plan->band.first - chunk_key, 0);
        int64_t high =
            RP_MIN(plan->band.end - chunk_key, gp->chunk_keys + plan->Lq_pad);
        for (int64_t n = low; n < high; n++) {
            int64_t row = key_row_of(gp, x->q.b, chunk_key + n);
            if (row >= 0)
                add_weighted_row(w->row, w->v_sums[n], table + row * plan->Dp_pad,
                                 plan->Dp_pad);
        }
    } else {
        for (int64_t l = 0; l < plan->p->rel_key.rows; l++) {
            double weight = 0;
            for (int64_t i = tiles.begin * BQ; i < RP_MIN(Lq, tiles.end * BQ); i++)
                weight += w->key_sums[i * plan->rel_key.stride + l];
            add_weighted_row(w->row, weight, table + l * plan->Dp_pad, plan->Dp_pad);
        }
    }
    write_row_sum(w->row, sums, plan->Dp_pad);
}

#endif
