/* rel_value.h: the share of the output that comes from rel_value, sum_j p_ij W[l], and the
 * way back to W. */
#ifndef RELPOS_ATTENTION_TERMS_REL_VALUE_H
#define RELPOS_ATTENTION_TERMS_REL_VALUE_H

#include "../tiles/products.h"

/* Terms of grad_out . rel_value summed up at a time. All pairs of a table row share its
 * rounding, and dP - delta does not cancel it as a softmax kept in memory would. */
#define VALUE_BLOCK 8

/* ---- forward --------------------------------------------------------------------- */

/* Sums of p by table row, before the rows of W are weighed by them. */
static void
sum_rel_value(const plan_t *plan, const queries_t *q, const tile_t *t, const T *totals)
{
    if (by_row(&plan->rel_value))
        sum_by_table_row(plan->p, q, t, t->s, totals, q->value_sums,
                         plan->rel_value.stride, &plan->p->rel_value);
}

/* The probabilities read with the plain row length are the band matrix, once the cells
 * that belong to no pair of the tile are zero. */
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

/* out += sum_j p_j W[l] over a tile; by row, all of it in the end: finish_rel_value_rows. */
static void
add_rel_value(const plan_t *plan, scratch_t *w, queries_t *q, const tile_t *t)
{
    if (by_band(&plan->rel_value))
        add_value_band(plan, w, q, t);
}

static void
finish_rel_value_rows(const plan_t *plan, queries_t *q)
{
    if (by_row(&plan->rel_value))
        add_rows(plan->rel_value_bad, q->value_sums, plan->rel_value.stride,
                 copy_of(&plan->rel_value, q->b, q->h), plan->Dv_pad, q->rows_pad,
                 plan->Dv_pad, plan->p->rel_value.rows, NULL, q->out, plan->Dv_pad);
}

/* ---- backward -------------------------------------------------------------------- */

/* grad_out . W of `rows` queries with the whole table: by row. */
static void
dot_rel_value(const gradients_t *gp, int64_t b, int64_t h, const T *grad_rows,
              int64_t rows, T *dots)
{
    const ptrdiff_t stride = gp->value_panels.stride;
    gemm_set(grad_rows, gp->plan.Dv_pad, copy_of(&gp->value_panels, b, h), rows, stride,
             gp->plan.p->Dv, VALUE_BLOCK, dots, stride);
}

/* dP = grad_out . W: fills the tile and returns NULL, or returns its one value in each row,
 * as fill_rel_key. */
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
    w->clean[1] = -1;
    return NULL;
}

/* out = sum p z W: grad of rel_value. */
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
        sum_by_table_row(plan->p, &x->q, &x->t, x->t.s,
                         plan->p->dropout.p > 0 ? NULL : w->shares,
                         w->value_sums + x->q.i0 * table->stride, table->stride,
                         &plan->p->rel_value);
        return;
    }
    if (by_band(&plan->rel_key) || plan->bias_first)
        w->clean[0] = -1;
    clear_corners(w->forward.scores, plan->lds, x, &w->clean[0]);
    int64_t first = x->t.w0 - x->chunk * gp->chunk_keys;
    int64_t rows = RP_MIN(x->t.columns + BQ - 1, plan->band.end - x->t.w0);
    const diagonal_t band = band_of(&x->t);
    add_columns(x->selected, w->forward.scores, plan->lds,
                x->head->grad_rows + x->q.i0 * width, width, rows, width, x->q.rows,
                &band, sums + first * width, width);
}

/* Turns what query tiles have summed up by table row into the gradient of rel_value. */
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
        add_columns(bad || met.end - met.begin == 1,
                    w->value_sums + i * stride + met.begin, stride,
                    x->head->grad_rows + i * width, width, met.end - met.begin, width,
                    RP_MIN(BQ, plan->p->Lq - i), NULL, sums + met.begin * width, width);
    }
}

#endif
