/* checksum.h: 128 bits that tell whether memory holds the same bytes as before.
 *
 * A block of 1,024 bytes is summed twice by NH, as in UMAC (RFC 4418): halves of 64-bit words
 * are added to keys and multiplied with each other, and the products are added modulo 2^64.
 * Two blocks that differ have one equal sum with probability 2^-32 for random keys, and two
 * with 2^-64. Each sum is mixed into 64 bits of the result one to one, so that a change of a
 * sum in one block alone always changes the result. The keys are fixed: the checksum finds
 * changes that happen, not those that are made to deceive it. Every instruction set computes
 * the same. */
#ifndef RELPOS_DENSE_CHECKSUM_H
#define RELPOS_DENSE_CHECKSUM_H

#include "../ground/system.h"

typedef uint64_t words64_t __attribute__((vector_size(RP_VECTOR_BYTES)));
typedef uint32_t words32_t __attribute__((vector_size(RP_VECTOR_BYTES)));
typedef uint64_t words64_anywhere
    __attribute__((vector_size(RP_VECTOR_BYTES), aligned(1), may_alias));

enum {
    CHECKSUM_WORDS = 128, /* of a block */
    CHECKSUM_SHIFT = 2,   /* words between the keys of the two sums */
    CHECKSUM_KEYS = CHECKSUM_WORDS + CHECKSUM_SHIFT,
    CHECKSUM_LANES = RP_VECTOR_BYTES / 8
};

/* Mixes the bits of a word one to one: the last step of the generator splitmix64. */
RP_INLINE uint64_t
mix_bits(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

/* The keys are the first numbers of that generator. */
RP_INLINE void
fill_checksum_keys(uint64_t keys[CHECKSUM_KEYS])
{
    for (uint64_t i = 0; i < CHECKSUM_KEYS; i++)
        keys[i] = mix_bits((i + 1) * 0x9e3779b97f4a7c15);
}

/* The lower half times the upper half of each word. */
RP_INLINE words64_t
multiply_halves(words64_t x)
{
#ifdef RP_MULTIPLY_LOWER
    return (words64_t)RP_MULTIPLY_LOWER(x, x >> 32);
#else
    return (x & 0xffffffff) * (x >> 32);
#endif
}

RP_INLINE words64_t
with_keys(words64_t x, const uint64_t *keys)
{
    words64_t key = *(const words64_anywhere *)keys;
    return multiply_halves((words64_t)((words32_t)x + (words32_t)key));
}

/* The two sums of a block. */
RP_INLINE void
sum_block(uint64_t sums[2], const char *block, const uint64_t *keys)
{
    words64_t first = {0}, second = {0};
    for (int i = 0; i < CHECKSUM_WORDS; i += CHECKSUM_LANES) {
        words64_t x = *(const words64_anywhere *)(block + 8 * i);
        first += with_keys(x, keys + i);
        second += with_keys(x, keys + i + CHECKSUM_SHIFT);
    }
    sums[0] = sums[1] = 0;
    for (int lane = 0; lane < CHECKSUM_LANES; lane++) {
        sums[0] += first[lane];
        sums[1] += second[lane];
    }
}

static void
checksum(const char *bytes, size_t count, uint64_t result[2])
{
    enum { BLOCK = 8 * CHECKSUM_WORDS };
    uint64_t keys[CHECKSUM_KEYS];
    char last[BLOCK] = {0};
    uint64_t sums[2];
    fill_checksum_keys(keys);
    result[0] = result[1] = count; /* the last block is filled up with zeros */
    for (size_t at = 0; at < count; at += BLOCK) {
        const char *block = bytes + at;
        if (count - at < BLOCK)
            block = memcpy(last, block, count - at);
        sum_block(sums, block, keys);
        for (int i = 0; i < 2; i++)
            result[i] = mix_bits(result[i] ^ sums[i]);
    }
}

#endif
