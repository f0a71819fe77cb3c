/* gradients.h: which gradients a backward is asked for, and the edges of a graph; with them a
 * problem is whole. */
#ifndef RELPOS_TESTS_CORE_GRADIENTS_H
#define RELPOS_TESTS_CORE_GRADIENTS_H

#include "pairs.h"

/* A gradient that is added to; it may be one for all batch items or heads. */
static void
lay_sum(case_t *c, const char *name, rp_array *array, const rp_array *of, int64_t rows,
        int64_t columns, int repeat)
{
    if (of->data == NULL || once_in(&c->s, 5))
        return;
    lay(c, (operand_t){.name = name,
                       .array = array,
                       .n = {c->g.forward.B, c->g.forward.H, rows, columns},
                       .repeat = repeat,
                       .result = ADDED});
}

/* That of a table. */
static void
lay_table_sum(case_t *c, const char *name, rp_array *array, const rp_table *table,
              int64_t columns)
{
    lay_sum(c, name, array, &table->array, table->index ? table->listed : table->rows,
            columns, choose_repeat(&c->s, REPEAT_BATCH | REPEAT_HEADS));
}

static void
lay_shared_sums(case_t *c)
{
    source_t *s = &c->s;
    rp_gradients *g = &c->g;
    const rp_attention *p = &g->forward;
    const int axes = REPEAT_BATCH | REPEAT_HEADS;
    lay_table_sum(c, "grad_rel_key", &g->grad_rel_key, &p->rel_key, p->Dp);
    lay_table_sum(c, "grad_rel_query", &g->grad_rel_query, &p->rel_query, p->D);
    lay_table_sum(c, "grad_rel_value", &g->grad_rel_value, &p->rel_value, p->Dv);
    lay_table_sum(c, "grad_rel_bias", &g->grad_rel_bias, &p->rel_bias, 1);
    lay_sum(c, "grad_pos_bias_u", &g->grad_pos_bias_u, &p->pos_bias_u, 1, p->D,
            choose_repeat(s, axes));
    lay_sum(c, "grad_pos_bias_v", &g->grad_pos_bias_v, &p->pos_bias_v, 1, p->Dp,
            choose_repeat(s, axes));
    lay_sum(c, "grad_log_decay", &g->grad_log_decay, &p->log_decay.array,
            p->log_decay.rows, 1, choose_repeat(s, REPEAT_BATCH));
    lay_sum(c, "grad_sinks", &g->grad_sinks, &p->sinks, p->Lq, 1,
            choose_repeat(s, REPEAT_BATCH | REPEAT_ROWS));
}

static void
lay_gradients(case_t *c)
{
    source_t *s = &c->s;
    rp_gradients *g = &c->g;
    const rp_attention *p = &g->forward;
    int may_be_short = p->labels.count == 0 && c->kind == ATTENTION;
    if (pick(s, 6) || c->numbers == SEEN) /* without it, nothing is multiplied by NaN */
        lay_numbers(c, "grad_out", &g->grad_out, c->kind == ATTENTION, p->H, p->Lq,
                    p->Dv, 0);
    if (once_in(s, 2))
        lay_numbers(c, "grad_lse", &g->grad_lse, 0, p->H, p->Lq, 1, 0);
    if (pick(s, 5))
        lay_result(c, "grad_query", &g->grad_query, may_be_short, p->H, p->Lq, p->D);
    if (pick(s, 5))
        lay_result(c, "grad_key", &g->grad_key, may_be_short, p->Hk, p->Lk, p->D);
    if (pick(s, 5))
        lay_result(c, "grad_value", &g->grad_value, may_be_short, p->Hk, p->Lk, p->Dv);
    if (p->position_query.data && pick(s, 4))
        lay_result(c, "grad_position_query", &g->grad_position_query, may_be_short,
                   p->H, p->Lq, p->Dp);
    if (p->sight.mask.data && pick(s, 4))
        lay_result(c, "grad_mask", &g->grad_mask, 0, p->H, p->Lq, p->Lk)->result =
            ADDED_TO_ZEROS;
    lay_shared_sums(c);
}

/* A backward along edges adds to all its results but for those of queries, which it does not
 * write where there is no edge: zeros stay. */
static void
add_along_edges(case_t *c)
{
    for (int k = 0; k < c->count; k++) {
        operand_t *o = &c->operands[k];
        if (o->result != WRITTEN || strncmp(o->name, "grad_", 5) != 0)
            continue;
        int is_of_query =
            o->array == &c->g.grad_query || o->array == &c->g.grad_position_query;
        o->result = is_of_query ? ADDED_TO_ZEROS : ADDED;
    }
}

/* Keys, or labels, of each query and group of heads; 0 to `most` - 1, or a negative number. */
static void
lay_picked(case_t *c, const char *name, rp_array *array, int64_t most)
{
    source_t *s = &c->s;
    const rp_attention *p = &c->g.forward;
    operand_t *o =
        lay(c, (operand_t){.name = name,
                           .array = array,
                           .n = {p->B, p->picks.groups, p->Lq, p->picks.count},
                           .storage = INTEGERS,
                           .repeat = choose_repeat(s, REPEAT_ANY)});
    const int64_t rarely = between(s, 2, 9);
    for (size_t k = 0; k < o->block.bytes / 8; k++) {
        int64_t number = (int64_t)(draw(s) >> 1);
        int is_none = most == 0 || number % rarely == 0;
        put_integer(o, o->block.data + 8 * k,
                    !is_none        ? number % most
                    : once_in(s, 9) ? INT64_MIN
                                    : -1);
    }
}

/* Keys that queries pick, in place of a graph that all batch items and heads share. */
static void
lay_picks(case_t *c)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    rp_picks *picks = &p->picks;
    picks->count = choose_size(s, 140);
    do
        picks->groups = between(s, 1, p->H);
    while (p->H % picks->groups != 0);
    lay_picked(c, "key_indices", &picks->keys, p->Lk);
    if (!once_in(s, 4))
        lay_picked(c, "key_labels", &picks->labels,
                   p->rel_key.rows + p->rel_value.rows + 2);
    c->graph.forward.edges = p->Lq * picks->count;
}

static void
lay_edges(case_t *c)
{
    source_t *s = &c->s;
    const rp_attention *p = &c->g.forward;
    rp_graph *graph = &c->graph.forward;
    int64_t *indptr = lay_vector(c, p->Lq + 1), edges = 0;
    indptr[0] = 0;
    for (int64_t i = 0; i < p->Lq; i++) {
        edges += p->Lk == 0 || once_in(s, 5) ? 0 : pick(s, 3 + p->Lk);
        indptr[i + 1] = edges;
    }
    int64_t *indices = lay_vector(c, edges);
    for (int64_t e = 0; e < edges; e++)
        indices[e] = (int64_t)(draw(s) % (uint64_t)p->Lk);
    graph->indptr = indptr;
    graph->indices = indices;
    graph->edges = edges;
    if (once_in(s, 4))
        return;
    int64_t *labels = lay_vector(c, edges),
            rows = p->rel_key.rows + p->rel_value.rows + 2;
    graph->labels = labels;
    for (int64_t e = 0; e < edges; e++)
        labels[e] = (int64_t)(draw(s) % (uint64_t)rows) - 1;
}

static void
make_case(case_t *c, int dtype)
{
    source_t *s = &c->s;
    c->dtype = dtype;
    c->is_backward = (int)pick(s, 2);
    c->kind = once_in(s, 8) ? GRAPH : ATTENTION;
    c->mixed = once_in(s, 4) ? (int)between(s, RP_F16, RP_BF16) : RP_OWN;
    c->numbers = (numbers_t)(once_in(s, 2) ? PLAIN : between(s, PLAIN, ANY_BITS));
    choose_sizes(c);
    lay_tokens(c);
    lay_tables(c);
    if (c->numbers == SPREAD && c->g.forward.rel_bias.rows > 0)
        scale_numbers(operand_of(c, &c->g.forward.rel_bias.array), 200);
    if (c->numbers == SINKS || once_in(s, c->numbers == INFINITE ? 2 : 5))
        lay_sinks(c);
    if (c->kind == GRAPH && once_in(s, 2))
        lay_picks(c);
    else if (c->kind == GRAPH)
        lay_edges(c);
    else
        lay_pairs(c);
    lay_results(c);
    if (c->is_backward)
        lay_gradients(c);
    if (c->kind == GRAPH)
        add_along_edges(c);
}

/* Copies what a graph shares with attention, beside its edges. */
static void
fill_graph(case_t *c)
{
    const rp_graph edges = c->graph.forward;
    c->graph = rp_along_edges(&c->g);
    c->graph.forward.edges = edges.edges;
    c->graph.forward.indptr = edges.indptr;
    c->graph.forward.indices = edges.indices;
    c->graph.forward.labels = edges.labels;
}

#endif
