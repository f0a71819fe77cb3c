/* weightless.h: tiles in which every weight is exactly 0 are left out.
 *
 * Far from the query a steep bias leaves nothing: 2^(s - max) is 0 below some exponent
 * (exp2.h). A logit is its bias and a product that is at most |q| |k|, so the largest norms
 * and the bias over a tile bound what it holds from above; and the tile that bounds a row
 * best from below says what its maximum will be at least. Where the one is so far below the
 * other, the tile would add zeros. The backward knows each row's maximum. */
#ifndef RELPOS_ATTENTION_TILES_WEIGHTLESS_H
#define RELPOS_ATTENTION_TILES_WEIGHTLESS_H

#include "../terms/bias.h"
#include "shown.h"

/* Logits that lie so far below another in units of log 2 weigh nothing beside it, whatever
 * they were rounded by, as long as they are not too large themselves. */
#define RP_NO_WEIGHT ((T)(RP_IS_F32 ? 104 : 984))

typedef struct {
    const bias_t *bias;
    int used;
    int64_t batches, heads; /* of the bias: 1 where it is the same for all */
    T *spreads;             /* of each: largest number minus least; 0 with a NaN */
    T *norms;               /* per slice of the wave and key tile: the largest |k| */
} weightless_t;

/* ---- once per call, once per key tile --------------------------------------------- */

/* Where the bias is all that says how far below the others a pair is. */
static void
plan_weightless(weightless_t *less, const rp_attention *p, const bias_t *bias,
                int64_t key_tiles)
{
    *less = (weightless_t){.bias = bias};
    less->used = has_reach(p) && !p->rel_key.array.data && !p->rel_query.array.data &&
                 p->sight.mask_type <= RP_MASK_BOOL && key_tiles > 1 && !p->weigh_all;
    bias_copies(bias, &less->batches, &less->heads);
}

static void
lay_out_weightless(weightless_t *less, arena_t *arena, int64_t tiles)
{
    if (!less->used)
        return;
    less->spreads = take_numbers(arena, less->batches * less->heads);
    less->norms = take_numbers(arena, tiles);
}

static void
find_spread(void *context, int64_t unit, int worker)
{
    const weightless_t *less = context;
    (void)worker;
    less->spreads[unit] =
        bias_spread(less->bias, unit / less->heads, unit % less->heads);
}

static rp_status
start_weightless(weightless_t *less)
{
    return less->used ? rp_parallel(less->batches * less->heads, find_spread, less,
                                    less->bias->p->threads)
                      : RP_OK;
}

/* The norm of the longest of `count` keys, packed as panels; infinite where one is not
 * finite. */
static T
longest_key(const T *panels, int64_t count, ptrdiff_t depth)
{
    V top = (V){0};
    for (int64_t j = 0; j < count; j += NR, panels += NR * depth) {
        V low = (V){0}, high = (V){0};
        for (ptrdiff_t k = 0; k < depth; k++) {
            V a = load(panels + k * NR), b = load(panels + k * NR + VL);
            low += a * a;
            high += b * b;
        }
        top = vmax(vmax(low, high), top);
        if (!(sum_lanes(low + high)[0] < (T)INFINITY))
            return (T)INFINITY;
    }
    return (T)sqrt((double)max_lanes(top)[0]);
}

/* The length of the longest of some packed rows; infinity where it overflows, or of NaN. */
static T
longest_row(const T *rows, int count, ptrdiff_t width)
{
    T most = 0;
    for (int m = 0; m < count; m++, rows += width) {
        V sum = (V){0};
        for (ptrdiff_t k = 0; k < width; k += VL)
            sum += load(rows + k) * load(rows + k);
        T square = sum_lanes(sum)[0];
        if (!(square < (T)INFINITY))
            return (T)INFINITY;
        most = square > most ? square : most;
    }
    return (T)sqrt((double)most);
}

/* The lengths of the longest keys in the key tiles of a slice; NULL: they are not used. */
RP_INLINE const T *
norms_of(const weightless_t *less, int64_t slice, int64_t tiles)
{
    return less->used ? less->norms + slice * tiles : NULL;
}

/* ---- once per query tile ---------------------------------------------------------- */

/* Whether the bias of a query tile's head spreads so far that a tile may weigh nothing.
 * norms: of the key tiles of its slice. */
static int
may_weigh_nothing(const weightless_t *less, queries_t *q, const T *norms, int64_t tiles,
                  ptrdiff_t width)
{
    T most = 0;
    int64_t b = less->batches > 1 ? q->b : 0, h = less->heads > 1 ? q->h : 0;
    q->floor = -(T)INFINITY;
    if (!less->used || !(less->spreads[b * less->heads + h] > RP_NO_WEIGHT))
        return 0;
    q->norm = longest_row(q->content, q->rows, width) * (T)1.001;
    for (int64_t tile = 0; tile < tiles; tile++)
        most = norms[tile] > most ? norms[tile] : most;
    return less->spreads[b * less->heads + h] > RP_NO_WEIGHT + 2 * q->norm * most;
}

/* Forward: what the maximum of each row will be at least, by those columns of tile t that all
 * rows see and that lie nearest to them. norm: of its longest key. */
static void
raise_floor(const weightless_t *less, const scratch_t *w, queries_t *q, const tile_t *t,
            T norm)
{
    T reach[2];
    int64_t own = q->i0 + rp_query_offset(less->bias->p, q->b) - t->j0;
    int64_t near = RP_MIN(RP_MAX(own, t->shown.begin), t->shown.end) / NR * NR;
    int64_t end = RP_MIN(near + 2 * NR, t->shown.end);
    for (int64_t n = RP_MAX(near - 2 * NR, t->shown.begin); n < end; n += NR) {
        bias_reach(less->bias, w, q, t, n, RP_MIN(n + NR, t->shown.end), reach);
        T low = reach[0] - q->norm * norm;
        q->floor = low > q->floor ? low : q->floor;
    }
}

/* Whether tile t adds nothing to rows whose maxima are at least q->floor. */
static int
weighs_nothing(const weightless_t *less, const scratch_t *w, const queries_t *q,
               const tile_t *t, T norm)
{
    T reach[2];
    bias_reach(less->bias, w, q, t, 0, t->columns, reach);
    T high = reach[1] + q->norm * norm;
    return high < q->floor - RP_NO_WEIGHT && high > -RP_LARGEST_BOUND &&
           q->floor < RP_LARGEST_BOUND;
}

#endif
