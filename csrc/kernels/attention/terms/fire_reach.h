/* fire_reach.h: from where to where FIRE's bias reaches over some queries and keys: over the
 * x between the least and the largest, each range's line at both of its ends. */
#ifndef RELPOS_ATTENTION_TERMS_FIRE_REACH_H
#define RELPOS_ATTENTION_TERMS_FIRE_REACH_H

#include "../tiles/tile.h"
#include "fire.h"

typedef struct {
    double low, high;
} fire_span_t;

RP_INLINE fire_span_t
widened(fire_span_t span, double x)
{
    return (fire_span_t){x < span.low ? x : span.low, x > span.high ? x : span.high};
}

/* The least and the largest of what the offsets' table holds from `first` to `last`: along
 * it x falls or rises, or turns at the query's own position. */
static fire_span_t
span_of_offsets(const fire_t *f, int64_t b, int64_t first, int64_t last)
{
    const rp_array *offsets = &f->p->fire.offsets;
    int64_t turn = f->p->Lq + rp_query_offset(f->p, b);
    double x = fire_value(offsets, b, 0, first, 0);
    fire_span_t span = widened((fire_span_t){x, x}, fire_value(offsets, b, 0, last, 0));
    if (first < turn && turn < last)
        span = widened(span, fire_value(offsets, b, 0, turn, 0));
    return span;
}

/* The least and the largest x, by those of its two factors; infinite unless all are finite.
 * */
static fire_span_t
span_of_products(fire_span_t u, fire_span_t g)
{
    double x = u.low * g.low;
    fire_span_t span = widened((fire_span_t){x, x}, u.low * g.high);
    span = widened(widened(span, u.high * g.low), u.high * g.high);
    int finite = isfinite(u.low) && isfinite(u.high) && isfinite(g.low) &&
                 isfinite(g.high) && isfinite(span.low) && isfinite(span.high);
    return finite ? span : (fire_span_t){-INFINITY, INFINITY};
}

/* Widens `reach` by what the lines of a head add over these x: to all numbers, where they
 * are too large to tell. */
static void
add_line_reach(const fire_t *f, int64_t h, fire_span_t x, T reach[2])
{
    const int64_t ranges = f->p->fire.ranges;
    fire_span_t found = {INFINITY, -INFINITY}, parts = {0, 0};
    for (int64_t n = 0; n < ranges; n++) {
        double intercept = (double)f->intercepts[h * ranges + n];
        double slope = f->slopes[h * ranges + n] * RP_LOG2E;
        double low = n > 0 ? RP_MAX(x.low, f->starts[n]) : x.low;
        double high = n + 1 < ranges ? RP_MIN(x.high, f->starts[n + 1]) : x.high;
        if (low > high)
            continue;
        found =
            widened(widened(found, slope * low + intercept), slope * high + intercept);
        parts = widened(widened(widened(parts, slope * low), slope * high), intercept);
    }
    int known = !f->hides && isfinite(x.low) && parts.low > -RP_LARGEST_BOUND &&
                parts.high < RP_LARGEST_BOUND;
    reach[0] += known ? (T)found.low : -(T)INFINITY;
    reach[1] += known ? (T)found.high : (T)INFINITY;
}

/* The least and the largest factor of the queries [i0, i0 + rows) of one item: in packed
 * documents factors rise again. Infinite where one is NaN. */
static fire_span_t
span_of_factors(const fire_t *f, int64_t b, int64_t i0, int64_t rows)
{
    double g = fire_factor(f, b, i0);
    fire_span_t span = {g, g};
    for (int64_t i = i0; i < i0 + rows; i++) {
        g = fire_factor(f, b, i);
        if (isnan(g))
            return (fire_span_t){-INFINITY, INFINITY};
        span = widened(span, g);
    }
    return span;
}

/* The queries [i0, i0 + rows) and keys [j0, end) of one item, for one head. */
static RP_NOINLINE void
add_fire_reach(const fire_t *f, int64_t b, int64_t h, int64_t i0, int64_t rows,
               int64_t j0, int64_t end, T reach[2])
{
    const rp_attention *p = f->p;
    int64_t last = RP_MIN(p->Lq - i0 + end, p->Lq + p->Lk) - 1;
    fire_span_t factors = span_of_factors(f, b, i0, rows);
    fire_span_t u = span_of_offsets(f, b, p->Lq - (i0 + rows - 1) + j0, last);
    add_line_reach(f, h, span_of_products(u, factors), reach);
}

/* How far apart its numbers for one head may lie; 0 where some are none. */
static T
fire_spread(const fire_t *f, int64_t b, int64_t h)
{
    T reach[2] = {0, 0};
    if (f->hides || !f->p->Lq || !f->p->Lk)
        return 0;
    add_fire_reach(f, b, h, 0, f->p->Lq, 0, f->p->Lk, reach);
    return reach[1] - reach[0];
}

#endif
