/* backward.h: the backward of the labels that tiles do not take, pair by pair.
 *
 * Every formula of the gradients stands here once more in its plainest form. Tables may be
 * shared by all heads and batch items, and any pair may add to any of their rows. So query
 * rows are taken in waves: first each row's dS, then, from these, the gradients that many
 * rows add to, by columns: a unit has some columns of one of them and goes through all pairs
 * of the wave. Each number has one writer and one order. */
#ifndef RELPOS_ATTENTION_ROWS_BACKWARD_H
#define RELPOS_ATTENTION_ROWS_BACKWARD_H

#include "forward.h"

enum { RP_SUM_COLUMNS = 128 / sizeof(T) }; /* of a unit: two cache lines */

/* The gradients that many query rows add to. */
enum {
    RP_SUM_KEY,
    RP_SUM_VALUE,
    RP_SUM_REL_KEY,
    RP_SUM_REL_QUERY,
    RP_SUM_REL_VALUE,
    RP_SUM_U,
    RP_SUM_V,
    RP_SUM_BIAS, /* of a table, and sums of its own */
    RP_SUMS
};

typedef struct {
    const rp_gradients *g;
    rows_plan_t plan;
    int64_t first, count, wave; /* query rows in work, and how many at most */
    T *ds, *kept;               /* of each, and each key: dS, probability times z */
    T *capped;                  /* dS that passes the cap; without one, ds */
    ptrdiff_t ld;
    double *bias_sums; /* of one head */
} rows_gradients_t;

/* A query row, and some columns of a gradient. */
typedef struct {
    int64_t b, hk, h, i;
    ptrdiff_t k0, columns;
} row_columns_t;

static void
find_row(const rows_plan_t *plan, int64_t row, row_columns_t *x)
{
    const rp_attention *p = plan->p;
    x->b = row / plan->rows / p->Hk;
    x->hk = row / plan->rows % p->Hk;
    x->h = x->hk * plan->group + row % plan->rows / p->Lq;
    x->i = row % p->Lq;
}

/* acc += factor * row l of a table, or of query and its bias, in the columns of x; absent
 * arrays add nothing. */
RP_INLINE void
add_grad(const rp_array *grad, const row_columns_t *x, int64_t h, int64_t l, T factor,
         const rp_array *rows, int64_t rows_h, int64_t row)
{
    if (!grad->data || !rows->data || l < 0 || row < 0)
        return;
    char *acc = rp_at(grad, x->b, h, l) + x->k0 * grad->col;
    const char *from = rp_at(rows, x->b, rows_h, row) + x->k0 * rows->col;
    if (is_plain(grad) && is_plain(rows))
        add_scaled((T *)acc, factor, (const T *)from, x->columns);
    else
        for (ptrdiff_t k = 0; k < x->columns; k++)
            *(T *)(acc + k * grad->col) +=
                factor * number_at(from + k * rows->col, RP_KIND(rows));
}

/* ---- dS, and what one row alone adds to -------------------------------------------- */

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
        sum += number_at(grad + k * g->grad_out.col, RP_KIND(&g->grad_out)) *
               number_at(other + k * rows->col, RP_KIND(rows));
    return sum;
}

/* The visible keys [j0, end) of one query row: ds, capped and kept are those of its keys. */
static void
stretch_gradients(const rp_gradients *g, query_rows_t *rows, int64_t j0, int64_t end,
                  T *ds, T *capped, T *kept)
{
    const rp_attention *p = &g->forward;
    const query_row_t *q = rows->row;
    const row_columns_t x = {q->b, rows->hk, q->h, q->i, 0, p->D};
    const row_columns_t left = {q->b, rows->hk, q->h, q->i, 0, p->Dp};
    const rp_array *grad_left =
        p->position_query.data ? &g->grad_position_query : &g->grad_query;
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
        if (q->s[j - j0] == -(T)INFINITY || prob == 0) /* hidden */
            continue;
        if (p->dropout.p > 0)
            z = keep[j - j0] ? (T)(1 / (1 - p->dropout.p)) : 0;
        T grad = grad_dot(g, q, &p->value, rows->hk, j);
        for (int n = 0; n < rows_of_pair(p); n++)
            grad += grad_dot(g, q, &p->rel_value.array, q->h,
                             pair_row(p, n, q->b, q->i, j, &p->rel_value));
        kept[j] = prob * z;
        ds[j] = prob * (z * grad - delta);
        if (g->grad_mask.data)
            *(T *)(rp_at(&g->grad_mask, q->b, q->h, q->i) + j * g->grad_mask.col) =
                ds[j];
        if (rows->slopes)
            capped[j] = ds[j] * rows->slopes[j - j0];
        add_grad(&g->grad_query, &x, q->h, q->i, capped[j] * (T)p->scale, &p->key,
                 rows->hk, j);
        for (int n = 0; n < rows_of_pair(p); n++)
            add_grad(grad_left, &left, q->h, q->i, capped[j] * (T)rel_key_scale(p),
                     &p->rel_key.array, q->h,
                     pair_row(p, n, q->b, q->i, j, &p->rel_key));
    }
}

/* dS and weights of one query row of the wave, and the gradients that it alone adds to. */
static void
row_gradients_unit(void *context, int64_t unit, int worker)
{
    const rows_gradients_t *rg = context;
    const rows_plan_t *plan = &rg->plan;
    const int64_t row = rg->first + unit;
    T *ds = rg->ds + unit * rg->ld, *kept = rg->kept + unit * rg->ld;
    T *capped = rg->capped + unit * rg->ld, slopes[RP_STRETCH_KEYS];
    query_rows_t rows;
    const query_row_t *q = rows.row;
    start_rows(plan, &rows, row / plan->rows, 1,
               plan->scratch + worker * plan->scratch_size);
    start_row(plan, &rows, 0, row % plan->rows);
    rows.slopes = rg->g->forward.softcap > 0 ? slopes : NULL;
    memset(ds, 0, (size_t)rg->ld * sizeof(T));
    memset(capped, 0, (size_t)rg->ld * sizeof(T));
    memset(kept, 0, (size_t)rg->ld * sizeof(T));
    for (int64_t j0 = q->visible.begin; j0 < q->visible.end; j0 += RP_STRETCH_KEYS) {
        if (rp_stopping())
            return;
        stretch_gradients(rg->g, &rows, j0,
                          RP_MIN(j0 + RP_STRETCH_KEYS, q->visible.end), ds, capped,
                          kept);
    }
}

/* ---- what many rows add to ---------------------------------------------------------- */

/* Columns of a gradient of RP_SUMS; 0 where nobody wants it. */
static ptrdiff_t
shared_columns(const rp_gradients *g, int sum)
{
    const rp_array *grads[] = {
        [RP_SUM_KEY] = &g->grad_key,
        [RP_SUM_VALUE] = &g->grad_value,
        [RP_SUM_REL_KEY] = &g->grad_rel_key,
        [RP_SUM_REL_QUERY] = &g->grad_rel_query,
        [RP_SUM_REL_VALUE] = &g->grad_rel_value,
        [RP_SUM_U] = &g->grad_pos_bias_u,
        [RP_SUM_V] = &g->grad_pos_bias_v,
        [RP_SUM_BIAS] = &g->grad_rel_bias,
    };
    if (sum == RP_SUM_BIAS)
        return grads[sum]->data || bias_sums_count(g) > 0;
    if (!grads[sum]->data)
        return 0;
    return sum == RP_SUM_VALUE || sum == RP_SUM_REL_VALUE ? g->forward.Dv
           : sum == RP_SUM_REL_KEY || sum == RP_SUM_V     ? g->forward.Dp
                                                          : g->forward.D;
}

/* Adds what row n of a table's rows for the pair of row x and key j gives to a gradient of
 * RP_SUMS: kept is prob z, ds is dS, but for a bias what passes the cap. */
static void
add_pair_row(const rp_gradients *g, int sum, const row_columns_t *x, int64_t j, int n,
             T kept, T ds)
{
    const rp_attention *p = &g->forward;
    const rp_table *tables[] = {
        [RP_SUM_KEY] = &p->rel_query,       [RP_SUM_REL_QUERY] = &p->rel_query,
        [RP_SUM_REL_KEY] = &p->rel_key,     [RP_SUM_V] = &p->rel_key,
        [RP_SUM_REL_VALUE] = &p->rel_value, [RP_SUM_BIAS] = &p->rel_bias};
    const T f = ds * (T)p->scale, f_left = ds * (T)rel_key_scale(p);
    const int64_t l = pair_row(p, n, x->b, x->i, j, tables[sum]);
    switch (sum) {
    case RP_SUM_KEY:
        add_grad(&g->grad_key, x, x->hk, j, f, &p->rel_query.array, x->h, l);
        break;
    case RP_SUM_REL_KEY:
        add_grad(&g->grad_rel_key, x, x->h, l, f_left, rel_key_queries(p), x->h, x->i);
        add_grad(&g->grad_rel_key, x, x->h, l, f_left, &p->pos_bias_v, x->h, 0);
        break;
    case RP_SUM_REL_QUERY:
        add_grad(&g->grad_rel_query, x, x->h, l, f, &p->key, x->hk, j);
        break;
    case RP_SUM_REL_VALUE:
        add_grad(&g->grad_rel_value, x, x->h, l, kept, &g->grad_out, x->h, x->i);
        break;
    case RP_SUM_V:
        add_grad(&g->grad_pos_bias_v, x, x->h, 0, f_left, &p->rel_key.array, x->h, l);
        break;
    default:
        if (g->grad_rel_bias.data && l >= 0)
            *(T *)rp_at(&g->grad_rel_bias, x->b, x->h, l) += ds;
    }
}

/* Adds what the pair of row x and key j gives to a gradient of RP_SUMS. */
static void
add_pair(const rp_gradients *g, int sum, const row_columns_t *x, int64_t j, T kept,
         T ds)
{
    const rp_attention *p = &g->forward;
    const T f = ds * (T)p->scale;
    if (sum == RP_SUM_VALUE) {
        add_grad(&g->grad_value, x, x->hk, j, kept, &g->grad_out, x->h, x->i);
        return;
    }
    if (sum == RP_SUM_U) {
        add_grad(&g->grad_pos_bias_u, x, x->h, 0, f, &p->key, x->hk, j);
        return;
    }
    if (sum == RP_SUM_KEY) {
        add_grad(&g->grad_key, x, x->hk, j, f, &p->query, x->h, x->i);
        add_grad(&g->grad_key, x, x->hk, j, f, &p->pos_bias_u, x->h, 0);
    }
    for (int n = 0; n < rows_of_pair(p); n++)
        add_pair_row(g, sum, x, j, n, kept, ds);
}

/* Adds what the keys `seen` of a row give to the sums that a bias keeps of a head. The rows
 * of a head follow each other, whatever the waves: its first clears them, its last writes
 * them. */
static void
add_row_sums(const rows_gradients_t *rg, const row_columns_t *x, rp_interval seen,
             const T *ds)
{
    if (x->i == 0)
        memset(rg->bias_sums, 0, (size_t)bias_sums_count(rg->g) * sizeof(double));
    for (int64_t j0 = seen.begin; j0 < seen.end; j0 += RP_STRETCH_KEYS)
        sum_bias_run(&rg->plan.bias, rg->g, x->b, x->h, x->i, j0,
                     (int)RP_MIN(RP_STRETCH_KEYS, seen.end - j0), ds + j0,
                     rg->bias_sums);
    if (x->i == rg->plan.p->Lq - 1)
        add_bias_sums(rg->g, x->b, x->h, rg->bias_sums, 1);
}

/* Adds up RP_SUM_COLUMNS columns of one gradient of RP_SUMS, from all pairs of the wave.
 * Units number the blocks of columns of all gradients, one gradient after the other. */
static void
shared_columns_unit(void *context, int64_t unit, int worker)
{
    const rows_gradients_t *rg = context;
    const rp_attention *p = rg->plan.p;
    row_columns_t x = {.columns = 0};
    int sum = 0;
    (void)worker;
    for (;; sum++) { /* find the gradient that has block `unit` */
        ptrdiff_t columns = shared_columns(rg->g, sum);
        int64_t blocks = (columns + RP_SUM_COLUMNS - 1) / RP_SUM_COLUMNS;
        x.k0 = unit * RP_SUM_COLUMNS;
        x.columns = RP_MIN(RP_SUM_COLUMNS, columns - x.k0);
        if (unit < blocks)
            break;
        unit -= blocks;
    }
    for (int64_t n = 0; n < rg->count && !rp_stopping(); n++) {
        const T *ds = (sum == RP_SUM_BIAS ? rg->ds : rg->capped) + n * rg->ld;
        const T *kept = rg->kept + n * rg->ld;
        find_row(&rg->plan, rg->first + n, &x);
        rp_interval seen = rp_visible(p, x.b, x.i);
        for (int64_t j = seen.begin; j < seen.end; j++)
            if (ds[j] != 0 || kept[j] != 0)
                add_pair(rg->g, sum, &x, j, kept[j], ds[j]);
        if (sum == RP_SUM_BIAS && bias_sums_count(rg->g) > 0)
            add_row_sums(rg, &x, seen, ds);
    }
}

/* ---- the call ------------------------------------------------------------------------ */

static void
plan_rows_backward(rows_gradients_t *rg, const rp_gradients *g)
{
    const rp_attention *p = &g->forward;
    *rg = (rows_gradients_t){.g = g};
    plan_rows(&rg->plan, p);
    plan_bias(&rg->plan.bias, p, g);
    rg->ld = RP_ROUND_UP(p->Lk, VL) + VL;
    double bytes = (p->softcap > 0 ? 3 : 2) * (double)rg->ld * sizeof(T);
    rg->wave = (int64_t)(p->threads * (double)RP_WAVE_BYTES / bytes);
    rg->wave = RP_MIN(RP_MAX(rg->wave, p->threads), p->B * p->Hk * rg->plan.rows);
}

static void
lay_out_rows_backward(void *context, arena_t *arena)
{
    rows_gradients_t *rg = context;
    size_t row = (size_t)rg->ld * sizeof(T);
    rg->plan.scratch =
        take(arena, rg->plan.p->threads, (size_t)rg->plan.scratch_size * sizeof(T));
    rg->ds = take(arena, rg->wave, row);
    rg->kept = take(arena, rg->wave, row);
    rg->capped = rg->plan.p->softcap > 0 ? take(arena, rg->wave, row) : rg->ds;
    rg->bias_sums = take(arena, bias_sums_count(rg->g), sizeof(double));
    lay_out_bias(&rg->plan.bias, arena);
}

static rp_status
run_rows_backward(rows_gradients_t *rg)
{
    const rp_attention *p = rg->plan.p;
    const int64_t all = p->B * p->Hk * rg->plan.rows;
    int64_t units = 0;
    rp_status status = RP_OK;
    for (int sum = 0; sum < RP_SUMS; sum++)
        units += (shared_columns(rg->g, sum) + RP_SUM_COLUMNS - 1) / RP_SUM_COLUMNS;
    for (; !status && rg->first < all; rg->first += rg->count) {
        rg->count = RP_MIN(rg->wave, all - rg->first);
        status = rp_parallel(rg->count, row_gradients_unit, rg, p->threads);
        if (!status)
            status = rp_parallel(units, shared_columns_unit, rg, p->threads);
    }
    return status;
}

/* Runs the problem, or only counts: see `reserve`. */
static rp_status
backward_by_rows(const rp_gradients *g, size_t *bytes)
{
    rows_gradients_t rg;
    arena_t arena;
    plan_rows_backward(&rg, g);
    rp_status status = reserve(&arena, lay_out_rows_backward, &rg, bytes);
    if (status || bytes)
        return status;
    status = start_bias(&rg.plan.bias);
    if (!status)
        status = run_rows_backward(&rg);
    rp_free(arena.memory);
    return status;
}

#endif
