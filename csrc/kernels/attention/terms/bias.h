/* bias.h: the bias b[l] of a pair's offset or label, and the way back. */
#ifndef RELPOS_ATTENTION_TERMS_BIAS_H
#define RELPOS_ATTENTION_TERMS_BIAS_H

#include "../tiles/products.h"

RP_INLINE T
bias_of_row(const rp_attention *p, int64_t b, int64_t h, int64_t row)
{
    return row < 0 ? 0 : log2_units(*(const T *)rp_at(&p->rel_bias, b, h, row));
}

static void
bias_band(const plan_t *plan, scratch_t *w, const queries_t *q, const tile_t *t)
{
    const rp_attention *p = plan->p;
    int64_t r0 = position_of(plan, q, t, BQ - 1, 0);
    for (int c = 0; c < t->columns + BQ - 1; c++)
        w->bias[c] = bias_of_row(
            p, q->b, q->h,
            rp_table_row(r0 + c, p->min_bias_position, p->bias_rows, p->beyond));
}

static void
add_bias_row(const rp_attention *p, const scratch_t *w, const queries_t *q,
             const tile_t *t, int m)
{
    T *s = t->s + m * t->ld;
    if (!p->labels.data) {
        const T *bias = w->bias + BQ - 1 - m;
        for (int n = 0; n < t->columns; n++)
            s[n] = add_or_hide(s[n], bias[n]);
        return;
    }
    const char *label = rp_at(&p->labels, q->b, 0, q->i0 + m) + t->j0 * p->labels.col;
    for (int n = 0; n < t->keys; n++, label += p->labels.col)
        s[n] = add_or_hide(
            s[n],
            bias_of_row(p, q->b, q->h, rp_label(label, p->label_size, p->bias_rows)));
}

/* offset_sums[offset of the pair] += dS: the gradient of rel_bias, and of v over a band.
 * These sums are long, and cancel: T within a tile, double beyond. In a skewed buffer
 * they are the columns of the band matrix. */
static void
sum_offsets(const gradients_t *gp, worker_t *w, const step_t *x)
{
    int64_t first = x->t.w0 - x->chunk * gp->chunk_keys;
    int count = x->t.columns + BQ - 1;
    const plan_t *plan = &gp->plan;
    clear_corners(w->grads, plan->lds, x, &w->clean[1],
                  plan->use_value == RP_BAND && plan->use_key != RP_BAND);
    column_totals(w->grads, plan->lds, x->q.rows, count, w->tile_sums);
    for (int c = 0; c < count; c++)
        w->offset_sums[first + c] += w->tile_sums[c];
}

static void
sum_bias_labels(const rp_attention *p, const step_t *x, T *sums)
{
    for (int m = 0; m < x->q.rows; m++) {
        const char *label =
            rp_at(&p->labels, x->q.b, 0, x->q.i0 + m) + x->t.j0 * p->labels.col;
        for (int n = 0; n < x->t.keys; n++, label += p->labels.col) {
            int64_t l = rp_label(label, p->label_size, p->bias_rows);
            if (l >= 0)
                sums[l] += x->d[m * x->t.ld + n];
        }
    }
}

#endif
