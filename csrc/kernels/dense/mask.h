/* mask.h: whether the numbers of a mask are zeros, ones or others. */
#ifndef RELPOS_DENSE_MASK_H
#define RELPOS_DENSE_MASK_H

#include "../../isa/isa.h"
#include "../ground/vector.h"

enum { MASK_BLOCK = 64 * VL }; /* numbers between two looks for others */

RP_INLINE TI
all_but_sign(TI bits)
{
    return RP_IS_F32 ? bits & INT32_MAX : bits & INT64_MAX;
}

/* The bits of all lanes together. */
RP_INLINE TI
joined_bits(VI x)
{
    TI lanes[VL], bits = 0;
    memcpy(lanes, &x, sizeof lanes);
    for (int i = 0; i < VL; i++)
        bits |= lanes[i];
    return bits;
}

/* Whether a number differs from `first`; `count` is a multiple of VL. */
RP_INLINE int
numbers_differ(const T *numbers, int64_t count, T first)
{
    VI differ = {0};
    for (int64_t i = 0; i < count; i += VL)
        differ |= load(numbers + i) != splat(first);
    return joined_bits(differ) != 0;
}

/* Whether a number is neither 0, whose bits but for the sign are 0, nor 1. */
RP_INLINE int
has_others(const T *numbers, int64_t count)
{
    VI others = {0};
    for (int64_t i = 0; i < count; i += VL) {
        V x = load(numbers + i);
        others |= (VI)x & (x != splat(1));
    }
    return all_but_sign(joined_bits(others)) != 0;
}

/* Which of RP_ZEROS, RP_ONES and RP_OTHERS numbers that lie apart are, by their bits: no
 * branch and no gather for each. */
RP_INLINE int
numbers_apart(const char *numbers, ptrdiff_t step, int64_t count)
{
    T unit = 1;
    TI one, bits, joined = 0, common = -1, others = 0;
    memcpy(&one, &unit, sizeof one);
    for (int64_t i = 0; i < count; i++, numbers += step) {
        memcpy(&bits, numbers, sizeof bits);
        joined |= bits;
        common &= bits;
        others |= bits & -(TI)(bits != one);
    }
    if (all_but_sign(others))
        return RP_OTHERS;
    return (all_but_sign(joined) ? RP_ONES : 0) | (common & one ? 0 : RP_ZEROS);
}

static int
mask_numbers(const char *line, ptrdiff_t step, int64_t count)
{
    const T *numbers = (const T *)line, first = *numbers;
    int found = first == 0 ? RP_ZEROS : first == 1 ? RP_ONES : RP_OTHERS;
    int64_t i = 0, last = step == sizeof(T) ? count / VL * VL : 0;
    for (; i < last && found < RP_OTHERS; i += MASK_BLOCK) {
        int64_t block = RP_MIN(MASK_BLOCK, last - i);
        if (found != (RP_ZEROS | RP_ONES) && !numbers_differ(numbers + i, block, first))
            continue;
        found = RP_ZEROS | RP_ONES;
        if (has_others(numbers + i, block))
            found = RP_OTHERS;
    }
    for (i = last; i < count && found < RP_OTHERS; i += MASK_BLOCK)
        found |= numbers_apart(line + i * step, step, RP_MIN(MASK_BLOCK, count - i));
    return found;
}

#endif
