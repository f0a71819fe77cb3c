/* sight.h: which keys a query may attend to by its window, causality, the keys' length and a
 * range of its own. */
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

/* Keys that query i may attend to, but for the mask: those of its window in its own range. */
RP_INLINE rp_interval
rp_visible(const rp_attention *p, int64_t b, int64_t i)
{
    const rp_array *ranges = &p->sight.key_ranges;
    rp_interval v = rp_in_window(p, b, i);
    if (!ranges->data)
        return v;
    const char *range = rp_at(ranges, b, 0, i);
    rp_interval own = {*(const int64_t *)range,
                       *(const int64_t *)(range + ranges->col)};
    return rp_overlap(v, own);
}

#endif
