/* wrapped.h: functions that the linker puts in place of others (wrapped.c, -Wl,--wrap), and
 * what they do. */
#ifndef RELPOS_TESTS_CORE_WRAPPED_H
#define RELPOS_TESTS_CORE_WRAPPED_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    int fills_scratch; /* rp_alloc's memory is NaN before its use and after its release */
    size_t most_bytes; /* allocations fail that would need more in all; 0: any number */
    int64_t clock_steps; /* nanoseconds that each look at the clock adds to it */
    size_t stack_factor; /* of the stacks of workers, 1 or more */
} wrapped_t;

extern wrapped_t wrapped;

/* The bytes that rp_alloc has handed out at a time since reset_peak, at most. */
size_t wrapped_peak(void);
void reset_peak(void);

#endif
