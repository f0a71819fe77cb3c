/* gradients.h: what the backward holds: its plan, operands of a head, the tile in work.
 *
 * A unit is one key head and one chunk of key tiles; chunks are cut from Lk and Hk. It owns
 * its rows of grad_key and grad_value. What several units add to, the gradients of queries,
 * tables, u and v, each query head of each unit sums up for itself, and the
 * partial sums are added in the order (batch item, head, chunk): the same bits for any
 * number of threads. */
#ifndef RELPOS_ATTENTION_TILES_GRADIENTS_H
#define RELPOS_ATTENTION_TILES_GRADIENTS_H

#include "plan.h"

enum {
    RP_CHUNKS = 8, /* key chunks of a head that the backward works on, at most */
};

/* Gradients that several units add to. */
enum {
    RP_GRAD_KEY,
    RP_GRAD_QUERY,
    RP_GRAD_VALUE,
    RP_GRAD_BIAS,
    RP_GRAD_U,
    RP_GRAD_V,
    RP_PARTIALS
};

/* Operands of one query head (b, h), all rows. */
typedef struct {
    T *rows_u, *rows_v;       /* content and relative of queries_t */
    T *grad_rows;             /* grad_out */
    T *max, *norm;            /* largest logit; 1 / sum of a row, 0: saw no key */
    T *delta;                 /* grad_out . out - grad_lse */
    T *key_dots, *value_dots; /* ROWS and LABELS: (q + v).A and grad_out . W */
    unsigned char *bad;       /* per query tile: NaN or infinity in q or grad_out */
} head_t;

/* Partial sums of one gradient: `rows` rows of `width` elements for each (head, chunk), of
 * which those exist that the chunk's queries can add to. */
typedef struct {
    const rp_array *grad;
    int path; /* BAND: row n is band column n + first key of the chunk */
    int64_t rows, grad_rows, first;
    const int64_t *index; /* (grad_rows): rows of the gradient; NULL: row n is row n */
    int64_t listed;       /* with an index: how many rows the gradient has */
    ptrdiff_t columns, width;
    T factor;
    T *data;                      /* NULL: not asked for */
    rp_interval spans[RP_CHUNKS]; /* rows that exist of a chunk */
    int64_t
        starts[RP_CHUNKS + 1]; /* how many of a head come before them; all of them */
} partial_t;

/* Gradients that have a row for each query. */
enum { RP_OF_QUERY, RP_OF_POSITION, RP_QUERY_SUMS };

/* Partial sums of one of them: for each (head, chunk) the rows of the queries that see it. */
typedef struct {
    const rp_array *grad;
    ptrdiff_t columns, width;
    T factor;
    T *data; /* NULL: not asked for */
} query_sums_t;

/* Sums of one query over the keys of a chunk: dS; p of the pairs beyond either end of
 * rel_key. */
typedef struct {
    double grad, share[2];
} row_ends_t;

typedef struct {
    plan_t plan; /* of the forward: paths, bands, keys and values of the wave */
    const rp_gradients *g;
    packed_t key_rows, value_panels; /* tables, as products need them */
    int key_rows_bad;
    int copy_keys, correct_ends;
    int narrow;                /* rel_key is met by a band of few columns */
    double *bias_sums;         /* per head of the wave and chunk */
    T *key_copy, *value_panel; /* per slice: keys as rows; values as panels */
    unsigned char *keys_bad;   /* per slice and key tile */
    int64_t chunk_keys, chunks;
    rp_interval queries[RP_CHUNKS]; /* tiles that may see a key of it, in any item */
    int64_t starts[RP_CHUNKS + 1];  /* rows of a head that come before theirs; all */
    rp_interval *met; /* (B, chunks): those of an item that do; NULL: by window alone */
    char *heads;      /* per head of the wave: its operands */
    query_sums_t query_sums[RP_QUERY_SUMS];
    row_ends_t *ends; /* per head and chunk, all rows; NULL: not corrected */
    size_t head_size; /* bytes */
    unsigned char *heads_bad;
    partial_t partials[RP_PARTIALS];
} gradients_t;

/* The buffers that one worker of the backward has for itself. */
typedef struct {
    scratch_t forward; /* scores: logits, then probabilities times z */
    T *grads;          /* (BQ, lds): dP, then dS */
    T *grad_key;       /* (chunk_keys + MR, D_pad) */
    T *grad_value;     /* (chunk_keys + MR, Dv_pad) */
    T *key_sums;       /* (Lq_pad, key_stride): dS by table row, ROWS and LABELS */
    T *value_sums;     /* (Lq_pad, value_stride): p z by table row */
    T *narrow_sums; /* (Dp, chunk_keys + Lq_pad): grad of a narrow band; NULL: none */
    double *offset_sums; /* (chunk_keys + Lq_pad): dS by band column of the chunk */
    double *v_sums; /* the same of what passes the cap; without one, the same array */
    double *column_sums;  /* (chunk_keys): dS by key of the chunk */
    T *totals, *shares;   /* (BQ): dS and p by row of the tile; NULL: not wanted */
    double *row;          /* (D_pad or Dp_pad): a sum of table or key rows */
    T *tile_sums;         /* (lds + VL): either of them over one tile */
    band_lines_t sheared; /* dS */
    int clean[2]; /* columns up to which scores, grads have clean cells; -1: dirty */
} grad_scratch_t;

/* The tile in work, beside the forward's. */
typedef struct {
    const head_t *head;
    queries_t q;
    tile_t t;
    int64_t index, chunk; /* of the head in the wave; of the unit */
    /* Partial sums, row 0 of the head: of grad_query, and of what rel_key is dotted with. */
    T *grad_query, *grad_relative;
    const T *keys;        /* rows */
    ptrdiff_t key_stride; /* of them */
    T *d;                 /* dS: row m at d + m * t.ld */
    int selected;         /* 1: products must skip zeros */
} visit_t;

RP_INLINE int64_t
query_tiles(const gradients_t *gp)
{
    return gp->plan.Lq_pad / BQ;
}

/* Row 0 of a head and chunk in a partial; only rows of its span exist. */
RP_INLINE T *
partial_at(const gradients_t *gp, const partial_t *s, int64_t index, int64_t chunk)
{
    int64_t row = index * s->starts[gp->chunks] + s->starts[chunk];
    return s->data + (row - s->spans[chunk].begin) * s->width;
}

RP_INLINE T *
partial_of(const gradients_t *gp, int which, int64_t index, int64_t chunk)
{
    const partial_t *s = &gp->partials[which];
    return s->data ? partial_at(gp, s, index, chunk) : NULL;
}

/* Row 0 of a head and chunk in sums that have a row for each query; only rows of the
 * queries that the chunk meets exist. */
RP_INLINE int64_t
query_row(const gradients_t *gp, int64_t index, int64_t chunk)
{
    return index * gp->starts[gp->chunks] + gp->starts[chunk] -
           gp->queries[chunk].begin * BQ;
}

RP_INLINE T *
query_sums_of(const gradients_t *gp, int which, int64_t index, int64_t chunk)
{
    const query_sums_t *s = &gp->query_sums[which];
    return s->data ? s->data + query_row(gp, index, chunk) * s->width : NULL;
}

/* Which of the sums by query the term of rel_key adds to. */
RP_INLINE int
relative_sums(const gradients_t *gp)
{
    return gp->plan.p->position_query.data ? RP_OF_POSITION : RP_OF_QUERY;
}

RP_INLINE double *
bias_sums_of(const gradients_t *gp, int64_t index, int64_t chunk)
{
    return gp->bias_sums + (index * gp->chunks + chunk) * bias_sums_count(gp->g);
}

/* Ends of the rows of a head and chunk, from row 0 on; not while gp->ends is NULL. */
RP_INLINE row_ends_t *
ends_of(const gradients_t *gp, int64_t index, int64_t chunk)
{
    return gp->ends + query_row(gp, index, chunk);
}

RP_INLINE int
wants(const gradients_t *gp, int which)
{
    return gp->partials[which].data != NULL;
}

#endif
