/* source.h: the choices that make a problem: bytes of a fuzzer while there are any, then
 * numbers that follow from a seed. */
#ifndef RELPOS_TESTS_CORE_SOURCE_H
#define RELPOS_TESTS_CORE_SOURCE_H

#include <stdint.h>

typedef struct {
    const uint8_t *at, *end;
    uint64_t state;
} source_t;

static source_t
seeded(uint64_t seed)
{
    return (source_t){.state = seed * 7919 + 13};
}

/* The next 64 bits of SplitMix64: the numbers of arrays, of which a fuzzer's bytes would
 * soon be used up. */
static uint64_t
draw(source_t *s)
{
    uint64_t z = s->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* A choice: 0 to n - 1. */
static int64_t
pick(source_t *s, int64_t n)
{
    uint64_t x = s->at < s->end ? *s->at++ : draw(s);
    if (n > 256 && s->at < s->end)
        x = x << 8 | *s->at++;
    return n < 2 ? 0 : (int64_t)(x % (uint64_t)n);
}

/* A choice that is true once in n times. */
static int
once_in(source_t *s, int64_t n)
{
    return pick(s, n) == 0;
}

/* A number from low to high. */
static int64_t
between(source_t *s, int64_t low, int64_t high)
{
    return low + pick(s, high - low + 1);
}

/* A number in (-1, 1). */
static double
draw_unit(source_t *s)
{
    return (double)(int64_t)draw(s) * 0x1p-63;
}

#endif
