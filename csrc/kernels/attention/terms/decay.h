/* decay.h: log_decay, which is summed up along the way from a key to its query:
 *   decay_ij = sum of log_decay[t], t = j + 1 .. p_i     p_i = i + query_offset, t < rows
 *            = C(p_i) - C(j)                             C(s) = sum over 0 < t <= s
 * and the way back. Keys after their query are hidden by whoever calls.
 *
 * Where queries have ranges of keys, C begins again with 0 at each key t such that no query at
 * t or after it sees a key before t: no pair has t in its sum. Documents that are packed in one
 * sequence do not round each other's sums.
 *
 * C, in double, grows with the length, and T would round it, and so the decay of a near
 * pair, to what is left of it. Instead the sum is cut at the end of the key's panel,
 * which lies between the two: both parts are differences of C formed in double, and no
 * larger than the sum of |log_decay[t]|. In the query's own panel there is one part. */
#ifndef RELPOS_ATTENTION_TERMS_DECAY_H
#define RELPOS_ATTENTION_TERMS_DECAY_H

#include "../../ground/arena.h"
#include "../../ground/micro.h"
#include "../logits.h"
#include "../tiles/tile.h"

typedef struct {
    const rp_attention *p;
    int64_t copies;   /* one for each head, or for each batch item and head */
    ptrdiff_t width;  /* of a copy: the keys in whole panels */
    ptrdiff_t length; /* of its sums, which may go on after the keys */
    double *sums;     /* (copies, length): C, and C(rows - 1) or 0 beyond */
    T *rest;          /* (copies, width): C(j) - C(end of its panel), units of log 2 */
} decay_t;

RP_INLINE int
has_decay(const rp_attention *p)
{
    return p->log_decay.array.data != NULL;
}

/* How many batch items have sums of their own: where there are ranges, each begins again at
 * other keys. */
RP_INLINE int64_t
decay_batches(const rp_attention *p)
{
    int differ = p->log_decay.array.batch || p->sight.key_ranges.data;
    return has_decay(p) && differ ? p->B : 1;
}

static void
plan_decay(decay_t *d, const rp_attention *p)
{
    *d = (decay_t){.p = p};
    if (!has_decay(p))
        return;
    d->copies = decay_batches(p) * p->H;
    d->width = RP_ROUND_UP(p->Lk, NR);
    d->length = RP_MAX(d->width, p->log_decay.rows);
}

static void
lay_out_decay(decay_t *d, arena_t *arena)
{
    if (!has_decay(d->p))
        return;
    d->sums = take(arena, d->copies, (size_t)d->length * sizeof(double));
    d->rest = take(arena, d->copies, (size_t)d->width * sizeof(T));
}

RP_INLINE int64_t
decay_copy(const decay_t *d, int64_t b, int64_t h)
{
    return (decay_batches(d->p) > 1 ? b : 0) * d->p->H + h;
}

RP_INLINE const double *
decay_sums(const decay_t *d, int64_t b, int64_t h)
{
    return d->sums + decay_copy(d, b, h) * d->length;
}

/* Where the sums of query i end. A query before the first key sees none. */
RP_INLINE int64_t
decay_position(const rp_attention *p, int64_t b, int64_t i)
{
    return RP_MAX(0, RP_MIN(i + rp_query_offset(p, b), p->log_decay.rows - 1));
}

/* The lesser of `first` and the first key that query i sees, if it sees any. */
RP_INLINE int64_t
first_seen(const rp_attention *p, int64_t b, int64_t i, int64_t first)
{
    rp_interval seen = rp_visible(p, b, i);
    return seen.begin < seen.end ? RP_MIN(first, seen.begin) : first;
}

/* first[t]: the first key that any query sees whose sums end at t or after it. */
static void
find_first_seen(const rp_attention *p, int64_t b, ptrdiff_t length, double *first)
{
    int64_t i = p->Lq - 1, lowest = INT64_MAX;
    for (ptrdiff_t t = length - 1; t >= 0; t--) {
        for (; i >= 0 && decay_position(p, b, i) >= t; i--)
            lowest = first_seen(p, b, i, lowest);
        first[t] = (double)lowest;
    }
}

/* A difference of C in units of log 2. Two of them are as large as one other term, cut. */
RP_INLINE T
decay_units(double x)
{
    const double limit = RP_LARGEST_TERM / 2;
    x *= RP_LOG2E;
    return (T)(x > limit ? limit : x < -limit ? -limit : x);
}

static void
sum_decay_unit(void *context, int64_t copy, int worker)
{
    const decay_t *d = context;
    const rp_attention *p = d->p;
    const double limit = 0x1p1021; /* differences stay finite */
    double sum = 0, *sums = d->sums + copy * d->length;
    T *rest = d->rest + copy * d->width;
    (void)worker;
    const rp_array *steps = &p->log_decay.array;
    const char *at = rp_at(steps, copy / p->H, copy % p->H, 0);
    const int has_ranges = p->sight.key_ranges.data != NULL;
    if (has_ranges) /* each is read before its sum takes its place */
        find_first_seen(p, copy / p->H, d->length, sums);
    for (ptrdiff_t j = 0; j < d->length; j++, at += steps->row) {
        sum += j > 0 && j < p->log_decay.rows ? *(const T *)at : 0;
        if (has_ranges && sums[j] >= (double)j)
            sum = 0;
        sum = sum > limit ? limit : sum < -limit ? -limit : sum;
        sums[j] = sum;
    }
    for (ptrdiff_t j = 0; j < d->width; j++)
        rest[j] = decay_units(sums[j] - sums[j / NR * NR + NR - 1]);
}

static rp_status
start_decay(decay_t *d)
{
    if (!has_decay(d->p))
        return RP_OK;
    return rp_parallel(d->copies, sum_decay_unit, d, d->p->threads);
}

/* ---- one row of one tile --------------------------------------------------------- */

/* s[n] = decay of the pair (i, j0 + n), n < columns: whole panels. */
static void
fill_decay_row(const decay_t *d, int64_t b, int64_t h, int64_t i, int64_t j0,
               int columns, T *s)
{
    const double *sums = decay_sums(d, b, h) + j0;
    const T *rest = d->rest + decay_copy(d, b, h) * d->width + j0;
    const int64_t own = decay_position(d->p, b, i) - j0;
    const double end = sums[own];
    for (int n = 0; n < columns; n += NR) {
        V base = splat(decay_units(end - sums[n + NR - 1]));
        store(s + n, base - load(rest + n));
        store(s + n + VL, base - load(rest + n + VL));
    }
    if (own < 0 || own >= columns)
        return;
    for (int64_t n = own / NR * NR, k = 0; k < NR; k++)
        s[n + k] = decay_units(end - sums[n + k]);
}

/* s[n] += decay of the pair (i, j0 + n), n < count <= RP_STRETCH_KEYS. */
static void
add_decay_row(const decay_t *d, int64_t b, int64_t h, int64_t i, int64_t j0, int count,
              T *s)
{
    T decay[RP_STRETCH_KEYS + 2 * NR];
    int before = (int)(j0 % NR);
    fill_decay_row(d, b, h, i, j0 - before, RP_ROUND_UP(before + count, NR), decay);
    for (int n = 0; n < count; n++)
        s[n] += decay[before + n];
}

/* Widens reach, from the least to the largest number, by those that decay has between the
 * rows of q and the keys [j0, end). */
static void
add_decay_reach(const decay_t *d, const queries_t *q, int64_t j0, int64_t end,
                T reach[2])
{
    const double *sums = decay_sums(d, q->b, q->h);
    double low = INFINITY, high = -INFINITY, first = INFINITY, last = -INFINITY;
    for (int64_t j = j0; j < end; j++) {
        low = sums[j] < low ? sums[j] : low;
        high = sums[j] > high ? sums[j] : high;
    }
    for (int m = 0; m < q->rows; m++) {
        double at = sums[decay_position(d->p, q->b, q->i0 + m)];
        first = at < first ? at : first;
        last = at > last ? at : last;
    }
    reach[0] += decay_units(first - high);
    reach[1] += decay_units(last - low);
}

/* The largest minus the least of the sums of a head; 0 where one is no number. */
static T
decay_spread(const decay_t *d, int64_t b, int64_t h)
{
    const double *sums = decay_sums(d, b, h);
    double low = 0, high = 0;
    for (ptrdiff_t j = 0; j < d->length; j++) {
        low = sums[j] < low ? sums[j] : low;
        high = sums[j] > high ? sums[j] : high;
    }
    double last = sums[d->length - 1];
    return last == last ? decay_units(high - low) : 0;
}

/* ---- gradients ------------------------------------------------------------------- */

/* How many sums decay keeps of one head, in double: of dS by key, then by query. They are
 * the gradients of what C(j) is taken from, and of what C(p_i) is. Then, by key and by
 * query, the number of pairs whose dS is not finite. No sum has those pairs: they would
 * spoil it for other ones. */
RP_INLINE int64_t
decay_sums_count(const rp_attention *p)
{
    return 2 * (p->Lk + p->Lq);
}

/* Adds row i, d_row[n] = dS of the pair (i, j0 + n), where some are not finite. */
static void
sum_bad_decay_row(const rp_attention *p, int64_t i, int64_t j0, int count,
                  const T *d_row, double *sums)
{
    double *bad = sums + p->Lk + p->Lq;
    for (int n = 0; n < count; n++) {
        int finite = d_row[n] - d_row[n] == 0;
        (finite ? sums : bad)[j0 + n] += finite ? d_row[n] : 1;
        (finite ? sums : bad)[p->Lk + i] += finite ? d_row[n] : 1;
    }
}

/* Adds row i, d_row[n] = dS of the pair (i, j0 + n). */
static void
sum_decay_row(const rp_attention *p, int64_t i, int64_t j0, int count, const T *d_row,
              double *sums)
{
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int n = 0; n < count; n++)
        total += d_row[n];
    if (total - total != 0) {
        sum_bad_decay_row(p, i, j0, count, d_row, sums);
        return;
    }
    for (int n = 0; n < count; n++)
        sums[j0 + n] += d_row[n];
    sums[p->Lk + i] += total;
}

/* The gradient of one head += that of its sums, in `parts` that lie `step` apart:
 * dlog_decay[t] = sum of dS over the pairs with j < t <= p_i. No sum takes log_decay[0], nor
 * that of a key at which C begins again. */
static void
add_decay_sums(const rp_gradients *g, int64_t b, int64_t h, const double *sums,
               int64_t parts, int64_t step)
{
    const rp_attention *p = &g->forward;
    const double *bad = sums + p->Lk + p->Lq;
    double total = 0, bad_pairs = 0;
    int64_t i = p->Lq - 1, first = INT64_MAX;
    for (int64_t t = p->log_decay.rows - 1; t > 0; t--) {
        double here = 0;
        for (int64_t part = 0; t < p->Lk && part < parts; part++) {
            here -= sums[part * step + t];
            bad_pairs -= bad[part * step + t];
        }
        for (; i >= 0 && decay_position(p, b, i) >= t; i--) {
            first = p->sight.key_ranges.data ? first_seen(p, b, i, first) : 0;
            for (int64_t part = 0; part < parts; part++) {
                here += sums[part * step + p->Lk + i];
                bad_pairs += bad[part * step + p->Lk + i];
            }
        }
        total += here;
        /* the pairs from t on are complete: their sum is 0 but for rounding */
        if (first >= t)
            total = bad_pairs = 0;
        *(T *)rp_at(&g->grad_log_decay, b, h, t) += bad_pairs > 0 ? (T)NAN : (T)total;
    }
}

#endif
