/* attention_common.h: what attention needs that does not depend on dtype or ISA. */
#ifndef RELPOS_ATTENTION_COMMON_H
#define RELPOS_ATTENTION_COMMON_H

#include "../ground/system.h"

/* How a table enters the tiles.
 *   BAND    one product per tile with the table rows its relative positions span
 *   ROWS    few rows: one product per query with the whole table, spread by clipping
 *   LABELS  the same, spread by the label array */
enum { RP_ABSENT, RP_BAND, RP_ROWS, RP_LABELS };

enum {
    RP_KEY_TILE = 512,   /* keys of a tile of the forward */
    RP_GRAD_TILE = 256,  /* of the backward, whose two score buffers share the cache */
    RP_PACK_CHUNK = 256, /* rows that a unit of table packing takes */
    RP_BLOCK_TILES = 4,  /* query tiles that share a slice of keys, threads allowing */
    RP_WAVE_BYTES = 1 << 19, /* packed operands held at a time, per thread */
    RP_FEW_QUERIES = 8,      /* up to this many, keys are read in place, not packed */
    RP_MANY_LABELS = 4096,   /* rows past which a product with the whole table loses */
    RP_CHUNK_KEYS = 512,     /* keys scored at a time where they are read in place */
    RP_ROWS_AHEAD = 16,      /* rows that are fetched before they are read there */
    RP_FEW_ROWS = 256, /* rows up to which the backward sums by row, not by band */
    RP_SUM_ROWS = 32,  /* rows of a gradient that a unit adds partial sums to */
    RP_FIRE_ROWS = 64, /* query rows whose runs of FIRE's bias one unit finds */
    RP_CHUNKS = 8,     /* key chunks of a head that the backward works on, at most */
    RP_LATER = 8,      /* operands of the next query tile that are fetched ahead */
    RP_SPANS = 64,     /* parts that the keys of few queries are split into, at most */
};

/* Gradients that several units add to. */
enum {
    RP_GRAD_KEY,
    RP_GRAD_QUERY,
    RP_GRAD_VALUE,
    RP_GRAD_BIAS,
    RP_GRAD_U,
    RP_GRAD_V,
    RP_PARTIALS
};

#define RP_LOG2E 1.4426950408889634074
#define RP_LN2 0.69314718055994530942

typedef struct {
    int64_t begin, end;
} rp_interval;

RP_INLINE int64_t
rp_query_offset(const rp_attention *p, int64_t b)
{
    return p->query_offset ? p->query_offset[b] : 0;
}

/* Keys that query i may attend to by window, causality and length: [begin, end). Both
 * ends never fall as i rises. */
RP_INLINE rp_interval
rp_visible(const rp_attention *p, int64_t b, int64_t i)
{
    int64_t at = i + rp_query_offset(p, b);
    int64_t length = p->key_lengths ? p->key_lengths[b] : p->Lk;
    rp_interval v = {0, RP_MAX(0, RP_MIN(length, p->Lk))};
    if (p->window_right != RP_UNBOUNDED)
        v.end = RP_MAX(0, RP_MIN(v.end, at + p->window_right + 1));
    if (p->window_left != RP_UNBOUNDED)
        v.begin = RP_MIN(v.end, RP_MAX(0, at - p->window_left));
    return v;
}

/* Whether rows that see the keys [begin, end) see any of a tile's `count` keys from j0 on.
 * Rows that see nothing have begin = end: their tile may lie outside every band. */
RP_INLINE int
rp_overlaps(int64_t begin, int64_t end, int64_t j0, int64_t count)
{
    return begin < end && begin < j0 + count && end > j0;
}

/* The table row of relative position r; -1: no position term. */
RP_INLINE int64_t
rp_table_row(int64_t r, int64_t min_position, int64_t rows, int beyond)
{
    int64_t t = r - min_position;
    if (t < 0)
        return beyond == RP_CLIP ? 0 : -1;
    if (t >= rows)
        return beyond == RP_CLIP ? rows - 1 : -1;
    return t;
}

/* The label of a pair as a row of a table with `rows` rows; -1 outside. Labels were
 * checked before the call; checking each again keeps a caller who changes them during
 * the call from reading outside the table. */
RP_INLINE int64_t
rp_label(const char *at, int size, int64_t rows)
{
    int64_t label = size == 1   ? *(const int8_t *)at
                    : size == 2 ? *(const int16_t *)at
                    : size == 4 ? *(const int32_t *)at
                                : *(const int64_t *)at;
    return label >= 0 && label < rows ? label : -1;
}

/* Byte address of row `row` of batch item b, head h. */
RP_INLINE char *
rp_at(const rp_array *a, int64_t b, int64_t h, int64_t row)
{
    return a->data + (a->batch ? a->batch[b] : 0) + h * a->head + row * a->row;
}

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
    uint32_t words[4], threshold = (uint32_t)(p->dropout_p * 4294967296.0);
    uint32_t counter[4] = {(uint32_t)i, 0, (uint32_t)h, (uint32_t)b};
    for (int64_t n = 0, block = -1; n < count; n++) {
        int64_t j = j0 + n;
        if (j >> 2 != block) {
            block = j >> 2;
            counter[1] = (uint32_t)block;
            rp_philox(p->seed, counter, words);
        }
        keep[n] = words[j & 3] >= threshold;
    }
}

#endif
