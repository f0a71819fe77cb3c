/* scalars.h: what lets Frama-C read the kernels where they are.
 *
 * It drops the attribute of vectors, so that V is the type of one lane. Plans do not mind:
 * their sizes come from RP_VECTOR_BYTES. What it has no grammar for is defined here as
 * something that it can read; overflow.py changes two more spellings. */
#ifndef RELPOS_TESTS_PROOFS_SCALARS_H
#define RELPOS_TESTS_PROOFS_SCALARS_H

#define __attribute__(attributes)
#define __builtin_convertvector(vector, type) ((type)(vector))
#define __builtin_shufflevector(vector, ...) (vector)
#define _Alignas(type)

#include "../../csrc/relpos.h"

/* Frama-C relies on what is asserted, and says where it cannot show it: there it may call
 * `fails`. Builds for debugging look at the same assertions while they run random problems
 * (tests/core). */
/*@ requires \false;
    assigns \nothing;
    ensures \false; */
void fails(void);
#undef rp_assert
#define rp_assert(condition)                                                           \
    do {                                                                               \
        if (!(condition))                                                              \
            fails();                                                                   \
    } while (0)

/*@ requires low <= high;
    assigns \result \from low, high;
    ensures low <= \result <= high; */
int64_t between(int64_t low, int64_t high);

#endif
