/* expected.h: a row of a problem, the numbers that it reads, and what its results should
 * become. */
#ifndef RELPOS_TESTS_CORE_EXPECTED_H
#define RELPOS_TESTS_CORE_EXPECTED_H

#include "gradients.h"

typedef __int128 wide_t; /* sums of any two int64 */

/* Rows of a table that a pair has. */
typedef struct {
    int64_t row[RP_MOST_LABELS];
    int count;
} rows_t;

/* A pair of the row: its key, its label in a graph, and what the formula makes of it. */
typedef struct {
    int64_t j, label;
    int is_hidden;
    rows_t rows[TABLES];
    double s, size; /* its logit, and the sum of the sizes of its terms */
    double slope;   /* the derivative of cap */
    double p, z;    /* its weight; 0 or 1 / (1 - p) of dropout */
    double x;       /* of FIRE */
    int64_t range;
} cell_t;

typedef struct {
    case_t *c;
    int64_t b, h, hk, i, n;
    cell_t *cells;
    double size; /* the largest of a logit whose rounding moves the weights */
    double sink; /* its weight */
} row_t;

/* A number of an operand; 0 where it is absent. */
static double
number_of(case_t *c, const rp_array *array, int64_t b, int64_t h, int64_t r,
          int64_t column)
{
    const operand_t *o = operand_of(c, array);
    return o ? number_at(o, item_at(o, b, h, r, column)) : 0;
}

/* How many pairs row i has. */
static int64_t
count_pairs(const case_t *c, int64_t i)
{
    const rp_graph *graph = &c->graph.forward;
    const rp_picks *picks = &c->g.forward.picks;
    if (c->kind == ATTENTION)
        return c->g.forward.Lk;
    return picks->keys.data ? picks->count : graph->indptr[i + 1] - graph->indptr[i];
}

/* Key and label of pair k of a row. */
static cell_t
pair_of_row(const row_t *x, int64_t k)
{
    const rp_attention *p = &x->c->g.forward;
    const rp_graph *graph = &x->c->graph.forward;
    const operand_t *keys = operand_of(x->c, &p->picks.keys);
    const operand_t *labels = operand_of(x->c, &p->picks.labels);
    if (x->c->kind == ATTENTION)
        return (cell_t){.j = k};
    if (keys) {
        int64_t group = x->h / (p->H / p->picks.groups);
        cell_t cell = {.j = integer_at(keys, item_at(keys, x->b, group, x->i, k)),
                       .label = -1};
        if (labels)
            cell.label = integer_at(labels, item_at(labels, x->b, group, x->i, k));
        return cell;
    }
    int64_t edge = graph->indptr[x->i] + k;
    return (cell_t){.j = graph->indices[edge],
                    .label = graph->labels ? graph->labels[edge] : -1};
}

/* What the rounding of sums loses that begin with what the item held before the call: each
 * addition rounds to the digits of that number, or loses a smaller term whole. A pair adds one
 * term, or one by each of its labels, which may cancel. */
static double
lost_in_sums(const case_t *c, const operand_t *o, size_t item, double number)
{
    int labels = c->g.forward.labels.count;
    double initial = number_at(o, o->before + item * (size_t)o->item);
    double unit = fabs(initial) * (o->item == 4 ? 0x1p-24 : 0x1p-53);
    return labels > 1 ? labels * unit : fmin(fabs(number), unit);
}

/* Adds to what an item of a result should be, and to how far it may be off. */
static void
expect(const row_t *x, const rp_array *array, int64_t h, int64_t r, int64_t column,
       double number, double tolerance)
{
    operand_t *o = operand_of(x->c, array);
    if (o == NULL)
        return;
    size_t item =
        (size_t)(item_at(o, x->b, h, r, column) - o->block.data) / (size_t)o->item;
    o->want[item] += number;
    o->tolerance[item] += tolerance;
    if (o->result == ADDED)
        o->tolerance[item] += lost_in_sums(x->c, o, item, number);
}

static int64_t
query_offset(const rp_attention *p, int64_t b)
{
    return p->sight.query_offset ? p->sight.query_offset[b] : 0;
}

#endif
