/* dropout.h: which pairs dropout keeps: a pure function of the seed and the pair. */
#ifndef RELPOS_ATTENTION_DROPOUT_H
#define RELPOS_ATTENTION_DROPOUT_H

#include "../ground/vector.h"

/* Philox4x32-10 (Salmon et al. 2011): four words that are a pure function of key and
 * counter. */
RP_INLINE void
rp_philox(uint64_t key, const uint32_t counter[4], uint32_t words[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(b >> 32) ^ c1 ^ k0, n2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    words[0] = c0;
    words[1] = c1;
    words[2] = c2;
    words[3] = c3;
}

/* keep[n] = whether dropout keeps the pair (i, j0 + n), for n in [0, count). */
RP_INLINE void
rp_dropout_kept(const rp_attention *p, int64_t b, int64_t h, int64_t i, int64_t j0,
                int64_t count, unsigned char *keep)
{
    uint32_t words[4], threshold = (uint32_t)(p->dropout.p * 4294967296.0);
    const rp_part *part = &p->part;
    uint32_t counter[4] = {(uint32_t)(i + part->query), 0, (uint32_t)(h + part->head),
                           (uint32_t)(part->items ? part->items[b] : b)};
    for (int64_t n = 0, block = -1; n < count; n++) {
        int64_t j = j0 + n + part->key;
        if (j >> 2 != block) {
            block = j >> 2;
            counter[1] = (uint32_t)block;
            rp_philox(p->dropout.seed, counter, words);
        }
        keep[n] = words[j & 3] >= threshold;
    }
}

static void
scale_by_dropout(T *row, const unsigned char *keep, int count, T factor)
{
    for (int n = 0; n < count; n++)
        row[n] = keep[n] ? row[n] * factor : 0;
}

#endif
