/* attention_backward.h: the fused backward: gradients of every operand, nothing Lq x Lk
 * stored but the mask's gradient, which is dense by nature. */
#ifndef RELPOS_ATTENTION_TILES_BACKWARD_H
#define RELPOS_ATTENTION_TILES_BACKWARD_H

#include "../../graph/backward.h"
#include "../rows/backward.h"
#include "ends.h"
#include "gradients_unit.h"

/* Adds the chunks' grad_query of one query tile up, in order, and writes it. */
static void
write_query_unit(void *context, int64_t unit, int worker)
{
    const gradients_t *gp = context;
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    (void)worker;
    int64_t tiles = query_tiles(gp), index = unit / tiles, tile = unit % tiles;
    int64_t b, h;
    head_at(plan, index, &b, &h);
    int64_t i0 = tile * BQ;
    const rp_array *grad = &gp->g->grad_query;
    const T *parts[RP_CHUNKS];
    int count = 0;
    for (int64_t chunk = 0; chunk < gp->chunks; chunk++) {
        rp_interval seen = chunk_queries(gp, b, chunk);
        if (tile >= seen.begin && tile < seen.end)
            parts[count++] = grad_query_of(gp, index, chunk) + i0 * plan->D_pad;
    }
    T *first = grad_query_of(gp, index, 0) + i0 * plan->D_pad;
    int straight = grad->col == sizeof(T) && p->D == plan->D_pad;
    for (int64_t i = i0, at = 0; count && i < RP_MIN(p->Lq, i0 + BQ); i++) {
        T *row = straight ? (T *)rp_at(grad, b, h, i) : first + at;
        for (ptrdiff_t k = 0; k < plan->D_pad; k += VL, at += VL) {
            V sum = load(parts[0] + at);
            for (int n = 1; n < count; n++)
                sum += load(parts[n] + at);
            store(row + k, sum * (T)p->scale);
        }
        if (!straight)
            unpack_row(rp_at(grad, b, h, i), grad->col, row, p->D);
    }
}

static void
plan_gradients(gradients_t *gp, const rp_gradients *g)
{
    const rp_attention *p = &g->forward;
    const ptrdiff_t size = sizeof(T);
    plan_t *plan = &gp->plan;
    gp->g = g;
    plan_paths(plan, p, RP_GRAD_TILE);
    /* The sums by table row are kept for all queries: with many rows the band is smaller. */
    if (plan->use_key == RP_ROWS && p->key_rows > RP_FEW_ROWS)
        plan->use_key = RP_BAND;
    if (plan->use_value == RP_ROWS && p->value_rows > RP_FEW_ROWS)
        plan->use_value = RP_BAND;
    /* with a gradient of rel_bias or v too: their sums are columns of the band matrix */
    plan->skew = plan->use_key == RP_BAND || plan->use_value == RP_BAND ||
                 (g->grad_rel_bias.data && !p->labels.data) || g->grad_pos_bias_v.data;
    plan->copy_values = plan->may_hide = 0; /* values are packed as panels only */
    gp->copy_keys = p->key.col != size || p->D % VL || p->key.row % size ||
                    p->key.row > 128 * size || p->key.row < 0;
    /* without rel_value only the rounding of out is left: too little to pay for */
    gp->correct_ends =
        plan->use_value != RP_ABSENT && plan->use_key != RP_ABSENT &&
        plan->use_key != RP_LABELS && p->beyond == RP_CLIP &&
        (g->grad_query.data || g->grad_rel_key.data || g->grad_pos_bias_v.data);
    int64_t most = plan->key_tiles < 16 ? RP_CHUNKS / 2 : RP_CHUNKS;
    int64_t tiles = RP_MAX(1, (plan->key_tiles + most - 1) / most);
    gp->chunk_keys = RP_MIN(tiles * plan->key_tile, plan->Lk_pad);
    gp->chunks = RP_MAX(1, (plan->key_tiles + tiles - 1) / tiles);
    head_of(gp, 0, &gp->head_size);
}

static void
plan_partial(gradients_t *gp, int which, const rp_array *grad, int path,
             int64_t grad_rows, int64_t min_position, ptrdiff_t columns, double factor)
{
    partial_t *s = &gp->partials[which];
    int64_t rows = path == RP_BAND ? gp->chunk_keys + gp->plan.Lq_pad : grad_rows;
    ptrdiff_t width = which == RP_GRAD_BIAS ? 1 : RP_ROUND_UP(columns, VL);
    *s = (partial_t){grad,    path,  rows,      grad_rows, min_position,
                     columns, width, (T)factor, NULL};
}

static void
plan_partials(gradients_t *gp)
{
    const rp_gradients *g = gp->g;
    const rp_attention *p = &g->forward;
    const plan_t *plan = &gp->plan;
    plan_partial(gp, RP_GRAD_KEY, &g->grad_rel_key, plan->use_key, p->key_rows,
                 p->min_position, p->D, RP_LN2);
    plan_partial(gp, RP_GRAD_QUERY, &g->grad_rel_query, plan->use_query, p->query_rows,
                 p->min_position, p->D, p->scale);
    plan_partial(gp, RP_GRAD_VALUE, &g->grad_rel_value, plan->use_value, p->value_rows,
                 p->min_position, p->Dv, 1);
    plan_partial(gp, RP_GRAD_BIAS, &g->grad_rel_bias,
                 p->labels.data ? RP_LABELS : RP_BAND, p->bias_rows,
                 p->min_bias_position, 1, 1);
    plan_partial(gp, RP_GRAD_U, &g->grad_pos_bias_u, RP_ROWS, 1, 0, p->D, p->scale);
    plan_partial(gp, RP_GRAD_V, &g->grad_pos_bias_v, RP_ROWS, 1, 0, p->D, p->scale);
}

/* How many slices a wave takes, which bounds what is packed and summed up at a time. */
static void
plan_wave(gradients_t *gp)
{
    plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    const size_t size = sizeof(T);
    size_t head =
        (size_t)(gp->head_size + gp->chunks * plan->Lq_pad * plan->D_pad) * size;
    if (gp->correct_ends)
        head += (size_t)(gp->chunks * plan->Lq_pad) * sizeof(row_ends_t);
    for (int which = 0; which < RP_PARTIALS; which++)
        if (gp->partials[which].grad->data)
            head += (size_t)(gp->chunks * gp->partials[which].rows *
                             gp->partials[which].width) *
                    size;
    if (gp->g->grad_fire.data)
        head += (size_t)(gp->chunks * fire_sums_count(p)) * sizeof(double);
    size_t tables = plan_wave_table(plan, 0, &p->rel_key, &plan->rel_key, p->key_rows,
                                    p->D, plan->use_key, 1);
    tables += plan_wave_table(plan, 1, &p->rel_key, &gp->key_rows, p->key_rows, p->D,
                              plan->use_key, 0);
    plan->slices = wave_of(plan, head * (size_t)plan->group + tables, gp->chunks);
}

/* Carves count * size bytes out of the call's block; while there is none, counts them. */
static void *
reserve(gradients_t *gp, int64_t count, size_t size)
{
    size_t bytes, begin = gp->used;
    if (!rp_multiply((size_t)count, size, &bytes) || bytes > PTRDIFF_MAX - begin - 64)
        gp->failed = 1;
    else
        gp->used = begin + RP_ROUND_UP(bytes, 64);
    return gp->memory ? gp->memory + begin : NULL;
}

/* One block for all: an allocator keeps it for the next call, where many large ones would
 * go back to the system and come again page by page. */
static void
reserve_wave(gradients_t *gp)
{
    plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    const size_t size = sizeof(T);
    gp->used = 0;
    int64_t heads = plan->slices * plan->group;
    plan->keys = reserve(gp, plan->slices * plan->Lk_pad, (size_t)p->D * size);
    gp->value_panel = reserve(gp, plan->slices * plan->Lk_pad, (size_t)p->Dv * size);
    if (gp->copy_keys)
        gp->key_copy = reserve(gp, plan->slices * p->Lk, (size_t)plan->D_pad * size);
    gp->keys_bad = reserve(gp, plan->slices, (size_t)plan->key_tiles);
    gp->heads_bad = reserve(gp, heads, (size_t)query_tiles(gp));
    gp->heads = reserve(gp, heads, (size_t)gp->head_size * size);
    if (gp->g->grad_query.data)
        gp->grad_query = reserve(gp, heads * gp->chunks,
                                 (size_t)plan->Lq_pad * (size_t)plan->D_pad * size);
    if (gp->g->grad_fire.data)
        gp->fire_sums = reserve(gp, heads * gp->chunks,
                                (size_t)fire_sums_count(p) * sizeof(double));
    if (gp->correct_ends)
        gp->ends =
            reserve(gp, heads * gp->chunks, (size_t)plan->Lq_pad * sizeof(row_ends_t));
    for (int which = 0; which < RP_PARTIALS; which++) {
        partial_t *s = &gp->partials[which];
        if (s->grad->data)
            s->data = reserve(gp, heads * gp->chunks,
                              (size_t)s->rows * (size_t)s->width * size);
    }
    worker_t unused;
    plan->scratch_size = lay_out_worker(gp, NULL, &unused);
    plan->scratch = reserve(gp, p->threads, plan->scratch_size);
}

/* 1 when any copy of a table holds NaN or infinity. */
static int
table_not_finite(const rp_array *table, const copies_t *copies, int64_t rows,
                 int64_t columns)
{
    int bad = 0;
    for (int64_t b = 0; table->data && b < copies->batches; b++)
        for (int64_t h = 0; h < copies->heads; h++)
            bad |= not_finite(rp_at(table, b, h, 0), table->row, table->col, rows,
                              columns);
    return bad;
}

/* Tables as the products of scores, dP and gradients need them. */
static rp_status
pack_gradient_tables(gradients_t *gp)
{
    plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    rp_status status = pack_table(plan, &p->rel_key, &plan->rel_key, p->key_rows, p->D,
                                  plan->use_key, 1, 1);
    if (!status)
        status = pack_table(plan, &p->rel_key, &gp->key_rows, p->key_rows, p->D,
                            plan->use_key, 0, 1);
    if (!status)
        status = pack_table(plan, &p->rel_query, &plan->rel_query, p->query_rows, p->D,
                            plan->use_query, 1, p->scale * RP_LOG2E);
    if (!status)
        status = pack_table(plan, &p->rel_query, &gp->query_rows, p->query_rows, p->D,
                            plan->use_query, 0, p->scale * RP_LOG2E);
    if (!status)
        status = pack_table(plan, &p->rel_value, &gp->value_panels, p->value_rows,
                            p->Dv, plan->use_value, 1, 1);
    gp->key_rows_bad =
        table_not_finite(&p->rel_key, &gp->key_rows, p->key_rows, p->D) ||
        table_not_finite(&p->rel_query, &gp->query_rows, p->query_rows, p->D);
    return status;
}

static rp_status
run_gradient_wave(gradients_t *gp)
{
    plan_t *plan = &gp->plan;
    int threads = plan->p->threads;
    int64_t tiles = query_tiles(gp), heads = plan->slices * plan->group;
    rp_status status = pack_wave_tables(plan);
    if (!status)
        status =
            rp_parallel(plan->slices * plan->key_tiles, pack_keys_unit, gp, threads);
    if (!status)
        status = rp_parallel(heads * tiles, pack_head_unit, gp, threads);
    if (!status)
        status = rp_parallel(plan->slices * gp->chunks, backward_unit, gp, threads);
    if (!status && gp->correct_ends)
        status = rp_parallel(heads, correct_ends_unit, gp, threads);
    if (!status && gp->grad_query)
        status = rp_parallel(heads * tiles, write_query_unit, gp, threads);
    for (int which = 0; !status && which < RP_PARTIALS; which++)
        status = sum_partial(gp, which);
    if (!status)
        sum_fire(gp);
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
