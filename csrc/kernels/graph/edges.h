/* edges.h: the edges of a graph grouped by what they point to. */
#ifndef RELPOS_GRAPH_EDGES_H
#define RELPOS_GRAPH_EDGES_H

#include "../ground/system.h"

enum {
    RP_EDGES = 64,          /* edges at a time, and terms to a block of a sum */
    RP_EDGE_POLL = 1 << 16, /* edges sorted between two looks at the stop flag */
};

/* Columns past which no scratch is tried: its size stays far from overflowing. */
#define RP_WIDEST_ROW (INT64_C(1) << 48)

/* The edges of target t are edges[start[t]], .., edges[start[t + 1] - 1], in the order of
 * the graph: sums over them have one writer and one order, whatever the threads. */
typedef struct {
    const int64_t *target; /* of each edge; outside [0, targets): in no list */
    int64_t targets, *start, *edges;
} rp_edge_lists;

/* A counting sort. Without targets it does nothing. */
RP_INLINE void
rp_sort_edges(const rp_edge_lists *lists, int64_t edges)
{
    const uint64_t targets = (uint64_t)lists->targets;
    int64_t *start = lists->start;
    if (targets == 0)
        return;
    memset(start, 0, (size_t)(targets + 1) * sizeof *start);
    for (int64_t e = 0; e < edges; e++)
        if ((uint64_t)lists->target[e] < targets)
            start[lists->target[e] + 1]++;
    for (int64_t t = 0; t < lists->targets; t++)
        start[t + 1] += start[t];
    for (int64_t e = 0; e < edges; e++) {
        if (e % RP_EDGE_POLL == 0 && rp_stopping())
            return;
        if ((uint64_t)lists->target[e] < targets)
            lists->edges[start[lists->target[e]]++] = e;
    }
    /* every start has moved to the end of its list, which is the next one's start */
    memmove(start + 1, start, (size_t)targets * sizeof *start);
    start[0] = 0;
}

#endif
