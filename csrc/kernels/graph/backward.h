/* backward.h: gradients of attention along the edges of a graph.
 *
 * With G and g the gradients of out and lse, and e = (i, j, l) as in forward.h,
 *   p_e  = exp(s_e - lse_i)                dS_e = p_e (G_i.(v_j + W[l]) - G_i.out_i + g_i)
 * and, where there is a cap, dS_e times its slope,
 *   dq_i = scale sum dS_e (k_j + A[l])     over the edges of query i
 *   dk_j = scale sum dS_e q_i              dv_j = sum p_e G_i    over the edges to key j
 *   dA_l = scale sum dS_e q_i              dW_l = sum p_e G_i    over the edges of label l
 * and with a position query e: de_i = sum dS_e A[l], which dq_i lacks, dA_l = sum dS_e e_i.
 * A slice is one (b, h). Three passes over a wave of slices: by query, which stores p_e and
 * dS_e; by key and by label, which take them in the order of the lists of edges.h. Heads that
 * share a key head add to its gradients one after the other. */
#ifndef RELPOS_GRAPH_BACKWARD_H
#define RELPOS_GRAPH_BACKWARD_H

#include "keys.h"

/* ---- by label -------------------------------------------------------------------- */

/* total += sum over one target's edges in a slice of the wave of weights[e] * row source[e] of
 * `rows`, in blocks of RP_EDGES terms; scratch has room for two rows. */
static void
sum_edges(const graph_gradients_t *gg, const rp_edge_lists *all, int64_t target,
          const T *weights, const rp_array *rows, int64_t own, ptrdiff_t columns,
          T *scratch, double *total)
{
    const rp_edge_lists of_slice = lists_of(gg, all, own), *lists = &of_slice;
    int64_t slice = gg->first_slice + own;
    int64_t b = slice / gg->plan.p->H, h = slice % gg->plan.p->H;
    int64_t end = lists->start[target + 1];
    T *part = scratch, *buffer = scratch + columns;
    weights += own * gg->edges;
    for (int64_t first = lists->start[target]; first < end; first += RP_EDGES) {
        if (rp_stopping())
            return;
        memset(part, 0, (size_t)columns * sizeof(T));
        for (int64_t n = first; n < RP_MIN(first + RP_EDGES, end); n++) {
            int64_t e = (int64_t)lists->edges[n].edge;
            if (weights[e] != 0)
                add_scaled(part, weights[e],
                           operand_row(rows, b, h, gg->source[e], columns, buffer),
                           columns);
        }
        for (ptrdiff_t k = 0; k < columns; k++)
            total[k] += part[k];
    }
}

/* Sums up what the edges of one label add to the gradients of the tables in one slice; kept
 * in double until graph_table_unit adds up the slices. */
static void
graph_label_unit(void *context, int64_t unit, int worker)
{
    const graph_gradients_t *gg = context;
    const rp_graph_gradients *g = gg->g;
    const rp_graph *p = gg->plan.p;
    int64_t own = unit / gg->labels.targets, label = unit % gg->labels.targets;
    double *total = gg->table_sums + unit * gg->columns;
    T *rest = gg->scratch + worker * gg->scratch_size;
    memset(total, 0, (size_t)gg->columns * sizeof *total);
    if (g->grad_rel_key.data && label < p->rel_key.rows)
        sum_edges(gg, &gg->labels, label, gg->ds,
                  p->position_query.data ? &p->position_query : &p->query, own, p->Dp,
                  rest, total);
    if (g->grad_rel_value.data && g->grad_out.data && label < p->rel_value.rows)
        sum_edges(gg, &gg->labels, label, gg->prob, &g->grad_out, own, p->Dv, rest,
                  total + p->Dp);
}

/* Adds row `label` of one table's gradient up over the slices of the wave; slices that
 * follow each other into the same row are added in double first. */
static void
add_slices(const graph_gradients_t *gg, const rp_array *grad, int64_t label,
           double factor, ptrdiff_t first, ptrdiff_t columns)
{
    const rp_graph *p = gg->plan.p;
    const int64_t step = gg->labels.targets * gg->columns;
    double *total = gg->table_sums + label * gg->columns + first;
    for (int64_t s = 0; s < gg->slices; s++, total += step) {
        int64_t slice = gg->first_slice + s, b = slice / p->H, h = slice % p->H;
        int64_t next = slice + 1;
        if (s + 1 < gg->slices &&
            rp_at(grad, b, h, label) == rp_at(grad, next / p->H, next % p->H, label))
            for (ptrdiff_t k = 0; k < columns; k++)
                total[step + k] += total[k];
        else
            add_total(grad, b, h, label, factor, total, columns);
    }
}

static void
graph_table_unit(void *context, int64_t label, int worker)
{
    const graph_gradients_t *gg = context;
    const rp_graph_gradients *g = gg->g;
    const rp_graph *p = gg->plan.p;
    (void)worker;
    if (g->grad_rel_key.data && label < p->rel_key.rows)
        add_slices(gg, &g->grad_rel_key, label, p->position_query.data ? 1 : p->scale,
                   0, p->Dp);
    if (g->grad_rel_value.data && label < p->rel_value.rows)
        add_slices(gg, &g->grad_rel_value, label, 1, p->Dp, p->Dv);
}

/* ---- the call -------------------------------------------------------------------- */

/* Two units sort the edges of each graph of the wave, by key and by label; one more notes their
 * queries, which are the same in all graphs of the call. */
static void
graph_sort_unit(void *context, int64_t unit, int worker)
{
    const graph_gradients_t *gg = context;
    const rp_graph *p = gg->plan.p;
    int64_t own = unit / 2 * gg->sharing, slice = gg->first_slice + own;
    int by_label = unit % 2;
    (void)worker;
    if (unit < 2 * gg->graphs) {
        rp_edge_lists lists = lists_of(gg, by_label ? &gg->labels : &gg->keys, own);
        rp_sort_edges(&lists, p, slice / p->H, slice % p->H, by_label);
        return;
    }
    for (int64_t i = 0; i < p->Lq; i++) {
        const rp_query_edges edges = rp_edges_of(p, 0, 0, i);
        for (int64_t n = 0; n < edges.count; n++)
            gg->source[edges.first + n] = i;
    }
}

/* Key heads that slices of the wave have. */
static int64_t
wave_key_heads(const graph_gradients_t *gg)
{
    int64_t group = gg->plan.p->H / gg->plan.p->Hk, first = gg->first_slice / group;
    return (gg->first_slice + gg->slices - 1) / group + 1 - first;
}

static rp_status
run_graph_wave(graph_gradients_t *gg)
{
    int threads = gg->plan.p->threads;
    int64_t labels = gg->labels.targets;
    rp_status status = RP_OK;
    if (gg->first_slice % gg->sharing == 0)
        status = rp_parallel(2 * gg->graphs + (gg->first_slice == 0), graph_sort_unit,
                             gg, threads);
    if (!status)
        status =
            rp_parallel(gg->slices * gg->plan.blocks, graph_query_unit, gg, threads);
    if (!status && gg->keys.targets)
        status = rp_parallel(wave_key_heads(gg) * gg->key_blocks, graph_key_unit, gg,
                             threads);
    if (!status)
        status = rp_parallel(gg->slices * labels, graph_label_unit, gg, threads);
    if (!status)
        status = rp_parallel(labels, graph_table_unit, gg, threads);
    return status;
}

/* How many slices make a wave, of which each takes `bytes`: all that share their edges, of one
 * or of several graphs, or some of them. */
static void
plan_graph_wave(graph_gradients_t *gg, size_t bytes)
{
    const rp_graph *p = gg->plan.p;
    int64_t all = p->B * p->H, wave = (int64_t)(RP_WAVE_BYTES / RP_MAX(bytes, 1));
    gg->sharing = p->picks.keys.data ? p->H / p->picks.groups : all;
    rp_assert(gg->sharing > 0);
    gg->slices = RP_MAX(1, RP_MIN(all, wave));
    gg->graphs = RP_MAX(1, gg->slices / gg->sharing);
    if (gg->slices > gg->sharing)
        gg->slices = gg->graphs * gg->sharing;
}

/* Cuts keys into blocks: few enough that their parts stay in the cache, and 16 blocks or more
 * where there are as many keys, so that each worker has some. */
static void
plan_key_blocks(graph_gradients_t *gg)
{
    const rp_graph *p = gg->plan.p;
    const int is_wanted = gg->g->grad_key.data || gg->g->grad_value.data;
    gg->value_column = RP_ROUND_UP(p->D, VL);
    gg->key_width = gg->value_column + RP_ROUND_UP(p->Dv, VL);
    int64_t fitting = RP_PART_BYTES / (int64_t)sizeof(T) / (gg->key_width + 1);
    gg->key_block = RP_MAX(1, RP_MIN(fitting, p->Lk / 16));
    gg->key_blocks = (p->Lk + gg->key_block - 1) / gg->key_block;
    gg->keys.targets = is_wanted ? gg->key_blocks : 0;
    gg->keys.block = gg->key_block;
    gg->labels.block = 1;
}

/* How the call is cut. */
static rp_status
plan_graph_backward(graph_gradients_t *gg, const rp_graph_gradients *g)
{
    const rp_graph *p = &g->forward;
    const int has_labels = p->labels || p->picks.labels.data;
    size_t sums, slice_bytes;
    size_t longest = (size_t)graph_columns(p), own = (size_t)own_columns(p);
    int64_t key_rows = g->grad_rel_key.data ? p->rel_key.rows : 0;
    int64_t value_rows = g->grad_rel_value.data ? p->rel_value.rows : 0;
    plan_graph(&gg->plan, p);
    gg->g = g;
    gg->edges = p->edges;
    gg->columns = p->Dp + p->Dv;
    gg->labels.targets = has_labels ? RP_MAX(key_rows, value_rows) : 0;
    plan_key_blocks(gg);
    if (!rp_multiply((size_t)gg->labels.targets, (size_t)gg->columns, &sums) ||
        !rp_multiply(sums, sizeof(double), &slice_bytes) ||
        slice_bytes > PTRDIFF_MAX / 2)
        return RP_NO_MEMORY;
    /* A slice keeps its sums by label and, of each edge, p_e and dS_e from the first pass
     * on; picks have lists of their own. As many slices as fit into RP_WAVE_BYTES go
     * together. */
    slice_bytes += 2 * (size_t)gg->edges * sizeof(T);
    if (p->picks.keys.data)
        slice_bytes += (size_t)(2 * gg->edges + gg->keys.targets + gg->labels.targets) *
                       sizeof(int64_t);
    plan_graph_wave(gg, slice_bytes);
    gg->scratch_size = (ptrdiff_t)RP_ROUND_UP(
        (longest + own) * sizeof(double) / sizeof(T) + RP_EDGES + 4 * longest + 2 * own,
        64);
    return RP_OK;
}

static void
lay_out_lists(const graph_gradients_t *gg, rp_edge_lists *lists, arena_t *arena)
{
    if (lists->targets == 0)
        return;
    lists->start =
        take(arena, gg->graphs, (size_t)(lists->targets + 1) * sizeof *lists->start);
    lists->edges = take(arena, gg->graphs, (size_t)gg->edges * sizeof *lists->edges);
}

static void
lay_out_graph_backward(void *context, arena_t *arena)
{
    graph_gradients_t *gg = context;
    int64_t threads = gg->plan.p->threads, edges = gg->edges;
    const int64_t numbers = gg->key_block * gg->key_width;
    gg->scratch = take(arena, threads, (size_t)gg->scratch_size * sizeof(T));
    gg->key_totals = take(arena, threads, (size_t)numbers * sizeof *gg->key_totals);
    gg->key_parts = take(arena, threads, (size_t)numbers * sizeof *gg->key_parts);
    gg->key_terms = take(arena, threads, (size_t)gg->key_block * sizeof *gg->key_terms);
    gg->source = take(arena, edges, sizeof *gg->source);
    gg->prob = take(arena, gg->slices, (size_t)edges * sizeof(T));
    gg->ds = take(arena, gg->slices, (size_t)edges * sizeof(T));
    gg->table_sums = take(arena, gg->slices * gg->labels.targets,
                          (size_t)gg->columns * sizeof(double));
    lay_out_lists(gg, &gg->keys, arena);
    lay_out_lists(gg, &gg->labels, arena);
}

static rp_status
sum_graph_sinks(const rp_graph_gradients *g)
{
    const rp_graph *p = &g->forward;
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

/* Runs the problem, or only counts: see `reserve`. */
static rp_status
graph_backward(const rp_graph_gradients *g, size_t *bytes)
{
    const rp_graph *p = &g->forward;
    graph_gradients_t gg = {0};
    arena_t arena;
    if (bytes)
        *bytes = 0;
    if (p->B == 0 || p->H == 0 || p->Lq == 0)
        return RP_OK;
    if (graph_columns(p) > RP_WIDEST_ROW)
        return RP_NO_MEMORY;
    rp_assert(bytes || check_graph_gradients(g));
    rp_status status = bytes ? RP_OK : sum_graph_sinks(g);
    if (status || p->Lk == 0)
        return status;
    status = plan_graph_backward(&gg, g);
    if (!status)
        status = reserve(&arena, lay_out_graph_backward, &gg, bytes);
    if (status || bytes)
        return status;
    const int64_t wave = gg.slices, all = p->B * p->H;
    for (int64_t s = 0; !status && s < all; s += gg.slices) {
        gg.first_slice = s;
        gg.slices = RP_MIN(wave, all - s);
        if (wave <
            gg.sharing) /* no wave has slices of two graphs, and not all of one */
            gg.slices = RP_MIN(gg.slices, gg.sharing - s % gg.sharing);
        gg.graphs = RP_MAX(1, gg.slices / gg.sharing);
        status = run_graph_wave(&gg);
    }
    rp_free(arena.memory);
    return status;
}

#endif
