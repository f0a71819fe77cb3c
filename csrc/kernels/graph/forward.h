/* forward.h: attention along the edges of a graph: time and memory of the edges alone.
 *
 * Edge e = (i, j, l) says that query i attends to key j under label l; an edge that
 * stands twice counts twice, and one with a negative key not at all. With A = rel_key and
 * W = rel_value,
 *   s_e   = scale * q_i.(k_j + A[l]), or scale * q_i.k_j + e_i.A[l] with a position query e,
 *           under the cap
 *   out_i = sum_e softmax_e(s)_e * (v_j + W[l])     over the edges of query i
 * and the sink of its head, if there are any. A query's edges are taken RP_EDGES at a time
 * with the running softmax of running.h, whichever thread has the row, so only the order of
 * its edges counts. */
#ifndef RELPOS_GRAPH_FORWARD_H
#define RELPOS_GRAPH_FORWARD_H

#include "../attention/rows/forward.h"
#include "../conditions.h"
#include "../ground/jobs.h"
#include "edges.h"

/* At most RP_EDGES edges of one query of item b and head h, whose key head is hk. */
typedef struct {
    const rp_graph *p;
    int64_t b, h, hk;
    rp_query_edges edges;
} edge_run_t;

/* What each edge has a row of: an operand, by the edge's key, or a table, by its label. */
typedef struct {
    const rp_array *array;
    int64_t table_rows; /* 0: an operand, with a row for each key */
    ptrdiff_t columns;
} edge_rows_t;

RP_INLINE edge_rows_t
operand_rows(const rp_array *operand, int64_t columns)
{
    return (edge_rows_t){.array = operand, .columns = columns};
}

RP_INLINE edge_rows_t
table_rows(const rp_table *table, int64_t columns)
{
    return (edge_rows_t){
        .array = &table->array, .table_rows = table->rows, .columns = columns};
}

/* The row of edge n of a run; negative: it has none, as it has no key, or its label names
 * none. */
RP_INLINE int64_t
row_of_edge(const edge_run_t *run, const edge_rows_t *rows, int64_t n)
{
    if (!rows->table_rows)
        return rp_key_of(&run->edges, n);
    int64_t label = rp_label_of(&run->edges, n);
    return label < rows->table_rows ? label : -1;
}

/* The head of an operand, or of a table, that a run reads. */
RP_INLINE int64_t
head_of_rows(const edge_run_t *run, const edge_rows_t *rows)
{
    return rows->table_rows ? run->h : run->hk;
}

/* s[n] += x . row of edge n; buffer has room for a row. Inline, so that each call
 * has a loop for its kind of rows: out of line, the forward took up to 1.18 of the time. */
RP_INLINE void
dot_edges(const edge_run_t *run, edge_rows_t rows, const T *x, T *buffer, T *s)
{
    const int64_t head = head_of_rows(run, &rows);
    for (int64_t n = 0; n < run->edges.count; n++) {
        int64_t at = row_of_edge(run, &rows, n);
        if (at < 0)
            continue;
        const T *row = operand_row(rows.array, run->b, head, at, rows.columns, buffer);
        s[n] += dot(x, row, rows.columns);
    }
}

/* acc += sum_n s[n] * row of edge n. A weight of 0 adds nothing, not even NaN. */
RP_INLINE void
add_edges(const edge_run_t *run, edge_rows_t rows, const T *s, T *buffer, T *acc)
{
    const int64_t head = head_of_rows(run, &rows);
    for (int64_t n = 0; n < run->edges.count; n++) {
        int64_t at = row_of_edge(run, &rows, n);
        if (at < 0 || s[n] == 0)
            continue;
        const T *row = operand_row(rows.array, run->b, head, at, rows.columns, buffer);
        add_scaled(acc, s[n], row, rows.columns);
    }
}

/* Whether edge n of a run has a key; in a graph of indptr and indices each has one. */
RP_INLINE int
has_key(const edge_run_t *run, int64_t n)
{
    return !run->p->picks.keys.data || rp_key_of(&run->edges, n) >= 0;
}

/* Logits of a run of edges in units of log 2, -inf without a key and behind the last, and the
 * slopes of the cap, unless those are NULL; query and relative as scale_queries has them. */
static void
score_edges(const edge_run_t *run, const T *query, const T *relative, T *buffer, T *s,
            T *slopes)
{
    const rp_graph *p = run->p;
    const int64_t count = run->edges.count;
    memset(s, 0, (size_t)count * sizeof(T));
    dot_edges(run, operand_rows(&p->key, p->D), query, buffer, s);
    if (p->rel_key.array.data)
        dot_edges(run, table_rows(&p->rel_key, p->Dp), relative, buffer, s);
    if (p->softcap > 0)
        cap_row(softcap_of(p->softcap * RP_LOG2E), s, count, slopes);
    for (int64_t n = 0; n < count; n++)
        if (!has_key(run, n))
            s[n] = -(T)INFINITY;
    hide(s, count, RP_EDGES);
}

/* Columns of the rows of a position query; 0: it is absent. */
RP_INLINE int64_t
own_columns(const rp_graph *p)
{
    return p->position_query.data ? p->Dp : 0;
}

RP_INLINE void
scale_query(const rp_array *a, int64_t b, int64_t h, int64_t i, ptrdiff_t columns,
            double scale, T *query)
{
    const T factor = (T)(scale * RP_LOG2E);
    const char *row = rp_at(a, b, h, i);
    for (ptrdiff_t k = 0; k < columns; k++)
        query[k] = number_at(row + k * a->col, RP_KIND(a)) * factor;
}

/* Fills what keys are dotted with, and what rel_key is dotted with: without a position
 * query `relative` is `query`, and is not written a second time. */
RP_INLINE void
scale_queries(const rp_graph *p, int64_t b, int64_t h, int64_t i, T *query, T *relative)
{
    scale_query(&p->query, b, h, i, p->D, p->scale, query);
    if (p->position_query.data)
        scale_query(&p->position_query, b, h, i, p->Dp, 1, relative);
}

/* Columns of the widest row that an edge reads: a buffer for any of them has so many. */
RP_INLINE int64_t
graph_columns(const rp_graph *p)
{
    return RP_MAX(own_columns(p), RP_MAX(p->D, p->Dv));
}

/* Units are blocks of rows of one (b, h); how many rows depends on the shape alone. */
typedef struct {
    const rp_graph *p;
    int64_t block, blocks; /* rows to a unit, units to a slice */
    ptrdiff_t width;       /* Dv in whole vectors */
    T *scratch;
    ptrdiff_t scratch_size; /* elements to a worker */
} graph_plan_t;

static void
plan_graph(graph_plan_t *plan, const rp_graph *p)
{
    int64_t degree = p->edges / p->Lq + 1;
    plan->p = p;
    plan->block = RP_MAX(1, RP_UNIT_WORK / degree / (p->D + p->Dv + 1));
    plan->blocks = (p->Lq + plan->block - 1) / plan->block;
    plan->width = RP_ROUND_UP(p->Dv, VL);
}

/* The query row that a worker has in work, and what its edges have added up to. */
typedef struct {
    running_t running;
    T *s, *query, *relative, *buffer, *out, *part;
} graph_row_t;

/* Takes a run of edges into the row. Their values are added up in `part` first, so that the
 * sum over many edges is a sum of short ones, which rounds less. */
static void
take_edges(const graph_plan_t *plan, graph_row_t *row, const edge_run_t *run)
{
    const rp_graph *p = plan->p;
    score_edges(run, row->query, row->relative, row->buffer, row->s, NULL);
    take_logits(&row->running, row->s, RP_EDGES, row->out, plan->width);
    memset(row->part, 0, (size_t)plan->width * sizeof(T));
    add_edges(run, operand_rows(&p->value, p->Dv), row->s, row->buffer, row->part);
    if (p->rel_value.array.data)
        add_edges(run, table_rows(&p->rel_value, p->Dv), row->s, row->buffer,
                  row->part);
    add_scaled(row->out, 1, row->part, plan->width);
}

static void
graph_unit(void *context, int64_t unit, int worker)
{
    const graph_plan_t *plan = context;
    const rp_graph *p = plan->p;
    int64_t slice = unit / plan->blocks, b = slice / p->H, h = slice % p->H;
    int64_t hk = h / (p->H / p->Hk);
    int64_t first = unit % plan->blocks * plan->block;
    int64_t last = RP_MIN(first + plan->block, p->Lq);
    graph_row_t row = {.s = plan->scratch + worker * plan->scratch_size};
    row.query = row.s + RP_EDGES;
    row.relative = p->position_query.data ? row.query + p->D : row.query;
    row.buffer = row.query + p->D + own_columns(p);
    row.out = row.buffer + graph_columns(p);
    row.part = row.out + plan->width;
    for (int64_t i = first; i < last; i++) {
        const rp_query_edges edges = rp_edges_of(p, b, h, i);
        row.running = start_softmax(&p->sinks, b, h, i);
        memset(row.out, 0, (size_t)plan->width * sizeof(T));
        scale_queries(p, b, h, i, row.query, row.relative);
        for (int64_t n = 0; n < edges.count; n += RP_EDGES) {
            if (rp_stopping())
                return;
            edge_run_t run = {p, b, h, hk, rp_edges_from(&edges, n)};
            take_edges(plan, &row, &run);
        }
        row.running.max = running_base(row.running.max);
        write_row(&p->results, &p->sinks, b, h, i, row.running, row.out, p->Dv, 1);
    }
}

static void
lay_out_graph(void *context, arena_t *arena)
{
    graph_plan_t *plan = context;
    plan->scratch =
        take(arena, plan->p->threads, (size_t)plan->scratch_size * sizeof(T));
}

/* Runs the problem, or only counts: see `reserve`. */
static rp_status
graph_forward(const rp_graph *p, size_t *bytes)
{
    graph_plan_t plan;
    arena_t arena;
    if (bytes)
        *bytes = 0;
    if (p->B == 0 || p->H == 0 || p->Lq == 0)
        return RP_OK;
    if (graph_columns(p) > RP_WIDEST_ROW)
        return RP_NO_MEMORY;
    rp_assert(bytes || check_graph(p));
    plan_graph(&plan, p);
    plan.scratch_size = RP_ROUND_UP(
        RP_EDGES + p->D + own_columns(p) + graph_columns(p) + 2 * plan.width, 64);
    rp_status status = reserve(&arena, lay_out_graph, &plan, bytes);
    if (status || bytes)
        return status;
    status = rp_parallel(p->B * p->H * plan.blocks, graph_unit, &plan, p->threads);
    rp_free(arena.memory);
    return status;
}

#endif
