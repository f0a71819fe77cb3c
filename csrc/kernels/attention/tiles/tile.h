/* tile.h: the tile in work: BQ queries and the keys of a key tile that they may see. */
#ifndef RELPOS_ATTENTION_TILES_TILE_H
#define RELPOS_ATTENTION_TILES_TILE_H

#include "../../ground/diagonal.h"
#include "../sight.h"

#define BQ RP_QUERY_TILE

/* One tile of queries, and what it accumulates over its key tiles. */
typedef struct {
    int64_t b, h, i0;
    int rows, rows_pad;    /* valid rows, and those of whole micro-tiles */
    int fresh;             /* no key tile has been added to out */
    rp_interval seen;      /* keys that any of its rows may see */
    rp_interval common;    /* keys that all of them see, but for the mask */
    int64_t saved_column;  /* w of the first saved band column; -1: none */
    T *content, *relative; /* packed: what keys and what rel_key are dotted with */
    T norm, floor;         /* weightless.h: the longest row; below the rows' maxima */
    T *saved;           /* (BQ, BQ): band columns for the next key tile; NULL: none */
    T *out, *max, *sum; /* running sum_j p_j v_j, maximum and sum_j p_j of each row */
    T *key_dots;        /* (BQ, rows of rel_key): (q + v).A, paths ROWS and LABELS */
    T *value_sums;      /* (BQ, rows of rel_value): sum of p by table row, likewise */
} queries_t;

/* Numbers of each pair of a band column and a key, in lines of NR keys: of each panel of a key
 * tile, those of its last two query tiles (terms/rel_query.h). */
typedef struct {
    T *lines;      /* (key_tile / NR, 2, BQ, NR) */
    int64_t *last; /* (key_tile / NR): i0 of a panel's last query tile; -1: none yet */
} band_lines_t;

/* Room for the columns of a tile whose rows an index lists (tiles/listed.h). */
typedef struct {
    int32_t *rows; /* (lds): the packed row of each column */
    T *products;   /* (BQ, products_stride): of a piece, by packed row */
    T *same;       /* (BQ): of the only row that the columns of a tile have */
} listed_t;

/* The buffers that one worker of the forward has for itself; the backward's has one inside.
 * */
typedef struct {
    T *scores;         /* (BQ, lds) */
    T *lane_max;       /* (BQ, VL): running maxima of a tile's rows; NULL: not wanted */
    T *slopes;         /* (BQ, key_tile): those of the cap; NULL: not wanted */
    T *bias;           /* (lds): rel_bias over the band of a tile */
    band_lines_t dots; /* k.C */
    listed_t listed;   /* NULL where no index lists rows */
    queries_t *queries;
} scratch_t;

/* The part of a key tile that one query tile works on. */
typedef struct {
    int64_t j0; /* first key: a panel's, at most NR - 1 before one that is seen */
    int keys, columns; /* up to the last that any row sees, and in whole vectors */
    int64_t w0;        /* first band column */
    T *s;              /* logits, then probabilities: row m at s + m * ld */
    ptrdiff_t ld;
    rp_interval shown; /* columns that every row sees as they are, in whole panels */
    rp_interval open;  /* the same, where nothing is added after the products */
    diagonal_t window; /* keys that row 0 sees by window, row m those m further on */
    int in_window;     /* whether every row sees every key by it */
} tile_t;

/* Whether no pair of the tile is hidden. */
RP_INLINE int
all_open(const tile_t *t)
{
    return t->open.begin == 0 && t->open.end == t->columns;
}

RP_INLINE int64_t
position_of(const rp_attention *p, const queries_t *q, const tile_t *t, int64_t m,
            int64_t n)
{
    return t->j0 + n - (q->i0 + m + rp_query_offset(p, q->b));
}

#endif
