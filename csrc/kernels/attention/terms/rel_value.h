/* rel_value.h: the share of the output that comes from rel_value, sum_j p_ij W[l], and the
 * way back to W.
 *
 * A table is met in one of two ways (packed.h). By row: p is summed up by table row, and these
 * sums are multiplied by W once, after the last key tile. By band: each tile multiplies its
 * probabilities by the rows of W that it meets; rel_key.h describes the skewed buffer in
 * which they lie. */
#ifndef RELPOS_ATTENTION_TERMS_REL_VALUE_H
#define RELPOS_ATTENTION_TERMS_REL_VALUE_H

#include "../tiles/products.h"

/* How many of the Dv terms of grad_out . W[l] are summed up at a time: sums of short sums
 * are rounded less. It matters here because all pairs of a query with the same row l get
 * the same rounding error in dP. A backward that keeps p in memory has delta as the sum of
 * p * dP, where such an error cancels in dP - delta; here delta is made from out. */
#define VALUE_BLOCK 8

/* ---- forward --------------------------------------------------------------------- */

/* By row: value_sums += p of the tile by table row. totals: the sum of p of each query over
 * the tile, or NULL if dropout has changed p since. */
static void
sum_rel_value(const plan_t *plan, const queries_t *q, const tile_t *t, const T *totals)
{
    if (by_row(&plan->rel_value))
        sum_by_table_row(plan->p, q, t, t->s, totals, q->value_sums,
                         plan->rel_value.stride, &plan->p->rel_value);
}

/* out += p . W of one tile. Read with the plain row length lds, the buffer of p is the band
 * matrix: row m has key n in column n - m + BQ - 1. The cells before and behind the keys of
 * a row hold old numbers and become zero first; rows beyond q->rows have no keys at all. */
static void
add_value_band(const plan_t *plan, scratch_t *w, queries_t *q, const tile_t *t)
{
    const T *table = copy_of(&plan->rel_value, q->b, q->h) +
                     (t->w0 - plan->band.first) * plan->Dv_pad;
    int64_t depth = RP_MIN(t->keys + BQ - 1, plan->band.end - t->w0);
    const diagonal_t band = band_of(t);
    for (int m = 0; m < q->rows_pad; m++) {
        T *row = w->scores + m * plan->lds;
        int first = BQ - 1 - m, end = first + (m < q->rows ? t->keys : 0);
        for (int c = 0; c < first; c++)
            row[c] = 0;
        for (int64_t c = end; c < depth; c++)
            row[c] = 0;
    }
    if (plan->rel_value_bad)
        gemm_add_rows_selected(w->scores, plan->lds, table, plan->Dv_pad, q->rows,
                               plan->Dv_pad, depth, q->out, plan->Dv_pad);
    else
        gemm_add_rows(w->scores, plan->lds, table, plan->Dv_pad, q->rows_pad,
                      plan->Dv_pad, depth, &band, q->out, plan->Dv_pad);
}

/* out += sum_j p_j W[l] over a tile. By row there is nothing to do yet:
 * finish_rel_value_rows adds all of it in the end. */
static void
add_rel_value(const plan_t *plan, scratch_t *w, queries_t *q, const tile_t *t)
{
    if (by_band(&plan->rel_value))
        add_value_band(plan, w, q, t);
}

/* By row: out += value_sums . W, once for all key tiles. */
static void
finish_rel_value_rows(const plan_t *plan, queries_t *q)
{
    if (by_row(&plan->rel_value))
        add_rows(plan->rel_value_bad, q->value_sums, plan->rel_value.stride,
                 copy_of(&plan->rel_value, q->b, q->h), plan->Dv_pad, q->rows_pad,
                 plan->Dv_pad, plan->p->rel_value.rows, NULL, q->out, plan->Dv_pad);
}

/* ---- backward -------------------------------------------------------------------- */

/* By row: dots = grad_out . W of `rows` queries with the whole table, for all key tiles. */
static void
dot_rel_value(const gradients_t *gp, int64_t b, int64_t h, const T *grad_rows,
              int64_t rows, T *dots)
{
    const ptrdiff_t stride = gp->value_panels.stride;
    gemm_set(grad_rows, gp->plan.Dv_pad, copy_of(&gp->value_panels, b, h), rows, stride,
             gp->plan.p->Dv, VALUE_BLOCK, dots, stride);
}

/* The share grad_out . W of dP, before grad_out . v is added. Fills x->d and returns NULL;
 * or, where a query has the same number at all keys of the tile, returns these numbers,
 * that of row m at m * *step, as fill_rel_key does. */
static const T *
fill_rel_value_grads(const gradients_t *gp, grad_scratch_t *w, const visit_t *x,
                     ptrdiff_t *step)
{
    static const T zero = 0;
    const plan_t *plan = &gp->plan;
    const packed_t *panels = &gp->value_panels;
    *step = 0;
    if (!is_used(panels))
        return &zero;
    if (by_row(panels))
        return fill_dots(plan->p, &x->q, &x->t, x->d,
                         x->head->value_dots + x->q.i0 * panels->stride, panels->stride,
                         &plan->p->rel_value, step);
    const T *table =
        copy_of(panels, x->q.b, x->q.h) + (x->t.w0 - plan->band.first) * plan->p->Dv;
    int64_t end = RP_MIN(x->t.columns + BQ, plan->band.end - x->t.w0);
    set_band(&x->q, &x->t, x->head->grad_rows + x->q.i0 * plan->Dv_pad, plan->Dv_pad,
             table, plan->p->Dv, VALUE_BLOCK, 0, end, end, w->grads, plan->lds);
    w->clean[1] = -1; /* set_band also writes cells of w->grads that are no pairs */
    return NULL;
}

/* out = sum p z W, so that grad W[l] = sum of p z grad_out over the pairs of l. x->t.s has
 * p z. By row only p z is summed up, and finish_rel_value multiplies by grad_out. */
static void
rel_value_grads(const gradients_t *gp, grad_scratch_t *w, const visit_t *x)
{
    const plan_t *plan = &gp->plan;
    const packed_t *table = &plan->rel_value;
    const ptrdiff_t width = plan->Dv_pad;
    T *sums = partial_of(gp, RP_GRAD_VALUE, x->index, x->chunk);
    if (!sums)
        return;
    if (by_row(table)) {
        /* w->shares are sums of p and not of p z: of no use under dropout. */
        sum_by_table_row(plan->p, &x->q, &x->t, x->t.s,
                         plan->p->dropout.p > 0 ? NULL : w->shares,
                         w->value_sums + x->q.i0 * table->stride, table->stride,
                         &plan->p->rel_value);
        return;
    }
    /* A band of rel_key, or a bias that fills the tile first, has written cells that are no
     * pairs. Without them score_tile writes the skewed rows alone, and the zeros stay. */
    if (in_band(&plan->rel_key) || plan->bias_first)
        w->clean[0] = -1;
    clear_corners(w->forward.scores, plan->lds, x, &w->clean[0]);
    /* Row n of the partial sums is band column n + first key of the chunk. */
    int64_t first = x->t.w0 - x->chunk * gp->chunk_keys;
    int64_t rows = RP_MIN(x->t.columns + BQ - 1, plan->band.end - x->t.w0);
    const diagonal_t band = band_of(&x->t);
    add_columns(x->selected, w->forward.scores, plan->lds,
                x->head->grad_rows + x->q.i0 * width, width, rows, width, x->q.rows,
                &band, sums + first * width, width);
}

/* By row: grad W += (sums of p z by table row)' . grad_out, at the end of a chunk of keys,
 * one query tile at a time and only for the rows that it can have met. */
static void
finish_rel_value(const gradients_t *gp, const grad_scratch_t *w, const visit_t *x,
                 rp_interval tiles, int bad)
{
    const plan_t *plan = &gp->plan;
    const ptrdiff_t width = plan->Dv_pad, stride = plan->rel_value.stride;
    T *sums = partial_of(gp, RP_GRAD_VALUE, x->index, x->chunk);
    if (!sums || !by_row(&plan->rel_value))
        return;
    for (int64_t i = tiles.begin * BQ; i < tiles.end * BQ; i += BQ) {
        rp_interval met = rows_met(gp, x, i, &plan->p->rel_value);
        /* A single row is faster by the selected product than as one of MR rows. */
        add_columns(bad || met.end - met.begin == 1,
                    w->value_sums + i * stride + met.begin, stride,
                    x->head->grad_rows + i * width, width, met.end - met.begin, width,
                    RP_MIN(BQ, plan->p->Lq - i), NULL, sums + met.begin * width, width);
    }
}

#endif
