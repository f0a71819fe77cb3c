/* indexer.h: the keys that an indexer picks for each query, which are then its edges.
 *
 *   s_ij = sum over h of w_hi * max(0, q_hi . k_j) + mask_ij
 *
 * A unit is a block of queries of one batch item. The rows of all its heads are packed, and
 * multiplied with one tile of keys after the other; the scores of a block, (queries, keys),
 * are all that is stored of them. Then each query takes its keys into a heap of as many as
 * are picked, and sorts it. */
#ifndef RELPOS_GRAPH_INDEXER_H
#define RELPOS_GRAPH_INDEXER_H

#include "../conditions.h"
#include "../ground/arena.h"
#include "../ground/pack.h"
#include "../attention/tiles/tile.h"

enum {
    INDEXER_KEYS = 4 * NR, /* of a tile */
    INDEXER_ROWS = 512,    /* of a block, of all heads: packing keys is little then */
    INDEXER_SCORES = 1 << 18, /* of a block, if it has more than one query */
};

typedef struct {
    T score;
    int32_t key;
} scored_key;

/* Memory of one worker. */
typedef struct {
    T *queries, *weights; /* a row for each query and head, heads inside */
    T *panels;            /* a tile of keys */
    T *products;          /* of BQ of these rows */
    T *scores;            /* (queries of a block, Lk in whole tiles) */
    scored_key *heap;
} indexer_scratch;

typedef struct {
    const rp_indexer *p;
    int64_t block, blocks; /* queries of a unit; units of a batch item */
    int64_t width;         /* of a row of scores */
    char *scratch;
    size_t scratch_size; /* bytes of a worker */
} indexer_plan;

/* Queries [first, first + count) of item b, and the keys that any of them sees. */
typedef struct {
    int64_t b, first, count, rows;
    rp_interval keys;
} indexer_block;

/* ---- scores --------------------------------------------------------------------------- */

/* Packs the block's rows of queries, zeros behind them, and their weights. */
static void
pack_indexer_rows(const rp_indexer *p, const indexer_block *x, indexer_scratch *w)
{
    const int64_t padded = RP_ROUND_UP(x->rows, BQ);
    for (int64_t row = 0; row < x->rows; row++) {
        int64_t i = x->first + row / p->H, h = row % p->H;
        const char *weight = rp_at(&p->weights, x->b, h, i);
        pack_row(w->queries + row * p->D, &p->query, rp_at(&p->query, x->b, h, i), p->D,
                 p->D);
        w->weights[row] = number_at(weight, RP_KIND(&p->weights));
    }
    memset(w->queries + x->rows * p->D, 0,
           (size_t)((padded - x->rows) * p->D) * sizeof(T));
}

/* Packs `columns` keys from j0 on, whole panels of them, with zeros behind the last key. */
static void
pack_indexer_keys(const rp_indexer *p, int64_t b, int64_t j0, int64_t columns,
                  T *panels)
{
    for (int64_t n = 0; n < columns; n += NR, panels += NR * p->D) {
        const char *rows[NR];
        for (int i = 0; i < NR; i++) {
            int64_t j = j0 + n + i;
            rows[i] = j < p->Lk ? rp_at(&p->key, b, 0, j) : NULL;
        }
        pack_panel(panels, rows, p->key.col, RP_KIND(&p->key), p->D, 1,
                   NR * p->key.row);
    }
}

/* scores += weight * max(0, products), of which a NaN stays one. */
RP_INLINE void
add_head(T *scores, T weight, const T *products, int64_t columns)
{
    for (int64_t k = 0; k < columns; k += VL) {
        V x = load(products + k);
        x = choose(x < (V){0}, (V){0}, x);
        store(scores + k, load(scores + k) + splat(weight) * x);
    }
}

/* The scores of the block's queries with the tile of keys from j0 on. */
static void
score_indexer_tile(const indexer_plan *plan, const indexer_block *x, int64_t j0,
                   indexer_scratch *w)
{
    const rp_indexer *p = plan->p;
    const int64_t left = RP_ROUND_UP(p->Lk - j0, NR);
    const int64_t columns = RP_MIN(INDEXER_KEYS, left);
    pack_indexer_keys(p, x->b, j0, columns, w->panels);
    for (int64_t i = 0; i < x->count; i++)
        memset(w->scores + i * plan->width + j0, 0, (size_t)columns * sizeof(T));
    for (int64_t row = 0; row < x->rows; row += BQ) {
        int rows = (int)RP_MIN(BQ, x->rows - row);
        gemm_set(w->queries + row * p->D, p->D, w->panels, padded_rows(rows), columns,
                 p->D, TERM_BLOCK, w->products, INDEXER_KEYS);
        for (int m = 0; m < rows; m++)
            add_head(w->scores + (row + m) / p->H * plan->width + j0,
                     w->weights[row + m], w->products + m * INDEXER_KEYS, columns);
    }
}

/* Adds an entry of a mask of numbers to a score; returns whether the pair is seen. */
RP_INLINE int
see_through_mask(const rp_indexer *p, const char *entry, T *score)
{
    if (p->mask_type == RP_MASK_BOOL)
        return *entry != 0;
    double x = RP_KIND(&p->mask) != RP_OWN ? (double)number_at(entry, RP_KIND(&p->mask))
               : p->mask_type == RP_MASK_F32 ? *(const float *)entry
                                             : *(const double *)entry;
    *score += (T)x;
    return x != -(double)INFINITY;
}

/* ---- the largest scores --------------------------------------------------------------- */

/* The order of the result: by falling score, the smaller key first among equals, NaN after
 * all numbers. */
RP_INLINE int
comes_before(scored_key a, scored_key b)
{
    if (a.score > b.score)
        return 1;
    if (a.score < b.score)
        return 0;
    const int a_is_nan = a.score != a.score, b_is_nan = b.score != b.score;
    return a_is_nan != b_is_nan ? b_is_nan : a.key < b.key;
}

/* Moves entry `at` of a heap down until none of its children comes after it: the root is the
 * last entry of all. */
static void
sift_down(scored_key *heap, int64_t at, int64_t count)
{
    const scored_key moved = heap[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && comes_before(heap[child], heap[child + 1]))
            child++;
        if (!comes_before(moved, heap[child]))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void
make_heap(scored_key *heap, int64_t count)
{
    for (int64_t at = count / 2 - 1; at >= 0; at--)
        sift_down(heap, at, count);
}

/* Takes the first `picked` of the keys that query i sees, in any order; returns how many. */
static int64_t
take_keys(const rp_indexer *p, int64_t b, int64_t i, const T *scores, scored_key *heap)
{
    const rp_interval seen = rp_own_range(&p->ranges, p->Lk, b, i);
    const char *mask = p->mask.data ? rp_at(&p->mask, b, 0, i) : NULL;
    int64_t count = 0;
    for (int64_t j = seen.begin; j < seen.end; j++) {
        scored_key x = {scores[j], (int32_t)j};
        if (mask && !see_through_mask(p, mask + j * p->mask.col, &x.score))
            continue;
        if (count < p->picked) {
            heap[count++] = x;
            if (count == p->picked)
                make_heap(heap, count);
        } else if (comes_before(x, heap[0])) {
            heap[0] = x;
            sift_down(heap, 0, count);
        }
    }
    if (count < p->picked)
        make_heap(heap, count);
    return count;
}

/* Sorts a heap: what comes last goes to the end. */
static void
sort_heap(scored_key *heap, int64_t count)
{
    for (int64_t last = count - 1; last > 0; last--) {
        const scored_key x = heap[last];
        heap[last] = heap[0];
        heap[0] = x;
        sift_down(heap, 0, last);
    }
}

static void
pick_keys(const rp_indexer *p, int64_t b, int64_t i, const T *scores, scored_key *heap)
{
    char *keys = rp_at(&p->keys, b, 0, i);
    int64_t count = take_keys(p, b, i, scores, heap);
    sort_heap(heap, count);
    for (int64_t n = 0; n < p->picked; n++)
        *(int32_t *)(keys + n * p->keys.col) = n < count ? heap[n].key : -1;
}

/* ---- the call ------------------------------------------------------------------------- */

static void
lay_out_indexer_scratch(const indexer_plan *plan, arena_t *arena, indexer_scratch *w)
{
    const rp_indexer *p = plan->p;
    const int64_t rows = RP_ROUND_UP(plan->block * p->H, BQ);
    w->queries = take_numbers(arena, rows * p->D);
    w->weights = take_numbers(arena, rows);
    w->panels = take_numbers(arena, INDEXER_KEYS * p->D);
    w->products = take_numbers(arena, BQ * INDEXER_KEYS);
    w->scores = take_numbers(arena, plan->block * plan->width);
    w->heap = take(arena, p->picked, sizeof(scored_key));
}

static void
lay_out_indexer(void *context, arena_t *arena)
{
    indexer_plan *plan = context;
    arena_t worker = {0};
    indexer_scratch unused;
    lay_out_indexer_scratch(plan, &worker, &unused);
    plan->scratch_size = worker.used;
    arena->failed |= worker.failed;
    plan->scratch = take(arena, plan->p->threads, plan->scratch_size);
}

static void
indexer_unit(void *context, int64_t unit, int worker)
{
    const indexer_plan *plan = context;
    const rp_indexer *p = plan->p;
    arena_t arena = {.memory = plan->scratch + (size_t)worker * plan->scratch_size};
    indexer_scratch w;
    indexer_block x = {.b = unit / plan->blocks,
                       .first = unit % plan->blocks * plan->block,
                       .keys = {p->Lk, 0}};
    lay_out_indexer_scratch(plan, &arena, &w);
    x.count = RP_MIN(plan->block, p->Lq - x.first);
    x.rows = x.count * p->H;
    for (int64_t i = 0; i < x.count; i++) {
        rp_interval seen = rp_own_range(&p->ranges, p->Lk, x.b, x.first + i);
        if (seen.begin >= seen.end)
            continue;
        x.keys.begin = RP_MIN(x.keys.begin, seen.begin);
        x.keys.end = RP_MAX(x.keys.end, seen.end);
    }
    pack_indexer_rows(p, &x, &w);
    int64_t first = x.keys.begin / INDEXER_KEYS * INDEXER_KEYS;
    for (int64_t j0 = first; j0 < x.keys.end; j0 += INDEXER_KEYS) {
        if (rp_stopping())
            return;
        score_indexer_tile(plan, &x, j0, &w);
    }
    for (int64_t i = 0; i < x.count; i++)
        pick_keys(p, x.b, x.first + i, w.scores + i * plan->width, w.heap);
}

static rp_status
indexer_top_k(const rp_indexer *p)
{
    indexer_plan plan = {.p = p};
    arena_t arena;
    if (p->B == 0 || p->Lq == 0 || p->picked == 0)
        return RP_OK;
    rp_assert(check_indexer(p));
    int64_t most = RP_MIN(INDEXER_ROWS / RP_MAX(p->H, 1), INDEXER_SCORES / p->Lk);
    plan.block = RP_MIN(RP_MAX(most, 1), p->Lq);
    plan.blocks = (p->Lq + plan.block - 1) / plan.block;
    plan.width = RP_ROUND_UP(p->Lk, INDEXER_KEYS);
    rp_status status = reserve(&arena, lay_out_indexer, &plan, NULL);
    if (status)
        return status;
    status = rp_parallel(p->B * plan.blocks, indexer_unit, &plan, p->threads);
    rp_free(arena.memory);
    return status;
}

#endif
