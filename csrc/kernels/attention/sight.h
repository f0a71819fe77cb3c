/* sight.h: which keys a query may attend to by its window, causality, the keys' length, a range
 * of its own and blocks of keys. */
#ifndef RELPOS_ATTENTION_SIGHT_H
#define RELPOS_ATTENTION_SIGHT_H

#include "../ground/lines.h"

typedef struct {
    int64_t begin, end;
} rp_interval;

RP_INLINE int64_t
rp_query_offset(const rp_attention *p, int64_t b)
{
    return p->sight.query_offset ? p->sight.query_offset[b] : 0;
}

/* Keys that query i may attend to by window, causality and length: [begin, end). Both
 * ends never fall as i rises. */
RP_INLINE rp_interval
rp_in_window(const rp_attention *p, int64_t b, int64_t i)
{
    int64_t at = i + rp_query_offset(p, b);
    int64_t length = p->sight.key_lengths ? p->sight.key_lengths[b] : p->Lk;
    rp_interval v = {0, RP_MAX(0, RP_MIN(length, p->Lk))};
    if (p->sight.window_right != RP_UNBOUNDED)
        v.end = RP_MAX(0, RP_MIN(v.end, at + p->sight.window_right + 1));
    if (p->sight.window_left != RP_UNBOUNDED)
        v.begin = RP_MIN(v.end, RP_MAX(0, at - p->sight.window_left));
    return v;
}

RP_INLINE rp_interval
rp_overlap(rp_interval a, rp_interval b)
{
    rp_interval both = {RP_MAX(a.begin, b.begin), RP_MIN(a.end, b.end)};
    both.end = RP_MAX(both.begin, both.end);
    return both;
}

/* The range of query i, of which callers may write any two numbers: here alone it is read,
 * and cut to the keys that there are before anything is computed with it. */
RP_INLINE rp_interval
rp_own_range(const rp_array *ranges, int64_t Lk, int64_t b, int64_t i)
{
    const char *range = rp_at(ranges, b, 0, i);
    int64_t begin = *(const int64_t *)range;
    int64_t end = *(const int64_t *)(range + ranges->col);
    return (rp_interval){RP_MIN(RP_MAX(begin, 0), Lk), RP_MIN(RP_MAX(end, 0), Lk)};
}

/* Whether a mask, or blocks of keys, hide pairs one by one. */
RP_INLINE int
rp_has_mask(const rp_attention *p)
{
    return p->sight.mask_type != RP_MASK_NONE || p->sight.key_blocks.data;
}

/* The truths of the blocks that row (b, h, i) meets, block_keys keys each. */
RP_INLINE const char *
rp_blocks_of(const rp_attention *p, int64_t b, int64_t h, int64_t i)
{
    const rp_sight *sight = &p->sight;
    return rp_at(&sight->key_blocks, b, h / sight->block_heads,
                 i / sight->block_queries);
}

/* Keys that query i may attend to, but for mask and blocks: those of its window in its own
 * range. */
RP_INLINE rp_interval
rp_visible(const rp_attention *p, int64_t b, int64_t i)
{
    rp_interval v = rp_in_window(p, b, i);
    if (p->sight.key_ranges.data)
        v = rp_overlap(v, rp_own_range(&p->sight.key_ranges, p->Lk, b, i));
    rp_assert(0 <= v.begin && v.end <= RP_LONGEST);
    rp_assert(v.begin <= v.end && v.end <= p->Lk);
    return v;
}

#endif
