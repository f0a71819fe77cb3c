/* shown.h: which part of a key tile a query tile works on, and where it may leave masks alone.
 *
 * Ranges of keys, one per query, mask and blocks are looked at once per call. Of the ranges a
 * query tile keeps two intervals: keys that any of its rows sees, and keys that all of them
 * see. Of mask and blocks, for each query tile and RP_CLASS_KEYS keys, whether some pair is
 * left as it is and whether some is not. A tile then begins and ends where anything is seen, is
 * skipped where nothing is, and its columns that all rows see take no mask. */
#ifndef RELPOS_ATTENTION_TILES_SHOWN_H
#define RELPOS_ATTENTION_TILES_SHOWN_H

#include "../../ground/arena.h"
#include "classes.h"

/* Keys that any row of a query tile sees, and that all of them see. */
typedef struct {
    rp_interval any, all;
} sight_t;

typedef struct {
    const rp_attention *p;
    int64_t tiles;  /* of queries */
    sight_t *sight; /* (B, tiles), by ranges; NULL: there are none */
    /* (batches, heads, rows, blocks), 1 where mask and blocks are the same along an axis;
     * NULL: there are neither */
    unsigned char *classes;
    int64_t batches, heads, rows, blocks;
} shown_t;

/* ---- once per call --------------------------------------------------------------- */

static void
plan_shown(shown_t *shown, const rp_attention *p)
{
    const rp_array *mask = &p->sight.mask, *blocks = &p->sight.key_blocks;
    *shown = (shown_t){.p = p, .tiles = (p->Lq + BQ - 1) / BQ};
    shown->batches = mask->batch || blocks->batch ? p->B : 1;
    shown->heads = mask->head || blocks->head ? p->H : 1;
    shown->rows = mask->row || blocks->row ? shown->tiles : 1;
    shown->blocks = (p->Lk + RP_CLASS_KEYS - 1) / RP_CLASS_KEYS;
}

static void
lay_out_shown(shown_t *shown, arena_t *arena)
{
    const rp_attention *p = shown->p;
    if (p->sight.key_ranges.data)
        shown->sight = take(arena, p->B, (size_t)shown->tiles * sizeof(sight_t));
    if (rp_has_mask(p))
        shown->classes = take(arena, shown->batches * shown->heads,
                              (size_t)(shown->rows * shown->blocks));
}

/* Notes what the rows of a query tile see by window and range: unit = item, query tile. */
static void
look_at_ranges(void *context, int64_t unit, int worker)
{
    const shown_t *shown = context;
    const rp_attention *p = shown->p;
    int64_t b = unit / shown->tiles, i0 = unit % shown->tiles * BQ;
    int64_t end = RP_MIN(p->Lq, i0 + BQ);
    sight_t sight = {{p->Lk, 0}, {0, p->Lk}};
    (void)worker;
    for (int64_t i = i0; i < end; i++) {
        rp_interval row = rp_visible(p, b, i);
        sight.all = rp_overlap(sight.all, row);
        if (row.begin == row.end)
            continue;
        sight.any.begin = RP_MIN(sight.any.begin, row.begin);
        sight.any.end = RP_MAX(sight.any.end, row.end);
    }
    shown->sight[unit] = sight;
}

/* Finds the classes of one query tile of one copy of mask and blocks. */
static void
look_at_mask(void *context, int64_t unit, int worker)
{
    const shown_t *shown = context;
    const rp_attention *p = shown->p;
    unsigned char *classes = shown->classes + unit * shown->blocks;
    int64_t i0 = unit % shown->rows * BQ, copy = unit / shown->rows;
    int64_t b = copy / shown->heads, h = copy % shown->heads;
    int64_t end = shown->rows > 1 ? RP_MIN(p->Lq, i0 + BQ) : p->Lq;
    int has_mask = p->sight.mask_type != RP_MASK_NONE;
    (void)worker;
    memset(classes, has_mask ? 0 : RP_SHOWS, (size_t)shown->blocks);
    if (has_mask)
        class_mask(p, b, h, i0, end, classes);
    if (p->sight.key_blocks.data)
        class_blocks(p, b, h, i0, end, shown->blocks, classes);
}

static rp_status
start_shown(shown_t *shown)
{
    const rp_attention *p = shown->p;
    rp_status status = RP_OK;
    if (shown->sight)
        status = rp_parallel(p->B * shown->tiles, look_at_ranges, shown, p->threads);
    if (!status && shown->classes)
        status = rp_parallel(shown->batches * shown->heads * shown->rows, look_at_mask,
                             shown, p->threads);
    return status;
}

/* ---- once per query tile --------------------------------------------------------- */

/* The keys that any, and that all, of the rows [i0, i0 + rows) of item b see by window and
 * range. */
RP_INLINE sight_t
sight_of(const shown_t *shown, int64_t b, int64_t i0, int rows)
{
    if (shown->sight)
        return shown->sight[b * shown->tiles + i0 / BQ];
    rp_interval first = rp_in_window(shown->p, b, i0);
    rp_interval last = rp_in_window(shown->p, b, i0 + rows - 1);
    sight_t sight = {{first.begin, last.end}, {last.begin, first.end}};
    return sight;
}

/* Classes of a query tile; not without mask or blocks. */
RP_INLINE const unsigned char *
classes_of(const shown_t *shown, const queries_t *q)
{
    int64_t b = shown->batches > 1 ? q->b : 0, h = shown->heads > 1 ? q->h : 0;
    int64_t row = shown->rows > 1 ? q->i0 / BQ : 0;
    return shown->classes +
           ((b * shown->heads + h) * shown->rows + row) * shown->blocks;
}

/* Leaves out the keys at either end of an interval of which no pair is shown. */
static rp_interval
without_hidden(const shown_t *shown, const queries_t *q, rp_interval keys)
{
    const unsigned char *classes = classes_of(shown, q);
    while (keys.begin < keys.end && !(classes[keys.begin / RP_CLASS_KEYS] & RP_SHOWS))
        keys.begin = (keys.begin / RP_CLASS_KEYS + 1) * RP_CLASS_KEYS;
    while (keys.begin < keys.end &&
           !(classes[(keys.end - 1) / RP_CLASS_KEYS] & RP_SHOWS))
        keys.end = (keys.end - 1) / RP_CLASS_KEYS * RP_CLASS_KEYS;
    return keys;
}

/* The first keys of an interval, up to where RP_GAP_CLASSES classes or more are hidden: from
 * there on it takes less time to begin again behind them than to go through them. */
static rp_interval
next_run(const shown_t *shown, const queries_t *q, rp_interval keys)
{
    const unsigned char *classes = classes_of(shown, q);
    int hidden = 0;
    keys = without_hidden(shown, q, keys);
    for (int64_t n = keys.begin / RP_CLASS_KEYS; n * RP_CLASS_KEYS < keys.end; n++) {
        hidden = classes[n] & RP_SHOWS ? 0 : hidden + 1;
        if (hidden == RP_GAP_CLASSES)
            keys.end = (n + 1 - RP_GAP_CLASSES) * RP_CLASS_KEYS;
    }
    return keys;
}

/* The longest run of keys of an interval of which no pair is hidden or added to. */
static rp_interval
without_mask(const shown_t *shown, const queries_t *q, rp_interval keys)
{
    const unsigned char *classes = classes_of(shown, q);
    rp_interval longest = {keys.begin, keys.begin}, run = longest;
    while (run.end < keys.end) {
        int shows = classes[run.end / RP_CLASS_KEYS] == RP_SHOWS;
        run.end = RP_MIN(keys.end, (run.end / RP_CLASS_KEYS + 1) * RP_CLASS_KEYS);
        if (!shows)
            run.begin = run.end;
        else if (run.end - run.begin > longest.end - longest.begin)
            longest = run;
    }
    return longest;
}

/* Sets q's keys: those that any of its rows sees, and that all see but for the mask. */
static void
see_keys(const shown_t *shown, queries_t *q)
{
    sight_t sight = sight_of(shown, q->b, q->i0, q->rows);
    q->seen = sight.any;
    q->common = sight.all;
}

/* The keys of a tile that its rows see by window and causality alone. */
static void
see_window(const rp_attention *p, const queries_t *q, tile_t *t)
{
    const rp_sight *sight = &p->sight;
    int64_t at = q->i0 + rp_query_offset(p, q->b) - t->j0;
    t->window = (diagonal_t){-BQ, t->columns, 1};
    if (sight->window_left != RP_UNBOUNDED)
        t->window.begin = (ptrdiff_t)RP_MAX(-BQ, at - sight->window_left);
    if (sight->window_right != RP_UNBOUNDED)
        t->window.end = (ptrdiff_t)RP_MIN(t->columns, at + sight->window_right + 1);
    t->in_window = t->window.begin + q->rows <= 1 && t->window.end >= t->keys;
}

/* Sets up the first part that q works on, from key *at on, of the key tile [j0, j0 + count),
 * and *at behind it; 0: it sees nothing from there on. There is one part, unless mask or
 * blocks leave gaps. */
static int
start_tile(const shown_t *shown, const queries_t *q, tile_t *t, int64_t *at, int64_t j0,
           int count)
{
    rp_interval tile = {*at, j0 + count}, keys = rp_overlap(q->seen, tile), open;
    if (shown->classes)
        keys = next_run(shown, q, keys);
    *at = shown->classes ? keys.end : tile.end;
    if (keys.begin >= keys.end)
        return 0;
    t->j0 = keys.begin / NR * NR;
    int64_t width = keys.end - t->j0;
    rp_assert(0 < width && width < count + NR);
    t->keys = (int)width;
    t->columns = RP_ROUND_UP(t->keys, VL);
    see_window(shown->p, q, t);
    open = rp_overlap(q->common, keys);
    if (shown->classes)
        open = without_mask(shown, q, open);
    t->shown.begin = RP_ROUND_UP(open.begin - t->j0, NR);
    t->shown.end = open.end - t->j0;
    if (t->shown.end < t->columns) /* or half of the last panel ends there */
        t->shown.end = t->shown.end / NR * NR;
    if (t->shown.begin >= t->shown.end)
        t->shown = (rp_interval){0, 0};
    return 1;
}

#endif
