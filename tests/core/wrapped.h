/* wrapped.h: functions that the linker puts in place of others (wrapped.c, -Wl,--wrap), and
 * what they do. */
#ifndef RELPOS_TESTS_CORE_WRAPPED_H
#define RELPOS_TESTS_CORE_WRAPPED_H

#include <stddef.h>
#include <stdint.h>

/* Frames of a build without optimisation, and those of sanitizers, are larger than those that
 * the stacks of workers are for. */
#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if !defined __OPTIMIZE__ || defined __SANITIZE_ADDRESS__ ||                           \
    defined __SANITIZE_THREAD__ || __has_feature(address_sanitizer) ||                 \
    __has_feature(memory_sanitizer) || __has_feature(thread_sanitizer)
#define STACK_FACTOR 16
#else
#define STACK_FACTOR 1
#endif

typedef struct {
    int fills_scratch; /* rp_alloc's memory is NaN before its use and after its release */
    size_t most_bytes; /* allocations fail that would need more in all; 0: any number */
    int64_t clock_steps; /* nanoseconds that each look at the clock adds to it */
    size_t stack_bytes;  /* of each worker, since the first was made */
} wrapped_t;

extern wrapped_t wrapped;

/* The bytes that rp_alloc has handed out at a time since reset_peak, at most. */
size_t wrapped_peak(void);
void reset_peak(void);

#endif
