/* partials.h: partial sums of the gradients that several units add to: which there are, the
 * rows that a unit can add to, and how they are added up. */
#ifndef RELPOS_ATTENTION_TILES_PARTIALS_H
#define RELPOS_ATTENTION_TILES_PARTIALS_H

#include "gradients.h"

enum {
    RP_SUM_ROWS = 32,  /* rows of a gradient that a unit adds partial sums to */
    RP_SUM_WIDTH = 32, /* columns of them at a time, in double */
};

/* Query tiles that may see a key of a chunk by window and length: [begin, end). */
static rp_interval
window_queries(const gradients_t *gp, int64_t b, int64_t chunk)
{
    const rp_attention *p = gp->plan.p;
    int64_t first = chunk * gp->chunk_keys, end = first + gp->chunk_keys;
    int64_t low = 0, high = query_tiles(gp), middle;
    rp_interval tiles = {0, 0};
    while (low < high) { /* what a row sees never moves back as rows go on */
        middle = low + (high - low) / 2;
        rp_assert(low <= middle && middle < high);
        if (rp_in_window(p, b, RP_MIN(p->Lq, (middle + 1) * BQ) - 1).end <= first)
            low = middle + 1;
        else
            high = middle;
    }
    tiles.begin = low;
    high = query_tiles(gp);
    while (low < high) {
        middle = low + (high - low) / 2;
        rp_assert(low <= middle && middle < high);
        if (rp_in_window(p, b, middle * BQ).begin < end)
            low = middle + 1;
        else
            high = middle;
    }
    tiles.end = low;
    return tiles;
}

/* Query tiles that see a key of a chunk, by range. */
static rp_interval
range_queries(const gradients_t *gp, int64_t b, int64_t chunk)
{
    rp_interval keys = {chunk * gp->chunk_keys, (chunk + 1) * gp->chunk_keys};
    rp_interval within = window_queries(gp, b, chunk), tiles = {within.end, within.end};
    for (int64_t tile = within.begin; tile < within.end; tile++) {
        rp_interval any = sight_of(&gp->plan.shown, b, tile * BQ, 1).any;
        any = rp_overlap(any, keys);
        if (any.begin == any.end)
            continue;
        tiles.begin = RP_MIN(tiles.begin, tile);
        tiles.end = tile + 1;
    }
    return tiles;
}

static void
start_queries_met(gradients_t *gp)
{
    for (int64_t n = 0; gp->met && n < gp->plan.p->B * gp->chunks; n++)
        gp->met[n] = range_queries(gp, n / gp->chunks, n % gp->chunks);
}

/* Query tiles that see a key of a chunk: [begin, end). */
RP_INLINE rp_interval
chunk_queries(const gradients_t *gp, int64_t b, int64_t chunk)
{
    return gp->met ? gp->met[b * gp->chunks + chunk] : window_queries(gp, b, chunk);
}

/* The query tiles of each chunk, in any batch item. */
static void
plan_queries(gradients_t *gp)
{
    const rp_attention *p = gp->plan.p;
    const int64_t *lengths = p->sight.key_lengths;
    for (int64_t chunk = 0; chunk < gp->chunks; chunk++) {
        rp_interval *all = &gp->queries[chunk];
        *all = window_queries(gp, 0, chunk);
        for (int64_t b = 1; b < p->B; b++) {
            if (rp_query_offset(p, b) == rp_query_offset(p, b - 1) &&
                (!lengths || lengths[b] == lengths[b - 1]))
                continue;
            rp_interval tiles = window_queries(gp, b, chunk);
            if (tiles.begin == tiles.end)
                continue;
            all->begin =
                all->begin == all->end ? tiles.begin : RP_MIN(all->begin, tiles.begin);
            all->end = RP_MAX(all->end, tiles.end);
        }
        int64_t rows = gp->starts[chunk] + (all->end - all->begin) * BQ;
        rp_assert(0 <= rows && rows <= RP_CHUNKS * gp->plan.Lq_pad);
        gp->starts[chunk + 1] = rows;
    }
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
    *first = s->first + t - r0;
    *end = *first + 1;
    if (p->beyond == RP_CLIP && t == 0)
        *first = 0;
    if (p->beyond == RP_CLIP && t == s->grad_rows - 1)
        *end = s->rows;
    *first = RP_MIN(RP_MAX(*first, span.begin), span.end);
    *end = RP_MIN(RP_MAX(*end, *first), span.end);
}

/* Rows of a partial: by band column, or those of the table, as LISTED packs them. */
RP_INLINE int64_t
rows_of_partial(const gradients_t *gp, int path, int64_t grad_rows)
{
    if (path == RP_BAND)
        return gp->chunk_keys + gp->plan.Lq_pad;
    return path == RP_LISTED ? grad_rows + TAIL_ROWS : grad_rows;
}

static void
plan_partial(gradients_t *gp, int which, const rp_array *grad, int path,
             const rp_table *table, ptrdiff_t columns, double factor)
{
    partial_t *s = &gp->partials[which];
    int64_t grad_rows = path == RP_LISTED ? listed_rows(table) : table->rows;
    int64_t rows = rows_of_partial(gp, path, grad_rows);
    int is_whole = path == RP_LISTED && packs_array(table);
    ptrdiff_t width = which == RP_GRAD_BIAS ? 1 : RP_ROUND_UP(columns, VL);
    *s = (partial_t){.grad = grad,
                     .path = path,
                     .rows = rows,
                     .grad_rows = grad_rows,
                     .first = table->first,
                     .index = is_whole ? NULL : table->index,
                     .listed = table->listed,
                     .columns = columns,
                     .width = width,
                     .factor = (T)factor};
    for (int64_t chunk = 0; chunk < gp->chunks; chunk++) {
        rp_interval span = partial_span(gp, s, gp->queries[chunk]);
        s->spans[chunk] = span;
        int64_t next = s->starts[chunk] + span.end - span.begin;
        rp_assert(0 <= next && next <= RP_CHUNKS * rows);
        s->starts[chunk + 1] = next;
    }
}

static void
plan_partials(gradients_t *gp)
{
    const rp_gradients *g = gp->g;
    const rp_attention *p = &g->forward;
    const plan_t *plan = &gp->plan;
    const rp_table one_row = {.rows = 1};
    int bias = has_labels(p) ? RP_LABELS : RP_BAND;
    plan_partial(gp, RP_GRAD_KEY, &g->grad_rel_key, plan->rel_key.path, &p->rel_key,
                 p->Dp, RP_LN2);
    plan_partial(gp, RP_GRAD_QUERY, &g->grad_rel_query, plan->rel_query.path,
                 &p->rel_query, p->D, p->scale);
    plan_partial(gp, RP_GRAD_VALUE, &g->grad_rel_value, plan->rel_value.path,
                 &p->rel_value, p->Dv, 1);
    plan_partial(gp, RP_GRAD_BIAS, &g->grad_rel_bias, bias, &p->rel_bias, 1, 1);
    plan_partial(gp, RP_GRAD_U, &g->grad_pos_bias_u, RP_ROWS, &one_row, p->D, p->scale);
    plan_partial(gp, RP_GRAD_V, &g->grad_pos_bias_v, RP_ROWS, &one_row, p->Dp,
                 rel_key_scale(p));
}

static void
clear_partials(const gradients_t *gp, grad_scratch_t *w, const visit_t *x,
               rp_interval tiles)
{
    const plan_t *plan = &gp->plan;
    const int64_t first = tiles.begin * BQ, last = RP_MAX(tiles.end - 1, 0) * BQ;
    const int64_t end = last + padded_rows((int)RP_MIN(BQ, plan->p->Lq - last));
    const int64_t rows = tiles.end > tiles.begin ? end - first : 0;
    for (int which = 0; which < RP_PARTIALS; which++) {
        const partial_t *s = &gp->partials[which];
        rp_interval span = partial_span(gp, s, tiles);
        if (s->data && span.end > span.begin)
            memset(partial_of(gp, which, x->index, x->chunk) + span.begin * s->width, 0,
                   (size_t)((span.end - span.begin) * s->width) * sizeof(T));
    }
    memset(bias_sums_of(gp, x->index, x->chunk), 0,
           (size_t)bias_sums_count(gp->g) * sizeof(double));
    if (gp->ends)
        memset(ends_of(gp, x->index, x->chunk) + first, 0,
               (size_t)rows * sizeof(row_ends_t));
    for (int which = 0; which < RP_QUERY_SUMS; which++) {
        T *sums = query_sums_of(gp, which, x->index, x->chunk);
        ptrdiff_t width = gp->query_sums[which].width;
        if (sums)
            memset(sums + first * width, 0, (size_t)(rows * width) * sizeof(T));
    }
    if (by_row(&plan->rel_key))
        memset(w->key_sums + first * plan->rel_key.stride, 0,
               (size_t)(rows * plan->rel_key.stride) * sizeof(T));
    if (by_row(&plan->rel_value))
        memset(w->value_sums + first * plan->rel_value.stride, 0,
               (size_t)(rows * plan->rel_value.stride) * sizeof(T));
    if (gp->narrow)
        memset(w->narrow_sums, 0,
               (size_t)(plan->p->Dp * (gp->chunk_keys + plan->Lq_pad)) * sizeof(T));
    const size_t offsets = (size_t)(gp->chunk_keys + plan->Lq_pad) * sizeof(double);
    if (wants(gp, RP_GRAD_BIAS) || wants(gp, RP_GRAD_V))
        memset(w->offset_sums, 0, offsets);
    if (w->v_sums != w->offset_sums)
        memset(w->v_sums, 0, offsets);
    if (wants(gp, RP_GRAD_U))
        memset(w->column_sums, 0, (size_t)gp->chunk_keys * sizeof(double));
}

/* ---- adding them up -------------------------------------------------------------- */

/* Adds the sums of one head of each of the wave's batch items to the gradient of the bias. */
static void
sum_bias_unit(void *context, int64_t unit, int worker)
{
    const gradients_t *gp = context;
    const plan_t *plan = &gp->plan;
    (void)worker;
    for (int64_t index = 0; index < plan->slices * plan->group; index++) {
        int64_t b, h;
        head_at(plan, index, &b, &h);
        if (h == unit)
            add_bias_sums(gp->g, b, h, bias_sums_of(gp, index, 0), gp->chunks);
    }
}

static rp_status
sum_bias_gradient(gradients_t *gp)
{
    const rp_attention *p = gp->plan.p;
    if (bias_sums_count(gp->g) == 0)
        return RP_OK;
    return rp_parallel(p->H, sum_bias_unit, gp, p->threads);
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

/* Where partials of a head go: whether a unit of work has the copy of the gradient. */
RP_INLINE int
adds_to_copy(const partial_sum_t *sum, int64_t copy, int64_t b, int64_t h)
{
    const rp_array *grad = sum->s->grad;
    return !(grad->batch && b != copy / sum->heads) &&
           !(grad->head && h != copy % sum->heads);
}

/* sums += columns [k, k + columns) of the partial rows of row t of a table, of one head. */
static void
add_row_partials(const gradients_t *gp, const partial_t *s, int64_t index, int64_t b,
                 const rp_interval *spans, int64_t t, ptrdiff_t k, ptrdiff_t columns,
                 double *sums)
{
    for (int64_t chunk = 0; chunk < gp->chunks; chunk++) {
        int64_t first, end;
        const T *data = partial_at(gp, s, index, chunk) + k;
        partial_rows(gp, s, b, chunk, spans[chunk], t, &first, &end);
        for (int64_t n = first; n < end; n++)
            for (ptrdiff_t i = 0; i < columns; i++)
                sums[i] += data[n * s->width + i];
    }
}

/* Adds the partials of a head to rows [first, end), and `columns` columns from k on, of a
 * gradient of which several rows of the partials may be one row. */
static void
sum_listed_columns(const gradients_t *gp, const partial_t *s, int64_t index,
                   int64_t first, int64_t end, ptrdiff_t k, ptrdiff_t columns)
{
    double sums[RP_SUM_ROWS * RP_SUM_WIDTH] = {0};
    rp_interval spans[RP_CHUNKS];
    int64_t b, h;
    head_at(&gp->plan, index, &b, &h);
    for (int64_t chunk = 0; chunk < gp->chunks; chunk++)
        spans[chunk] = partial_span(gp, s, chunk_queries(gp, b, chunk));
    for (int64_t t = 0; t < s->grad_rows; t++)
        if (first <= s->index[t] && s->index[t] < end)
            add_row_partials(gp, s, index, b, spans, t, k, columns,
                             sums + (s->index[t] - first) * RP_SUM_WIDTH);
    for (int64_t row = first; row < end; row++) {
        char *to = rp_at(s->grad, b, h, row) + k * s->grad->col;
        for (ptrdiff_t i = 0; i < columns; i++)
            *(T *)(to + i * s->grad->col) +=
                (T)(s->factor * sums[(row - first) * RP_SUM_WIDTH + i]);
    }
}

/* A block of rows of a copy, where an index lists them. Sums of a head are rounded before the
 * next head's are added, so that bits do not depend on which heads a wave has. */
static void
sum_listed_unit(void *context, int64_t unit, int worker)
{
    const partial_sum_t *sum = context;
    const gradients_t *gp = sum->gp;
    const partial_t *s = sum->s;
    int64_t copy = unit / sum->blocks, first = unit % sum->blocks * RP_SUM_ROWS;
    int64_t end = RP_MIN(s->listed, first + RP_SUM_ROWS);
    (void)worker;
    for (int64_t index = 0; index < gp->plan.slices * gp->plan.group; index++) {
        int64_t b, h;
        head_at(&gp->plan, index, &b, &h);
        for (ptrdiff_t k = 0; adds_to_copy(sum, copy, b, h) && k < s->columns;
             k += RP_SUM_WIDTH)
            sum_listed_columns(gp, s, index, first, end, k,
                               RP_MIN(RP_SUM_WIDTH, s->columns - k));
    }
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
    int64_t last = RP_MIN(s->grad_rows, (block + 1) * RP_SUM_ROWS);
    for (int64_t index = 0; index < gp->plan.slices * gp->plan.group; index++) {
        int64_t b, h;
        head_at(&gp->plan, index, &b, &h);
        if (!adds_to_copy(sum, copy, b, h))
            continue;
        rp_interval spans[RP_CHUNKS];
        for (int64_t chunk = 0; chunk < gp->chunks; chunk++)
            spans[chunk] = partial_span(gp, s, chunk_queries(gp, b, chunk));
        for (int64_t t = block * RP_SUM_ROWS; t < last; t++) /* chunks side by side */
            for (int64_t chunk = 0; chunk < gp->chunks; chunk++) {
                int64_t first, end;
                const T *data = partial_at(gp, s, index, chunk);
                partial_rows(gp, s, b, chunk, spans[chunk], t, &first, &end);
                for (int64_t n = first; n < end; n++)
                    add_partial_row(rp_at(s->grad, b, h, t), s->grad->col, s->factor,
                                    data + n * s->width, s->columns);
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
    int64_t rows = s->index ? s->listed : s->grad_rows;
    sum.blocks = (rows + RP_SUM_ROWS - 1) / RP_SUM_ROWS;
    return rp_parallel((s->grad->batch ? p->B : 1) * sum.heads * sum.blocks,
                       s->index ? sum_listed_unit : sum_partial_unit, &sum, p->threads);
}

#endif
