/* attention_scores.h: the logits of one tile, in units of log 2:
 *   s = log2e * (scale * ((q + u).k + (q + v).A[l] + k.C[l]) + b[l] + fire + mask).
 *
 * The band. A tile of BQ x BK pairs (BK = plan->key_tile) touches BQ + BK - 1 consecutive
 * relative positions. The buffer first holds Q_rel . A_band' with row length lds = BK + BQ,
 * column c = n - m + BQ - 1 for query m and key n of the tile. The content product is then
 * added into the same memory seen from BQ - 1 on with row length lds - 1, in which row m
 * begins at column BQ - 1 - m: the skew costs nothing. The last BQ band columns of a tile
 * are the first of the next one and are saved before the content is added. */
#ifndef RELPOS_ATTENTION_TILES_SCORES_H
#define RELPOS_ATTENTION_TILES_SCORES_H

#include "plan.h"

/* One tile of queries, and what it accumulates over its key tiles. */
typedef struct {
    int64_t b, h, i0;
    int rows, rows_pad;    /* valid rows, and rounded up to whole micro-tiles */
    int64_t begin, end;    /* keys that any of its rows may see */
    int64_t saved_column;  /* w of the first saved band column; -1: none */
    T *content, *relative; /* packed (q + u) and (q + v), times scale * log2e */
    T *saved;           /* (BQ, BQ): band columns for the next key tile; NULL: none */
    T *out, *max, *sum; /* running sum_j p_j v_j, maximum and sum_j p_j of each row */
    T *key_dots;        /* (BQ, rows of rel_key): (q + v).A, paths ROWS and LABELS */
    T *value_sums;      /* (BQ, rows of rel_value): sum of p by table row, likewise */
} queries_t;

/* One worker's buffers. */
typedef struct {
    T *scores;   /* (BQ, lds) */
    T *lane_max; /* (BQ, VL): running maxima of a tile's rows; NULL: not wanted */
    T *bias;     /* (lds): rel_bias over the band of a tile */
    T *row;      /* max(D, Dv): a gathered row */
    T *keys;     /* (MR, D) then (MR, BQ + MR + 2 NR): rel_query's operands */
    queries_t *queries;
} scratch_t;

/* The part of a key tile that one query tile works on. */
typedef struct {
    int64_t j0;        /* first key */
    int keys, columns; /* visible keys, and rounded up to whole panels */
    int64_t w0;        /* first band column */
    T *s;              /* logits, then probabilities: row m at s + m * ld */
    ptrdiff_t ld;
    int finished; /* 1: some pair of the tile may be hidden */
} tile_t;

RP_INLINE int64_t
position_of(const plan_t *plan, const queries_t *q, const tile_t *t, int64_t m,
            int64_t n)
{
    return t->j0 + n - (q->i0 + m + rp_query_offset(plan->p, q->b));
}

/* ---- the rel_key term, before the content is added ---------------------------- */

static void
fill_band(const plan_t *plan, scratch_t *w, queries_t *q, const tile_t *t)
{
    const rp_attention *p = plan->p;
    const T *table = copy_of(&plan->rel_key, q->b, q->h) - plan->band_first * p->D;
    int64_t end = RP_MIN(t->columns + BQ, plan->band_end - t->w0), first = 0;
    if (q->saved_column == t->w0) {
        for (int m = 0; m < q->rows_pad; m++)
            memcpy(w->scores + m * plan->lds, q->saved + m * BQ, BQ * sizeof(T));
        first = BQ;
    }
    if (end > first)
        gemm_set(q->relative, plan->D_pad, table + (t->w0 + first) * p->D, q->rows_pad,
                 end - first, p->D, p->D, w->scores + first, plan->lds);
    q->saved_column = t->w0 + plan->key_tile;
    if (q->saved && end == plan->lds && t->j0 + plan->key_tile < q->end)
        for (int m = 0; m < q->rows_pad; m++)
            memcpy(q->saved + m * BQ, w->scores + m * plan->lds + plan->key_tile,
                   BQ * sizeof(T));
    else
        q->saved_column = -1;
}

/* The keys of row m of a tile by where they fall on a table of `rows` rows: key n has row
 * `row + n` for n in [inside, past), keys before and after lie beyond its ends. */
typedef struct {
    int64_t row, inside, past;
} runs_t;

RP_INLINE
runs_t
runs_of(const plan_t *plan, const queries_t *q, const tile_t *t, int m, int64_t rows,
        int64_t count)
{
    runs_t runs = {position_of(plan, q, t, m, 0) - plan->p->min_position, 0, 0};
    runs.inside = RP_MIN(count, RP_MAX(0, -runs.row));
    runs.past = RP_MIN(count, RP_MAX(0, rows - runs.row));
    return runs;
}

/* s[m, n] = dots[m, table row of the pair], by clipping. */
static void
fill_clipped(const plan_t *plan, const queries_t *q, const tile_t *t, T *s,
             const T *dots, ptrdiff_t stride, int64_t rows)
{
    int clip = plan->p->beyond == RP_CLIP;
    for (int m = 0; m < q->rows; m++, s += t->ld, dots += stride) {
        runs_t runs = runs_of(plan, q, t, m, rows, t->columns);
        T before = clip ? dots[0] : 0, after = clip ? dots[rows - 1] : 0;
        int64_t n = 0;
        for (; n < runs.inside; n++)
            s[n] = before;
        for (; n < runs.past; n++)
            s[n] = dots[runs.row + n];
        for (; n < t->columns; n++)
            s[n] = after;
    }
}

/* The same by label. */
static void
fill_labels(const plan_t *plan, const queries_t *q, const tile_t *t, T *s,
            const T *dots, ptrdiff_t stride, int64_t rows)
{
    const rp_attention *p = plan->p;
    for (int m = 0; m < q->rows; m++, s += t->ld, dots += stride) {
        const char *label =
            rp_at(&p->labels, q->b, 0, q->i0 + m) + t->j0 * p->labels.col;
        for (int n = 0; n < t->columns; n++, label += p->labels.col) {
            int64_t l = n < t->keys ? rp_label(label, p->label_size, rows) : -1;
            s[n] = l < 0 ? 0 : dots[l];
        }
    }
}

/* Spreads the products of queries and table rows over the tile at s and returns NULL; or
 * returns the one value that they have in each row of the tile, a row's `*step` from the
 * next (ROWS, all keys on one side of the table). */
static const T *
fill_dots(const plan_t *plan, const queries_t *q, const tile_t *t, T *s, const T *dots,
          ptrdiff_t stride, int64_t rows, ptrdiff_t *step)
{
    static const T zero = 0;
    const rp_attention *p = plan->p;
    if (p->labels.data)
        return fill_labels(plan, q, t, s, dots, stride, rows), NULL;
    int before = position_of(plan, q, t, 0, t->columns - 1) < p->min_position;
    int after = position_of(plan, q, t, q->rows - 1, 0) >= p->min_position + rows;
    if (!before && !after)
        return fill_clipped(plan, q, t, s, dots, stride, rows), NULL;
    *step = p->beyond == RP_ZERO ? 0 : stride;
    return p->beyond == RP_ZERO ? &zero : dots + (before ? 0 : rows - 1);
}

/* Fills the tile with the rel_key term, or with FIRE's bias where that is the only one,
 * and returns NULL, or the term's value in each row. */
static const T *
fill_positions(const plan_t *plan, scratch_t *w, queries_t *q, const tile_t *t,
               ptrdiff_t *step)
{
    static const T zero = 0;
    *step = 0;
    for (int m = 0; plan->fire_first && m < q->rows; m++)
        fill_fire_row(&plan->fire, q->b, q->h, q->i0 + m, t->j0, t->columns,
                      t->s + m * t->ld);
    if (plan->fire_first)
        return NULL;
    if (plan->use_key == RP_ABSENT)
        return &zero;
    if (plan->use_key == RP_BAND)
        return fill_band(plan, w, q, t), NULL;
    return fill_dots(plan, q, t, t->s, q->key_dots, plan->key_stride, plan->p->key_rows,
                     step);
}

/* ---- content ------------------------------------------------------------------- */

/* HR rows of a (row length lda) times a panel, TERM_BLOCK terms at a time, plus what c holds
 * or, unless that is NULL, plus constant; row maxima into row_max, unless that is NULL. */
RP_INLINE void
add_panel(const T *a, ptrdiff_t lda, const T *panel, ptrdiff_t depth, rp_ahead ahead,
          T *c, ptrdiff_t ldc, const T *constant, ptrdiff_t step, T *row_max)
{
    for (ptrdiff_t k = 0; k == 0 || k < depth; k += TERM_BLOCK) {
        const T *b = panel + k * NR, *first = k == 0 ? constant : NULL;
        ptrdiff_t terms = RP_MIN(depth - k, TERM_BLOCK);
        T *top = k + terms >= depth ? row_max : NULL;
        if (first && top)
            tile_offset_max(a + k, lda, b, terms, ahead, c, ldc, first, step, top);
        else if (first)
            tile_offset(a + k, lda, b, terms, ahead, c, ldc, first, step);
        else if (top)
            tile_add_max(a + k, lda, b, terms, ahead, c, ldc, top);
        else
            tile_add(a + k, lda, b, terms, ahead, c, ldc);
        ahead.at += (uintptr_t)(TERM_BLOCK / 2 * ahead.step);
    }
}

/* s = left . panels plus what s holds or constant, with row maxima in lane_max, as above.
 * The micro-tiles of a panel ask for the panel that comes next, a share each; or, where
 * there is `later`, its first half does, and the others for BQ rows of lda at one of those
 * addresses. */
static void
add_product(const queries_t *q, const tile_t *t, T *s, const T *left, ptrdiff_t lda,
            const T *panels, ptrdiff_t depth, const T *constant, ptrdiff_t step,
            T *lane_max, const uintptr_t *later)
{
    const ptrdiff_t size = sizeof(T), tiles = q->rows_pad / HR;
    for (int i = 0; lane_max && i < q->rows_pad * VL; i++)
        lane_max[i] = -(T)INFINITY;
    for (ptrdiff_t n = 0; n < t->columns; n += NR) {
        const T *panel = panels + (t->j0 + n) * depth;
        uintptr_t other = later && n / NR < RP_LATER ? later[n / NR] : 0;
        ptrdiff_t shares = other ? tiles / 2 : tiles;
        rp_ahead next = {(uintptr_t)(panel + NR * depth), 2 * NR * size / shares};
        rp_ahead rest = {other, 2 * BQ * size / shares};
        for (ptrdiff_t m = 0; m < q->rows_pad; m += HR) {
            rp_ahead *turn = other && m / HR >= shares ? &rest : &next;
            add_panel(left + m * lda, lda, panel, depth, *turn, s + m * t->ld + n,
                      t->ld, constant ? constant + m * step : NULL, step,
                      lane_max ? lane_max + m * VL : NULL);
            turn->at += (uintptr_t)(depth / 2 * turn->step);
        }
    }
}

/* ---- rel_query: MR keys at a time against the table rows they meet ---------------- */

static void
add_rel_query(const plan_t *plan, scratch_t *w, const queries_t *q, const tile_t *t)
{
    const rp_attention *p = plan->p;
    const T *table = copy_of(&plan->rel_query, q->b, q->h) - plan->band_first * p->D;
    T *dots = w->keys + MR * plan->D_pad;
    enum { WIDTH = BQ + MR + 2 * NR };
    for (int n0 = 0; n0 < t->keys; n0 += MR) {
        int valid = RP_MIN(MR, t->keys - n0), first = n0 / NR * NR;
        int64_t end = RP_MIN(RP_ROUND_UP(n0 + MR + BQ, NR), plan->band_end - t->w0);
        for (int n = 0; n < MR; n++)
            pack_row(w->keys + n * plan->D_pad,
                     n < valid
                         ? rp_at(&p->key, q->b, q->h / plan->group, t->j0 + n0 + n)
                         : NULL,
                     p->key.col, p->D, plan->D_pad);
        gemm_set(w->keys, plan->D_pad, table + (t->w0 + first) * p->D, MR, end - first,
                 p->D, p->D, dots, WIDTH);
        for (int m = 0; m < q->rows; m++)
            for (int n = 0; n < valid; n++) {
                int c = n0 + n - m + BQ - 1 - first;
                if (c < end - first)
                    t->s[m * t->ld + n0 + n] += dots[n * WIDTH + c];
            }
    }
}

/* ---- bias, mask, hidden pairs ------------------------------------------------------ */

RP_INLINE T
bias_of_row(const rp_attention *p, int64_t b, int64_t h, int64_t row)
{
    return row < 0 ? 0 : log2_units(*(const T *)rp_at(&p->rel_bias, b, h, row));
}

static void
bias_band(const plan_t *plan, scratch_t *w, const queries_t *q, const tile_t *t)
{
    const rp_attention *p = plan->p;
    int64_t r0 = position_of(plan, q, t, BQ - 1, 0);
    for (int c = 0; c < t->columns + BQ - 1; c++)
        w->bias[c] = bias_of_row(
            p, q->b, q->h,
            rp_table_row(r0 + c, p->min_bias_position, p->bias_rows, p->beyond));
}

static void
add_bias_row(const rp_attention *p, const scratch_t *w, const queries_t *q,
             const tile_t *t, int m)
{
    T *s = t->s + m * t->ld;
    if (!p->labels.data) {
        const T *bias = w->bias + BQ - 1 - m;
        for (int n = 0; n < t->columns; n++)
            s[n] = add_or_hide(s[n], bias[n]);
        return;
    }
    const char *label = rp_at(&p->labels, q->b, 0, q->i0 + m) + t->j0 * p->labels.col;
    for (int n = 0; n < t->keys; n++, label += p->labels.col)
        s[n] = add_or_hide(
            s[n],
            bias_of_row(p, q->b, q->h, rp_label(label, p->label_size, p->bias_rows)));
}

static void
add_mask_row(const rp_attention *p, const char *mask, int count, T *s)
{
    if (p->mask_type == RP_MASK_BOOL)
        for (int n = 0; n < count; n++, mask += p->mask.col)
            s[n] = *(const unsigned char *)mask ? s[n] : -(T)INFINITY;
    else if (p->mask_type == RP_MASK_F32)
        for (int n = 0; n < count; n++, mask += p->mask.col) {
            T x = log2_units(*(const float *)mask);
            s[n] = add_or_hide(s[n], x);
        }
    else
        for (int n = 0; n < count; n++, mask += p->mask.col) {
            T x = log2_units(*(const double *)mask);
            s[n] = add_or_hide(s[n], x);
        }
}

RP_INLINE void
hide(T *s, int64_t first, int64_t end)
{
    for (int64_t n = first; n < end; n++)
        s[n] = -(T)INFINITY;
}

/* Bias, mask and visibility of one row, and its maximum anew. */
static void
finish_row(const plan_t *plan, scratch_t *w, const queries_t *q, const tile_t *t, int m)
{
    const rp_attention *p = plan->p;
    rp_interval visible = rp_visible(p, q->b, q->i0 + m);
    T *s = t->s + m * t->ld;
    if (p->rel_bias.data)
        add_bias_row(p, w, q, t, m);
    if (p->fire_lines.data && !plan->fire_first)
        add_fire_row(&plan->fire, q->b, q->h, q->i0 + m, t->j0, t->columns, s);
    if (p->mask_type != RP_MASK_NONE)
        add_mask_row(p, rp_at(&p->mask, q->b, q->h, q->i0 + m) + t->j0 * p->mask.col,
                     t->keys, s);
    hide(s, 0, RP_MIN(t->columns, visible.begin - t->j0));
    hide(s, RP_MAX(0, visible.end - t->j0), t->columns);
    if (!w->lane_max)
        return;
    V top = load(s);
    for (int n = VL; n < t->columns; n += VL)
        top = vmax(load(s + n), top);
    store(w->lane_max + m * VL, top);
}

static void
copy_logits(const rp_attention *p, const queries_t *q, const tile_t *t)
{
    for (int m = 0; m < q->rows; m++) {
        char *at = rp_at(&p->weights, q->b, q->h, q->i0 + m) + t->j0 * p->weights.col;
        for (int n = 0; n < t->keys; n++, at += p->weights.col)
            *(T *)at = t->s[m * t->ld + n];
    }
}

/* The whole tile: logits in t->s, row maxima, where wanted, in w->lane_max. */
static void
score_tile(const plan_t *plan, scratch_t *w, queries_t *q, tile_t *t, const T *keys)
{
    const rp_attention *p = plan->p;
    ptrdiff_t step;
    const T *constant = fill_positions(plan, w, q, t, &step);
    add_product(q, t, t->s, q->content, plan->D_pad, keys, p->D, constant, step,
                w->lane_max, NULL);
    if (plan->use_query != RP_ABSENT)
        add_rel_query(plan, w, q, t);
    t->finished = p->rel_bias.data || p->mask_type != RP_MASK_NONE || plan->use_query ||
                  (p->fire_lines.data && !plan->fire_first) ||
                  rp_visible(p, q->b, q->i0 + q->rows - 1).begin > t->j0 ||
                  rp_visible(p, q->b, q->i0).end < t->j0 + t->columns;
    if (t->finished) {
        if (p->rel_bias.data && !p->labels.data)
            bias_band(plan, w, q, t);
        for (int m = 0; m < q->rows; m++)
            finish_row(plan, w, q, t, m);
    }
    if (p->weights.data)
        copy_logits(p, q, t);
}

#endif
