/* shown.h: which part of a key tile a query tile works on, and where it may leave masks alone.
 *
 * Ranges of keys, one per query, and the mask are looked at once per call. Of the ranges a
 * query tile keeps two intervals: keys that any of its rows sees, and keys that all of them
 * see. Of the mask, for each query tile and RP_CLASS_KEYS keys, whether some pair is left as
 * it is and whether some is not. A tile then begins and ends where anything is seen, is
 * skipped where nothing is, and its columns that all rows see take no mask. */
#ifndef RELPOS_ATTENTION_TILES_SHOWN_H
#define RELPOS_ATTENTION_TILES_SHOWN_H

#include "../../ground/arena.h"
#include "../../ground/lines.h"
#include "../../ground/micro.h"
#include "tile.h"

enum {
    RP_CLASS_KEYS = 32, /* keys of a class: whole panels */
    RP_SHOWS = 1,       /* a pair that the mask leaves as it is, */
    RP_HIDES = 2,       /* one that it hides; both: also one that it adds to */
};

/* Keys that any row of a query tile sees, and that all of them see. */
typedef struct {
    rp_interval any, all;
} sight_t;

typedef struct {
    const rp_attention *p;
    int64_t tiles;  /* of queries */
    sight_t *sight; /* (B, tiles), by ranges; NULL: there are none */
    /* (batches, heads, rows, blocks), 1 where the mask is the same along an axis; NULL: no
     * mask */
    unsigned char *classes;
    int64_t batches, heads, rows, blocks;
} shown_t;

/* ---- once per call --------------------------------------------------------------- */

static void
plan_shown(shown_t *shown, const rp_attention *p)
{
    const rp_array *mask = &p->sight.mask;
    *shown = (shown_t){.p = p, .tiles = (p->Lq + BQ - 1) / BQ};
    shown->batches = mask->batch ? p->B : 1;
    shown->heads = mask->head ? p->H : 1;
    shown->rows = mask->row ? shown->tiles : 1;
    shown->blocks = (p->Lk + RP_CLASS_KEYS - 1) / RP_CLASS_KEYS;
}

static void
lay_out_shown(shown_t *shown, arena_t *arena)
{
    const rp_attention *p = shown->p;
    if (p->sight.key_ranges.data)
        shown->sight = take(arena, p->B, (size_t)shown->tiles * sizeof(sight_t));
    if (p->sight.mask_type != RP_MASK_NONE)
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

/* Looks whether a mask of numbers shows, hides or changes the pairs at `at`, `step` apart.
 * */
#define CLASS_OF_RUN(type)                                                             \
    for (int64_t n = 0; n < count; n++) {                                              \
        type x = *(const type *)(at + n * step);                                       \
        shows |= x == 0;                                                               \
        hides |= x == -(type)INFINITY;                                                 \
        adds |= (x != 0) & (x != -(type)INFINITY);                                     \
    }

RP_INLINE int
class_of_run(int type, const char *at, ptrdiff_t step, int64_t count)
{
    int shows = 0, hides = 0, adds = 0;
    if (type == RP_MASK_F32)
        CLASS_OF_RUN(float)
    else if (type == RP_MASK_F64)
        CLASS_OF_RUN(double)
    else
        for (int64_t n = 0; n < count; n++) {
            int x = *(const unsigned char *)(at + n * step) != 0;
            shows |= x;
            hides |= !x;
        }
    return adds ? RP_SHOWS | RP_HIDES : shows * RP_SHOWS | hides * RP_HIDES;
}

#undef CLASS_OF_RUN

/* One class of truth values side by side, and what was met in it: any, and none. */
typedef signed char truths_t
    __attribute__((vector_size(RP_CLASS_KEYS), aligned(1), may_alias));

RP_INLINE int
is_any(const truths_t *x)
{
    uint64_t words[RP_CLASS_KEYS / 8], any = 0;
    memcpy(words, x, sizeof words);
    for (int n = 0; n < RP_CLASS_KEYS / 8; n++)
        any |= words[n];
    return any != 0;
}

/* Classes of `rows` rows of truth values side by side, `step` apart. A row is read along
 * its bytes, as memory likes it; what was met waits in the first-level cache. */
static void
class_truths(const char *at, ptrdiff_t step, int64_t rows, int64_t blocks,
             unsigned char *classes)
{
    enum { RUN = 64 };
    truths_t any[RUN], none[RUN];
    for (int64_t first = 0; first < blocks; first += RUN) {
        int count = (int)RP_MIN(RUN, blocks - first);
        memset(any, 0, sizeof any);
        memset(none, 0, sizeof none);
        for (int64_t i = 0; i < rows; i++) {
            const char *row = at + i * step + first * RP_CLASS_KEYS;
            for (int n = 0; n < count; n++) {
                truths_t x = *(const truths_t *)(row + n * RP_CLASS_KEYS);
                any[n] |= x;
                none[n] |= x == 0;
            }
        }
        for (int n = 0; n < count; n++)
            classes[first + n] = (unsigned char)(is_any(any + n) * RP_SHOWS |
                                                 is_any(none + n) * RP_HIDES);
    }
}

/* Adds one row of the mask to the classes of its blocks; a class that is both already stays
 * so. */
RP_INLINE void
class_row(int type, const char *at, ptrdiff_t step, int64_t blocks,
          unsigned char *classes)
{
    for (int64_t n = 0; n < blocks; n++, at += RP_CLASS_KEYS * step)
        if (classes[n] != (RP_SHOWS | RP_HIDES))
            classes[n] |= (unsigned char)class_of_run(type, at, step, RP_CLASS_KEYS);
}

/* Adds one row of a mask of 16 bits to the classes of its blocks, and of what is left
 * behind them. */
static void
class_wide_row(const rp_array *mask, const char *at, int64_t count,
               unsigned char *classes)
{
    T numbers[RP_CLASS_KEYS];
    for (int64_t n = 0; n < count; n += RP_CLASS_KEYS, classes++) {
        int64_t some = RP_MIN(RP_CLASS_KEYS, count - n);
        widen(numbers, at + n * mask->col, mask->col, RP_KIND(mask), some);
        *classes |= (unsigned char)class_of_run(RP_MASK_F32, (const char *)numbers,
                                                sizeof(float), some);
    }
}

/* Finds the classes of one query tile of one copy of the mask. Where numbers lie side by
 * side, `class_row` is called with a constant step: the compiler then takes many pairs at
 * once. */
static void
look_at_mask(void *context, int64_t unit, int worker)
{
    const shown_t *shown = context;
    const rp_attention *p = shown->p;
    const rp_array *mask = &p->sight.mask;
    const int type = p->sight.mask_type;
    const ptrdiff_t step = mask->col;
    unsigned char *classes = shown->classes + unit * shown->blocks;
    int64_t i0 = unit % shown->rows * BQ, copy = unit / shown->rows;
    int64_t b = copy / shown->heads, h = copy % shown->heads;
    int64_t end = mask->row ? RP_MIN(p->Lq, i0 + BQ) : 1;
    int64_t whole = p->Lk / RP_CLASS_KEYS, done = whole * RP_CLASS_KEYS;
    int truths = type == RP_MASK_BOOL && step == 1;
    (void)worker;
    memset(classes, 0, (size_t)shown->blocks);
    /* Truth values side by side have a loop of their own, over all rows; the loop below
     * then adds the keys behind the last whole block only. */
    if (truths)
        class_truths(rp_at(mask, b, h, i0), mask->row, end - i0, whole, classes);
    for (int64_t i = i0; i < end; i++) {
        const char *row = rp_at(mask, b, h, i);
        if (RP_KIND(mask) != RP_OWN) {
            class_wide_row(mask, row, p->Lk, classes);
            continue;
        }
        if (type == RP_MASK_F32 && step == sizeof(float))
            class_row(RP_MASK_F32, row, sizeof(float), whole, classes);
        else if (type == RP_MASK_F64 && step == sizeof(double))
            class_row(RP_MASK_F64, row, sizeof(double), whole, classes);
        else if (!truths)
            class_row(type, row, step, whole, classes);
        if (done < p->Lk)
            classes[whole] |= (unsigned char)class_of_run(type, row + done * step, step,
                                                          p->Lk - done);
    }
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

/* Classes of the mask for a query tile; not without a mask. */
RP_INLINE const unsigned char *
classes_of(const shown_t *shown, const queries_t *q)
{
    int64_t b = shown->batches > 1 ? q->b : 0, h = shown->heads > 1 ? q->h : 0;
    int64_t row = shown->rows > 1 ? q->i0 / BQ : 0;
    return shown->classes +
           ((b * shown->heads + h) * shown->rows + row) * shown->blocks;
}

/* Leaves out the keys at either end of an interval in which the mask shows nothing. */
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

/* The longest run of keys of an interval from which the mask hides nothing. */
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

/* Sets the part of the key tile [j0, j0 + count) up that q works on; 0: it sees none of it. */
static int
start_tile(const shown_t *shown, const queries_t *q, tile_t *t, int64_t j0, int count)
{
    rp_interval tile = {j0, j0 + count}, keys = rp_overlap(q->seen, tile), open;
    if (shown->classes)
        keys = without_hidden(shown, q, keys);
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
