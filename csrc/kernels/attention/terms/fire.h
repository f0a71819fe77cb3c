/* fire.h: FIRE's bias, a straight line in x = offsets[j - i] * queries[i] on each of a few
 * ranges of x, made inside the tiles and never stored for all pairs.
 *
 * Along a row x only falls (signed), or falls up to the query's own position and rises
 * after it, so that the keys of a range lie together: a row is a sequence of runs, whose
 * ends are found once per call and serve all heads. Ranges are numbered by rising x. The
 * runs of a row belong to the ranges S-1, .., 0 and, unless signed, 1, .., S-1 again. */
#ifndef RELPOS_ATTENTION_TERMS_FIRE_H
#define RELPOS_ATTENTION_TERMS_FIRE_H

#include "../../ground/arena.h"
#include "../../ground/lines.h"
#include "../../ground/micro.h"
#include "../logits.h"
#include "../sight.h"

enum {
    RP_FIRE_ROWS = 64, /* query rows whose runs one unit finds */
};

typedef struct {
    const rp_attention *p;
    const rp_array *offset_slopes; /* derivatives of p->fire.offsets by c, or NULL */
    int hides;       /* a line is NaN or infinite: some pairs may be hidden */
    int64_t batches; /* copies of the tables: one, or one for each batch item */
    int64_t runs;
    ptrdiff_t width;   /* of a copy of offsets and by_c, readable by whole vectors */
    T *offsets, *by_c; /* p->fire.offsets in T; their derivatives by c, or NULL */
    double *starts;    /* (ranges), the same for all heads */
    double *slopes;    /* (H, ranges) */
    T *intercepts;     /* (H, ranges), in units of log 2 */
    int64_t *ends;     /* (batches, Lq, runs): one past the last offset of each run */
} fire_t;

RP_INLINE double
fire_value(const rp_array *a, int64_t b, int64_t h, int64_t row, int column)
{
    return *(const double *)(rp_at(a, b, h, row) + column * a->col);
}

RP_INLINE int64_t *
fire_ends(const fire_t *f, int64_t b, int64_t i)
{
    return f->ends + ((f->batches > 1 ? b : 0) * f->p->Lq + i) * f->runs;
}

RP_INLINE double
fire_factor(const fire_t *f, int64_t b, int64_t i)
{
    return fire_value(&f->p->fire.queries, b, 0, i, 0);
}

RP_INLINE int64_t
fire_range(const fire_t *f, int64_t run)
{
    int64_t range = f->p->fire.ranges - 1 - run;
    return range < 0 ? -range : range;
}

/* ---- the runs of every row ------------------------------------------------------- */

/* x along one row: falling or rising. */
typedef struct {
    const double *offsets;
    double factor;
    int rising;
} fire_line_t;

/* Whether entry n is past the range boundary `start`. NaN is past none. */
RP_INLINE int
fire_past(const fire_line_t *x, int64_t n, double start)
{
    double at = x->offsets[n] * x->factor;
    return x->rising ? at >= start : at < start;
}

/* The first entry in [low, high] past the boundary, in doubling steps from `guess`, which
 * is in there. */
static int64_t
fire_search(const fire_line_t *x, double start, int64_t low, int64_t high,
            int64_t guess)
{
    int64_t step = 1;
    if (guess < high && !fire_past(x, guess, start)) {
        for (low = guess + 1; low + step <= high; step *= 2) {
            if (fire_past(x, low + step - 1, start)) {
                high = low + step - 1;
                break;
            }
            low += step;
        }
    } else {
        for (high = guess; high - step >= low; step *= 2) {
            if (!fire_past(x, high - step, start)) {
                low = high - step + 1;
                break;
            }
            high -= step;
        }
    }
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (fire_past(x, middle, start))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Ends of `cuts` runs: the first entries in [low, high] past each start, which lie `step`
 * from each other. Most are where the row before had them; `before` may be `ends`. */
static void
find_ends(const fire_line_t *x, const double *starts, ptrdiff_t step, int64_t cuts,
          int64_t low, int64_t high, const int64_t *before, int64_t *ends)
{
    for (int64_t cut = 0; cut < cuts; cut++, starts += step) {
        int64_t guess = RP_MIN(RP_MAX(before[cut], low), high);
        if ((guess < high && !fire_past(x, guess, *starts)) ||
            (guess > low && fire_past(x, guess - 1, *starts)))
            guess = fire_search(x, *starts, low, high, guess);
        ends[cut] = low = guess;
    }
}

/* Ends of the runs of a row with this factor, among all offsets up to the window's end. */
static void
find_runs(const fire_t *f, int64_t b, double factor, const int64_t *before,
          int64_t *ends)
{
    const rp_attention *p = f->p;
    const int64_t cuts = p->fire.ranges - 1, all = p->Lq + p->Lk;
    /* the first key after the query's own position, and the first one out of sight */
    int64_t turn = p->Lq + rp_query_offset(p, b) + 1, last = all;
    if (p->sight.window_right != RP_UNBOUNDED)
        last = RP_MIN(RP_MAX(turn + p->sight.window_right, 0), all);
    turn = p->fire.is_signed ? last : RP_MIN(RP_MAX(turn, 0), last);
    fire_line_t x = {(const double *)rp_at(&p->fire.offsets, b, 0, 0), factor, 0};
    find_ends(&x, f->starts + cuts, -1, cuts, 0, turn, before, ends);
    x.rising = 1;
    if (!p->fire.is_signed)
        find_ends(&x, f->starts + 1, 1, cuts, turn, last, before + cuts, ends + cuts);
    ends[f->runs - 1] = INT64_MAX;
}

static void
find_runs_unit(void *context, int64_t unit, int worker)
{
    const fire_t *f = context;
    const int64_t units = (f->p->Lq + RP_FIRE_ROWS - 1) / RP_FIRE_ROWS;
    const size_t size = (size_t)f->runs * sizeof(int64_t);
    int64_t b = unit / units, first = unit % units * RP_FIRE_ROWS;
    int64_t end = RP_MIN(f->p->Lq, first + RP_FIRE_ROWS);
    (void)worker;
    memset(fire_ends(f, b, first), 0, size);
    for (int64_t i = first; i < end; i++) {
        int64_t above = RP_MAX(i - 1, first), *ends = fire_ends(f, b, i);
        const int64_t *before = fire_ends(f, b, above);
        double factor = fire_factor(f, b, i);
        if (i > first && factor == fire_factor(f, b, above))
            memcpy(ends, before, size);
        else
            find_runs(f, b, factor, before, ends);
    }
}

/* Copies a table over offsets as T: once, or for each item where items differ. */
static void
copy_offsets(const fire_t *f, const rp_array *table, T *copy)
{
    int64_t rows = f->p->Lq + f->p->Lk;
    for (int64_t b = 0; b < f->batches; b++)
        for (ptrdiff_t n = 0; n < f->width; n++)
            copy[b * f->width + n] = n < rows ? (T)fire_value(table, b, 0, n, 0) : 0;
}

/* The lines of every head close together, and the starts that all heads share. */
static void
copy_lines(fire_t *f)
{
    const rp_array *lines = &f->p->fire.lines;
    const int64_t ranges = f->p->fire.ranges;
    for (int64_t n = 0; n < f->p->H * ranges; n++) {
        double slope = fire_value(lines, 0, n / ranges, n % ranges, 1);
        double intercept = fire_value(lines, 0, n / ranges, n % ranges, 2);
        f->slopes[n] = slope;
        f->intercepts[n] = log2_units(intercept);
        f->hides |= !isfinite(slope) || !isfinite(intercept);
    }
    for (int64_t range = 0; range < ranges; range++)
        f->starts[range] = fire_value(lines, 0, 0, range, 0);
}

/* slopes: derivatives of the offsets' table, or NULL. */
static void
plan_fire(fire_t *f, const rp_attention *p, const rp_array *slopes)
{
    f->p = p;
    f->offset_slopes = slopes;
    if (!p->fire.lines.data)
        return;
    f->batches = p->fire.offsets.batch || p->fire.queries.batch ? p->B : 1;
    for (int64_t b = 1; b < p->B && p->sight.query_offset; b++)
        if (rp_query_offset(p, b) != rp_query_offset(p, 0))
            f->batches = p->B;
    f->runs = p->fire.is_signed ? p->fire.ranges : 2 * p->fire.ranges - 1;
    f->width = p->Lq + RP_ROUND_UP(p->Lk, NR) + VL;
}

static void
lay_out_fire(fire_t *f, arena_t *arena)
{
    const rp_attention *p = f->p;
    if (!p->fire.lines.data)
        return;
    f->offsets = take(arena, f->batches, (size_t)f->width * sizeof(T));
    if (f->offset_slopes)
        f->by_c = take(arena, f->batches, (size_t)f->width * sizeof(T));
    f->ends = take(arena, f->batches * p->Lq, (size_t)f->runs * sizeof(int64_t));
    f->slopes = take(arena, p->H, (size_t)p->fire.ranges * sizeof(double));
    f->intercepts = take(arena, p->H, (size_t)p->fire.ranges * sizeof(T));
    f->starts = take(arena, p->fire.ranges, sizeof(double));
}

static rp_status
start_fire(fire_t *f)
{
    const rp_attention *p = f->p;
    if (!p->fire.lines.data)
        return RP_OK;
    copy_offsets(f, &p->fire.offsets, f->offsets);
    if (f->offset_slopes)
        copy_offsets(f, f->offset_slopes, f->by_c);
    copy_lines(f);
    return rp_parallel(f->batches * ((p->Lq + RP_FIRE_ROWS - 1) / RP_FIRE_ROWS),
                       find_runs_unit, f, p->threads);
}

/* ---- one row of one tile --------------------------------------------------------- */

/* The run that offset n belongs to. */
RP_INLINE int64_t
first_run(const fire_t *f, const int64_t *ends, int64_t n)
{
    int64_t run = 0;
    for (int64_t r = 0; r < f->runs - 1; r++)
        run += ends[r] <= n;
    return run;
}

/* s[n] = bias of the pair (i, j0 + n), n < count, in units of log 2. Runs are written by
 * whole vectors from their first key on, each over what the one before it wrote too far:
 * up to VL elements past the end are written as well. */
static void
fill_fire_row(const fire_t *f, int64_t b, int64_t h, int64_t i, int64_t j0, int count,
              T *s)
{
    const rp_attention *p = f->p;
    const int64_t *ends = fire_ends(f, b, i);
    const int64_t n0 = p->Lq - i + j0;
    const T *u = f->offsets + (f->batches > 1 ? b : 0) * f->width + n0;
    const double factor = fire_factor(f, b, i);
    const V least = splat(f->hides ? -(T)INFINITY : -RP_LARGEST_TERM);
    int n = 0;
    for (int64_t run = first_run(f, ends, n0); n < count; run++) {
        int end = run < f->runs - 1 ? (int)RP_MIN(count, ends[run] - n0) : count;
        if (end <= n)
            continue;
        int64_t line = h * p->fire.ranges + fire_range(f, run);
        T slope = log2_units(f->slopes[line] * factor);
        V intercept = splat(f->intercepts[line]);
        for (int at = n; at < end; at += VL) {
            V bias = vmax(least, load(u + at) * slope + intercept);
            store(s + at, -vmax(least, -bias));
        }
        n = end;
    }
}

/* s[n] += bias of the pair (i, j0 + n), count <= RP_STRETCH_KEYS. */
static void
add_fire_row(const fire_t *f, int64_t b, int64_t h, int64_t i, int64_t j0, int count,
             T *s)
{
    T bias[RP_STRETCH_KEYS + VL];
    fill_fire_row(f, b, h, i, j0, count, bias);
    for (int n = 0; n < count; n++)
        s[n] = add_unless_hidden(s[n], bias[n]);
}

/* ---- gradients ------------------------------------------------------------------- */

/* How many sums FIRE keeps of one head: sum dS and sum dS x of each range, then the
 * gradients of c and threshold. */
RP_INLINE int64_t
fire_sums_count(const rp_attention *p)
{
    return 2 * (p->fire.ranges + 1);
}

/* Adds what row i of a tile, d[n] = dS of the pair (i, j0 + n), gives to the sums: T
 * within the run, double beyond. Reads whole vectors of d. */
static void
sum_fire_row(const fire_t *f, const rp_gradients *g, int64_t b, int64_t h, int64_t i,
             int64_t j0, int count, const T *d, double *sums)
{
    const rp_attention *p = f->p;
    const int64_t *ends = fire_ends(f, b, i);
    const int64_t n0 = p->Lq - i + j0;
    const ptrdiff_t first = (f->batches > 1 ? b : 0) * f->width + n0;
    const T *u = f->offsets + first, *by_c = f->by_c + first;
    const double factor = fire_factor(f, b, i);
    double *through_x = sums + 2 * p->fire.ranges;
    int n = 0;
    for (int64_t run = first_run(f, ends, n0); n < count; run++) {
        int end = run < f->runs - 1 ? (int)RP_MIN(count, ends[run] - n0) : count;
        int64_t range = fire_range(f, run);
        V plain = (V){0}, by_u = (V){0}, by_slope = (V){0};
        if (n >= end)
            continue;
        for (; n < end; n += VL) {
            V ds = load(d + n);
            if (end - n < VL)
                ds = first_lanes(ds, end - n);
            plain += ds;
            by_u += ds * load(u + n);
            by_slope += ds * load(by_c + n);
        }
        n = end;
        double slope = f->slopes[h * p->fire.ranges + range];
        double sum_u = (double)sum_lanes(by_u)[0];
        sums[2 * range] += (double)sum_lanes(plain)[0];
        sums[2 * range + 1] += sum_u * factor;
        through_x[0] += slope * (factor * (double)sum_lanes(by_slope)[0] +
                                 sum_u * fire_value(&g->fire_query_slopes, b, 0, i, 0));
        through_x[1] += slope * sum_u * fire_value(&g->fire_query_slopes, b, 0, i, 1);
    }
}

/* grad_fire of one head += its sums. */
static void
add_fire_sums(const rp_gradients *g, int64_t b, int64_t h, const double *sums)
{
    for (int64_t row = 0; row <= g->forward.fire.ranges; row++)
        for (int column = 0; column < 2; column++)
            *(double *)(rp_at(&g->grad_fire, b, h, row) + column * g->grad_fire.col) +=
                sums[2 * row + column];
}

#endif
