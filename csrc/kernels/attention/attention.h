/* attention.h: the two entries, and which engine takes a problem. With `bytes` an entry only
 * counts: it writes there what memory the call would take, and nothing else. */
#ifndef RELPOS_ATTENTION_ATTENTION_H
#define RELPOS_ATTENTION_ATTENTION_H

#include "rows/backward.h"
#include "tiles/backward/loop.h"
#include "tiles/forward/loop.h"

enum {
    RP_MANY_LABELS = 4096, /* table rows past which a product with all of them loses */
};

/* Labels that tiles do not take. */
static int
labels_beyond_tiles(const rp_attention *p)
{
    return p->labels.array.data &&
           (p->rel_query.array.data || p->rel_key.rows > RP_MANY_LABELS ||
            p->rel_value.rows > RP_MANY_LABELS);
}

/* Few queries, as in decoding: packing would read and write every key for a handful of
 * products. */
static int
few_queries(const rp_attention *p)
{
    return p->Lq <= RP_FEW_QUERIES;
}

static rp_status
attention_forward(const rp_attention *p, size_t *bytes)
{
    if (bytes)
        *bytes = 0;
    if (p->B == 0 || p->H == 0 || p->Lq == 0)
        return RP_OK;
    if (few_queries(p) || labels_beyond_tiles(p))
        return forward_by_rows(p, bytes);
    return forward_by_tiles(p, bytes);
}

static rp_status
attention_backward(const rp_gradients *g, size_t *bytes)
{
    const rp_attention *p = &g->forward;
    if (bytes)
        *bytes = 0;
    if (p->B == 0 || p->H == 0 || p->Lq == 0 || p->Lk == 0)
        return RP_OK;
    if (labels_beyond_tiles(p))
        return backward_by_rows(g, bytes);
    return backward_by_tiles(g, bytes);
}

#endif
