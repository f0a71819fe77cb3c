/* attention.h: the two entries, and which engine takes a problem. */
#ifndef RELPOS_ATTENTION_ATTENTION_H
#define RELPOS_ATTENTION_ATTENTION_H

#include "../graph/backward.h"
#include "rows/backward.h"
#include "tiles/backward/loop.h"
#include "tiles/backward/plan.h"
#include "tiles/forward/loop.h"

enum {
    RP_MANY_LABELS = 4096, /* table rows past which a product with all of them loses */
};

/* Labels that tiles do not take. */
static int
labels_apply(const rp_attention *p)
{
    return p->labels.data && (p->rel_query.data || p->key_rows > RP_MANY_LABELS ||
                              p->value_rows > RP_MANY_LABELS);
}

static rp_status
attention_forward(const rp_attention *p)
{
    if (p->B == 0 || p->H == 0 || p->Lq == 0)
        return RP_OK;
    if (p->indptr)
        return graph_forward(p);
    if (p->Lq <= RP_FEW_QUERIES || labels_apply(p))
        return attention_rows(p);
    plan_t plan = {0};
    plan_paths(&plan, p, RP_KEY_TILE);
    plan_waves(&plan);
    plan_blocks(&plan);
    rp_status status = plan_bias(&plan, NULL);
    if (!status)
        status = pack_tables(&plan);
    if (!status)
        status = allocate(&plan);
    if (!status)
        status = run_waves(&plan);
    rp_free(plan.scratch);
    rp_free(plan.values_bad);
    rp_free(plan.values);
    rp_free(plan.keys);
    rp_free(plan.rel_value.data);
    rp_free(plan.rel_query.data);
    rp_free(plan.rel_key.data);
    free_fire(&plan.fire);
    return status;
}

static rp_status
attention_backward(const rp_gradients *g)
{
    const rp_attention *p = &g->forward;
    if (p->B == 0 || p->H == 0 || p->Lq == 0 || p->Lk == 0)
        return RP_OK;
    if (p->indptr)
        return graph_backward(g);
    if (labels_apply(p))
        return attention_rows_backward(g);
    gradients_t gp = {0};
    plan_gradients(&gp, g);
    plan_partials(&gp);
    plan_wave(&gp);
    rp_status status =
        plan_bias(&gp.plan, g->grad_fire.data ? &g->fire_offset_slopes : NULL);
    if (!status)
        status = pack_gradient_tables(&gp);
    reserve_wave(&gp);
    gp.memory = status || gp.failed ? NULL : rp_alloc(1, gp.used);
    if (gp.memory)
        reserve_wave(&gp);
    else if (!status)
        status = RP_NO_MEMORY;
    int64_t wave = gp.plan.slices;
    if (!status)
        status = allocate_wave_tables(&gp.plan);
    for (int64_t s = 0; !status && s < p->B * p->Hk; s += gp.plan.slices) {
        start_wave(&gp.plan, s, wave);
        status = run_gradient_wave(&gp);
    }
    rp_free(gp.memory);
    rp_free(gp.value_panels.data);
    rp_free(gp.query_rows.data);
    rp_free(gp.plan.rel_query.data);
    rp_free(gp.key_rows.data);
    rp_free(gp.plan.rel_key.data);
    free_fire(&gp.plan.fire);
    return status;
}

#endif
