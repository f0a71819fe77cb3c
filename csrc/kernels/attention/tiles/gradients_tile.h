/* gradients_tile.h: one tile of the backward.
 *
 * The logits are made again as in the forward. Beside them a second buffer of the same
 * shape takes dP = grad_out . (v + W)', by the same two products, and is overwritten by
 *   dS = p * (z * dP - delta),   z the dropout factor.
 * With zeros in the cells outside the skewed rows, either buffer read with its plain row
 * length is the band matrix, so the table gradients are plain products too. */
#ifndef RELPOS_ATTENTION_TILES_GRADIENTS_TILE_H
#define RELPOS_ATTENTION_TILES_GRADIENTS_TILE_H

#include "gradients_plan.h"

/* One worker's buffers. */
typedef struct {
    scratch_t forward;   /* scores: logits, then probabilities times z */
    T *grads;            /* (BQ, lds): dP, then dS */
    T *grad_key;         /* (chunk_keys + MR, D_pad) */
    T *grad_value;       /* (chunk_keys + MR, Dv_pad) */
    T *key_sums;         /* (Lq_pad, key_stride): dS by table row, ROWS and LABELS */
    T *value_sums;       /* (Lq_pad, value_stride): p z by table row */
    double *offset_sums; /* (chunk_keys + Lq_pad): dS by band column of the chunk */
    double *column_sums; /* (chunk_keys): dS by key of the chunk */
    double *row;         /* (D_pad): a sum of table or key rows */
    T *tile_sums;        /* (lds + VL): either of them over one tile */
    T *corner;           /* (MR, BQ + MR): dS of MR keys, by table row */
    int clean[2]; /* columns up to which scores, grads have clean cells; -1: dirty */
} worker_t;

/* The tile in work, beside the forward's. */
typedef struct {
    const head_t *head;
    queries_t q;
    tile_t t;
    int64_t index, chunk; /* of the head in the wave; of the unit */
    T *grad_query;        /* partial sums: row 0 of the head */
    const T *keys;        /* rows */
    ptrdiff_t key_stride; /* of them */
    T *d;                 /* dS: row m at d + m * t.ld */
    int selected;         /* 1: products must skip zeros */
} step_t;

/* What the next query tile reads first, BQ rows each: fetched while dP is made, as a pass
 * over the queries leaves the second-level cache behind. */
static void
next_operands(const gradients_t *gp, const step_t *x, uintptr_t later[RP_LATER])
{
    const plan_t *plan = &gp->plan;
    const head_t *head = x->head;
    int64_t i1 = x->q.i0 + BQ, w1 = x->t.w0 - BQ, n = 0;
    if (i1 >= plan->p->Lq)
        return;
    later[n++] = (uintptr_t)(head->rows_u + i1 * plan->D_pad);
    later[n++] = (uintptr_t)(head->grad_rows + i1 * plan->Dv_pad);
    if (x->grad_query)
        later[n++] = (uintptr_t)(x->grad_query + i1 * plan->D_pad);
    if (head->rows_v != head->rows_u)
        later[n++] = (uintptr_t)(head->rows_v + i1 * plan->D_pad);
    if (plan->use_key != RP_BAND || w1 < plan->band_first)
        return;
    T *sums = partial_of(gp, RP_GRAD_KEY, x->index, x->chunk);
    int64_t row = w1 - plan->band_first;
    later[n++] =
        (uintptr_t)(copy_of(&plan->rel_key, x->q.b, x->q.h) + row * plan->p->D);
    later[n++] =
        (uintptr_t)(copy_of(&gp->key_rows, x->q.b, x->q.h) + row * plan->D_pad);
    if (sums)
        later[n++] = (uintptr_t)(sums + (w1 - x->chunk * gp->chunk_keys) * plan->D_pad);
}

/* ---- dP ------------------------------------------------------------------------------- */

static void
fill_grads(const gradients_t *gp, worker_t *w, const step_t *x, const T *values)
{
    static const T zero = 0;
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    const T *left = x->head->grad_rows + x->q.i0 * plan->Dv_pad, *constant = &zero;
    uintptr_t later[RP_LATER] = {0};
    ptrdiff_t step = 0;
    if (plan->use_value == RP_BAND) {
        const T *table = copy_of(&gp->value_panels, x->q.b, x->q.h) +
                         (x->t.w0 - plan->band_first) * p->Dv;
        int64_t end = RP_MIN(x->t.columns + BQ, plan->band_end - x->t.w0);
        gemm_set(left, plan->Dv_pad, table, x->q.rows_pad, end, p->Dv, VALUE_BLOCK,
                 w->grads, plan->lds);
        constant = NULL;
    } else if (plan->use_value != RP_ABSENT) {
        ptrdiff_t stride = RP_ROUND_UP(p->value_rows, NR);
        constant =
            fill_dots(plan, &x->q, &x->t, x->d, x->head->value_dots + x->q.i0 * stride,
                      stride, p->value_rows, &step);
    }
    next_operands(gp, x, later);
    add_product(&x->q, &x->t, x->d, left, plan->Dv_pad, values, p->Dv, constant, step,
                NULL, later);
}

/* ---- dS ------------------------------------------------------------------------------- */

/* Not while gp->ends is NULL. */
RP_INLINE
row_ends_t *
ends_of(const gradients_t *gp, int64_t index, int64_t chunk)
{
    return gp->ends + (index * gp->chunks + chunk) * gp->plan.Lq_pad;
}

/* Adds row m of a tile to the sums that gradients_ends.h corrects by. */
static void
sum_ends(const gradients_t *gp, const step_t *x, int m, const V sums[2])
{
    row_ends_t *row = ends_of(gp, x->index, x->chunk) + x->q.i0 + m;
    const tile_t *t = &x->t;
    const T *s = t->s + m * t->ld;
    runs_t runs = runs_of(&gp->plan, &x->q, t, m, gp->plan.p->key_rows, t->keys);
    row->grad += sum_lanes(sums[0])[0];
    if (runs.inside == t->keys)
        row->share[0] += sum_lanes(sums[1])[0];
    else if (runs.past == 0)
        row->share[1] += sum_lanes(sums[1])[0];
    else {
        row->share[0] += sum_run(s, 0, runs.inside);
        row->share[1] += sum_run(s, runs.past, t->keys);
    }
}

/* One row: logits -> p, dP -> dS, and the sums of dS and p. A hidden pair has p = 0 and
 * dS = 0 whatever dP is. */
RP_INLINE void
grad_row(T *s, T *d, int columns, T max, T norm, T delta, const int hidden, V sums[2])
{
    V sum = (V){0}, share = (V){0};
    for (int n = 0; n < columns; n += VL) {
        V p = vexp2(load(s + n) - max) * norm;
        V ds = p * (load(d + n) - delta);
        if (hidden)
            ds = (V)((VI)ds & ~(VI)(p == 0));
        store(s + n, p);
        store(d + n, ds);
        sum += ds;
        share += p;
    }
    sums[0] = sum;
    sums[1] = share;
}

static void
scale_by_dropout(T *row, const unsigned char *keep, int count, T factor)
{
    for (int n = 0; n < count; n++)
        row[n] = keep[n] ? row[n] * factor : 0;
}

/* Logits and dP of the tile -> p z and dS. */
static void
grad_tile(const gradients_t *gp, const step_t *x)
{
    const rp_attention *p = gp->plan.p;
    V sums[2];
    unsigned char keep[RP_GRAD_TILE];
    const T kept = (T)(1 / (1 - p->dropout_p));
    for (int m = 0; m < x->q.rows_pad; m++) {
        T *s = x->t.s + m * x->t.ld, *d = x->d + m * x->t.ld;
        int64_t i = x->q.i0 + m;
        T max = x->head->max[i], norm = x->head->norm[i], delta = x->head->delta[i];
        if (norm == 0) { /* padding, or a row that saw no key */
            memset(s, 0, (size_t)x->t.columns * sizeof(T));
            memset(d, 0, (size_t)x->t.columns * sizeof(T));
            continue;
        }
        if (p->dropout_p > 0) {
            rp_dropout_kept(p, x->q.b, x->q.h, i, x->t.j0, x->t.keys, keep);
            scale_by_dropout(d, keep, x->t.keys, kept);
        }
        if (x->t.finished)
            grad_row(s, d, x->t.columns, max, norm, delta, 1, sums);
        else
            grad_row(s, d, x->t.columns, max, norm, delta, 0, sums);
        if (gp->ends)
            sum_ends(gp, x, m, sums);
        if (p->dropout_p > 0)
            scale_by_dropout(s, keep, x->t.keys, kept);
    }
}

/* Zeros the cells of a buffer outside the skewed rows. What a narrower tile left behind is
 * a band of garbage in the table gradients, so `clean` remembers how wide they are. */
static void
clear_corners(T *buffer, ptrdiff_t lds, const step_t *x, int *clean, int dirty)
{
    if (!dirty && *clean == x->t.columns)
        return;
    *clean = x->t.columns;
    for (int m = 0; m < BQ; m++) {
        T *row = buffer + m * lds;
        int first = BQ - 1 - m, end = first + (m < x->q.rows_pad ? x->t.columns : 0);
        memset(row, 0, (size_t)first * sizeof(T));
        memset(row + end, 0, (size_t)(lds - end) * sizeof(T));
    }
}

/* ---- products -------------------------------------------------------------------------- */

/* c += a . b or a' . b, skipping zeros of a where the other operand has NaN or infinity */
RP_INLINE void
add_rows(int selected, const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb,
         ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t depth, T *c, ptrdiff_t ldc)
{
    (selected ? gemm_add_rows_selected : gemm_add_rows)(a, lda, b, ldb, rows, columns,
                                                        depth, c, ldc);
}

RP_INLINE void
add_columns(int selected, const T *a, ptrdiff_t lda, const T *b, ptrdiff_t ldb,
            ptrdiff_t rows, ptrdiff_t columns, ptrdiff_t depth, T *c, ptrdiff_t ldc)
{
    (selected ? gemm_add_columns_selected : gemm_add_columns)(a, lda, b, ldb, rows,
                                                              columns, depth, c, ldc);
}

/* out = sum p z (v + W): grad_value and, over a band, grad of rel_value. */
static void
value_products(const gradients_t *gp, worker_t *w, const step_t *x)
{
    const plan_t *plan = &gp->plan;
    const ptrdiff_t width = plan->Dv_pad;
    const T *grad = x->head->grad_rows + x->q.i0 * width;
    int64_t row = x->t.j0 - x->chunk * gp->chunk_keys;
    if (gp->g->grad_value.data)
        add_columns(x->selected, x->t.s, x->t.ld, grad, width, x->t.keys, width,
                    x->q.rows, w->grad_value + row * width, width);
    T *sums = partial_of(gp, RP_GRAD_VALUE, x->index, x->chunk);
    if (!sums || plan->use_value != RP_BAND)
        return;
    clear_corners(w->forward.scores, plan->lds, x, &w->clean[0],
                  plan->use_key == RP_BAND || plan->fire_first);
    int64_t first = x->t.w0 - x->chunk * gp->chunk_keys;
    int64_t rows = RP_MIN(x->t.columns + BQ - 1, plan->band_end - x->t.w0);
    add_columns(x->selected, w->forward.scores, plan->lds, grad, width, rows, width,
                x->q.rows, sums + first * width, width);
}

/* s = scale * (q + u).k: grad_query and grad_key, both without the scale. */
static void
content_products(const gradients_t *gp, worker_t *w, const step_t *x, int keys_bad)
{
    const ptrdiff_t width = gp->plan.D_pad;
    int64_t row = x->t.j0 - x->chunk * gp->chunk_keys;
    if (x->grad_query)
        add_rows(keys_bad, x->d, x->t.ld, x->keys + x->t.j0 * x->key_stride,
                 x->key_stride, x->q.rows_pad, width, x->t.keys,
                 x->grad_query + x->q.i0 * width, width);
    if (gp->g->grad_key.data)
        add_columns(x->selected, x->d, x->t.ld, x->head->rows_u + x->q.i0 * width,
                    width, x->t.keys, width, x->q.rows, w->grad_key + row * width,
                    width);
}

/* s = scale * (q + v).A over a band: grad_query and grad of rel_key. */
static void
band_products(const gradients_t *gp, worker_t *w, const step_t *x)
{
    const plan_t *plan = &gp->plan;
    const ptrdiff_t width = plan->D_pad;
    const T *table =
        copy_of(&gp->key_rows, x->q.b, x->q.h) + (x->t.w0 - plan->band_first) * width;
    int64_t columns = RP_MIN(x->t.columns + BQ - 1, plan->band_end - x->t.w0);
    clear_corners(w->grads, plan->lds, x, &w->clean[1], plan->use_value == RP_BAND);
    if (x->grad_query)
        add_rows(gp->key_rows_bad, w->grads, plan->lds, table, width, x->q.rows_pad,
                 width, columns, x->grad_query + x->q.i0 * width, width);
    T *sums = partial_of(gp, RP_GRAD_KEY, x->index, x->chunk);
    int64_t first = x->t.w0 - x->chunk * gp->chunk_keys;
    if (sums)
        add_columns(x->selected, w->grads, plan->lds, x->head->rows_v + x->q.i0 * width,
                    width, columns, width, x->q.rows, sums + first * width, width);
}

/* s = scale * k.C: grad_key and grad of rel_query, MR keys at a time. */
static void
rel_query_products(const gradients_t *gp, worker_t *w, const step_t *x, int keys_bad)
{
    enum { WIDTH = BQ + MR };
    const plan_t *plan = &gp->plan;
    const ptrdiff_t width = plan->D_pad;
    const T *table =
        copy_of(&gp->query_rows, x->q.b, x->q.h) - plan->band_first * width;
    T *sums = partial_of(gp, RP_GRAD_QUERY, x->index, x->chunk);
    int64_t chunk_key = x->chunk * gp->chunk_keys;
    for (int n0 = 0; n0 < x->t.keys; n0 += MR) {
        int keys = RP_MIN(MR, x->t.keys - n0);
        /* no column beyond the last key's: the next chunk's sums begin there */
        int64_t w0 = x->t.w0 + n0, columns = RP_MIN(BQ + keys - 1, plan->band_end - w0);
        memset(w->corner, 0, MR * WIDTH * sizeof(T));
        for (int m = 0; m < x->q.rows; m++)
            for (int n = 0; n < keys; n++)
                w->corner[n * WIDTH + n - m + BQ - 1] = x->d[m * x->t.ld + n0 + n];
        T *grad_key = w->grad_key + (x->t.j0 + n0 - chunk_key) * width;
        if (gp->g->grad_key.data)
            add_rows(gp->key_rows_bad, w->corner, WIDTH, table + w0 * width, width, MR,
                     width, columns, grad_key, width);
        if (sums)
            add_columns(keys_bad, w->corner, WIDTH,
                        x->keys + (x->t.j0 + n0) * x->key_stride, x->key_stride,
                        columns, width, keys, sums + (w0 - chunk_key) * width, width);
    }
}

/* ---- sums by table row, of offsets, of keys ---------------------------------------------- */

/* sums[c] = sum over `rows` rows of column c, for whole vectors from c = 0 to `columns`:
 * the sums of a few vectors of columns stay in registers over the rows. */
static void
column_totals(const T *a, ptrdiff_t lda, int rows, int columns, T *sums)
{
    enum { GROUP = 6 };
    for (int c = 0; c < columns; c += GROUP * VL) {
        V acc[GROUP] = {{0}};
        int whole = RP_MIN(GROUP, (columns - c + VL - 1) / VL);
        for (int m = 0; m < rows; m++)
#pragma GCC unroll 6
            for (int g = 0; g < GROUP; g++)
                if (g < whole)
                    acc[g] += load(a + m * lda + c + g * VL);
        for (int g = 0; g < whole; g++)
            store(sums + c + g * VL, acc[g]);
    }
}

/* offset_sums[offset of the pair] += dS: the gradient of rel_bias, and of v over a band.
 * These sums are long, and cancel: T within a tile, double beyond. In a skewed buffer
 * they are the columns of the band matrix. */
static void
sum_offsets(const gradients_t *gp, worker_t *w, const step_t *x)
{
    int64_t first = x->t.w0 - x->chunk * gp->chunk_keys;
    int count = x->t.columns + BQ - 1;
    const plan_t *plan = &gp->plan;
    clear_corners(w->grads, plan->lds, x, &w->clean[1],
                  plan->use_value == RP_BAND && plan->use_key != RP_BAND);
    column_totals(w->grads, plan->lds, x->q.rows, count, w->tile_sums);
    for (int c = 0; c < count; c++)
        w->offset_sums[first + c] += w->tile_sums[c];
}

/* column_sums[key] += dS, for the gradient of u. */
static void
sum_columns(const gradients_t *gp, const worker_t *w, const step_t *x)
{
    double *sums = w->column_sums + x->t.j0 - x->chunk * gp->chunk_keys;
    column_totals(x->d, x->t.ld, x->q.rows, x->t.keys, w->tile_sums);
    for (int n = 0; n < x->t.keys; n++)
        sums[n] += w->tile_sums[n];
}

static void
sum_bias_labels(const rp_attention *p, const step_t *x, T *sums)
{
    for (int m = 0; m < x->q.rows; m++) {
        const char *label =
            rp_at(&p->labels, x->q.b, 0, x->q.i0 + m) + x->t.j0 * p->labels.col;
        for (int n = 0; n < x->t.keys; n++, label += p->labels.col) {
            int64_t l = rp_label(label, p->label_size, p->bias_rows);
            if (l >= 0)
                sums[l] += x->d[m * x->t.ld + n];
        }
    }
}

static void
sum_fire_tile(const gradients_t *gp, const step_t *x)
{
    double *sums = fire_sums_of(gp, x->index, x->chunk);
    for (int m = 0; sums && m < x->q.rows; m++)
        sum_fire_row(&gp->plan.fire, gp->g, x->q.b, x->q.h, x->q.i0 + m, x->t.j0,
                     x->t.columns, x->d + m * x->t.ld, sums);
}

static void
write_mask_grad(const rp_gradients *g, const step_t *x)
{
    for (int m = 0; m < x->q.rows; m++) {
        char *at = rp_at(&g->grad_mask, x->q.b, x->q.h, x->q.i0 + m) +
                   x->t.j0 * g->grad_mask.col;
        unpack_row(at, g->grad_mask.col, x->d + m * x->t.ld, x->t.keys);
    }
}

#endif
