/* mask.h: the mask of a pair, which is added or hides, and its gradient, dense by nature. */
#ifndef RELPOS_ATTENTION_TERMS_MASK_H
#define RELPOS_ATTENTION_TERMS_MASK_H

#include "../tiles/gradients.h"

static void
add_mask_row(const rp_attention *p, const char *mask, int count, T *s)
{
    if (p->mask_type == RP_MASK_BOOL)
        for (int n = 0; n < count; n++, mask += p->mask.col)
            s[n] = *(const unsigned char *)mask ? s[n] : -(T)INFINITY;
    else if (p->mask_type == RP_MASK_F32)
        for (int n = 0; n < count; n++, mask += p->mask.col) {
            T x = log2_units(*(const float *)mask);
            s[n] = add_or_hide(s[n], x);
        }
    else
        for (int n = 0; n < count; n++, mask += p->mask.col) {
            T x = log2_units(*(const double *)mask);
            s[n] = add_or_hide(s[n], x);
        }
}

static void
write_mask_grad(const rp_gradients *g, const step_t *x)
{
    for (int m = 0; m < x->q.rows; m++) {
        char *at = rp_at(&g->grad_mask, x->q.b, x->q.h, x->q.i0 + m) +
                   x->t.j0 * g->grad_mask.col;
        unpack_row(at, g->grad_mask.col, x->d + m * x->t.ld, x->t.keys);
    }
}

#endif
