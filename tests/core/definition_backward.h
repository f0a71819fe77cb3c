/* definition_backward.h: the gradients of the formula in plain C and double, and the whole of
 * a call. */
#ifndef RELPOS_TESTS_CORE_DEFINITION_BACKWARD_H
#define RELPOS_TESTS_CORE_DEFINITION_BACKWARD_H

#include "definition.h"

/* The gradient of a logit, before and after the cap, and how far it may be off. */
typedef struct {
    double ds, off, inner, inner_off;
} slope_t;

/* dP of a pair, with the sum of the sizes of its terms; gradients of values on the way, where
 * the pair's weight is off by `weight`. */
static term_t
value_gradients(const row_t *x, const cell_t *cell, double weight)
{
    case_t *c = x->c;
    rp_gradients *g = &c->g;
    const rp_attention *p = &g->forward;
    const rows_t *rows = &cell->rows[OF_VALUE];
    term_t dp = {0, 0};
    for (int64_t d = 0; cell->z != 0 && d < p->Dv; d++) {
        double grad = number_of(c, &g->grad_out, x->b, x->h, x->i, d);
        double value = number_of(c, &p->value, x->b, x->hk, cell->j, d),
               size = fabs(value);
        value += sum_rows(x, cell, &p->rel_value, OF_VALUE, d, &size);
        dp.sum += cell->z * grad * value;
        dp.size += cell->z * fabs(grad) * size;
        double share = cell->p * cell->z * grad;
        double off = weight * cell->z * fabs(grad);
        expect(x, &g->grad_value, x->hk, cell->j, d, share, off);
        for (int k = 0; k < rows->count; k++)
            expect(x, &g->grad_rel_value, x->h, rows->row[k], d, share, off);
    }
    return dp;
}

static void
bias_gradients(const row_t *x, const cell_t *cell, slope_t slope)
{
    rp_gradients *g = &x->c->g;
    const rp_attention *p = &g->forward;
    const rows_t *rows = &cell->rows[OF_BIAS];
    expect(x, &g->grad_mask, x->h, x->i, cell->j, slope.ds, slope.off);
    for (int k = 0; k < rows->count; k++)
        expect(x, &g->grad_rel_bias, x->h, rows->row[k], 0, slope.ds, slope.off);
    wide_t end = (wide_t)x->i + query_offset(p, x->b);
    const double size = fabs(slope.ds) + slope.off;
    if (isfinite(size))
        x->c->slopes += size;
    if (g->grad_log_decay.data)
        for (int64_t t = cell->j + 1; t <= end && t < p->log_decay.rows; t++)
            expect(x, &g->grad_log_decay, x->h, t, 0, slope.ds, slope.off);
}

static void
fire_gradients(const row_t *x, const cell_t *cell, slope_t slope)
{
    case_t *c = x->c;
    rp_gradients *g = &c->g;
    const rp_fire *fire = &g->forward.fire;
    if (g->grad_fire.data == NULL)
        return;
    int64_t at = cell->j - x->i + g->forward.Lq, last = fire->ranges;
    double offset = number_of(c, &fire->offsets, x->b, 0, at, 0);
    double query = number_of(c, &fire->queries, x->b, 0, x->i, 0);
    double line = number_of(c, &fire->lines, 0, x->h, cell->range, 1);
    double offset_c = number_of(c, &g->fire_offset_slopes, x->b, 0, at, 0);
    double query_c = number_of(c, &g->fire_query_slopes, x->b, 0, x->i, 0);
    double threshold = offset * number_of(c, &g->fire_query_slopes, x->b, 0, x->i, 1);
    double by_c = offset_c * query + offset * query_c;
    double by_c_size = fabs(offset_c * query) + fabs(offset * query_c);
    expect(x, &g->grad_fire, x->h, cell->range, 0, slope.ds, slope.off);
    expect(x, &g->grad_fire, x->h, cell->range, 1, slope.ds * cell->x,
           slope.off * fabs(cell->x));
    expect(x, &g->grad_fire, x->h, last, 0, slope.ds * line * by_c,
           slope.off * fabs(line) * by_c_size);
    expect(x, &g->grad_fire, x->h, last, 1, slope.ds * line * threshold,
           slope.off * fabs(line * threshold));
}

static void
content_gradients(const row_t *x, const cell_t *cell, slope_t slope)
{
    case_t *c = x->c;
    rp_gradients *g = &c->g;
    const rp_attention *p = &g->forward;
    const rows_t *rows = &cell->rows[OF_QUERY];
    double ds = p->scale * slope.inner, off = fabs(p->scale) * slope.inner_off;
    for (int64_t d = 0; d < p->D; d++) {
        double query = number_of(c, &p->query, x->b, x->h, x->i, d);
        double u = number_of(c, &p->pos_bias_u, x->b, x->h, 0, d);
        double key = number_of(c, &p->key, x->b, x->hk, cell->j, d);
        double size = fabs(query) + fabs(u);
        double row = sum_rows(x, cell, &p->rel_query, OF_QUERY, d, &size);
        expect(x, &g->grad_query, x->h, x->i, d, ds * key, off * fabs(key));
        expect(x, &g->grad_pos_bias_u, x->h, 0, d, ds * key, off * fabs(key));
        expect(x, &g->grad_key, x->hk, cell->j, d, ds * (query + u + row), off * size);
        for (int k = 0; k < rows->count; k++)
            expect(x, &g->grad_rel_query, x->h, rows->row[k], d, ds * key,
                   off * fabs(key));
    }
}

static void
position_gradients(const row_t *x, const cell_t *cell, slope_t slope)
{
    case_t *c = x->c;
    rp_gradients *g = &c->g;
    const rp_attention *p = &g->forward;
    const rows_t *rows = &cell->rows[OF_KEY];
    int is_apart = p->position_query.data != NULL;
    const rp_array *from = is_apart ? &p->position_query : &p->query;
    const rp_array *to = is_apart ? &g->grad_position_query : &g->grad_query;
    double scale = is_apart ? 1 : p->scale;
    double ds = scale * slope.inner, off = fabs(scale) * slope.inner_off;
    for (int64_t d = 0; rows->count > 0 && d < p->Dp; d++) {
        double size = 0, query = number_of(c, from, x->b, x->h, x->i, d);
        double v = number_of(c, &p->pos_bias_v, x->b, x->h, 0, d);
        double row = sum_rows(x, cell, &p->rel_key, OF_KEY, d, &size);
        expect(x, to, x->h, x->i, d, ds * row, off * size);
        expect(x, &g->grad_pos_bias_v, x->h, 0, d, ds * row, off * size);
        for (int k = 0; k < rows->count; k++)
            expect(x, &g->grad_rel_key, x->h, rows->row[k], d, ds * (query + v),
                   off * (fabs(query) + fabs(v)));
    }
}

/* delta, the sum of p dP over the pairs of a row, with the sum of the sizes of its terms and
 * how far off the weights let it be. */
typedef struct {
    double sum, size, off;
} delta_t;

static delta_t
find_delta(const row_t *x, term_t *dp)
{
    delta_t delta = {0, 0, 0};
    for (int64_t k = 0; k < x->n; k++) {
        const cell_t *cell = &x->cells[k];
        dp[k] = (term_t){0, 0};
        if (cell->is_hidden)
            continue;
        const double weight = weight_off(x, cell->p, 2);
        dp[k] = value_gradients(x, cell, weight);
        delta.sum += cell->p * dp[k].sum;
        delta.size += cell->p * dp[k].size;
        delta.off += weight * dp[k].size;
    }
    return delta;
}

/* dS = p (dP - delta + grad_lse): p is off, delta by what all weights are, and either side of
 * the difference by its rounding, which is in the weights' too. A weight that a kernel may take
 * for 0 leaves an infinite difference out, or not. */
static slope_t
slope_of(const row_t *x, const cell_t *cell, term_t dp, delta_t delta, double grad_lse)
{
    const double softcap = x->c->g.forward.softcap;
    const double weight = weight_off(x, cell->p, 2);
    slope_t slope = {.ds = cell->p * (dp.sum - delta.sum + grad_lse)};
    slope.off = weight * (dp.size + delta.size + fabs(grad_lse)) +
                (cell->p + weight) * delta.off;
    if (!isfinite(slope.ds) && cell->p < 2 * least_weight(x->c))
        slope.ds = 0, slope.off = INFINITY;
    slope.inner = slope.ds * cell->slope;
    slope.inner_off = slope.off * (softcap > 0 ? 1 + cell->size / softcap : 1);
    return slope;
}

/* The gradients of a row whose pairs have their weights; dp: room for a term of each. */
static void
expect_gradients(const row_t *x, term_t *dp)
{
    case_t *c = x->c;
    rp_gradients *g = &c->g;
    const double grad_lse = number_of(c, &g->grad_lse, x->b, x->h, x->i, 0);
    const delta_t delta = find_delta(x, dp);
    const double sink = weight_off(x, x->sink, 2);
    expect(x, &g->grad_sinks, x->h, x->i, 0, x->sink * (grad_lse - delta.sum),
           sink * (fabs(grad_lse) + delta.size) + (x->sink + sink) * delta.off);
    for (int64_t k = 0; k < x->n; k++) {
        const cell_t *cell = &x->cells[k];
        if (cell->is_hidden)
            continue;
        const slope_t slope = slope_of(x, cell, dp[k], delta, grad_lse);
        if (c->kind == ATTENTION) {
            bias_gradients(x, cell, slope);
            fire_gradients(x, cell, slope);
        }
        content_gradients(x, cell, slope);
        position_gradients(x, cell, slope);
    }
}

/* The most pairs that a row has. */
static int64_t
longest_row(const case_t *c)
{
    int64_t most = c->g.forward.Lk;
    for (int64_t i = 0; i < c->g.forward.Lq; i++) {
        int64_t pairs = count_pairs(c, i);
        most = pairs > most ? pairs : most;
    }
    return most;
}

/* Calls `visit` for each row, with its pairs but for their weights. */
static void
visit_rows(case_t *c, void (*visit)(row_t *row, void *context), void *context)
{
    const rp_attention *p = &c->g.forward;
    size_t most = (size_t)longest_row(c) + 1;
    row_t x = {.c = c, .cells = checked(calloc(most, sizeof *x.cells))};
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t h = 0; h < p->H; h++)
            for (int64_t i = 0; i < p->Lq; i++) {
                start_row(&x, b, h, i);
                visit(&x, context);
            }
    free(x.cells);
}

static void
expect_row(row_t *x, void *context)
{
    double lse = weigh(x);
    expect_outputs(x, lse);
    if (x->c->is_backward)
        expect_gradients(x, context);
}

/* What all results of the problem should become. */
static void
define(case_t *c)
{
    term_t *dp = checked(calloc((size_t)longest_row(c) + 1, sizeof *dp));
    visit_rows(c, expect_row, dp);
    free(dp);
}

#endif
