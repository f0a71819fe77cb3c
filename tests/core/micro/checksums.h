/* checksums.h: 128 bits of any bytes. */
#ifndef RELPOS_TESTS_CORE_MICRO_CHECKSUMS_H
#define RELPOS_TESTS_CORE_MICRO_CHECKSUMS_H

#include "numbers.h"

/* The last step of the generator splitmix64. */
static uint64_t
mixed(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

/* The sum of NH over a block of 128 words that ends with zeros, with keys from a first one. */
static uint64_t
block_sum(const char *block, size_t bytes, uint64_t first_key)
{
    uint64_t sum = 0;
    for (uint64_t n = 0; n < 128; n++) {
        uint32_t halves[2] = {0}, keys[2];
        const uint64_t key = mixed((first_key + n + 1) * 0x9e3779b97f4a7c15);
        if (8 * n < bytes)
            memcpy(halves, block + 8 * n, RP_MIN(8, bytes - 8 * n));
        memcpy(keys, &key, sizeof keys);
        sum +=
            (uint64_t)(uint32_t)(halves[0] + keys[0]) * (uint32_t)(halves[1] + keys[1]);
    }
    return sum;
}

static void
check_checksum(source_t *s)
{
    const size_t count = (size_t)pick(s, once_in(s, 2) ? 5000 : 40);
    char *bytes = take_area(s, count, 1);
    uint64_t expected[2] = {count, count}, got[2];
    for (size_t n = 0; n < count; n++)
        bytes[n] = (char)pick(s, 256);
    start_kernel();
    checksum(bytes, count, got);
    for (size_t at = 0; at < count; at += 1024)
        for (uint64_t n = 0; n < 2; n++)
            expected[n] = mixed(expected[n] ^
                                block_sum(bytes + at, RP_MIN(1024, count - at), 2 * n));
    for (int n = 0; n < 2; n++)
        if (got[n] != expected[n])
            report("half %d of the checksum of %zu bytes is %" PRIx64
                   "; expected %" PRIx64,
                   n, count, got[n], expected[n]);
}

#endif
