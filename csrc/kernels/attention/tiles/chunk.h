/* chunk.h: what table rows, keys and offsets have summed up over a chunk of keys becomes
 * gradients. */
#ifndef RELPOS_ATTENTION_TILES_CHUNK_H
#define RELPOS_ATTENTION_TILES_CHUNK_H

#include "../terms/content.h"
#include "../terms/rel_key.h"

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

#endif
