/* attention.h: the two entries, and which engine takes a problem. With `bytes` an entry only
 * counts: it writes there what memory the call would take, and nothing else. */
#ifndef RELPOS_ATTENTION_ATTENTION_H
#define RELPOS_ATTENTION_ATTENTION_H

#include "../conditions.h"
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
    return has_labels(p) &&
           (p->rel_query.array.data || p->rel_key.rows > RP_MANY_LABELS ||
            p->rel_value.rows > RP_MANY_LABELS);
}

/* Whether an index lists more rows than columns_t has numbers for. */
static int
lists_too_many(const rp_table *table)
{
    return table->array.data && table->index && listed_rows(table) > INT32_MAX;
}

/* Whether a call would take so much that its sizes could overflow: nobody has that memory.
 * Each of the slices that threads have in work at a time lays out at most RP_CHUNKS sums of
 * rows by columns. */
static int
beyond_memory(const rp_attention *p)
{
    const int64_t tables[] = {
        p->rel_key.rows,   p->rel_query.rows,   p->rel_value.rows,  p->rel_bias.rows,
        p->rel_key.listed, p->rel_query.listed, p->rel_value.listed};
    double rows = (double)p->Lq + (double)p->Lk + 1024;
    double columns = (double)p->D + (double)p->Dv + (double)p->Dp + 256;
    double heads = (double)p->B * (double)p->Hk;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        rows += (double)tables[i];
        columns += tables[i] <= RP_MANY_LABELS ? (double)tables[i] : 0;
    }
    if (lists_too_many(&p->rel_key) || lists_too_many(&p->rel_query))
        return 1;
    heads = RP_MIN(heads, (double)p->threads) * ((double)p->H / (double)p->Hk);
    return heads * RP_CHUNKS * rows * columns * sizeof(double) > 0x1p62;
}

static rp_status
attention_forward(const rp_attention *p, size_t *bytes)
{
    if (bytes)
        *bytes = 0;
    if (p->B == 0 || p->H == 0 || p->Lq == 0)
        return RP_OK;
    if (beyond_memory(p))
        return RP_NO_MEMORY;
    rp_assert(bytes || (check_attention(p) && check_results(p)));
    if (few_queries(p) || labels_beyond_tiles(p))
        return forward_by_rows(p, bytes);
    return forward_by_tiles(p, bytes);
}

static void
clear_gradient(const rp_array *grad, int64_t B, int64_t H, int64_t rows,
               int64_t columns)
{
    for (int64_t b = 0; grad->data && b < B; b++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t row = 0; row < rows; row++)
                zero_run(rp_at(grad, b, h, row), grad->col, sizeof(T), columns);
}

static rp_status
sink_gradients(const rp_gradients *g)
{
    const rp_attention *p = &g->forward;
    sink_sum_t sum = {.sinks = &p->sinks,
                      .grad_out = &g->grad_out,
                      .grad_lse = &g->grad_lse,
                      .grad = &g->grad_sinks,
                      .results = &p->results,
                      .B = p->B,
                      .Lq = p->Lq,
                      .Dv = p->Dv};
    return sum_sinks(sum, p->H, p->threads);
}

static rp_status
attention_backward(const rp_gradients *g, size_t *bytes)
{
    const rp_attention *p = &g->forward;
    if (bytes)
        *bytes = 0;
    if (p->B == 0 || p->H == 0 || p->Lq == 0)
        return RP_OK;
    if (beyond_memory(p))
        return RP_NO_MEMORY;
    rp_assert(bytes || check_gradients(g));
    rp_status status = bytes ? RP_OK : sink_gradients(g);
    if (status || p->Lk == 0)
        return status;
    if (!labels_beyond_tiles(p))
        return backward_by_tiles(g, bytes);
    if (!bytes) { /* tiles overwrite them, rows add to them */
        clear_gradient(&g->grad_query, p->B, p->H, p->Lq, p->D);
        clear_gradient(&g->grad_key, p->B, p->Hk, p->Lk, p->D);
        clear_gradient(&g->grad_value, p->B, p->Hk, p->Lk, p->Dv);
        clear_gradient(&g->grad_position_query, p->B, p->H, p->Lq, p->Dp);
    }
    return backward_by_rows(g, bytes);
}

#endif
