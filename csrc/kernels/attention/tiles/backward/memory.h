/* memory.h: the memory of a backward call. */
#ifndef RELPOS_ATTENTION_TILES_BACKWARD_MEMORY_H
#define RELPOS_ATTENTION_TILES_BACKWARD_MEMORY_H

#include "../gradients.h"
#include "../waves.h"

/* Carves the operands of head `index` of the wave; with NULL data only counts. */
static head_t
head_of(const gradients_t *gp, int64_t index, ptrdiff_t *size)
{
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    char *memory = (char *)(gp->heads ? gp->heads + index * gp->head_size : NULL);
    size_t used = 0;
    head_t head = {0};
    int two = p->pos_bias_u.data || p->pos_bias_v.data;
#define TAKE(count) take(memory, &used, count, sizeof(T))
    head.rows_u = TAKE(plan->Lq_pad * plan->D_pad);
    head.rows_v = two ? TAKE(plan->Lq_pad * plan->D_pad) : head.rows_u;
    head.grad_rows = TAKE(plan->Lq_pad * plan->Dv_pad);
    head.max = TAKE(plan->Lq_pad);
    head.norm = TAKE(plan->Lq_pad);
    head.delta = TAKE(plan->Lq_pad);
    if (plan->use_key > RP_BAND)
        head.key_dots = TAKE(plan->Lq_pad * plan->key_stride);
    if (plan->use_value > RP_BAND)
        head.value_dots = TAKE(plan->Lq_pad * RP_ROUND_UP(p->value_rows, NR));
#undef TAKE
    head.bad = gp->heads_bad ? gp->heads_bad + index * query_tiles(gp) : NULL;
    if (size)
        *size = (ptrdiff_t)(used / sizeof(T));
    return head;
}

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

#endif
