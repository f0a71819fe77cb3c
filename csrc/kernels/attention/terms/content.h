/* content.h: the content term, scale * (q + u).k, and the way back to q, k and u. */
#ifndef RELPOS_ATTENTION_TERMS_CONTENT_H
#define RELPOS_ATTENTION_TERMS_CONTENT_H

#include "../tiles/products.h"

/* Adds the term to the tile, or to the one value `constant` that each of its rows has,
 * `step` from the next; row maxima, where wanted, in lane_max. */
static void
add_content(const plan_t *plan, const queries_t *q, const tile_t *t, const T *keys,
            const T *constant, ptrdiff_t step, T *lane_max)
{
    /* the cap and its slopes read every cell */
    const diagonal_t *window = plan->p->softcap > 0 ? NULL : window_of(t);
    add_product(q, t, t->s, q->content, plan->D_pad, keys, plan->p->D, window, constant,
                step, lane_max, NULL);
}

/* s = scale * (q + u).k: grad_query and grad_key, both without the scale. */
static void
content_grads(const gradients_t *gp, grad_scratch_t *w, const visit_t *x, int keys_bad)
{
    const ptrdiff_t width = gp->plan.D_pad;
    int64_t row = x->t.j0 - x->chunk * gp->chunk_keys;
    diagonal_t rows;
    if (x->grad_query)
        add_rows(keys_bad, x->d, x->t.ld, x->keys + x->t.j0 * x->key_stride,
                 x->key_stride, x->q.rows_pad, width, x->t.keys, window_of(&x->t),
                 x->grad_query + x->q.i0 * width, width);
    if (gp->g->grad_key.data)
        add_columns(x->selected, x->d, x->t.ld, x->head->rows_u + x->q.i0 * width,
                    width, x->t.keys, width, x->q.rows, rows_by_key(&x->t, &rows),
                    w->grad_key + row * width, width);
}

/* du = scale * sum_j (sum_i dS_ij) k_j */
static void
finish_u(const gradients_t *gp, grad_scratch_t *w, const visit_t *x)
{
    T *sums = partial_of(gp, RP_GRAD_U, x->index, x->chunk);
    int64_t first = x->chunk * gp->chunk_keys;
    int64_t count = RP_MIN(gp->chunk_keys, gp->plan.p->Lk - first);
    if (!sums)
        return;
    memset(w->row, 0, (size_t)gp->plan.D_pad * sizeof(double));
    for (int64_t n = 0; n < count; n++)
        add_weighted_row(w->row, w->column_sums[n],
                         x->keys + (first + n) * x->key_stride, gp->plan.D_pad);
    write_row_sum(w->row, sums, gp->plan.D_pad);
}

#endif
