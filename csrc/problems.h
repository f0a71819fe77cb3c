/* problems.h: what the kernels are asked to do, as plain C: filled by csrc/python, or by the
 * gufuncs, and read by every kernel.
 *
 * Whoever fills a problem keeps the limits and the conditions that are written here. Kernels
 * rely on them; kernels/conditions.h looks in builds for debugging. */
#ifndef RELPOS_PROBLEMS_H
#define RELPOS_PROBLEMS_H

#include "relpos.h"

/* ---- attention ------------------------------------------------------------------------ */

enum { RP_CLIP, RP_ZERO }; /* rp_attention.beyond; "raise" is checked before the call */
enum { RP_MASK_NONE, RP_MASK_BOOL, RP_MASK_F32, RP_MASK_F64 };

#define RP_UNBOUNDED INT64_MAX
/* The largest |query_offset|, |first| and place in a whole: sums of three, with the lengths of
 * arrays, do not overflow. */
#define RP_FARTHEST ((INT64_C(1) << 60) - 1)
/* The largest side of a window: beyond any relative position of queries and keys that lie as
 * far from each other as they may. */
#define RP_WIDEST (2 * RP_FARTHEST)
/* The largest B, H, Lq, Lk, D, Dv and Dp, and the most rows of a table: nobody has the memory
 * for more, and products of a length with the size of a number do not overflow. */
#define RP_LONGEST (INT64_C(1) << 40)
/* The largest B * H * Lq: each row of a result lies in memory of its own. */
#define RP_MOST_ROWS (INT64_C(1) << 60)

/* A table of positions: `rows` rows, whose row 0 is that of relative position `first`. With an
 * index row l is row index[l] of the array, which has `listed` of them, 1 or more; else row l. */
typedef struct {
    rp_array array; /* (B, H, rows or listed, columns) */
    int64_t rows, first;
    const int64_t *index; /* (rows): 0 to listed - 1; NULL: none. Not with labels */
    int64_t listed;
} rp_table;

/* Where queries stand, and which pairs may attend to each other. */
typedef struct {
    /* (B,), NULL: 0 and Lk. At most RP_FARTHEST away from 0; 0 to Lk. */
    const int64_t *query_offset, *key_lengths;
    /* r outside [-left, right] is hidden. left: 0 to RP_WIDEST; right: -left, or without a
     * left side -RP_FARTHEST, to RP_WIDEST; either may be RP_UNBOUNDED. */
    int64_t window_left, window_right;
    /* (B, 1, Lq, 2), int64: query i sees only keys in [begin, end). Any numbers: sight.h cuts
     * them to the keys that there are. */
    rp_array key_ranges;
    rp_array mask; /* (B, H, Lq, Lk) */
    int mask_type;
    /* (B, H / block_heads, ceil(Lq / block_queries), ceil(Lk / block_keys)), bool: pair (i, j)
     * of head h is hidden where entry (h / block_heads, i / block_queries, j / block_keys) is 0.
     * The divisors are 1 to RP_LONGEST, and block_heads divides H. */
    rp_array key_blocks;
    int64_t block_heads, block_queries, block_keys;
} rp_sight;

enum { RP_MOST_LABELS = 8 };

/* Integers of `size` bytes (1, 2, 4 or 8), (B, 1, Lq, Lk). Any numbers: one that is no row of a table is none. */
typedef struct {
    rp_array array;
    int size;
} rp_label_array;

/* Table rows of a pair in place of that of its relative position: one by each of `count`
 * arrays, whose sum it has. */
typedef struct {
    rp_label_array of[RP_MOST_LABELS];
    int count;
} rp_labels;

/* The keys that each query attends to, `count` of them for each batch item and group of heads:
 * head h reads row h / (H / groups). A negative number is no key; others are below Lk. */
typedef struct {
    rp_array keys, labels; /* (B, groups, Lq, count), int64; labels may be absent */
    int64_t groups, count; /* groups divide H */
} rp_picks;

typedef struct {
    double p; /* 0 to less than 1 */
    uint64_t seed;
} rp_dropout;

/* Where the problem is a part of a larger one, the whole. Dropout keeps those pairs that it
 * keeps of the whole, and keys are cut into chunks as the whole's are. */
typedef struct {
    int64_t query, key, head; /* places of its first there, 0 to RP_FARTHEST */
    const int64_t *items;     /* (B,): item b is this one of the whole; NULL: b */
    int64_t key_heads;        /* of the whole; 0: as many as here */
    int has_more_keys;        /* the whole's rows sum over other keys, too */
} rp_part;

/* FIRE's bias: slope * x + intercept of the last line with start <= x (the first if none),
 * x = offsets[j - i + Lq] * queries[i], all of them double. */
typedef struct {
    /* (B, 1, Lq + Lk, 1), (B, 1, Lq, 1), (B, H, ranges, 3): start, slope, intercept.
     * Offsets lie side by side, and are those of the item's own query_offset; lines are
     * those of item 0 for all, starts, which rise, those of its head 0. */
    rp_array offsets, queries, lines;
    int64_t ranges;
    /* x falls along a row where this is set; else it falls up to the query's own position
     * and rises after it. */
    int is_signed;
} rp_fire;

/* What a call writes: (B, H, Lq, Dv | Dv | 1 | 1 | 1 | Lk). All but out may be absent.
 * kept: an out of 16 bits before it is rounded, for a backward, whose out it is. */
typedef struct {
    rp_array out, kept, lse;
    /* A row's largest logit in units of log 2, and its sum_j 2^(logit - largest). What the
     * backward starts from: lse, rounded to float32, would move all probabilities of a row
     * by more than the rest of its error. */
    rp_array row_max, row_sum;
    rp_array weights;
} rp_results;

/* Arrays that are read may have any strides, 0 among them, and lie over each other, but for
 * fire.offsets. No item of a result lies where another item of it does, unless it is one sum
 * (rp_gradients), or where anything is read. */

/* The whole problem, one formula for every scheme (relpos/reference/formula.py).
 *   s_ij  = cap(scale * ((q_i + u).k_j + (q_i + v).A[l] + k_j.C[l]))
 *           + b[l] + fire_ij + decay_ij + mask_ij
 *   out_i = sum_j softmax_j(s_i)_j * z_ij * (v_j + W[l])
 * With a position query e, (e_i + v).A[l] takes the place of scale * (q_i + v).A[l].
 * query, key, value, position_query, the tables but rel_bias, and a mask of numbers may be of
 * 16 bits each where the problem is one of float32; so may out, but not kept.
 * cap(x) = softcap * tanh(x / softcap) where there is one, else x.
 * sinks: one more logit of each row's softmax, without a value.
 * l = clip(r - first, 0, rows - 1), r = j - (i + query_offset[b]), or index[l], or labels;
 * decay_ij = sum of log_decay[t], t = j + 1 .. i + query_offset[b], t < log_decay.rows. */
typedef struct {
    int64_t B, H, Hk, Lq, Lk, D, Dv, Dp;
    rp_array query, key, value;             /* (B, H|Hk, Lq|Lk, D|Dv) */
    double scale, softcap;                  /* 0: no cap */
    rp_table rel_key, rel_query, rel_value; /* of Dp, D, Dv columns; one `first` */
    rp_array pos_bias_u, pos_bias_v;        /* (B, H, 1, D | Dp) */
    rp_array position_query;                /* (B, H, Lq, Dp); absent: Dp = D */
    rp_table rel_bias;                      /* of one column */
    rp_array sinks; /* (B, H, Lq, 1): a logit of each row that no key has; -inf: none */
    rp_table log_decay; /* of one column, Lk rows or more, the first key's and those of
                           positions after it; finite; pairs with r > 0 are hidden */
    rp_labels labels;
    rp_picks picks; /* only for attention along edges, which takes the problem over */
    int beyond;
    rp_fire fire;
    rp_sight sight;
    rp_dropout dropout;
    rp_part part;
    rp_results results;
    int weigh_all; /* tiles in which every weight is 0, too: the bits are the same */
    int threads;   /* 1 to RP_MAX_THREADS */
} rp_attention;

/* The largest length of a problem, which is at most RP_LONGEST. */
static inline int64_t
rp_longest(const rp_attention *p)
{
    const int64_t lengths[] = {p->B,
                               p->H,
                               p->Lq,
                               p->Lk,
                               p->D,
                               p->Dv,
                               p->Dp,
                               p->rel_key.rows,
                               p->rel_query.rows,
                               p->rel_value.rows,
                               p->rel_bias.rows,
                               p->rel_key.listed,
                               p->rel_query.listed,
                               p->rel_value.listed,
                               p->rel_bias.listed,
                               p->log_decay.rows,
                               p->picks.count};
    int64_t longest = 0;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        longest = lengths[i] > longest ? lengths[i] : longest;
    return longest;
}

/* Gradients of the same problem: sum(grad_out * out) + sum(grad_lse * lse) with respect to
 * every operand whose gradient array is present. out, row_max and row_sum are inputs; kept,
 * lse and weights are absent. There are queries, and keys unless grad_sinks is wanted.
 * grad_out may be of 16 bits, and without labels the gradients that are written may.
 * Arrays have the shape of their operand. grad_query, grad_key, grad_value and
 * grad_position_query are written, those of key and value as sums over the heads of a group;
 * the others are added to, those of tables, u and v along every axis on which their array has
 * stride 0 (that is how a table that heads or batch items share gets one gradient). Along the
 * batch either all items have the same gradient or each has its own, and those of sinks,
 * log_decay and FIRE's lines are each head's own: units that add to one at the same time would
 * lose terms. */
typedef struct {
    rp_attention forward;
    rp_array grad_out, grad_lse; /* (B, H, Lq, Dv | 1); either may be absent */
    rp_array grad_query, grad_key, grad_value;
    rp_array grad_mask; /* (B, H, Lq, Lk), of the problem's dtype */
    rp_array grad_rel_key, grad_rel_query, grad_rel_value, grad_rel_bias;
    rp_array grad_pos_bias_u, grad_pos_bias_v, grad_position_query, grad_sinks;
    rp_array grad_log_decay;
    /* Derivatives, in double, of fire.offsets by c and of fire.queries by (c, threshold);
     * (B, H, ranges + 1, 2): sums of dS and of dS x by range, which are the gradients of
     * intercepts and slopes, and in the last row those of c and threshold. Slopes differ by
     * batch item only where query_offset, or fire.offsets or fire.queries, do. */
    rp_array fire_offset_slopes, fire_query_slopes, grad_fire;
} rp_gradients;

/* ---- attention along the edges of a graph --------------------------------------------- */

/* Query i attends to the keys indices[e] with indptr[i] <= e < indptr[i + 1] (checked
 * before the call), under the label labels[e], which is a row of the tables (none where it
 * is outside, or labels are absent). Or it attends to its picks, as many edges of every query,
 * of which each batch item and group of heads has others.
 *   s_e = scale * q_i.(k_j + A[l])      out_i = sum_e softmax_e(s)_e * (v_j + W[l])
 * With a position query e, e_i.A[l] takes the place of scale * q_i.A[l]. */
typedef struct {
    int64_t B, H, Hk, Lq, Lk, D, Dv, Dp;
    rp_array query, key, value; /* (B, H|Hk, Lq|Lk, D|Dv) */
    double scale, softcap;
    rp_table rel_key, rel_value; /* of Dp, Dv columns; `first` is not used */
    rp_array position_query;     /* (B, H, Lq, Dp); absent: Dp = D */
    rp_array sinks;              /* (B, H, Lq, 1) */
    int64_t
        edges; /* of each head: 0 to RP_LONGEST; Lq * picks.count where there are picks */
    const int64_t *indptr, *indices, *labels; /* NULL where there are picks */
    rp_picks picks;                           /* of no keys: absent */
    rp_results results;                       /* no weights */
    int threads;                              /* 1 to RP_MAX_THREADS */
} rp_graph;

/* As rp_gradients, but that grad_key and grad_value are added to; grad_query and
 * grad_position_query are not written where a query has no edges. */
typedef struct {
    rp_graph forward;
    rp_array grad_out, grad_lse;
    rp_array grad_query, grad_key, grad_value, grad_rel_key, grad_rel_value;
    rp_array grad_position_query, grad_sinks;
} rp_graph_gradients;

/* The problem along edges that has the operands of a problem of attention; its edges are still
 * to be set. */
static inline rp_graph_gradients
rp_along_edges(const rp_gradients *g)
{
    const rp_attention *p = &g->forward;
    return (rp_graph_gradients){.forward = {.B = p->B,
                                            .H = p->H,
                                            .Hk = p->Hk,
                                            .Lq = p->Lq,
                                            .Lk = p->Lk,
                                            .D = p->D,
                                            .Dv = p->Dv,
                                            .Dp = p->Dp,
                                            .query = p->query,
                                            .key = p->key,
                                            .value = p->value,
                                            .scale = p->scale,
                                            .softcap = p->softcap,
                                            .rel_key = p->rel_key,
                                            .rel_value = p->rel_value,
                                            .position_query = p->position_query,
                                            .sinks = p->sinks,
                                            .picks = p->picks,
                                            .results = p->results,
                                            .threads = p->threads},
                                .grad_out = g->grad_out,
                                .grad_lse = g->grad_lse,
                                .grad_query = g->grad_query,
                                .grad_key = g->grad_key,
                                .grad_value = g->grad_value,
                                .grad_rel_key = g->grad_rel_key,
                                .grad_rel_value = g->grad_rel_value,
                                .grad_position_query = g->grad_position_query,
                                .grad_sinks = g->grad_sinks};
}

/* ---- the keys that an indexer picks --------------------------------------------------- */

/* s_ij = sum over h of weights[h, i] * max(0, q_hi . k_j), plus a mask of numbers. Of the keys
 * that query i sees, the `picked` of the largest scores are written, by falling score: the
 * smaller key first among equals, NaN after all numbers, and -1 where there are no more. */
typedef struct {
    int64_t B, H, Lq, Lk, D; /* Lk: at most INT32_MAX */
    int64_t picked;          /* 0 to Lk */
    rp_array query, key; /* (B, H, Lq, D), (B, 1, Lk, D), of 16 bits, too, as weights */
    rp_array weights;    /* (B, H, Lq, 1) */
    rp_array ranges;     /* (B, 1, Lq, 2), int64: as key_ranges, any numbers */
    rp_array mask;       /* (B, 1, Lq, Lk) */
    int mask_type;
    rp_array keys; /* (B, 1, Lq, picked), int32 */
    int threads;   /* 1 to RP_MAX_THREADS */
} rp_indexer;

/* ---- rotary ---------------------------------------------------------------------------- */

/* (a, b) -> m * (a cos t - b sin t, b cos t + a sin t), t = position * (high + low), for
 * h pairs of columns of N items of L rows: (c, h + c) or, interleaved, (2c, 2c + 1).
 * Columns from 2h on are copied. */
typedef struct {
    int64_t N, L, D, h; /* 2h is at most D */
    int interleaved;
    rp_array x, out; /* (N, 1, L, D), of one kind; out may be x */
    rp_array position, high, low, magnitude; /* (N, 1, L, 1 | h), all of double */
    int threads;
} rp_rotary;

#endif
