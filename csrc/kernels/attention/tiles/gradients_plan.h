/* gradients_plan.h: the layout of the backward: what is packed, which partial sums there
 * are, and how they are added up.
 *
 * A unit is one key head and one chunk of key tiles; chunks are cut from Lk alone. It owns
 * its rows of grad_key and grad_value. What several units add to, grad_query and the
 * gradients of tables, u and v, each query head of each unit sums up for itself, and the
 * partial sums are added in the order (batch item, head, chunk): the same bits for any
 * number of threads. */
#ifndef RELPOS_ATTENTION_TILES_GRADIENTS_PLAN_H
#define RELPOS_ATTENTION_TILES_GRADIENTS_PLAN_H

#include "forward.h"

/* Terms of grad_out . rel_value summed up at a time. All pairs of a table row share its
 * rounding, and dP - delta does not cancel it as a softmax kept in memory would. */
#define VALUE_BLOCK 8

/* Operands of one query head (b, h), all rows. */
typedef struct {
    T *rows_u, *rows_v;       /* (q + u) and (q + v), times scale * log2e */
    T *grad_rows;             /* grad_out */
    T *max, *norm;            /* largest logit; 1 / sum of a row, 0: saw no key */
    T *delta;                 /* grad_out . out - grad_lse */
    T *key_dots, *value_dots; /* ROWS and LABELS: (q + v).A and grad_out . W */
    unsigned char *bad;       /* per query tile: NaN or infinity in q or grad_out */
} head_t;

/* Partial sums of one gradient: `rows` rows of `width` elements for each (head, chunk). */
typedef struct {
    const rp_array *grad;
    int path; /* BAND: row n is band column n + first key of the chunk */
    int64_t rows, grad_rows, min_position;
    ptrdiff_t columns, width;
    T factor;
    T *data; /* NULL: not asked for */
} partial_t;

/* Sums of one query over the keys of a chunk: dS; p of the pairs beyond either end of
 * rel_key. */
typedef struct {
    double grad, share[2];
} row_ends_t;

typedef struct {
    plan_t plan; /* of the forward: paths, bands, keys and values of the wave */
    const rp_gradients *g;
    copies_t key_rows, query_rows, value_panels; /* tables, as products need them */
    int key_rows_bad;
    int copy_keys, correct_ends;
    double *fire_sums;         /* per head of the wave and chunk, NULL: not asked for */
    T *key_copy, *value_panel; /* per slice: keys as rows; values as panels */
    unsigned char *keys_bad;   /* per slice and key tile */
    int64_t chunk_keys, chunks;
    T *heads, *grad_query; /* per head of the wave: operands; per chunk: partial sums */
    row_ends_t *ends;      /* per head and chunk, all rows; NULL: not corrected */
    ptrdiff_t head_size;
    unsigned char *heads_bad;
    partial_t partials[RP_PARTIALS];
    char *memory; /* all of the above but the tables, and the workers' scratch */
    size_t used;
    int failed;
} gradients_t;

RP_INLINE int64_t
query_tiles(const gradients_t *gp)
{
    return gp->plan.Lq_pad / BQ;
}

/* Query tiles that see any key of a chunk: [begin, end). */
static rp_interval
chunk_queries(const gradients_t *gp, int64_t b, int64_t chunk)
{
    const rp_attention *p = gp->plan.p;
    int64_t first = chunk * gp->chunk_keys, end = first + gp->chunk_keys;
    rp_interval tiles = {0, query_tiles(gp)};
    while (tiles.begin < tiles.end &&
           rp_visible(p, b, RP_MIN(p->Lq, (tiles.begin + 1) * BQ) - 1).end <= first)
        tiles.begin++;
    while (tiles.end > tiles.begin &&
           rp_visible(p, b, (tiles.end - 1) * BQ).begin >= end)
        tiles.end--;
    return tiles;
}

/* Rows of a partial that those query tiles can add to: [begin, end). */
RP_INLINE rp_interval
partial_span(const gradients_t *gp, const partial_t *s, rp_interval tiles)
{
    rp_interval all = {0, s->rows}, none = {0, 0};
    if (tiles.begin == tiles.end)
        return none;
    if (s->path != RP_BAND)
        return all;
    all.begin = gp->plan.Lq_pad - tiles.end * BQ;
    all.end = RP_MIN(s->rows, gp->plan.Lq_pad - tiles.begin * BQ + gp->chunk_keys);
    return all;
}

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

/* ---- packing ------------------------------------------------------------------------ */

/* a . b in double, in 8 sums whatever the column stride of b: the same bits. */
RP_INLINE double
long_dot(const T *a, const char *b, ptrdiff_t step, ptrdiff_t count)
{
    double sums[8] = {0};
    ptrdiff_t k = 0;
    for (; k + 8 <= count; k += 8)
        for (int i = 0; i < 8; i++)
            sums[i] += (double)a[k + i] * *(const T *)(b + (k + i) * step);
    for (; k < count; k++)
        sums[k % 8] += (double)a[k] * *(const T *)(b + k * step);
    for (int n = 4; n >= 1; n /= 2)
        for (int i = 0; i < n; i++)
            sums[i] += sums[i + n];
    return sums[0];
}

/* What each row of one query tile subtracts and is divided by. */
static void
pack_row_sums(const gradients_t *gp, head_t *head, int64_t b, int64_t h, int64_t i0,
              int64_t end)
{
    const rp_attention *p = gp->plan.p;
    const rp_gradients *g = gp->g;
    for (int64_t i = i0; i < i0 + BQ; i++) {
        head->max[i] = head->norm[i] = head->delta[i] = 0;
        if (i >= end)
            continue;
        T row_sum = *(const T *)rp_at(&p->row_sum, b, h, i);
        double sum = 0;
        const char *out = rp_at(&p->out, b, h, i);
        const T *grad = head->grad_rows + i * gp->plan.Dv_pad;
        if (g->grad_out.data && p->out.col == (ptrdiff_t)sizeof(T))
            sum = long_dot(grad, out, sizeof(T), p->Dv);
        else if (g->grad_out.data)
            sum = long_dot(grad, out, p->out.col, p->Dv);
        if (g->grad_lse.data)
            sum -= *(const T *)rp_at(&g->grad_lse, b, h, i);
        head->max[i] = *(const T *)rp_at(&p->row_max, b, h, i);
        head->norm[i] = row_sum == 0 ? 0 : 1 / row_sum;
        head->delta[i] = (T)sum;
    }
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
    int64_t rows = RP_MIN(BQ, p->Lq - i0);
    const rp_array *grad = &gp->g->grad_out;
    head_t head = head_of(gp, index, NULL);
    pack_queries(plan, b, h, i0, rows, BQ, head.rows_u + i0 * plan->D_pad,
                 head.rows_v + i0 * plan->D_pad);
    for (int64_t i = i0; i < i0 + BQ; i++)
        pack_row(head.grad_rows + i * plan->Dv_pad,
                 grad->data && i < i0 + rows ? rp_at(grad, b, h, i) : NULL, grad->col,
                 p->Dv, plan->Dv_pad);
    pack_row_sums(gp, &head, b, h, i0, i0 + rows);
    const ptrdiff_t size = sizeof(T);
    head.bad[i0 / BQ] =
        (unsigned char)(not_finite((const char *)(head.rows_u + i0 * plan->D_pad),
                                   plan->D_pad * size, size, rows, plan->D_pad) ||
                        (head.rows_v != head.rows_u &&
                         not_finite((const char *)(head.rows_v + i0 * plan->D_pad),
                                    plan->D_pad * size, size, rows, plan->D_pad)) ||
                        not_finite((const char *)(head.grad_rows + i0 * plan->Dv_pad),
                                   plan->Dv_pad * size, size, rows, plan->Dv_pad));
    if (head.key_dots)
        gemm_set(head.rows_v + i0 * plan->D_pad, plan->D_pad,
                 copy_of(&plan->rel_key, b, h), BQ, plan->key_stride, p->D, p->D,
                 head.key_dots + i0 * plan->key_stride, plan->key_stride);
    if (head.value_dots) {
        ptrdiff_t stride = RP_ROUND_UP(p->value_rows, NR);
        gemm_set(head.grad_rows + i0 * plan->Dv_pad, plan->Dv_pad,
                 copy_of(&gp->value_panels, b, h), BQ, stride, p->Dv, VALUE_BLOCK,
                 head.value_dots + i0 * stride, stride);
    }
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
        pack_panel(values + j * p->Dv, rows, p->value.col, p->Dv, 1, NR * p->value.row);
    }
    end = RP_MIN(end, p->Lk);
    for (int64_t j = j0; gp->copy_keys && j < end; j++)
        pack_row(gp->key_copy + (slice * p->Lk + j) * plan->D_pad,
                 rp_at(&p->key, b, hk, j), p->key.col, p->D, plan->D_pad);
    gp->keys_bad[unit] = (unsigned char)not_finite(
        rp_at(&p->key, b, hk, j0), p->key.row, p->key.col, end - j0, p->D);
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

/* ---- adding partial sums up ----------------------------------------------------------- */

RP_INLINE T *
partial_of(const gradients_t *gp, int which, int64_t index, int64_t chunk)
{
    const partial_t *s = &gp->partials[which];
    return s->data ? s->data + (index * gp->chunks + chunk) * s->rows * s->width : NULL;
}

RP_INLINE T *
grad_query_of(const gradients_t *gp, int64_t index, int64_t chunk)
{
    return gp->grad_query ? gp->grad_query + (index * gp->chunks + chunk) *
                                                 gp->plan.Lq_pad * gp->plan.D_pad
                          : NULL;
}

/* Rows [*first, *end) of a partial that belong to row t of the gradient. */
RP_INLINE void
partial_rows(const gradients_t *gp, const partial_t *s, int64_t b, int64_t chunk,
             rp_interval span, int64_t t, int64_t *first, int64_t *end)
{
    const rp_attention *p = gp->plan.p;
    *first = RP_MIN(t, span.end);
    *end = RP_MIN(t + 1, span.end);
    if (s->path != RP_BAND)
        return;
    /* r of row 0 of the partial: band column w = first key of the chunk */
    int64_t r0 = chunk * gp->chunk_keys + 1 - gp->plan.Lq_pad - rp_query_offset(p, b);
    *first = s->min_position + t - r0;
    *end = *first + 1;
    if (p->beyond == RP_CLIP && t == 0)
        *first = 0;
    if (p->beyond == RP_CLIP && t == s->grad_rows - 1)
        *end = s->rows;
    *first = RP_MIN(RP_MAX(*first, span.begin), span.end);
    *end = RP_MIN(RP_MAX(*end, *first), span.end);
}

RP_INLINE double *
fire_sums_of(const gradients_t *gp, int64_t index, int64_t chunk)
{
    return gp->fire_sums ? gp->fire_sums + (index * gp->chunks + chunk) *
                                               fire_sums_count(gp->plan.p)
                         : NULL;
}

/* Adds the wave's sums for FIRE to its gradient: few, so one after the other. */
static void
sum_fire(const gradients_t *gp)
{
    const plan_t *plan = &gp->plan;
    for (int64_t index = 0; gp->fire_sums && index < plan->slices * plan->group;
         index++) {
        int64_t b, h;
        head_at(plan, index, &b, &h);
        for (int64_t chunk = 0; chunk < gp->chunks; chunk++)
            add_fire_sums(gp->g, b, h, fire_sums_of(gp, index, chunk));
    }
}

typedef struct {
    const gradients_t *gp;
    const partial_t *s;
    int64_t heads, blocks;
} partial_sum_t;

/* row (column stride `step`) += factor * terms */
RP_INLINE void
add_partial_row(char *row, ptrdiff_t step, T factor, const T *terms, ptrdiff_t count)
{
    ptrdiff_t k = 0;
    if (step == (ptrdiff_t)sizeof(T))
        for (; k + VL <= count; k += VL)
            store((T *)row + k, load((T *)row + k) + factor * load(terms + k));
    for (; k < count; k++)
        *(T *)(row + k * step) += factor * terms[k];
}

/* Adds every partial of the wave to one block of rows of one copy of a gradient. */
static void
sum_partial_unit(void *context, int64_t unit, int worker)
{
    const partial_sum_t *sum = context;
    const gradients_t *gp = sum->gp;
    const partial_t *s = sum->s;
    (void)worker;
    int64_t block = unit % sum->blocks, copy = unit / sum->blocks;
    int64_t copy_h = copy % sum->heads, copy_b = copy / sum->heads;
    int64_t last = RP_MIN(s->grad_rows, (block + 1) * RP_SUM_ROWS);
    for (int64_t index = 0; index < gp->plan.slices * gp->plan.group; index++) {
        int64_t b, h;
        head_at(&gp->plan, index, &b, &h);
        if ((s->grad->batch && b != copy_b) || (s->grad->head && h != copy_h))
            continue;
        rp_interval spans[RP_CHUNKS];
        for (int64_t chunk = 0; chunk < gp->chunks; chunk++)
            spans[chunk] = partial_span(gp, s, chunk_queries(gp, b, chunk));
        const ptrdiff_t size = s->rows * s->width;
        const T *data = s->data + index * gp->chunks * size;
        for (int64_t t = block * RP_SUM_ROWS; t < last; t++) /* chunks side by side */
            for (int64_t chunk = 0; chunk < gp->chunks; chunk++) {
                int64_t first, end;
                partial_rows(gp, s, b, chunk, spans[chunk], t, &first, &end);
                for (int64_t n = first; n < end; n++)
                    add_partial_row(rp_at(s->grad, b, h, t), s->grad->col, s->factor,
                                    data + chunk * size + n * s->width, s->columns);
            }
    }
}

static rp_status
sum_partial(const gradients_t *gp, int which)
{
    const partial_t *s = &gp->partials[which];
    const rp_attention *p = gp->plan.p;
    partial_sum_t sum = {gp, s, s->data && s->grad->head ? p->H : 1, 0};
    if (!s->data)
        return RP_OK;
    sum.blocks = (s->grad_rows + RP_SUM_ROWS - 1) / RP_SUM_ROWS;
    return rp_parallel((s->grad->batch ? p->B : 1) * sum.heads * sum.blocks,
                       sum_partial_unit, &sum, p->threads);
}

#endif
