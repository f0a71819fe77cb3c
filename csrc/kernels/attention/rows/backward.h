/* backward.h: the backward of the labels that tiles do not take, pair by pair.
 *
 * Every formula of the gradients stands here once more in its plainest form. Tables may be
 * shared by all heads and batch items, so the call is one unit: exact, in a fixed order,
 * and slow. */
#ifndef RELPOS_ATTENTION_ROWS_BACKWARD_H
#define RELPOS_ATTENTION_ROWS_BACKWARD_H

#include "forward.h"

/* acc (strided row) += factor * row (strided) */
RP_INLINE void
add_scaled_line(char *acc, ptrdiff_t acc_step, T factor, const char *row,
                ptrdiff_t step, ptrdiff_t count)
{
    for (ptrdiff_t k = 0; k < count; k++)
        *(T *)(acc + k * acc_step) += factor * *(const T *)(row + k * step);
}

/* acc += factor * row l of a table, or of query and its bias; absent arrays add nothing. */
RP_INLINE void
add_grad(const rp_array *grad, int64_t b, int64_t h, int64_t l, T factor,
         const rp_array *rows, int64_t rows_h, int64_t row, ptrdiff_t count)
{
    if (grad->data && rows->data && l >= 0 && row >= 0)
        add_scaled_line(rp_at(grad, b, h, l), grad->col, factor,
                        rp_at(rows, b, rows_h, row), rows->col, count);
}

/* The gradients of one pair with probability prob (kept: prob z) and ds = dS. */
static void
pair_gradients(const rp_gradients *g, const query_row_t *q, int64_t hk, int64_t j,
               T kept, T ds)
{
    const rp_attention *p = &g->forward;
    const T f = ds * (T)p->scale;
    const int64_t b = q->b, h = q->h, i = q->i;
    int64_t a = pair_row(p, b, i, j, &p->rel_key);
    int64_t c = pair_row(p, b, i, j, &p->rel_query);
    int64_t v = pair_row(p, q->b, q->i, j, &p->rel_value);
    int64_t bias = pair_row(p, b, i, j, &p->rel_bias);
    add_grad(&g->grad_query, b, h, i, f, &p->key, hk, j, p->D);
    add_grad(&g->grad_query, b, h, i, f, &p->rel_key.array, h, a, p->D);
    add_grad(&g->grad_key, b, hk, j, f, &p->query, h, i, p->D);
    add_grad(&g->grad_key, b, hk, j, f, &p->pos_bias_u, h, 0, p->D);
    add_grad(&g->grad_key, b, hk, j, f, &p->rel_query.array, h, c, p->D);
    add_grad(&g->grad_value, b, hk, j, kept, &g->grad_out, h, i, p->Dv);
    add_grad(&g->grad_rel_key, b, h, a, f, &p->query, h, i, p->D);
    add_grad(&g->grad_rel_key, b, h, a, f, &p->pos_bias_v, h, 0, p->D);
    add_grad(&g->grad_rel_query, b, h, c, f, &p->key, hk, j, p->D);
    add_grad(&g->grad_rel_value, b, h, v, kept, &g->grad_out, h, i, p->Dv);
    add_grad(&g->grad_pos_bias_u, b, h, 0, f, &p->key, hk, j, p->D);
    add_grad(&g->grad_pos_bias_v, b, h, 0, f, &p->rel_key.array, h, a, p->D);
    if (g->grad_rel_bias.data && bias >= 0)
        *(T *)rp_at(&g->grad_rel_bias, b, h, bias) += ds;
    if (g->grad_mask.data)
        *(T *)(rp_at(&g->grad_mask, b, h, i) + j * g->grad_mask.col) = ds;
}

/* grad_out . row, or 0 where either is absent */
RP_INLINE T
grad_dot(const rp_gradients *g, const query_row_t *q, const rp_array *rows, int64_t h,
         int64_t row)
{
    T sum = 0;
    if (!g->grad_out.data || !rows->data || row < 0)
        return 0;
    const char *grad = rp_at(&g->grad_out, q->b, q->h, q->i);
    const char *other = rp_at(rows, q->b, h, row);
    for (ptrdiff_t k = 0; k < g->forward.Dv; k++)
        sum += *(const T *)(grad + k * g->grad_out.col) *
               *(const T *)(other + k * rows->col);
    return sum;
}

/* The visible keys [j0, end) of one query row. */
static void
stretch_gradients(const rp_gradients *g, query_rows_t *rows, int64_t j0, int64_t end,
                  double *bias_sums)
{
    const rp_attention *p = &g->forward;
    const query_row_t *q = rows->row;
    const int64_t hk = rows->hk;
    unsigned char keep[RP_STRETCH_KEYS];
    T max = *(const T *)rp_at(&p->results.row_max, q->b, q->h, q->i);
    T sum = *(const T *)rp_at(&p->results.row_sum, q->b, q->h, q->i);
    T delta = grad_dot(g, q, &p->results.out, q->h, q->i);
    if (g->grad_lse.data)
        delta -= *(const T *)rp_at(&g->grad_lse, q->b, q->h, q->i);
    if (sum == 0)
        return;
    score_stretch(rows, j0, end);
    if (p->dropout.p > 0)
        rp_dropout_kept(p, q->b, q->h, q->i, j0, end - j0, keep);
    for (int64_t j = j0; j < end; j++) {
        T prob = vexp2(splat(q->s[j - j0] - max))[0] / sum, z = 1;
        q->s[j - j0] = 0; /* from here on dS */
        if (prob == 0)    /* hidden */
            continue;
        if (p->dropout.p > 0)
            z = keep[j - j0] ? (T)(1 / (1 - p->dropout.p)) : 0;
        int64_t v = pair_row(p, q->b, q->i, j, &p->rel_value);
        T grad = grad_dot(g, q, &p->value, hk, j) +
                 grad_dot(g, q, &p->rel_value.array, q->h, v);
        q->s[j - j0] = prob * (z * grad - delta);
        pair_gradients(g, q, hk, j, prob * z, q->s[j - j0]);
    }
    sum_bias_run(rows->bias, g, q->b, q->h, q->i, j0, (int)(end - j0), q->s, bias_sums);
}

typedef struct {
    const rp_gradients *g;
    rows_plan_t plan;
    double *bias_sums; /* of one row */
} rows_gradients_t;

static void
rows_backward_unit(void *context, int64_t unit, int worker)
{
    const rows_gradients_t *rg = context;
    const rows_plan_t *plan = &rg->plan;
    const rp_attention *p = plan->p;
    query_rows_t rows;
    (void)unit;
    (void)worker;
    for (int64_t row = 0; row < p->B * p->Hk * plan->rows; row++) {
        const query_row_t *q = rows.row;
        start_rows(plan, &rows, row / plan->rows, 1, plan->scratch);
        start_row(plan, &rows, 0, row % plan->rows);
        memset(rg->bias_sums, 0, (size_t)bias_sums_count(rg->g) * sizeof(double));
        for (int64_t j0 = q->visible.begin; j0 < q->visible.end;
             j0 += RP_STRETCH_KEYS) {
            if (rp_stopping())
                return;
            stretch_gradients(rg->g, &rows, j0,
                              RP_MIN(j0 + RP_STRETCH_KEYS, q->visible.end),
                              rg->bias_sums);
        }
        add_bias_sums(rg->g, q->b, q->h, rg->bias_sums);
    }
}

static void
lay_out_rows_backward(void *context, arena_t *arena)
{
    rows_gradients_t *rg = context;
    rg->plan.scratch = take_numbers(arena, rg->plan.scratch_size);
    rg->bias_sums = take(arena, bias_sums_count(rg->g), sizeof(double));
    lay_out_bias(&rg->plan.bias, arena);
}

/* Runs the problem, or only counts: see `reserve`. */
static rp_status
backward_by_rows(const rp_gradients *g, size_t *bytes)
{
    rows_gradients_t rg = {.g = g};
    arena_t arena;
    plan_rows(&rg.plan, &g->forward);
    plan_bias(&rg.plan.bias, &g->forward, g);
    rp_status status = reserve(&arena, lay_out_rows_backward, &rg, bytes);
    if (status || bytes)
        return status;
    status = start_bias(&rg.plan.bias);
    if (!status)
        status = rp_parallel(1, rows_backward_unit, &rg, 1);
    rp_free(arena.memory);
    return status;
}

#endif
