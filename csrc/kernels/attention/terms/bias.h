/* bias.h: what is added to a logit by the positions of its pair alone, b[l] of a table by
 * offset or label, FIRE's bias (fire.h) and decay (decay.h); and the way back to them. */
#ifndef RELPOS_ATTENTION_TERMS_BIAS_H
#define RELPOS_ATTENTION_TERMS_BIAS_H

#include "../table.h"
#include "decay.h"
#include "fire_reach.h"

typedef struct {
    const rp_attention *p;
    fire_t fire;
    decay_t decay;
} bias_t;

RP_INLINE int
has_bias(const rp_attention *p)
{
    return p->rel_bias.array.data || p->fire.lines.data || has_decay(p);
}

/* Whether there is a bias whose reach over a tile is told by bias_reach. */
RP_INLINE int
has_reach(const rp_attention *p)
{
    int by_label = p->rel_bias.array.data && has_labels(p);
    return has_bias(p) && !by_label;
}

/* How many batch items and heads it tells apart: 1 where it is the same for all. */
RP_INLINE void
bias_copies(const bias_t *bias, int64_t *batches, int64_t *heads)
{
    const rp_attention *p = bias->p;
    int fire = p->fire.lines.data != NULL, own = fire && bias->fire.batches > 1;
    *batches = p->rel_bias.array.batch || own ? p->B : decay_batches(p);
    *heads = p->rel_bias.array.head || has_decay(p) || fire ? p->H : 1;
}

/* g: of a backward, else NULL. */
static void
plan_bias(bias_t *bias, const rp_attention *p, const rp_gradients *g)
{
    bias->p = p;
    plan_fire(&bias->fire, p, g && g->grad_fire.data ? &g->fire_offset_slopes : NULL);
    plan_decay(&bias->decay, p);
}

static void
lay_out_bias(bias_t *bias, arena_t *arena)
{
    lay_out_fire(&bias->fire, arena);
    lay_out_decay(&bias->decay, arena);
}

static rp_status
start_bias(bias_t *bias)
{
    rp_status status = start_fire(&bias->fire);
    return status ? status : start_decay(&bias->decay);
}

/* ---- forward --------------------------------------------------------------------- */

/* b of a row of rel_bias's array; 0 for -1. */
RP_INLINE T
bias_of_row(const rp_attention *p, int64_t b, int64_t h, int64_t row)
{
    return row < 0 ? 0 : log2_units(*(const T *)rp_at(&p->rel_bias.array, b, h, row));
}

/* What rel_bias adds to a pair by its labels: the sum of their rows, cut as one term. */
static T
bias_of_labels(const rp_attention *p, int64_t b, int64_t h, int64_t i, int64_t j)
{
    T sum = bias_of_row(p, b, h, pair_row(p, 0, b, i, j, &p->rel_bias));
    for (int n = 1; n < p->labels.count; n++) {
        int64_t row = pair_row(p, n, b, i, j, &p->rel_bias);
        sum = cut_term(add_unless_hidden(sum, bias_of_row(p, b, h, row)));
    }
    return sum;
}

/* Whether a bias can go into an empty tile, for products to be added to it for nothing: it
 * hides no pair. */
RP_INLINE int
bias_can_fill(const bias_t *bias)
{
    int fire = bias->p->fire.lines.data != NULL;
    return (fire || has_decay(bias->p)) && !(fire && bias->fire.hides);
}

static void
fill_bias(const bias_t *bias, const queries_t *q, const tile_t *t)
{
    int fire = bias->p->fire.lines.data != NULL;
    for (int m = 0; m < q->rows; m++) {
        T *s = t->s + m * t->ld;
        if (fire)
            fill_fire_row(&bias->fire, q->b, q->h, q->i0 + m, t->j0, t->columns, s);
        if (!fire)
            fill_decay_row(&bias->decay, q->b, q->h, q->i0 + m, t->j0,
                           RP_ROUND_UP(t->columns, NR), s);
        else if (has_decay(bias->p))
            add_decay_row(&bias->decay, q->b, q->h, q->i0 + m, t->j0, t->columns, s);
    }
}

/* Whether anything is to be added on top of the scores; filled: fill_bias was called. */
RP_INLINE int
adds_bias(const bias_t *bias, int filled)
{
    int others = bias->p->fire.lines.data || has_decay(bias->p);
    return bias->p->rel_bias.array.data || (others && !filled);
}

/* The band of a tile, for its rows: b over its offsets. */
static void
start_bias_tile(const bias_t *bias, scratch_t *w, const queries_t *q, const tile_t *t)
{
    const rp_attention *p = bias->p;
    const rp_table *table = &p->rel_bias;
    int64_t r0 = position_of(p, q, t, BQ - 1, 0);
    if (!table->array.data || has_labels(p))
        return;
    for (int c = 0; c < t->columns + BQ - 1; c++) {
        int64_t l = rp_table_row(r0 + c, table->first, table->rows, p->beyond);
        w->bias[c] = bias_of_row(p, q->b, q->h, array_row(table, l));
    }
}

/* Finds the least and the largest number that the bias adds to the columns [first, end) of
 * a tile. */
static void
bias_reach(const bias_t *bias, const scratch_t *w, const queries_t *q, const tile_t *t,
           int64_t first, int64_t end, T reach[2])
{
    reach[0] = reach[1] = 0;
    if (bias->p->rel_bias.array.data) {
        reach[0] = reach[1] = w->bias[first];
        for (int64_t c = first; c < end + BQ - 1; c++) {
            reach[0] = w->bias[c] < reach[0] ? w->bias[c] : reach[0];
            reach[1] = w->bias[c] > reach[1] ? w->bias[c] : reach[1];
        }
    }
    if (bias->p->fire.lines.data)
        add_fire_reach(&bias->fire, q->b, q->h, q->i0, q->rows, t->j0 + first,
                       t->j0 + end, reach);
    if (has_decay(bias->p))
        add_decay_reach(&bias->decay, q, t->j0 + first, t->j0 + end, reach);
}

/* How far the numbers lie apart that it adds for one head; 0 where one is none. */
static T
bias_spread(const bias_t *bias, int64_t b, int64_t h)
{
    const rp_attention *p = bias->p;
    T low = (T)INFINITY, high = -(T)INFINITY;
    T others = has_decay(p) ? decay_spread(&bias->decay, b, h) : 0;
    if (p->fire.lines.data)
        others += fire_spread(&bias->fire, b, h);
    for (int64_t row = 0; row < p->rel_bias.rows; row++) {
        T x = bias_of_row(p, b, h, array_row(&p->rel_bias, row));
        if (x != x)
            return 0;
        low = x < low && x != -(T)INFINITY ? x : low;
        high = x > high ? x : high;
    }
    return high >= low ? others + (high - low) : others;
}

/* s + b over row m of a tile. */
static void
add_rel_bias(const rp_attention *p, const scratch_t *w, const queries_t *q,
             const tile_t *t, int m)
{
    T *s = t->s + m * t->ld;
    if (!has_labels(p)) {
        const T *bias = w->bias + BQ - 1 - m;
        for (int n = 0; n < t->columns; n++)
            s[n] = add_or_hide(s[n], bias[n]);
        return;
    }
    for (int n = 0; n < t->keys; n++)
        s[n] = add_or_hide(s[n], bias_of_labels(p, q->b, q->h, q->i0 + m, t->j0 + n));
}

/* Row m of a tile. */
static void
add_bias(const bias_t *bias, const scratch_t *w, const queries_t *q, const tile_t *t,
         int m, int filled)
{
    if (bias->p->rel_bias.array.data)
        add_rel_bias(bias->p, w, q, t, m);
    if (bias->p->fire.lines.data && !filled)
        add_fire_row(&bias->fire, q->b, q->h, q->i0 + m, t->j0, t->columns,
                     t->s + m * t->ld);
    if (has_decay(bias->p) && !filled)
        add_decay_row(&bias->decay, q->b, q->h, q->i0 + m, t->j0, t->columns,
                      t->s + m * t->ld);
}

/* s[n] + b of the pairs (i, j0 + n), by offset. */
static void
add_bias_by_offset(const rp_attention *p, int64_t b, int64_t h, int64_t i, int64_t j0,
                   int64_t count, T *s)
{
    const rp_table *table = &p->rel_bias;
    const ptrdiff_t step = table->array.row;
    int64_t shift, end = j0 + count;
    rp_interval run = run_in_table(p, b, i, j0, end, table, &shift);
    T first = bias_of_row(p, b, h, pair_row(p, 0, b, i, j0, table));
    T last = bias_of_row(p, b, h, pair_row(p, 0, b, i, end - 1, table));
    for (int64_t j = j0; j < run.begin; j++, s++)
        *s = add_or_hide(*s, first);
    count = run.end - run.begin;
    /* the rows of pairs outside of the table may be far from it */
    const char *at = count > 0 && !table->index
                         ? rp_at(&table->array, b, h, run.begin + shift)
                         : NULL;
    if (table->index)
        for (int64_t n = 0; n < count; n++) {
            int64_t row = table->index[run.begin + shift + n];
            s[n] = add_or_hide(s[n], bias_of_row(p, b, h, row));
        }
    else if (step == (ptrdiff_t)sizeof(T))
        for (int64_t n = 0; n < count; n++)
            s[n] = add_or_hide(s[n], log2_units(((const T *)at)[n]));
    else
        for (int64_t n = 0; n < count; n++)
            s[n] = add_or_hide(s[n], log2_units(*(const T *)(at + n * step)));
    s += count;
    for (int64_t j = run.end; j < end; j++, s++)
        *s = add_or_hide(*s, last);
}

/* Adds all biases to the logits of the pairs (i, j0 + n), n < count <= RP_STRETCH_KEYS. */
static void
add_bias_run(const bias_t *bias, int64_t b, int64_t h, int64_t i, int64_t j0,
             int64_t count, T *s)
{
    const rp_attention *p = bias->p;
    if (p->rel_bias.array.data && !has_labels(p) && count > 0)
        add_bias_by_offset(p, b, h, i, j0, count, s);
    for (int64_t n = 0; p->rel_bias.array.data && has_labels(p) && n < count; n++)
        s[n] = add_or_hide(s[n], bias_of_labels(p, b, h, i, j0 + n));
    if (p->fire.lines.data)
        add_fire_row(&bias->fire, b, h, i, j0, (int)count, s);
    if (has_decay(p) && count > 0)
        add_decay_row(&bias->decay, b, h, i, j0, (int)count, s);
}

/* ---- backward -------------------------------------------------------------------- */

/* Sums of FIRE that one head keeps beside those of its table; those of decay follow. */
RP_INLINE int64_t
fire_sums(const rp_gradients *g)
{
    return g->grad_fire.data ? fire_sums_count(&g->forward) : 0;
}

/* Sums that all biases keep of one head, FIRE's and then those of decay. */
RP_INLINE int64_t
bias_sums_count(const rp_gradients *g)
{
    return fire_sums(g) + (g->grad_log_decay.data ? decay_sums_count(&g->forward) : 0);
}

/* Adds row (b, h, i) to the head's sums: d[n] = dS of the pair (i, j0 + n). */
static void
sum_bias_run(const bias_t *bias, const rp_gradients *g, int64_t b, int64_t h, int64_t i,
             int64_t j0, int count, const T *d, double *sums)
{
    if (g->grad_fire.data)
        sum_fire_row(&bias->fire, g, b, h, i, j0, count, d, sums);
    if (g->grad_log_decay.data)
        sum_decay_row(&g->forward, i, j0, count, d, sums + fire_sums(g));
}

/* Whether `sum_bias` is wanted for the sums of a head. */
RP_INLINE int
sums_bias_runs(const rp_gradients *g)
{
    return g->grad_fire.data || g->grad_log_decay.data;
}

/* Adds a tile of dS, row m at d + m * t->ld: by label into label_sums, unless that is NULL,
 * and into the head's sums. Sums by offset are those of sum_offsets. */
static void
sum_bias(const bias_t *bias, const rp_gradients *g, const queries_t *q, const tile_t *t,
         const T *d, T *label_sums, double *sums)
{
    const rp_attention *p = bias->p;
    for (int m = 0; m < q->rows; m++, d += t->ld) {
        for (int n = 0; label_sums && n < t->keys; n++)
            for (int a = 0; a < p->labels.count; a++) {
                int64_t l = pair_row(p, a, q->b, q->i0 + m, t->j0 + n, &p->rel_bias);
                if (l >= 0)
                    label_sums[l] += d[n];
            }
        if (g->grad_fire.data)
            sum_fire_row(&bias->fire, g, q->b, q->h, q->i0 + m, t->j0, t->columns, d,
                         sums);
        if (g->grad_log_decay.data)
            sum_decay_row(p, q->i0 + m, t->j0, t->keys, d, sums + fire_sums(g));
    }
}

/* The gradient of one head += its sums, in `parts`. */
static void
add_bias_sums(const rp_gradients *g, int64_t b, int64_t h, const double *sums,
              int64_t parts)
{
    const int64_t step = bias_sums_count(g);
    for (int64_t part = 0; g->grad_fire.data && part < parts; part++)
        add_fire_sums(g, b, h, sums + part * step);
    if (g->grad_log_decay.data)
        add_decay_sums(g, b, h, sums + fire_sums(g), parts, step);
}

#endif
