/* pack.h: what the backward packs: queries and grad_out with what each row subtracts and is
 * divided by, keys both as panels and as rows, values as panels, tables both ways. */
#ifndef RELPOS_ATTENTION_TILES_BACKWARD_PACK_H
#define RELPOS_ATTENTION_TILES_BACKWARD_PACK_H

#include "../../terms/rel_key.h"
#include "../../terms/rel_value.h"
#include "../forward/pack.h"
#include "../partials.h"
#include "memory.h"

/* Fills max, 1 / sum and delta of the rows of one query tile. */
static void
pack_row_sums(const gradients_t *gp, head_t *head, int64_t b, int64_t h, int64_t i0,
              int64_t end)
{
    const rp_attention *p = gp->plan.p;
    const rp_gradients *g = gp->g;
    for (int64_t i = i0; i < i0 + padded_rows((int)(end - i0)); i++) {
        head->max[i] = head->norm[i] = head->delta[i] = 0;
        if (i >= end)
            continue;
        T row_sum = *(const T *)rp_at(&p->results.row_sum, b, h, i);
        double sum = 0;
        const char *out = rp_at(&p->results.out, b, h, i);
        fetch_ahead(&p->results.out, out, p->Dv);
        const T *grad = head->grad_rows + i * gp->plan.Dv_pad;
        if (g->grad_out.data && p->results.out.col == (ptrdiff_t)sizeof(T))
            sum =
                long_dot((const char *)grad, sizeof(T), RP_OWN, out, sizeof(T), p->Dv);
        else if (g->grad_out.data)
            sum = long_dot((const char *)grad, sizeof(T), RP_OWN, out,
                           p->results.out.col, p->Dv);
        if (g->grad_lse.data)
            sum -= *(const T *)rp_at(&g->grad_lse, b, h, i);
        head->max[i] = *(const T *)rp_at(&p->results.row_max, b, h, i);
        head->norm[i] = row_sum == 0 ? 0 : 1 / row_sum;
        head->delta[i] = (T)sum;
    }
}

static int
rows_not_finite(const T *rows, int64_t count, ptrdiff_t width)
{
    return not_finite((const char *)rows, width * (ptrdiff_t)sizeof(T), sizeof(T),
                      count, width);
}

static void
pack_head_unit(void *context, int64_t unit, int worker)
{
    const gradients_t *gp = context;
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    (void)worker;
    int64_t tiles = query_tiles(gp), index = unit / tiles, i0 = unit % tiles * BQ;
    int64_t b, h;
    head_at(plan, index, &b, &h);
    int64_t rows = RP_MIN(BQ, p->Lq - i0), padded = padded_rows((int)rows);
    const rp_array *grad = &gp->g->grad_out, none = {0};
    head_t head = head_of(gp, index);
    pack_queries(plan, b, h, i0, rows, padded, head.rows_u + i0 * plan->D_pad,
                 head.rows_v + i0 * plan->Dp_pad);
    pack_sums(head.grad_rows + i0 * plan->Dv_pad, grad, &none, b, h, i0,
              grad->data ? rows : 0, padded, p->Dv, 1);
    pack_row_sums(gp, &head, b, h, i0, i0 + rows);
    head.bad[i0 / BQ] =
        rows_not_finite(head.rows_u + i0 * plan->D_pad, rows, plan->D_pad) ||
        (packs_two(plan) &&
         rows_not_finite(head.rows_v + i0 * plan->Dp_pad, rows, plan->Dp_pad)) ||
        rows_not_finite(head.grad_rows + i0 * plan->Dv_pad, rows, plan->Dv_pad);
    if (head.key_dots)
        dot_rel_key(plan, b, h, head.rows_v + i0 * plan->Dp_pad, padded,
                    head.key_dots + i0 * plan->rel_key.stride);
    if (head.value_dots)
        dot_rel_value(gp, b, h, head.grad_rows + i0 * plan->Dv_pad, padded,
                      head.value_dots + i0 * gp->value_panels.stride);
}

/* The key side of one key tile of one slice, beyond what the forward packs. */
static void
pack_keys_unit(void *context, int64_t unit, int worker)
{
    gradients_t *gp = context;
    plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    int64_t slice = unit / plan->key_tiles,
            j0 = unit % plan->key_tiles * plan->key_tile;
    int64_t b, hk;
    slice_at(plan, slice, &b, &hk);
    int64_t end = RP_MIN(plan->Lk_pad, j0 + plan->key_tile);
    pack_slice_unit(plan, unit, worker);
    T *values = gp->value_panel + slice * plan->Lk_pad * p->Dv;
    for (int64_t j = j0; j < end; j += NR) {
        const char *rows[NR];
        for (int i = 0; i < NR; i++)
            rows[i] = j + i < p->Lk ? rp_at(&p->value, b, hk, j + i) : NULL;
        pack_panel(values + j * p->Dv, rows, p->value.col, RP_KIND(&p->value), p->Dv, 1,
                   NR * p->value.row);
    }
    end = RP_MIN(end, p->Lk);
    for (int64_t j = j0; gp->copy_keys && j < end; j++)
        pack_row(gp->key_copy + (slice * p->Lk + j) * plan->D_pad, &p->key,
                 rp_at(&p->key, b, hk, j), p->D, plan->D_pad);
    gp->keys_bad[unit] =
        (unsigned char)rows_of_not_finite(&p->key, b, hk, j0, end - j0, p->D);
}

/* Keys of slice (b, hk) as rows of whole vectors. */
RP_INLINE const T *
slice_keys(const gradients_t *gp, int64_t b, int64_t hk, ptrdiff_t *stride)
{
    const rp_attention *p = gp->plan.p;
    if (gp->copy_keys) {
        *stride = gp->plan.D_pad;
        return gp->key_copy + slice_of(&gp->plan, b, hk) * p->Lk * gp->plan.D_pad;
    }
    *stride = p->key.row / (ptrdiff_t)sizeof(T);
    return (const T *)rp_at(&p->key, b, hk, 0);
}

/* Packs what all waves of a backward share, and plans what each meets. */
static rp_status
start_backward(gradients_t *gp)
{
    plan_t *plan = &gp->plan;
    rp_status status = start_bias(&plan->bias);
    if (!status)
        status = start_shown(&plan->shown);
    if (!status)
        status = start_weightless(&plan->weightless);
    if (!status)
        status = pack_tables(plan);
    if (!status)
        start_queries_met(gp);
    if (!status)
        gp->key_rows_bad =
            table_not_finite(&gp->key_rows) || packed_not_finite(&plan->rel_query);
    plan->bias_first = fills_bias_first(plan);
    return status;
}

#endif
