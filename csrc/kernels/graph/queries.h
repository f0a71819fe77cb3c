/* queries.h: the first pass of the gradients along edges, by query: it stores p_e and dS_e
 * of the formulas in backward.h, and writes the gradients of queries. */
#ifndef RELPOS_GRAPH_QUERIES_H
#define RELPOS_GRAPH_QUERIES_H

#include "forward.h"

/* A wave of slices of one call, which all passes read. */
typedef struct {
    graph_plan_t plan;
    const rp_graph_gradients *g;
    int64_t edges, first_slice, slices; /* slices of this wave */
    /* Slices that share their edges, as the heads of a group, and how many such there are in
     * the wave: the lists are of the first of them, with those of others behind. */
    int64_t sharing, graphs;
    rp_edge_lists keys, labels;
    int64_t *source;                        /* query of each edge */
    int64_t key_block, key_blocks, columns; /* columns: Dp + Dv */
    ptrdiff_t key_width, value_column;      /* of key_block_t */
    double *key_totals;                     /* (threads, key_block, key_width) */
    T *key_parts;                           /* (threads, key_block, key_width) */
    int64_t *key_terms;                     /* (threads, key_block) */
    T *prob, *ds;                           /* (slices, edges) */
    double *table_sums;                     /* (slices, labels, Dp + Dv) */
    T *scratch;
    ptrdiff_t scratch_size;
} graph_gradients_t;

typedef struct {
    T max, norm, delta; /* of the row; norm = 1 / its sum */
    T *s, *query, *relative, *buffer, *grad;
    /* (D), then (Dp) of a position query: their gradients by some edges, and by all. */
    T *part;
    double *total;
} graph_grad_row_t;

/* p_e and dS_e of a run of edges, and their share of dq and de in row->part. */
static void
edge_gradients(const graph_gradients_t *gg, graph_grad_row_t *row,
               const edge_run_t *run, T *prob, T *ds)
{
    const rp_graph *p = gg->plan.p;
    T dp[RP_EDGES] = {0}, slopes[RP_EDGES];
    score_edges(run, row->query, row->relative, row->buffer, row->s, slopes);
    for (int64_t n = 0; n < RP_EDGES; n += VL)
        store(row->s + n, vexp2(load(row->s + n) - row->max) * row->norm);
    if (gg->g->grad_out.data) {
        dot_edges(run, operand_rows(&p->value, p->Dv), row->grad, row->buffer, dp);
        if (p->rel_value.array.data)
            dot_edges(run, table_rows(&p->rel_value, p->Dv), row->grad, row->buffer,
                      dp);
    }
    for (int64_t n = 0; n < run->edges.count; n++) {
        /* an edge without a key has no part in a row of NaN, either */
        prob[n] = has_key(run, n) ? row->s[n] : 0;
        /* a weight of 0 passes nothing on, not even NaN */
        ds[n] = prob[n] == 0 ? 0 : prob[n] * (dp[n] - row->delta);
        if (p->softcap > 0 && ds[n] != 0)
            ds[n] *= slopes[n];
    }
    T *relative = p->position_query.data ? row->part + p->D : row->part;
    memset(row->part, 0, (size_t)(p->D + own_columns(p)) * sizeof(T));
    add_edges(run, operand_rows(&p->key, p->D), ds, row->buffer, row->part);
    if (p->rel_key.array.data)
        add_edges(run, table_rows(&p->rel_key, p->Dp), ds, row->buffer, relative);
}

/* Fills what all edges of query i share: its softmax, delta, and rows. */
static void
start_grad_row(const graph_gradients_t *gg, graph_grad_row_t *row, int64_t b, int64_t h,
               int64_t i)
{
    const rp_graph *p = gg->plan.p;
    const rp_graph_gradients *g = gg->g;
    row->max = *(const T *)rp_at(&p->results.row_max, b, h, i);
    row->norm = 1 / *(const T *)rp_at(&p->results.row_sum, b, h, i);
    row->delta = 0;
    scale_queries(p, b, h, i, row->query, row->relative);
    if (g->grad_out.data) {
        pack_row(row->grad, &g->grad_out, rp_at(&g->grad_out, b, h, i), p->Dv, p->Dv);
        row->delta =
            dot(row->grad, operand_row(&p->results.out, b, h, i, p->Dv, row->buffer),
                p->Dv);
    }
    if (g->grad_lse.data)
        row->delta -= *(const T *)rp_at(&g->grad_lse, b, h, i);
}

/* gradient row = factor * total */
RP_INLINE void
write_total(const rp_array *grad, int64_t b, int64_t h, int64_t row, double factor,
            const double *total, ptrdiff_t columns)
{
    char *to = rp_at(grad, b, h, row);
    for (ptrdiff_t k = 0; k < columns; k++)
        *(T *)(to + k * grad->col) = (T)(factor * total[k]);
}

static void
graph_query_row(const graph_gradients_t *gg, graph_grad_row_t *row, int64_t slice,
                int64_t i)
{
    const rp_graph *p = gg->plan.p;
    const rp_array *grad = &gg->g->grad_query,
                   *grad_position = &gg->g->grad_position_query;
    const ptrdiff_t columns = p->D + own_columns(p);
    int64_t b = (gg->first_slice + slice) / p->H, h = (gg->first_slice + slice) % p->H;
    int64_t hk = h / (p->H / p->Hk);
    const rp_query_edges edges = rp_edges_of(p, b, h, i);
    const ptrdiff_t place = slice * gg->edges + edges.first;
    T *prob = gg->prob + place, *ds = gg->ds + place;
    if (*(const T *)rp_at(&p->results.row_sum, b, h, i) == 0) { /* saw nothing */
        for (int64_t n = 0; n < edges.count; n++)
            prob[n] = ds[n] = 0;
        return;
    }
    start_grad_row(gg, row, b, h, i);
    memset(row->total, 0, (size_t)columns * sizeof *row->total);
    for (int64_t n = 0; n < edges.count; n += RP_EDGES) {
        if (rp_stopping())
            return;
        edge_run_t run = {p, b, h, hk, rp_edges_from(&edges, n)};
        edge_gradients(gg, row, &run, prob + n, ds + n);
        for (ptrdiff_t k = 0; k < columns; k++)
            row->total[k] += row->part[k];
    }
    if (grad->data)
        write_total(grad, b, h, i, p->scale, row->total, p->D);
    if (grad_position->data)
        write_total(grad_position, b, h, i, 1, row->total + p->D, p->Dp);
}

static void
graph_query_unit(void *context, int64_t unit, int worker)
{
    const graph_gradients_t *gg = context;
    const graph_plan_t *plan = &gg->plan;
    const rp_graph *p = plan->p;
    const ptrdiff_t columns = p->D + own_columns(p);
    graph_grad_row_t row = {.total =
                                (double *)(gg->scratch + worker * gg->scratch_size)};
    row.s = (T *)(row.total + columns);
    row.query = row.s + RP_EDGES;
    row.relative = p->position_query.data ? row.query + p->D : row.query;
    row.part = row.query + columns;
    row.buffer = row.part + columns;
    row.grad = row.buffer + graph_columns(p);
    int64_t first = unit % plan->blocks * plan->block;
    int64_t last = RP_MIN(first + plan->block, p->Lq);
    for (int64_t i = first; i < last && !rp_stopping(); i++)
        graph_query_row(gg, &row, unit / plan->blocks, i);
}

#endif
