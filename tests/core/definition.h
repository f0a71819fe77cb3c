/* definition.h: the formula of problems.h in plain C and double, one row at a time: what the
 * results of a forward should be, and how far off they may be. */
#ifndef RELPOS_TESTS_CORE_DEFINITION_H
#define RELPOS_TESTS_CORE_DEFINITION_H

#include "visible.h"

/* ---- pairs ----------------------------------------------------------------------------- */

static rows_t
rows_of(const row_t *x, const cell_t *cell, const rp_table *table)
{
    case_t *c = x->c;
    const rp_attention *p = &c->g.forward;
    rows_t rows = {.count = 0};
    if (table->array.data == NULL)
        return rows;
    if (c->kind == GRAPH) {
        rows.row[0] = cell->label;
        rows.count = 0 <= rows.row[0] && rows.row[0] < table->rows;
        return rows;
    }
    for (int k = 0; k < p->labels.count; k++) {
        const operand_t *o = operand_of(c, &p->labels.of[k].array);
        int64_t row = integer_at(o, item_at(o, x->b, 0, x->i, cell->j));
        rows.row[rows.count] = row;
        rows.count += 0 <= row && row < table->rows;
    }
    if (p->labels.count > 0)
        return rows;
    wide_t row = (wide_t)cell->j - x->i - query_offset(p, x->b) - table->first;
    if (p->beyond == RP_ZERO && (row < 0 || row >= table->rows))
        return rows;
    row = row < 0 ? 0 : row >= table->rows ? table->rows - 1 : row;
    rows.row[rows.count++] = table->index ? table->index[row] : (int64_t)row;
    return rows;
}

/* The sum of the rows of a table in a column; the sizes of its terms are added to `size`. */
static double
sum_rows(const row_t *x, const cell_t *cell, const rp_table *table, int which,
         int64_t column, double *size)
{
    const rows_t *rows = &cell->rows[which];
    double sum = 0;
    for (int k = 0; k < rows->count; k++) {
        double y = number_of(x->c, &table->array, x->b, x->h, rows->row[k], column);
        sum += y;
        *size += fabs(y);
    }
    return sum;
}

/* Philox 4x32, ten rounds. */
static void
mix(uint64_t seed, uint32_t x[4])
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t a = UINT64_C(0xD2511F53) * x[0], b = UINT64_C(0xCD9E8D57) * x[2];
        uint32_t mixed[4] = {(uint32_t)(b >> 32) ^ x[1] ^ key[0], (uint32_t)b,
                             (uint32_t)(a >> 32) ^ x[3] ^ key[1], (uint32_t)a};
        memcpy(x, mixed, sizeof mixed);
        key[0] += 0x9E3779B9u;
        key[1] += 0xBB67AE85u;
    }
}

static double
dropout_factor(const row_t *x, int64_t key)
{
    const rp_attention *p = &x->c->g.forward;
    const rp_part *part = &p->part;
    if (!(p->dropout.p > 0))
        return 1;
    int64_t j = key + part->key;
    uint32_t counter[4] = {(uint32_t)(x->i + part->query), (uint32_t)(j >> 2),
                           (uint32_t)(x->h + part->head),
                           (uint32_t)(part->items ? part->items[x->b] : x->b)};
    mix(p->dropout.seed, counter);
    int is_kept = counter[j & 3] >= (uint32_t)(p->dropout.p * 4294967296.0);
    return is_kept ? 1 / (1 - p->dropout.p) : 0;
}

/* ---- terms of a logit ------------------------------------------------------------------- */

/* A term, and the sum of the sizes of what it is made of. */
typedef struct {
    double sum, size;
} term_t;

/* (q + u) . k + k . C */
static term_t
content_term(const row_t *x, const cell_t *cell)
{
    case_t *c = x->c;
    const rp_attention *p = &c->g.forward;
    term_t term = {0, 0};
    for (int64_t d = 0; d < p->D; d++) {
        double size = 0, query = number_of(c, &p->query, x->b, x->h, x->i, d);
        double added = query + number_of(c, &p->pos_bias_u, x->b, x->h, 0, d);
        double key = number_of(c, &p->key, x->b, x->hk, cell->j, d);
        double row = sum_rows(x, cell, &p->rel_query, OF_QUERY, d, &size);
        term.sum += added * key;
        term.sum += cell->rows[OF_QUERY].count ? key * row : 0;
        term.size += fabs(key) * (fabs(query) + fabs(added) + size);
    }
    return term;
}

/* (q + v) . A, or (e + v) . A */
static term_t
position_term(const row_t *x, const cell_t *cell)
{
    case_t *c = x->c;
    const rp_attention *p = &c->g.forward;
    const rp_array *from = p->position_query.data ? &p->position_query : &p->query;
    term_t term = {0, 0};
    for (int64_t d = 0; cell->rows[OF_KEY].count > 0 && d < p->Dp; d++) {
        double size = 0, query = number_of(c, from, x->b, x->h, x->i, d);
        double v = number_of(c, &p->pos_bias_v, x->b, x->h, 0, d);
        double row = sum_rows(x, cell, &p->rel_key, OF_KEY, d, &size);
        term.sum += (query + v) * row;
        term.size += (fabs(query) + fabs(v)) * size;
    }
    return term;
}

/* The scores below the cap. */
static void
add_scores(const row_t *x, cell_t *cell)
{
    const rp_attention *p = &x->c->g.forward;
    term_t content = content_term(x, cell), position = position_term(x, cell);
    double factor = p->position_query.data ? 1 : p->scale;
    cell->s = p->scale * content.sum + factor * position.sum;
    cell->size = fabs(p->scale) * content.size + fabs(factor) * position.size;
    cell->slope = 1;
    if (p->softcap > 0) {
        double t = tanh(cell->s / p->softcap);
        cell->s = p->softcap * t;
        cell->slope = 1 - t * t;
    }
}

/* Adds a bias; -inf hides the pair, whatever the rest is. */
static void
add_bias(cell_t *cell, double bias, double size)
{
    cell->is_hidden |= bias == -INFINITY;
    cell->s += bias;
    cell->size += size;
}

/* The kernels make a sum as the difference of two that begin at key 1, in double: a number of
 * float64 has the rounding of these, one of float32 has not. */
static void
add_decay(const row_t *x, cell_t *cell)
{
    case_t *c = x->c;
    const rp_table *table = &c->g.forward.log_decay;
    wide_t end = (wide_t)x->i + query_offset(&c->g.forward, x->b);
    double sum = 0, size = 0;
    for (int64_t t = c->dtype == RP_F64 ? 1 : cell->j + 1; t <= end && t < table->rows;
         t++) {
        double y = number_of(c, &table->array, x->b, x->h, t, 0);
        sum += t > cell->j ? y : 0;
        size += fabs(y);
    }
    add_bias(cell, sum, size);
}

static void
add_fire(const row_t *x, cell_t *cell)
{
    case_t *c = x->c;
    const rp_fire *fire = &c->g.forward.fire;
    int64_t at = cell->j - x->i + c->g.forward.Lq;
    cell->x = number_of(c, &fire->offsets, x->b, 0, at, 0) *
              number_of(c, &fire->queries, x->b, 0, x->i, 0);
    for (int64_t k = 1; k < fire->ranges; k++)
        if (number_of(c, &fire->lines, 0, 0, k, 0) <= cell->x)
            cell->range = k;
    double slope = number_of(c, &fire->lines, 0, x->h, cell->range, 1);
    double intercept = number_of(c, &fire->lines, 0, x->h, cell->range, 2);
    add_bias(cell, slope * cell->x + intercept,
             fabs(slope * cell->x) + fabs(intercept));
}

static void
add_biases(const row_t *x, cell_t *cell)
{
    const rp_attention *p = &x->c->g.forward;
    double size = 0, bias = sum_rows(x, cell, &p->rel_bias, OF_BIAS, 0, &size);
    add_bias(cell, bias, size);
    if (p->log_decay.array.data)
        add_decay(x, cell);
    if (p->fire.lines.data)
        add_fire(x, cell);
    if (p->sight.mask_type > RP_MASK_BOOL) {
        bias = number_of(x->c, &p->sight.mask, x->b, x->h, x->i, cell->j);
        add_bias(cell, bias, fabs(bias));
    }
}

/* ---- rows ------------------------------------------------------------------------------ */

/* The pairs of row (b, h, i), with all but their weights. */
static void
start_row(row_t *x, int64_t b, int64_t h, int64_t i)
{
    case_t *c = x->c;
    const rp_attention *p = &c->g.forward;
    const rp_table *tables[] = {&p->rel_key, &p->rel_query, &p->rel_value,
                                &p->rel_bias};
    x->b = b, x->h = h, x->hk = h / (p->H / p->Hk), x->i = i;
    x->n = count_pairs(c, i);
    for (int64_t k = 0; k < x->n; k++) {
        cell_t *cell = &x->cells[k];
        *cell = pair_of_row(x, k);
        cell->is_hidden = is_hidden(x, cell->j);
        if (cell->is_hidden)
            continue;
        for (int which = 0; which < TABLES; which++)
            cell->rows[which] = rows_of(x, cell, tables[which]);
        add_scores(x, cell);
        add_biases(x, cell);
        cell->z = dropout_factor(x, cell->j);
    }
}

static double
rounding(const case_t *c)
{
    return c->dtype == RP_F32 ? 0x1p-23 : 0x1p-52;
}

/* Below it a kernel's exp2 is 0. */
static double
least_weight(const case_t *c)
{
    return c->dtype == RP_F32 ? 0x1p-99 : 0x1p-979;
}

/* Whether a logit so far below another one that rounding lets it weigh nothing beside it. */
static int
is_far_below(const case_t *c, double s, double size, double top)
{
    return s + size * 0x1p-10 - log(least_weight(c)) < top;
}

/* The largest size of a logit, the sink among them, whose rounding moves the weights of the
 * row. One that weighs nothing moves none, nor does a sink beside which the keys weigh
 * nothing. */
static double
size_of_row(const row_t *x, double sink, double top)
{
    const case_t *c = x->c;
    double size = 0, keys = -INFINITY;
    for (int64_t k = 0; k < x->n; k++) {
        const cell_t *cell = &x->cells[k];
        if (cell->is_hidden || is_far_below(c, cell->s, cell->size, top))
            continue;
        keys = cell->s > keys ? cell->s : keys;
        size = cell->size > size ? cell->size : size;
    }
    if (isfinite(sink) && keys > -INFINITY && !is_far_below(c, sink, fabs(sink), top))
        size = fabs(sink) > size ? fabs(sink) : size;
    return size;
}

/* Weights of the pairs and of the sink; returns the row's lse. */
static double
weigh(row_t *x)
{
    const rp_attention *p = &x->c->g.forward;
    double sink =
        p->sinks.data ? number_of(x->c, &p->sinks, x->b, x->h, x->i, 0) : -INFINITY;
    double top = sink;
    for (int64_t k = 0; k < x->n; k++)
        if (!x->cells[k].is_hidden && x->cells[k].s > top)
            top = x->cells[k].s;
    x->size = size_of_row(x, sink, top);
    double base = top == -INFINITY ? 0 : top, sum = x->sink = exp(sink - base);
    for (int64_t k = 0; k < x->n; k++) {
        cell_t *cell = &x->cells[k];
        cell->p = cell->is_hidden ? 0 : exp(cell->s - base);
        sum += cell->p;
    }
    double norm = sum == 0 ? 0 : 1 / sum;
    for (int64_t k = 0; k < x->n; k++)
        x->cells[k].p *= x->cells[k].is_hidden ? 0 : norm;
    x->sink *= norm;
    return sum == 0 ? -INFINITY : base + log(sum);
}

/* How far rounding may move a logit of the row, E. Each of its additions rounds to half of
 * `rounding`, relative to what is summed up so far. As the terms have either sign, that is far
 * less than their sizes together, so that the sum of all these is about `rounding` times the
 * size. A backward computes the logits anew beside the sum of the forward: twice as much. */
static double
logit_off(const row_t *x, int passes)
{
    return 2 * passes * rounding(x->c) * x->size;
}

/* How far off a weight of the row may be.
 *
 * Its numerator, the exponential and the sum over the keys round: that is relative to it. And
 * rounding moves the logits by up to E. At most its own rises by E while all others fall by E:
 * from p : q, q = 1 - p, the ratio becomes p e^2E : q. With g = e^2E - 1 the weight is off by
 *   p (1 + g) / (p (1 + g) + q) - p = p q g / (1 + p g),
 * and where it falls and the others rise, by p q g / (1 + q g). The larger of them has the
 * smaller of p and q below. In a backward the sum of the row does not move with the logits,
 * which leaves p g. With a large E any weight from 0 to 1 may come out.
 *
 * The judge allows four times what is expected: E is taken four times here, as the weights do
 * not grow in proportion to it. */
static double
weight_off(const row_t *x, double p, int passes)
{
    enum { ALLOWED = 4, ANY = 30 };
    const double q = 1 - p, sway = 2 * ALLOWED * logit_off(x, passes), g = expm1(sway);
    const double relative = rounding(x->c) * (12 * passes + (double)x->n / 8);
    double moved = passes > 1 ? p * g : p * q * g / (1 + fmin(p, q) * g);
    if (sway > ANY)
        moved = fmax(p, q);
    return moved / ALLOWED + relative * p + least_weight(x->c);
}

static void
expect_outputs(const row_t *x, double lse)
{
    case_t *c = x->c;
    const rp_attention *p = &c->g.forward;
    const rp_results *to = &p->results;
    double relative = rounding(c) * (12 + (double)x->n / 8);
    expect(x, &to->lse, x->h, x->i, 0, lse,
           lse == -INFINITY ? 0 : logit_off(x, 1) + relative * (1 + fabs(lse)));
    for (int64_t k = 0; k < x->n; k++) {
        const cell_t *cell = &x->cells[k];
        const double weight = weight_off(x, cell->p, 1);
        if (c->kind == ATTENTION)
            expect(x, &to->weights, x->h, x->i, k, cell->p, weight);
        if (cell->is_hidden || cell->z == 0)
            continue;
        for (int64_t d = 0; d < p->Dv; d++) {
            double value = number_of(c, &p->value, x->b, x->hk, cell->j, d);
            double size = fabs(value);
            value += sum_rows(x, cell, &p->rel_value, OF_VALUE, d, &size);
            double off = weight * cell->z * size;
            expect(x, &to->out, x->h, x->i, d, cell->p * cell->z * value, off);
            expect(x, &to->kept, x->h, x->i, d, cell->p * cell->z * value, off);
        }
    }
}

#endif
