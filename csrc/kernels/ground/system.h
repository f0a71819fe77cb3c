/* system.h: what the kernels need from outside, included before any target region. */
#ifndef RELPOS_GROUND_SYSTEM_H
#define RELPOS_GROUND_SYSTEM_H

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "../../problems.h"

/* What lies between two parts of one block (arena.h) is out of bounds to the sanitizer. */
#if defined(__SANITIZE_ADDRESS__)
#define RP_FENCED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RP_FENCED 1
#endif
#endif
#ifdef RP_FENCED
#include <sanitizer/asan_interface.h>
enum { RP_FENCE_BYTES = 64 };
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
enum { RP_FENCE_BYTES = 0 };
#endif

#define RP_INLINE static inline __attribute__((always_inline, unused))

#define RP_NOINLINE __attribute__((noinline))

#define RP_MIN(a, b) ((a) < (b) ? (a) : (b))
#define RP_MAX(a, b) ((a) > (b) ? (a) : (b))
#define RP_ROUND_UP(n, to) (((n) + (to) - 1) / (to) * (to))

/* What to fetch into the caches while something else runs: `step` bytes further each
 * time. Nothing is read through it, so it may run past every array. */
typedef struct {
    uintptr_t at;
    ptrdiff_t step;
} rp_ahead;

RP_INLINE void
rp_fetch(uintptr_t at)
{
    __builtin_prefetch((const void *)at);
}

/* Asks for a line into the second-level cache, where the first is full of what is in work.
 * */
RP_INLINE void
rp_fetch_second(uintptr_t at)
{
    __builtin_prefetch((const void *)at, 0, 2);
}

#endif
