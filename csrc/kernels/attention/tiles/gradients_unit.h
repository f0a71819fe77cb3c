/* gradients_unit.h: one unit of the backward: a key head and a chunk of its keys against
 * all queries that see them.
 *
 * Key tiles outside, query tiles inside: grad_key and grad_value of a tile stay in the
 * second-level cache while queries stream by, packed once per head. */
#ifndef RELPOS_ATTENTION_TILES_GRADIENTS_UNIT_H
#define RELPOS_ATTENTION_TILES_GRADIENTS_UNIT_H

#include "gradients_tile.h"

static size_t
lay_out_worker(const gradients_t *gp, char *memory, worker_t *w)
{
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    size_t used = 0;
#define TAKE(count) take(memory, &used, count, sizeof(T))
    w->forward = (scratch_t){.scores = TAKE(BQ * plan->lds + MR)}; /* maxima known */
    w->forward.bias = TAKE(p->rel_bias.data ? plan->lds : 0);
    w->forward.keys = TAKE(plan->use_query ? MR * (plan->D_pad + BQ + MR + 2 * NR) : 0);
    w->grads = TAKE(BQ * plan->lds + MR);
    w->grad_key = TAKE((gp->chunk_keys + MR) * plan->D_pad);
    w->grad_value = TAKE((gp->chunk_keys + MR) * plan->Dv_pad);
    w->key_sums =
        TAKE(plan->use_key > RP_BAND ? plan->Lq_pad * plan->key_stride + MR : 0);
    w->value_sums =
        TAKE(plan->use_value > RP_BAND ? plan->Lq_pad * plan->value_stride + MR : 0);
    w->tile_sums = TAKE(plan->lds + VL);
    w->corner = TAKE(MR * (BQ + MR) + MR);
#undef TAKE
    w->offset_sums = take(memory, &used, gp->chunk_keys + plan->Lq_pad, sizeof(double));
    w->column_sums = take(memory, &used, gp->chunk_keys, sizeof(double));
    w->row = take(memory, &used, plan->D_pad, sizeof(double));
    w->clean[0] = w->clean[1] = -1;
    return used;
}

RP_INLINE int
wants(const gradients_t *gp, int which)
{
    return gp->partials[which].data != NULL;
}

static void
backward_tile(const gradients_t *gp, worker_t *w, step_t *x, const T *keys,
              const T *values, int keys_bad)
{
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    score_tile(plan, &w->forward, &x->q, &x->t, keys);
    fill_grads(gp, w, x, values);
    grad_tile(gp, x);
    if (plan->use_value > RP_BAND && wants(gp, RP_GRAD_VALUE))
        sum_by_table_row(plan, &x->q, &x->t, x->t.s,
                         w->value_sums + x->q.i0 * plan->value_stride,
                         plan->value_stride, p->value_rows);
    value_products(gp, w, x);
    content_products(gp, w, x, keys_bad);
    if (plan->use_key == RP_BAND)
        band_products(gp, w, x);
    else if (plan->use_key != RP_ABSENT)
        sum_by_table_row(plan, &x->q, &x->t, x->d,
                         w->key_sums + x->q.i0 * plan->key_stride, plan->key_stride,
                         p->key_rows);
    if (plan->use_query != RP_ABSENT)
        rel_query_products(gp, w, x, keys_bad);
    if (p->labels.data && wants(gp, RP_GRAD_BIAS))
        sum_bias_labels(p, x, partial_of(gp, RP_GRAD_BIAS, x->index, x->chunk));
    else if (wants(gp, RP_GRAD_BIAS) || wants(gp, RP_GRAD_V))
        sum_offsets(gp, w, x);
    if (wants(gp, RP_GRAD_U))
        sum_columns(gp, w, x);
    sum_fire_tile(gp, x);
    if (gp->g->grad_mask.data)
        write_mask_grad(gp->g, x);
}

/* Sets the tile (i0, j0) up; 0 when no pair of it is visible. */
static int
start_step(const gradients_t *gp, worker_t *w, step_t *x, int64_t i0, int64_t j0)
{
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    queries_t *q = &x->q;
    tile_t *t = &x->t;
    q->i0 = i0;
    q->rows = (int)RP_MIN(BQ, p->Lq - i0);
    q->rows_pad = RP_ROUND_UP(q->rows, MR);
    q->begin = rp_visible(p, q->b, i0).begin;
    q->end = rp_visible(p, q->b, i0 + q->rows - 1).end;
    if (!rp_overlaps(q->begin, q->end, j0, plan->key_tile))
        return 0;
    q->content = x->head->rows_u + i0 * plan->D_pad;
    q->relative = x->head->rows_v + i0 * plan->D_pad;
    q->key_dots = x->head->key_dots ? x->head->key_dots + i0 * plan->key_stride : NULL;
    q->saved_column = -1;
    *t = (tile_t){.j0 = j0, .keys = (int)RP_MIN(plan->key_tile, q->end - j0)};
    t->columns = RP_ROUND_UP(t->keys, NR);
    t->w0 = j0 - i0 + plan->Lq_pad - BQ;
    t->ld = plan->lds - plan->skew;
    t->s = w->forward.scores + plan->skew * (BQ - 1);
    x->d = w->grads + plan->skew * (BQ - 1);
    x->selected = x->head->bad[i0 / BQ];
    return 1;
}

static void
clear_partials(const gradients_t *gp, worker_t *w, const step_t *x, rp_interval tiles)
{
    const plan_t *plan = &gp->plan;
    const int64_t first = tiles.begin * BQ, rows = (tiles.end - tiles.begin) * BQ;
    for (int which = 0; which < RP_PARTIALS; which++) {
        const partial_t *s = &gp->partials[which];
        rp_interval span = partial_span(gp, s, tiles);
        if (s->data && span.end > span.begin)
            memset(partial_of(gp, which, x->index, x->chunk) + span.begin * s->width, 0,
                   (size_t)((span.end - span.begin) * s->width) * sizeof(T));
    }
    double *fire_sums = fire_sums_of(gp, x->index, x->chunk);
    if (fire_sums)
        memset(fire_sums, 0, (size_t)fire_sums_count(plan->p) * sizeof(double));
    if (gp->ends)
        memset(ends_of(gp, x->index, x->chunk), 0,
               (size_t)plan->Lq_pad * sizeof(row_ends_t));
    if (x->grad_query)
        memset(x->grad_query + first * plan->D_pad, 0,
               (size_t)(rows * plan->D_pad) * sizeof(T));
    if (plan->use_key > RP_BAND)
        memset(w->key_sums + first * plan->key_stride, 0,
               (size_t)(rows * plan->key_stride) * sizeof(T));
    if (plan->use_value > RP_BAND)
        memset(w->value_sums + first * plan->value_stride, 0,
               (size_t)(rows * plan->value_stride) * sizeof(T));
    memset(w->offset_sums, 0, (size_t)(gp->chunk_keys + plan->Lq_pad) * sizeof(double));
    memset(w->column_sums, 0, (size_t)gp->chunk_keys * sizeof(double));
}

/* row += sum_n weights[n] * row n of a table or of keys; rows that no pair used may hold
 * NaN, or lie outside. */
static void
add_weighted_row(const gradients_t *gp, double *row, double weight, const T *other)
{
    for (ptrdiff_t k = 0; weight != 0 && k < gp->plan.D_pad; k++)
        row[k] += weight * other[k];
}

static void
write_row_sum(const gradients_t *gp, const double *row, T *sums)
{
    for (ptrdiff_t k = 0; k < gp->plan.D_pad; k++)
        sums[k] = (T)row[k];
}

/* du = scale * sum_j (sum_i dS_ij) k_j */
static void
finish_u(const gradients_t *gp, worker_t *w, const step_t *x)
{
    T *sums = partial_of(gp, RP_GRAD_U, x->index, x->chunk);
    int64_t first = x->chunk * gp->chunk_keys;
    int64_t count = RP_MIN(gp->chunk_keys, gp->plan.p->Lk - first);
    if (!sums)
        return;
    memset(w->row, 0, (size_t)gp->plan.D_pad * sizeof(double));
    for (int64_t n = 0; n < count; n++)
        add_weighted_row(gp, w->row, w->column_sums[n],
                         x->keys + (first + n) * x->key_stride);
    write_row_sum(gp, w->row, sums);
}

/* dv = scale * sum_l (sum of dS over the pairs of l) A_l */
static void
finish_v(const gradients_t *gp, worker_t *w, const step_t *x, rp_interval tiles,
         const T *table)
{
    const plan_t *plan = &gp->plan;
    T *sums = partial_of(gp, RP_GRAD_V, x->index, x->chunk);
    int64_t chunk_key = x->chunk * gp->chunk_keys; /* band column of offset_sums[0] */
    if (!sums)
        return;
    memset(w->row, 0, (size_t)plan->D_pad * sizeof(double));
    if (plan->use_key == RP_BAND) {
        int64_t low = RP_MAX(plan->band_first - chunk_key, 0);
        int64_t high =
            RP_MIN(plan->band_end - chunk_key, gp->chunk_keys + plan->Lq_pad);
        for (int64_t n = low; n < high; n++)
            add_weighted_row(gp, w->row, w->offset_sums[n],
                             table + (chunk_key + n - plan->band_first) * plan->D_pad);
    } else {
        for (int64_t l = 0; l < plan->p->key_rows; l++) {
            double weight = 0;
            for (int64_t i = tiles.begin * BQ; i < tiles.end * BQ; i++)
                weight += w->key_sums[i * plan->key_stride + l];
            add_weighted_row(gp, w->row, weight, table + l * plan->D_pad);
        }
    }
    write_row_sum(gp, w->row, sums);
}

/* Rows of a table with `rows` rows that the pairs of the query tile at i and the chunk can
 * have. */
static rp_interval
rows_met(const gradients_t *gp, const step_t *x, int64_t i, int64_t rows)
{
    const rp_attention *p = gp->plan.p;
    int64_t j0 = x->chunk * gp->chunk_keys, j1 = RP_MIN(p->Lk, j0 + gp->chunk_keys) - 1;
    int64_t at = i + rp_query_offset(p, x->q.b) + p->min_position;
    rp_interval met = {0, rows};
    if (p->labels.data || rows == 0)
        return met;
    met.begin = RP_MIN(rows - 1, RP_MAX(0, j0 - at - BQ + 1));
    met.end = RP_MIN(rows - 1, RP_MAX(0, j1 - at)) + 1;
    return met;
}

/* What the query tile at i has summed up by table row. Far from the diagonal all of its
 * pairs lie beyond one end of the table: one row. */
static void
finish_tile(const gradients_t *gp, worker_t *w, const step_t *x, int64_t i,
            const T *table, int bad)
{
    const plan_t *plan = &gp->plan;
    const ptrdiff_t D = plan->D_pad, Dv = plan->Dv_pad;
    T *sums = partial_of(gp, RP_GRAD_VALUE, x->index, x->chunk);
    rp_interval met = rows_met(gp, x, i, plan->p->value_rows);
    if (sums && plan->use_value > RP_BAND)
        add_columns(bad, w->value_sums + i * plan->value_stride + met.begin,
                    plan->value_stride, x->head->grad_rows + i * Dv, Dv,
                    met.end - met.begin, Dv, BQ, sums + met.begin * Dv, Dv);
    if (plan->use_key <= RP_BAND)
        return;
    met = rows_met(gp, x, i, plan->p->key_rows);
    const T *dots = w->key_sums + i * plan->key_stride + met.begin;
    if (x->grad_query)
        add_rows(gp->key_rows_bad, dots, plan->key_stride, table + met.begin * D, D, BQ,
                 D, met.end - met.begin, x->grad_query + i * D, D);
    sums = partial_of(gp, RP_GRAD_KEY, x->index, x->chunk);
    if (sums)
        add_columns(bad, dots, plan->key_stride, x->head->rows_v + i * D, D,
                    met.end - met.begin, D, BQ, sums + met.begin * D, D);
}

/* What table rows and offsets have summed up over the chunk becomes gradients. */
static void
finish_chunk(const gradients_t *gp, worker_t *w, const step_t *x, rp_interval tiles)
{
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    const T *table = plan->use_key ? copy_of(&gp->key_rows, x->q.b, x->q.h) : NULL;
    T *sums;
    int bad = 0;
    for (int64_t tile = tiles.begin; tile < tiles.end; tile++)
        bad |= x->head->bad[tile];
    if ((sums = partial_of(gp, RP_GRAD_BIAS, x->index, x->chunk)) && !p->labels.data)
        for (int64_t n = 0; n < gp->partials[RP_GRAD_BIAS].rows; n++)
            sums[n] = (T)w->offset_sums[n];
    for (int64_t tile = tiles.begin; tile < tiles.end; tile++)
        finish_tile(gp, w, x, tile * BQ, table, bad);
    finish_u(gp, w, x);
    finish_v(gp, w, x, tiles, table);
}

/* One query head over the chunk. */
static void
backward_head(const gradients_t *gp, worker_t *w, step_t *x, int64_t slice)
{
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    int64_t hk = x->q.h / plan->group;
    int64_t end = RP_MIN(p->Lk, (x->chunk + 1) * gp->chunk_keys);
    const T *keys = plan->keys + slice * plan->Lk_pad * p->D;
    const T *values = gp->value_panel + slice * plan->Lk_pad * p->Dv;
    head_t head = head_of(gp, x->index, NULL);
    rp_interval tiles = chunk_queries(gp, x->q.b, x->chunk);
    x->head = &head;
    x->keys = slice_keys(gp, x->q.b, hk, &x->key_stride);
    x->grad_query = grad_query_of(gp, x->index, x->chunk);
    clear_partials(gp, w, x, tiles);
    for (int64_t j0 = x->chunk * gp->chunk_keys; j0 < end; j0 += plan->key_tile) {
        int keys_bad = gp->keys_bad[slice * plan->key_tiles + j0 / plan->key_tile];
        for (int64_t tile = tiles.begin; tile < tiles.end; tile++) {
            if (rp_stopping())
                return;
            if (start_step(gp, w, x, tile * BQ, j0))
                backward_tile(gp, w, x, keys, values, keys_bad);
        }
    }
    if (tiles.end > tiles.begin)
        finish_chunk(gp, w, x, tiles);
}

static void
backward_unit(void *context, int64_t unit, int worker)
{
    const gradients_t *gp = context;
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    worker_t w;
    lay_out_worker(gp, plan->scratch + (size_t)worker * plan->scratch_size, &w);
    int64_t slice = unit / gp->chunks, chunk = unit % gp->chunks;
    int64_t b, hk;
    slice_at(plan, slice, &b, &hk);
    int64_t first = chunk * gp->chunk_keys, end = RP_MIN(p->Lk, first + gp->chunk_keys);
    memset(w.grad_key, 0, (size_t)(gp->chunk_keys * plan->D_pad) * sizeof(T));
    memset(w.grad_value, 0, (size_t)(gp->chunk_keys * plan->Dv_pad) * sizeof(T));
    for (int64_t member = 0; member < plan->group; member++) {
        step_t x = {.index = slice * plan->group + member, .chunk = chunk};
        x.q.b = b;
        x.q.h = hk * plan->group + member;
        backward_head(gp, &w, &x, slice);
    }
    for (int64_t j = first; j < end; j++) {
        T *row = w.grad_key + (j - first) * plan->D_pad;
        const rp_array *key = &gp->g->grad_key, *value = &gp->g->grad_value;
        scale_row(row, plan->D_pad, (T)RP_LN2); /* queries hold scale * log2e */
        if (key->data)
            unpack_row(rp_at(key, b, hk, j), key->col, row, p->D);
        if (value->data)
            unpack_row(rp_at(value, b, hk, j), value->col,
                       w.grad_value + (j - first) * plan->Dv_pad, p->Dv);
    }
}

#endif
