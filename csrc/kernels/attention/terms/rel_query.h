/* rel_query.h: the term scale * k.C[l], and the way back to k and C: MR keys at a time
 * against the table rows that they meet. */
#ifndef RELPOS_ATTENTION_TERMS_REL_QUERY_H
#define RELPOS_ATTENTION_TERMS_REL_QUERY_H

#include "../tiles/products.h"

/* Numbers of scratch that add_rel_query needs. */
RP_INLINE int64_t
rel_query_scratch(const plan_t *plan)
{
    return is_used(&plan->rel_query) ? MR * (plan->D_pad + BQ + MR + 2 * NR) : 0;
}

static void
add_rel_query(const plan_t *plan, scratch_t *w, const queries_t *q, const tile_t *t)
{
    const rp_attention *p = plan->p;
    if (!is_used(&plan->rel_query))
        return;
    const T *table = copy_of(&plan->rel_query, q->b, q->h) - plan->band.first * p->D;
    T *dots = w->keys + MR * plan->D_pad;
    enum { WIDTH = BQ + MR + 2 * NR };
    for (int n0 = 0; n0 < t->keys; n0 += MR) {
        int valid = RP_MIN(MR, t->keys - n0), first = n0 / NR * NR;
        int64_t end = RP_MIN(RP_ROUND_UP(n0 + MR + BQ, NR), plan->band.end - t->w0);
        for (int n = 0; n < MR; n++)
            pack_row(w->keys + n * plan->D_pad, &p->key,
                     n < valid
                         ? rp_at(&p->key, q->b, q->h / plan->group, t->j0 + n0 + n)
                         : NULL,
                     p->D, plan->D_pad);
        gemm_set(w->keys, plan->D_pad, table + (t->w0 + first) * p->D, MR, end - first,
                 p->D, p->D, dots, WIDTH);
        for (int m = 0; m < q->rows; m++)
            for (int n = 0; n < valid; n++) {
                int c = n0 + n - m + BQ - 1 - first;
                if (c < end - first)
                    t->s[m * t->ld + n0 + n] += dots[n * WIDTH + c];
            }
    }
}

/* s = scale * k.C: grad_key and grad of rel_query, MR keys at a time. */
static void
rel_query_grads(const gradients_t *gp, grad_scratch_t *w, const visit_t *x,
                int keys_bad)
{
    enum { WIDTH = BQ + MR };
    const plan_t *plan = &gp->plan;
    const ptrdiff_t width = plan->D_pad;
    if (!is_used(&plan->rel_query))
        return;
    const T *table =
        copy_of(&gp->query_rows, x->q.b, x->q.h) - plan->band.first * width;
    T *sums = partial_of(gp, RP_GRAD_QUERY, x->index, x->chunk);
    int64_t chunk_key = x->chunk * gp->chunk_keys;
    for (int n0 = 0; n0 < x->t.keys; n0 += MR) {
        int keys = RP_MIN(MR, x->t.keys - n0);
        /* no column beyond the last key's: the next chunk's sums begin there */
        int64_t w0 = x->t.w0 + n0, columns = RP_MIN(BQ + keys - 1, plan->band.end - w0);
        memset(w->corner, 0, MR * WIDTH * sizeof(T));
        for (int m = 0; m < x->q.rows; m++)
            for (int n = 0; n < keys; n++)
                w->corner[n * WIDTH + n - m + BQ - 1] = x->d[m * x->t.ld + n0 + n];
        T *grad_key = w->grad_key + (x->t.j0 + n0 - chunk_key) * width;
        if (gp->g->grad_key.data)
            add_rows(gp->key_rows_bad, w->corner, WIDTH, table + w0 * width, width, MR,
                     width, columns, NULL, grad_key, width);
        if (sums)
            add_columns(keys_bad, w->corner, WIDTH,
                        x->keys + (x->t.j0 + n0) * x->key_stride, x->key_stride,
                        columns, width, keys, NULL, sums + (w0 - chunk_key) * width,
                        width);
    }
}

#endif
