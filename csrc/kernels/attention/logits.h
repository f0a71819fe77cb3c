/* logits.h: logits are kept in units of log 2, so that exp is exp2. How many are made at a
 * time, and what may be added to them: finite terms stay finite, only -inf hides a pair. */
#ifndef RELPOS_ATTENTION_LOGITS_H
#define RELPOS_ATTENTION_LOGITS_H

#include "../ground/line_sums.h"

enum {
    RP_KEY_TILE = 512,                 /* keys of a tile, at most */
    RP_STRETCH_KEYS = RP_WEIGHTS_STEP, /* of a row whose keys are read in place */
};

#define RP_LOG2E 1.4426950408889634074
#define RP_LN2 0.69314718055994530942

#define RP_LARGEST ((T)(RP_IS_F32 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023))

/* Finite terms are cut to this size, so that sums of a few stay finite. */
#define RP_LARGEST_TERM (RP_LARGEST / 4)

/* Up to here sums of terms are rounded by less than what exp2 tells apart from 0. */
#define RP_LARGEST_BOUND ((T)(RP_IS_F32 ? 0x1p20 : 0x1p40))

/* x * log2e, with finite x cut to a size of `limit`: only -inf hides. x is compared, not the
 * product: gcc 13 and 14 take a product beyond the largest number for that of an infinity. */
RP_INLINE T
log2_within(double x, const double limit)
{
    const double most = limit / RP_LOG2E;
    if (x == INFINITY || x == -INFINITY)
        return (T)x;
    return (T)(x >= most ? limit : x <= -most ? -limit : x * RP_LOG2E);
}

/* A term of a logit in units of log 2, cut to RP_LARGEST_TERM. */
RP_INLINE T
log2_units(double x)
{
    return log2_within(x, RP_LARGEST_TERM);
}

/* Whether log2_units can be made of many numbers at a time without wider ones. */
#define RP_HAS_LOG2_LANES (!RP_IS_F32 || RP_HAS_FMA)

#if RP_HAS_LOG2_LANES
/* log2_units of every lane. Of floats high + low is log2e to 49 bits, and for no mantissa of a
 * float does the product round otherwise than that of doubles; below 2^-100, where `low` loses
 * bits, the last bit may differ. */
RP_INLINE V
log2_lanes(V x)
{
    const T high = (T)RP_LOG2E, low = (T)(RP_LOG2E - (double)high);
    const V limit = splat(RP_LARGEST_TERM), size = (V)((VI)x & ~(VI)splat(-(T)0));
    V product = RP_IS_F32 ? multiply_add(x, splat(high), x * low) : x * high;
    product = vmin(limit, vmax(-limit, product)); /* keeps NaN */
    return choose(size == (T)INFINITY, x, product);
}
#endif

/* Cuts a sum of two terms in units of log 2 to RP_LARGEST_TERM; it is seldom that large. */
RP_INLINE T
cut_term(T x)
{
    const T limit = RP_LARGEST_TERM, size = x < 0 ? -x : x;
    if (!(size > limit) || size == (T)INFINITY)
        return x;
    return x < 0 ? -limit : limit;
}

/* s + x, and -inf where x is: it hides NaN and infinity too. */
RP_INLINE T
add_or_hide(T s, T x)
{
    return x == -(T)INFINITY ? x : s + x;
}

/* s + x, and -inf where either is: s may be hidden by another bias, from NaN and infinity
 * in x, too. */
RP_INLINE T
add_unless_hidden(T s, T x)
{
    return s == -(T)INFINITY ? s : add_or_hide(s, x);
}

RP_INLINE void
hide(T *s, int64_t first, int64_t end)
{
    for (int64_t n = first; n < end; n++)
        s[n] = -(T)INFINITY;
}

#endif
