/* rel_key.h: the term scale * (q + v).A[l], and the way back to q, A and v.
 *
 * The band. A tile of BQ x BK pairs (BK = plan->key_tile) touches BQ + BK - 1 consecutive
 * relative positions. The buffer first holds Q_rel . A_band' with row length lds = BK + BQ,
 * column c = n - m + BQ - 1 for query m and key n of the tile. The content product is then
 * added into the same memory seen from BQ - 1 on with row length lds - 1, in which row m
 * begins at column BQ - 1 - m: the skew costs nothing. The last BQ band columns of a tile
 * are the first of the next one and are saved before the content is added.
 *
 * Backward, with zeros in the cells outside the skewed rows, the buffer of dS read with its
 * plain row length is the band matrix, so the table's gradient is a plain product too. */
#ifndef RELPOS_ATTENTION_TERMS_REL_KEY_H
#define RELPOS_ATTENTION_TERMS_REL_KEY_H

#include "../table.h"
#include "../tiles/products.h"

static void
fill_band(const plan_t *plan, scratch_t *w, queries_t *q, const tile_t *t)
{
    const rp_attention *p = plan->p;
    const T *table = copy_of(&plan->rel_key, q->b, q->h) - plan->band_first * p->D;
    int64_t end = RP_MIN(t->columns + BQ, plan->band_end - t->w0), first = 0;
    if (q->saved_column == t->w0) {
        for (int m = 0; m < q->rows_pad; m++)
            memcpy(w->scores + m * plan->lds, q->saved + m * BQ, BQ * sizeof(T));
        first = BQ;
    }
    if (end > first)
        gemm_set(q->relative, plan->D_pad, table + (t->w0 + first) * p->D, q->rows_pad,
                 end - first, p->D, p->D, w->scores + first, plan->lds);
    q->saved_column = t->w0 + plan->key_tile;
    if (q->saved && end == plan->lds && t->j0 + plan->key_tile < q->end)
        for (int m = 0; m < q->rows_pad; m++)
            memcpy(q->saved + m * BQ, w->scores + m * plan->lds + plan->key_tile,
                   BQ * sizeof(T));
    else
        q->saved_column = -1;
}

/* Fills the tile with the rel_key term, or with FIRE's bias where that is the only one,
 * and returns NULL, or the term's value in each row. */
static const T *
fill_positions(const plan_t *plan, scratch_t *w, queries_t *q, const tile_t *t,
               ptrdiff_t *step)
{
    static const T zero = 0;
    *step = 0;
    for (int m = 0; plan->fire_first && m < q->rows; m++)
        fill_fire_row(&plan->fire, q->b, q->h, q->i0 + m, t->j0, t->columns,
                      t->s + m * t->ld);
    if (plan->fire_first)
        return NULL;
    if (plan->use_key == RP_ABSENT)
        return &zero;
    if (plan->use_key == RP_BAND)
        return fill_band(plan, w, q, t), NULL;
    return fill_dots(plan, q, t, t->s, q->key_dots, plan->key_stride, plan->p->key_rows,
                     step);
}

/* s = scale * (q + v).A over a band: grad_query and grad of rel_key. */
static void
band_products(const gradients_t *gp, worker_t *w, const step_t *x)
{
    const plan_t *plan = &gp->plan;
    const ptrdiff_t width = plan->D_pad;
    const T *table =
        copy_of(&gp->key_rows, x->q.b, x->q.h) + (x->t.w0 - plan->band_first) * width;
    int64_t columns = RP_MIN(x->t.columns + BQ - 1, plan->band_end - x->t.w0);
    clear_corners(w->grads, plan->lds, x, &w->clean[1], plan->use_value == RP_BAND);
    if (x->grad_query)
        add_rows(gp->key_rows_bad, w->grads, plan->lds, table, width, x->q.rows_pad,
                 width, columns, x->grad_query + x->q.i0 * width, width);
    T *sums = partial_of(gp, RP_GRAD_KEY, x->index, x->chunk);
    int64_t first = x->t.w0 - x->chunk * gp->chunk_keys;
    if (sums)
        add_columns(x->selected, w->grads, plan->lds, x->head->rows_v + x->q.i0 * width,
                    width, columns, width, x->q.rows, sums + first * width, width);
}

/* dv = scale * sum_l (sum of dS over the pairs of l) A_l */
static void
finish_v(const gradients_t *gp, worker_t *w, const step_t *x, rp_interval tiles,
         const T *table)
{
    const plan_t *plan = &gp->plan;
    T *sums = partial_of(gp, RP_GRAD_V, x->index, x->chunk);
    int64_t chunk_key = x->chunk * gp->chunk_keys; /* band column of offset_sums[0] */
    if (!sums)
        return;
    memset(w->row, 0, (size_t)plan->D_pad * sizeof(double));
    if (plan->use_key == RP_BAND) {
        int64_t low = RP_MAX(plan->band_first - chunk_key, 0);
        int64_t high =
            RP_MIN(plan->band_end - chunk_key, gp->chunk_keys + plan->Lq_pad);
        for (int64_t n = low; n < high; n++)
            add_weighted_row(gp, w->row, w->offset_sums[n],
                             table + (chunk_key + n - plan->band_first) * plan->D_pad);
    } else {
        for (int64_t l = 0; l < plan->p->key_rows; l++) {
            double weight = 0;
            for (int64_t i = tiles.begin * BQ; i < tiles.end * BQ; i++)
                weight += w->key_sums[i * plan->key_stride + l];
            add_weighted_row(gp, w->row, weight, table + l * plan->D_pad);
        }
    }
    write_row_sum(gp, w->row, sums);
}

#endif
