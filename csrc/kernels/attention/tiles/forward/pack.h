/* pack.h: what the forward packs: tables once, or with the wave that reads them, keys and
 * values by wave, queries by tile. */
#ifndef RELPOS_ATTENTION_TILES_FORWARD_PACK_H
#define RELPOS_ATTENTION_TILES_FORWARD_PACK_H

#include "../waves.h"

/* (q + u) and (q + v), or the position query in its place, times their scale * log2e, of the
 * `rows` queries from i0 on, then zeros up to `padded` rows. */
static void
pack_queries(const plan_t *plan, int64_t b, int64_t h, int64_t i0, int64_t rows,
             int64_t padded, T *content, T *relative)
{
    const rp_attention *p = plan->p;
    pack_sums(content, &p->query, &p->pos_bias_u, b, h, i0, rows, padded, p->D,
              (T)(p->scale * RP_LOG2E));
    if (packs_two(plan))
        pack_sums(relative, rel_key_queries(p), &p->pos_bias_v, b, h, i0, rows, padded,
                  p->Dp, (T)(rel_key_scale(p) * RP_LOG2E));
}

/* Whether all queries see the keys [j0, end) of item b: by the window, which alone hides. */
static int
all_see(const rp_attention *p, int64_t b, int64_t j0, int64_t end)
{
    return !rp_has_mask(p) && !p->sight.key_ranges.data && !has_bias(p) &&
           rp_in_window(p, b, p->Lq - 1).begin <= j0 &&
           rp_in_window(p, b, 0).end >= end;
}

/* Keys, and where needed values, of one key tile of one slice. */
static void
pack_slice_unit(void *context, int64_t unit, int worker)
{
    plan_t *plan = context;
    const rp_attention *p = plan->p;
    (void)worker;
    int64_t slice = unit / plan->key_tiles, tile = unit % plan->key_tiles;
    int64_t b, hk, j0 = tile * plan->key_tile;
    int64_t end = RP_MIN(plan->Lk_pad, j0 + plan->key_tile);
    slice_at(plan, slice, &b, &hk);
    T *keys = plan->keys + slice * plan->Lk_pad * p->D;
    for (int64_t j = j0; j < end; j += NR) {
        const char *rows[NR];
        for (int i = 0; i < NR; i++)
            rows[i] = j + i < p->Lk ? rp_at(&p->key, b, hk, j + i) : NULL;
        pack_panel(keys + j * p->D, rows, p->key.col, RP_KIND(&p->key), p->D, 1,
                   NR * p->key.row);
    }
    if (plan->weightless.used)
        plan->weightless.norms[unit] = longest_key(keys + j0 * p->D, end - j0, p->D);
    end = RP_MIN(end, p->Lk);
    if (plan->copy_values) {
        T *values = plan->values + slice * p->Lk * plan->Dv_pad;
        for (int64_t j = j0; j < end; j++)
            pack_row(values + j * plan->Dv_pad, &p->value, rp_at(&p->value, b, hk, j),
                     p->Dv, plan->Dv_pad);
    }
    if (plan->may_hide)
        plan->values_bad[unit] =
            !all_see(p, b, j0, end) &&
            rows_of_not_finite(&p->value, b, hk, j0, end - j0, p->Dv);
}

/* Values of slice (b, hk) as rows: the packed copy, or the caller's array where its rows
 * are whole vectors close together (rows 1 KB apart halve the speed of P.V). */
RP_INLINE const T *
slice_values(const plan_t *plan, int64_t b, int64_t hk, ptrdiff_t *stride)
{
    const rp_attention *p = plan->p;
    if (plan->copy_values) {
        *stride = plan->Dv_pad;
        return plan->values + slice_of(plan, b, hk) * p->Lk * plan->Dv_pad;
    }
    *stride = p->value.row / (ptrdiff_t)sizeof(T);
    return (const T *)rp_at(&p->value, b, hk, 0);
}

/* Whether the bias goes into the empty tile: it must be all that does, and below no cap. */
RP_INLINE int
fills_bias_first(const plan_t *plan)
{
    return bias_can_fill(&plan->bias) && !is_used(&plan->rel_key) &&
           !(plan->p->softcap > 0);
}

/* Packs what all waves of a forward share. */
static rp_status
start_forward(plan_t *plan)
{
    rp_status status = start_bias(&plan->bias);
    if (!status)
        status = start_shown(&plan->shown);
    if (!status)
        status = start_weightless(&plan->weightless);
    if (!status)
        status = pack_tables(plan);
    if (!status)
        plan->rel_value_bad = packed_not_finite(&plan->rel_value);
    plan->bias_first = fills_bias_first(plan);
    return status;
}

#endif
