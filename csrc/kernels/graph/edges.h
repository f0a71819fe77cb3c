/* edges.h: the edges of each query, and all of them grouped by what they point to. */
#ifndef RELPOS_GRAPH_EDGES_H
#define RELPOS_GRAPH_EDGES_H

#include "../../problems.h"
#include "../ground/lines.h"

enum {
    RP_EDGES = 64, /* edges at a time, and terms to a block of a sum */
    /* Parts of a block of keys, for each thread; their totals take twice as much. With 254 keys
     * of 64 columns, which fill it, the backward of 256 picks of 4,096 keys takes .52 of
     * the time of a sum for each key, with 508 keys .50 (AMD EPYC, family 25, model 17). */
    RP_PART_BYTES = 1 << 17,
};

/* Columns past which no scratch is tried: its size stays far from overflowing. */
#define RP_WIDEST_ROW (INT64_C(1) << 48)

/* Edges of one query: each has a key and, unless `labels` is NULL, a label. A negative key is
 * none. */
typedef struct {
    const char *keys, *labels; /* int64 */
    ptrdiff_t key_step, label_step;
    int64_t first, count; /* first: its place among all edges of the head */
} rp_query_edges;

/* All edges of query i of item b and head h. */
RP_INLINE rp_query_edges
rp_edges_of(const rp_graph *p, int64_t b, int64_t h, int64_t i)
{
    const rp_picks *picks = &p->picks;
    const ptrdiff_t size = sizeof *p->indices;
    if (picks->keys.data) {
        int64_t group = h / (p->H / picks->groups);
        return (rp_query_edges){
            .keys = rp_at(&picks->keys, b, group, i),
            .labels = picks->labels.data ? rp_at(&picks->labels, b, group, i) : NULL,
            .key_step = picks->keys.col,
            .label_step = picks->labels.col,
            .first = i * picks->count,
            .count = picks->count};
    }
    int64_t first = p->indptr[i];
    return (rp_query_edges){.keys = (const char *)(p->indices + first),
                            .labels =
                                p->labels ? (const char *)(p->labels + first) : NULL,
                            .key_step = size,
                            .label_step = size,
                            .first = first,
                            .count = p->indptr[i + 1] - first};
}

RP_INLINE int64_t
rp_key_of(const rp_query_edges *edges, int64_t n)
{
    return *(const int64_t *)(edges->keys + n * edges->key_step);
}

/* A label that is no row of the tables where there are none. */
RP_INLINE int64_t
rp_label_of(const rp_query_edges *edges, int64_t n)
{
    return edges->labels ? *(const int64_t *)(edges->labels + n * edges->label_step)
                         : -1;
}

/* At most RP_EDGES of them, from edge n on. */
RP_INLINE rp_query_edges
rp_edges_from(const rp_query_edges *edges, int64_t n)
{
    rp_query_edges run = *edges;
    run.keys += n * edges->key_step;
    if (run.labels)
        run.labels += n * edges->label_step;
    run.first += n;
    run.count = RP_MIN(RP_EDGES, edges->count - n);
    return run;
}

/* An edge in a list: which of all edges of the head it is, and the row that it points to,
 * counted from the first of its block. */
typedef struct {
    uint64_t edge : 44, row : 20; /* edges are at most RP_LONGEST, rows RP_PART_BYTES */
} rp_listed_edge;

/* The edges of target t, a block of keys or of labels, are edges[start[t]], ..,
 * edges[start[t + 1] - 1], in the order of the graph: sums over them have one writer and one
 * order, whatever the threads. */
typedef struct {
    int64_t targets, block; /* rows to each, 1 or more */
    int64_t *start;
    rp_listed_edge *edges;
} rp_edge_lists;

/* What an edge points to: its key, or its label. Where it is negative, the number is large. */
RP_INLINE uint64_t
rp_pointed_row(const rp_query_edges *edges, int64_t n, int by_label)
{
    return (uint64_t)(by_label ? rp_label_of(edges, n) : rp_key_of(edges, n));
}

/* A counting sort of the edges of item b and head h, which are in no list where their target
 * is outside [0, targets). Without targets it does nothing. */
RP_INLINE void
rp_sort_edges(const rp_edge_lists *lists, const rp_graph *p, int64_t b, int64_t h,
              int by_label)
{
    const uint64_t targets = (uint64_t)lists->targets, block = (uint64_t)lists->block;
    int64_t *start = lists->start;
    if (targets == 0)
        return;
    memset(start, 0, (size_t)(targets + 1) * sizeof *start);
    for (int64_t i = 0; i < p->Lq; i++) {
        const rp_query_edges edges = rp_edges_of(p, b, h, i);
        for (int64_t n = 0; n < edges.count; n++) {
            uint64_t target = rp_pointed_row(&edges, n, by_label) / block;
            if (target < targets)
                start[target + 1]++;
        }
    }
    for (int64_t t = 0; t < lists->targets; t++)
        start[t + 1] += start[t];
    for (int64_t i = 0; i < p->Lq; i++) {
        const rp_query_edges edges = rp_edges_of(p, b, h, i);
        if (rp_stopping())
            return;
        for (int64_t n = 0; n < edges.count; n++) {
            uint64_t row = rp_pointed_row(&edges, n, by_label), target = row / block;
            if (target < targets)
                lists->edges[start[target]++] = (rp_listed_edge){
                    .edge = (uint64_t)(edges.first + n), .row = row % block};
        }
    }
    /* every start has moved to the end of its list, which is the next one's start */
    memmove(start + 1, start, (size_t)targets * sizeof *start);
    start[0] = 0;
}

#endif
