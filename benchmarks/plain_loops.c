/* plain_loops.c: what a decoding step reads, by loops that do nothing else: no softmax, no
 * prefetch, no blocks. plain_loops.py compiles it for this CPU. */
#include "plain_loops.h"

enum { SUMMED = 1024 };

/* out += sum_j products[j] * value j. */
static void
add_weighted(const float *products, const float *value, float *out, int64_t keys)
{
    vector sums[VECTORS] = {{0}};
    for (int64_t j = 0; j < keys; j++, value += DIM)
#pragma GCC unroll 16
        for (int c = 0; c < VECTORS; c++)
            sums[c] += products[j] * ((const loaded *)value)[c];
    for (int c = 0; c < VECTORS; c++)
        ((loaded *)out)[c] += sums[c];
}

/* products[j] = query . key j, then out = sum_j products[j] * value j, for each item; the
 * arrays lie item by item. SUMMED terms at a time, whose rounding stays small. */
void
gemv_pairs(const float *query, const float *key, const float *value, float *products,
           float *out, int64_t items, int64_t keys)
{
    for (int64_t n = 0; n < items; n++, query += DIM, value += keys * DIM, out += DIM) {
        for (int64_t j = 0; j < keys; j++, key += DIM) {
            vector sum = {0};
            float total = 0;
#pragma GCC unroll 16
            for (int c = 0; c < VECTORS; c++)
                sum += ((const loaded *)query)[c] * ((const loaded *)key)[c];
            for (int i = 0; i < LANES; i++)
                total += sum[i];
            products[j] = total;
        }
        memset(out, 0, DIM * sizeof *out);
        for (int64_t j = 0; j < keys; j += SUMMED)
            add_weighted(products + j, value + j * DIM, out,
                         keys - j < SUMMED ? keys - j : SUMMED);
    }
}

/* The sum of the bits of `count` floats, in whole groups of DIM. */
uint32_t
read_bits(const float *numbers, int64_t count)
{
    bits sums[VECTORS] = {{0}};
    uint32_t total = 0;
    for (const float *end = numbers + count; numbers < end; numbers += DIM)
#pragma GCC unroll 16
        for (int c = 0; c < VECTORS; c++)
            sums[c] += ((const bits *)numbers)[c];
    for (int c = 0; c < VECTORS; c++)
        for (int i = 0; i < LANES; i++)
            total += sums[c][i];
    return total;
}
