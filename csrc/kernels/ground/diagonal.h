/* diagonal.h: which terms a product of a left operand with zeros off a diagonal has. */
#ifndef RELPOS_GROUND_DIAGONAL_H
#define RELPOS_GROUND_DIAGONAL_H

#include "vector.h"

#define DEPTH_BLOCK 64 /* of products with a tile's keys as terms */

/* A diagonal stripe of a matrix: of line 0 the terms from `begin` to `end`, of line n the same
 * terms n * step further. Outside of it a left operand of a product is zero. */
typedef struct {
    ptrdiff_t begin, end;
    int step;
} diagonal_t;

typedef struct {
    ptrdiff_t begin, end;
} terms_t;

/* The terms of `lines` lines from `line` on in the block from term k of `depth`: those of the
 * diagonal, unless that is NULL. The others, which are zeros, change no bit. */
RP_INLINE terms_t
terms_of(const diagonal_t *diagonal, ptrdiff_t line, ptrdiff_t lines, ptrdiff_t k,
         ptrdiff_t depth)
{
    terms_t terms = {k, RP_MIN(k + DEPTH_BLOCK, depth)};
    if (diagonal) {
        ptrdiff_t first = line * diagonal->step;
        ptrdiff_t last = (line + lines - 1) * diagonal->step;
        terms.begin = RP_MAX(terms.begin, diagonal->begin + RP_MIN(first, last));
        terms.end = RP_MIN(terms.end, diagonal->end + RP_MAX(first, last));
    }
    return terms;
}

#endif
