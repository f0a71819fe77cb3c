/* rel_value.h: the share of the output that comes from rel_value, sum_j p_ij W[l], and the
 * way back to W. */
#ifndef RELPOS_ATTENTION_TERMS_REL_VALUE_H
#define RELPOS_ATTENTION_TERMS_REL_VALUE_H

#include "../tiles/products.h"

/* The probabilities read with the plain row length are the band matrix, once the cells
 * that belong to no pair of the tile are zero. */
static void
add_value_band(const plan_t *plan, scratch_t *w, queries_t *q, const tile_t *t)
{
    const T *table = copy_of(&plan->rel_value, q->b, q->h) +
                     (t->w0 - plan->band_first) * plan->Dv_pad;
    int64_t depth = RP_MIN(t->keys + BQ - 1, plan->band_end - t->w0);
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
                      plan->Dv_pad, depth, q->out, plan->Dv_pad);
}

/* out = sum p z (v + W): grad_value and, over a band, grad of rel_value. */
static void
value_products(const gradients_t *gp, worker_t *w, const step_t *x)
{
    const plan_t *plan = &gp->plan;
    const ptrdiff_t width = plan->Dv_pad;
    const T *grad = x->head->grad_rows + x->q.i0 * width;
    int64_t row = x->t.j0 - x->chunk * gp->chunk_keys;
    if (gp->g->grad_value.data)
        add_columns(x->selected, x->t.s, x->t.ld, grad, width, x->t.keys, width,
                    x->q.rows, w->grad_value + row * width, width);
    T *sums = partial_of(gp, RP_GRAD_VALUE, x->index, x->chunk);
    if (!sums || plan->use_value != RP_BAND)
        return;
    clear_corners(w->forward.scores, plan->lds, x, &w->clean[0],
                  plan->use_key == RP_BAND || plan->fire_first);
    int64_t first = x->t.w0 - x->chunk * gp->chunk_keys;
    int64_t rows = RP_MIN(x->t.columns + BQ - 1, plan->band_end - x->t.w0);
    add_columns(x->selected, w->forward.scores, plan->lds, grad, width, rows, width,
                x->q.rows, sums + first * width, width);
}

#endif
