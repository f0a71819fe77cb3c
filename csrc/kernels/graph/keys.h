/* keys.h: the second pass of the gradients along edges, by key: it adds up the gradients of
 * keys and values.
 *
 * A unit has a block of keys, whose sums stay in the cache, and takes the edges to them in
 * the order of their queries, so that it reads the rows of a query once for all of its edges
 * into the block. Each sum is the one that a loop over the edges of its key alone would make:
 * of RP_EDGES terms at a time in T, and of these in double. So no bit depends on the blocks. */
#ifndef RELPOS_GRAPH_KEYS_H
#define RELPOS_GRAPH_KEYS_H

#include "queries.h"

/* The lists of the edges of a slice of the wave. Without targets, or without edges, there is no
 * memory that they lie in. */
RP_INLINE rp_edge_lists
lists_of(const graph_gradients_t *gg, const rp_edge_lists *lists, int64_t own)
{
    int64_t graph = own / gg->sharing;
    rp_edge_lists of_slice = *lists;
    if (lists->targets > 0)
        of_slice.start += graph * (lists->targets + 1);
    if (lists->targets > 0 && gg->edges > 0)
        of_slice.edges += graph * gg->edges;
    return of_slice;
}

/* gradient row += factor * total */
RP_INLINE void
add_total(const rp_array *grad, int64_t b, int64_t h, int64_t row, double factor,
          const double *total, ptrdiff_t columns)
{
    char *to = rp_at(grad, b, h, row);
    for (ptrdiff_t k = 0; k < columns; k++)
        *(T *)(to + k * grad->col) += (T)(factor * total[k]);
}

/* Slices [first, end) of the wave that share a key head, which is head hk of item b. */
typedef struct {
    int64_t first, end, b, hk;
} key_slices_t;

/* The slices of key head `n` of the wave, which may have the others of it before or behind. */
static key_slices_t
key_slices(const graph_gradients_t *gg, int64_t n)
{
    const rp_graph *p = gg->plan.p;
    int64_t group = p->H / p->Hk, of_all = gg->first_slice / group + n;
    int64_t first = of_all * group - gg->first_slice;
    return (key_slices_t){.first = RP_MAX(first, 0),
                          .end = RP_MIN(first + group, gg->slices),
                          .b = of_all / p->Hk,
                          .hk = of_all % p->Hk};
}

/* A block of keys in the work of one worker. Keys are counted from its first; each has a row
 * of a part and of a total, with the columns of grad_key and then those of grad_value. */
typedef struct {
    int64_t number, first, keys;
    ptrdiff_t width; /* of a row */
    double *total;
    T *part;
    int64_t *terms; /* edges in the part */
    T *buffer;      /* room for a query's rows */
} key_block_t;

static key_block_t
start_key_block(const graph_gradients_t *gg, int64_t number, int worker)
{
    const rp_graph *p = gg->plan.p;
    key_block_t block = {.number = number,
                         .first = number * gg->key_block,
                         .width = gg->key_width,
                         .buffer = gg->scratch + worker * gg->scratch_size};
    const int64_t place = worker * gg->key_block;
    block.keys = RP_MIN(gg->key_block, p->Lk - block.first);
    block.total = gg->key_totals + place * block.width;
    block.part = gg->key_parts + place * block.width;
    block.terms = gg->key_terms + place;
    memset(block.total, 0, (size_t)(block.keys * block.width) * sizeof *block.total);
    memset(block.part, 0, (size_t)(block.keys * block.width) * sizeof *block.part);
    memset(block.terms, 0, (size_t)block.keys * sizeof *block.terms);
    return block;
}

/* Moves the part of key j into its total. */
static void
finish_part(const key_block_t *block, int64_t j)
{
    T *part = block->part + j * block->width;
    double *total = block->total + j * block->width;
    for (ptrdiff_t k = 0; k < block->width; k++)
        total[k] += part[k];
    memset(part, 0, (size_t)block->width * sizeof *part);
    block->terms[j] = 0;
}

/* Adds the edges from query i of a slice, which begin at `at` in a list that ends at `end`;
 * returns where those of the next query begin. */
static const rp_listed_edge *
add_query(const graph_gradients_t *gg, const key_block_t *block, int64_t own, int64_t i,
          const rp_listed_edge *at, const rp_listed_edge *end)
{
    const rp_graph_gradients *g = gg->g;
    const rp_graph *p = gg->plan.p;
    int64_t slice = gg->first_slice + own, b = slice / p->H, h = slice % p->H;
    const rp_query_edges edges = rp_edges_of(p, b, h, i);
    const int64_t next = edges.first + edges.count;
    const T *ds = gg->ds + own * gg->edges, *prob = gg->prob + own * gg->edges;
    const T *query = NULL, *grad = NULL;
    if (g->grad_key.data)
        query = operand_row(&p->query, b, h, i, p->D, block->buffer);
    if (g->grad_value.data && g->grad_out.data)
        grad = operand_row(&g->grad_out, b, h, i, p->Dv, block->buffer + p->D);
    for (; at < end && (int64_t)at->edge < next; at++) {
        const int64_t e = (int64_t)at->edge, j = (int64_t)at->row;
        T *part = block->part + j * block->width;
        if (query && ds[e] != 0)
            add_scaled(part, ds[e], query, p->D);
        if (grad && prob[e] != 0)
            add_scaled(part + gg->value_column, prob[e], grad, p->Dv);
        if (++block->terms[j] == RP_EDGES)
            finish_part(block, j);
    }
    return at;
}

/* Adds all edges of a slice to the block. */
static void
add_slice(const graph_gradients_t *gg, const key_block_t *block, int64_t own)
{
    const rp_edge_lists lists = lists_of(gg, &gg->keys, own);
    const rp_listed_edge *at = lists.edges + lists.start[block->number];
    const rp_listed_edge *end = lists.edges + lists.start[block->number + 1];
    while (at < end) {
        if (rp_stopping())
            return;
        at = add_query(gg, block, own, gg->source[at->edge], at, end);
    }
    for (int64_t j = 0; j < block->keys; j++)
        if (block->terms[j] > 0)
            finish_part(block, j);
}

/* Whether an edge of the slices leads to a key of a block. */
static int
has_edges(const graph_gradients_t *gg, const key_slices_t *slices, int64_t number)
{
    for (int64_t own = slices->first; own < slices->end; own++) {
        const int64_t *start = lists_of(gg, &gg->keys, own).start;
        if (start[number] != start[number + 1])
            return 1;
    }
    return 0;
}

static void
graph_key_unit(void *context, int64_t unit, int worker)
{
    const graph_gradients_t *gg = context;
    const rp_graph_gradients *g = gg->g;
    const rp_graph *p = gg->plan.p;
    const key_slices_t slices = key_slices(gg, unit / gg->key_blocks);
    if (!has_edges(gg, &slices, unit % gg->key_blocks))
        return; /* its gradients keep the zeros they start with */
    const key_block_t block = start_key_block(gg, unit % gg->key_blocks, worker);
    for (int64_t own = slices.first; own < slices.end; own++)
        add_slice(gg, &block, own);
    for (int64_t j = 0; j < block.keys; j++) {
        const double *total = block.total + j * block.width;
        if (g->grad_key.data)
            add_total(&g->grad_key, slices.b, slices.hk, block.first + j, p->scale,
                      total, p->D);
        if (g->grad_value.data && g->grad_out.data)
            add_total(&g->grad_value, slices.b, slices.hk, block.first + j, 1,
                      total + gg->value_column, p->Dv);
    }
}

#endif
