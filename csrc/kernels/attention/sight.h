/* sight.h: which keys a query may attend to by its window, causality and the keys' length. */
#ifndef RELPOS_ATTENTION_SIGHT_H
#define RELPOS_ATTENTION_SIGHT_H

#include "../ground/system.h"

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
rp_visible(const rp_attention *p, int64_t b, int64_t i)
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

/* Whether rows that see the keys [begin, end) see any of a tile's `count` keys from j0 on.
 * Rows that see nothing have begin = end: their tile may lie outside every band. */
RP_INLINE int
rp_overlaps(int64_t begin, int64_t end, int64_t j0, int64_t count)
{
    return begin < end && begin < j0 + count && end > j0;
}

#endif
