/* mask.h: the mask of a pair, which is added or hides, and its gradient, dense by nature; and
 * the blocks of keys that hide. */
#ifndef RELPOS_ATTENTION_TERMS_MASK_H
#define RELPOS_ATTENTION_TERMS_MASK_H

#include "../tiles/gradients.h"

enum { MASK_OF_T = RP_IS_F32 ? RP_MASK_F32 : RP_MASK_F64 };

/* Number n of a row of a mask, whose numbers lie `step` apart, in units of log 2. */
RP_INLINE T
mask_term(int type, const char *mask, ptrdiff_t step, int64_t n)
{
    const char *at = mask + n * step;
    return type == RP_MASK_F32 ? log2_units(*(const float *)at)
                               : log2_units(*(const double *)at);
}

/* Adds a row of a mask to logits; biased: another bias may have hidden some of them already.
 * Constant arguments give loops that take many pairs at once. */
RP_INLINE void
add_mask_run(int type, const char *mask, ptrdiff_t step, int64_t count, int biased,
             T *s)
{
    if (type == RP_MASK_BOOL)
        for (int64_t n = 0; n < count; n++)
            s[n] = mask[n * step] ? s[n] : -(T)INFINITY;
    else if (biased)
        for (int64_t n = 0; n < count; n++)
            s[n] = add_unless_hidden(s[n], mask_term(type, mask, step, n));
    else
        for (int64_t n = 0; n < count; n++)
            s[n] = add_or_hide(s[n], mask_term(type, mask, step, n));
}

#if RP_HAS_LOG2_LANES
/* Adds numbers of a mask that lie side by side, in whole vectors. */
RP_INLINE void
add_mask_lanes(const char *mask, int64_t count, int biased, T *s)
{
    const V hidden = splat(-(T)INFINITY);
    for (int64_t n = 0; n < count; n += VL) {
        V x = load((const T *)mask + n), logits = load(s + n);
        VI hides = biased ? (x == hidden) | (logits == hidden) : x == hidden;
        store(s + n, choose(hides, hidden, logits + log2_lanes(x)));
    }
}
#endif

/* Adds a row of numbers of one type to logits, side by side as most are, or not. */
RP_INLINE void
add_numbers(int type, const char *mask, ptrdiff_t step, int64_t count, int biased, T *s)
{
    const ptrdiff_t size = type == RP_MASK_F32 ? sizeof(float) : sizeof(double);
    int64_t n = 0;
#if RP_HAS_LOG2_LANES
    if (type == MASK_OF_T && step == size) {
        n = count - count % VL;
        if (biased)
            add_mask_lanes(mask, n, 1, s);
        else
            add_mask_lanes(mask, n, 0, s);
    }
#endif
    mask += n * step;
    if (biased)
        add_mask_run(type, mask, step, count - n, 1, s + n);
    else if (step == size)
        add_mask_run(type, mask, size, count - n, 0, s + n);
    else
        add_mask_run(type, mask, step, count - n, 0, s + n);
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
        add_numbers(MASK_OF_T, (const char *)numbers, sizeof(T), some, biased, s + n);
    }
}

/* Adds the mask to the logits of row (b, h, i) by the keys [j0, j0 + count). */
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
    else if (type == RP_MASK_BOOL)
        add_mask_run(RP_MASK_BOOL, mask, step, count, 0, s);
    else if (type == RP_MASK_F32)
        add_numbers(RP_MASK_F32, mask, step, count, biased, s);
    else
        add_numbers(RP_MASK_F64, mask, step, count, biased, s);
}

/* Hides those of the keys [j0, j0 + count) of row (b, h, i) whose block is hidden from it. */
static void
hide_blocks(const rp_attention *p, int64_t b, int64_t h, int64_t i, int64_t j0,
            int64_t count, T *s)
{
    const ptrdiff_t step = p->sight.key_blocks.col;
    const int64_t size = p->sight.block_keys;
    if (!p->sight.key_blocks.data || count <= 0)
        return;
    const char *blocks = rp_blocks_of(p, b, h, i) + j0 / size * step;
    int64_t end = size - j0 % size; /* of the first block, from j0 on */
    for (int64_t begin = 0; begin < count; begin = end, end += size, blocks += step)
        if (!*blocks)
            hide(s, begin, RP_MIN(end, count));
}

/* Whether blocks hide all keys [j0, end) from row (b, h, i). */
RP_INLINE int
blocks_hide(const rp_attention *p, int64_t b, int64_t h, int64_t i, int64_t j0,
            int64_t end)
{
    const ptrdiff_t step = p->sight.key_blocks.col;
    const int64_t size = p->sight.block_keys;
    const char *blocks = rp_blocks_of(p, b, h, i);
    for (int64_t n = j0 / size; n <= (end - 1) / size; n++)
        if (blocks[n * step])
            return 0;
    return 1;
}

/* Adds the mask to the logits of row (b, h, i) by the keys [j0, j0 + count), and hides what
 * mask and blocks hide. */
static void
mask_keys(const rp_attention *p, int64_t b, int64_t h, int64_t i, int64_t j0,
          int64_t count, T *s)
{
    add_mask(p, b, h, i, j0, count, s);
    hide_blocks(p, b, h, i, j0, count, s);
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
