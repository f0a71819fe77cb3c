/* mask.h: the mask of a pair, which is added or hides, and its gradient, dense by nature. */
#ifndef RELPOS_ATTENTION_TERMS_MASK_H
#define RELPOS_ATTENTION_TERMS_MASK_H

#include "../tiles/gradients.h"

/* Adds a row of a mask, whose numbers lie `step` apart, to logits; biased: another bias may
 * have hidden some of them already. */
RP_INLINE void
add_mask_run(int type, const char *mask, ptrdiff_t step, int64_t count, int biased,
             T *s)
{
    if (type == RP_MASK_BOOL)
        for (int64_t n = 0; n < count; n++)
            s[n] = mask[n * step] ? s[n] : -(T)INFINITY;
    else if (type == RP_MASK_F32)
        for (int64_t n = 0; n < count; n++) {
            T x = log2_units(*(const float *)(mask + n * step));
            s[n] = biased ? add_unless_hidden(s[n], x) : add_or_hide(s[n], x);
        }
    else
        for (int64_t n = 0; n < count; n++) {
            T x = log2_units(*(const double *)(mask + n * step));
            s[n] = biased ? add_unless_hidden(s[n], x) : add_or_hide(s[n], x);
        }
}

/* Adds a row of a mask of 16 bits to logits: widened, 64 numbers at a time. */
static void
add_wide_mask(const rp_array *a, const char *mask, int64_t count, int biased, T *s)
{
    enum { BLOCK = 64 };
    T numbers[BLOCK];
    for (int64_t n = 0; n < count; n += BLOCK) {
        int64_t some = RP_MIN(BLOCK, count - n);
        widen(numbers, mask + n * a->col, a->col, RP_KIND(a), some);
        add_mask_run(RP_MASK_F32, (const char *)numbers, sizeof(T), some, biased,
                     s + n);
    }
}

/* Adds the mask to the logits of row (b, h, i) by the keys [j0, j0 + count). Constant
 * arguments give loops that take many pairs at once: of truth values side by side, and
 * without a bias. */
static void
add_mask(const rp_attention *p, int64_t b, int64_t h, int64_t i, int64_t j0,
         int64_t count, T *s)
{
    const ptrdiff_t step = p->sight.mask.col;
    const int type = p->sight.mask_type;
    const int biased = has_bias(p);
    if (type == RP_MASK_NONE || count <= 0)
        return;
    const char *mask = rp_at(&p->sight.mask, b, h, i) + j0 * step;
    if (RP_KIND(&p->sight.mask) != RP_OWN)
        add_wide_mask(&p->sight.mask, mask, count, biased, s);
    else if (type == RP_MASK_BOOL && step == 1)
        add_mask_run(RP_MASK_BOOL, mask, 1, count, 0, s);
    else if (biased)
        add_mask_run(type, mask, step, count, 1, s);
    else
        add_mask_run(type, mask, step, count, 0, s);
}

static void
mask_grads(const rp_gradients *g, const visit_t *x)
{
    const rp_array *grad = &g->grad_mask;
    for (int m = 0; grad->data && m < x->q.rows; m++)
        unpack_row(grad, rp_at(grad, x->q.b, x->q.h, x->q.i0 + m) + x->t.j0 * grad->col,
                   x->d + m * x->t.ld, x->t.keys);
}

#endif
