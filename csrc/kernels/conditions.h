/* conditions.h: whether a problem is as problems.h says. Only builds for debugging look: in
 * others nothing calls these functions. Each asserts what it finds, and returns 1. */
#ifndef RELPOS_CONDITIONS_H
#define RELPOS_CONDITIONS_H

#include "attention/sight.h"

RP_INLINE int
is_within(int64_t x, int64_t low, int64_t high)
{
    return low <= x && x <= high;
}

/* A side of a window that hides something. */
RP_INLINE int
is_side(int64_t side, int64_t low)
{
    return side == RP_UNBOUNDED || is_within(side, low, RP_WIDEST);
}

/* Along the batch all items have the same gradient, or each has its own. */
RP_INLINE int
is_apart(const rp_array *gradient, int64_t B)
{
    if (!gradient->data || !gradient->batch)
        return 1;
    for (int64_t b = 1; b < B; b++)
        if (gradient->batch[b] == gradient->batch[0])
            return 0;
    return 1;
}

/* Item b differs from item 0 in an array wherever its query_offset does. */
RP_INLINE int
follows_offset(const rp_attention *p, const rp_array *array, int64_t b)
{
    return rp_query_offset(p, b) == rp_query_offset(p, 0) ||
           (array->batch && array->batch[b] != array->batch[0]);
}

/* ---- results ------------------------------------------------------------------------- */

/* Whether no two items of a result lie at one place. The axes of an array and of its views
 * nest: the longer step of two passes all items of the other. */
RP_INLINE int
is_spread(const rp_array *a, int64_t B, int64_t H, int64_t rows, int64_t columns,
          ptrdiff_t size)
{
    const int64_t n[] = {H, rows, columns};
    const ptrdiff_t steps[] = {RP_MAX(a->head, -a->head), RP_MAX(a->row, -a->row),
                               RP_MAX(a->col, -a->col)};
    if (!a->data || B == 0 || H == 0 || rows == 0 || columns == 0)
        return 1;
    for (int axis = 0; axis < 3; axis++) {
        ptrdiff_t within = size; /* bytes of all items that a step passes */
        for (int other = 0; other < 3; other++)
            if (other != axis && n[other] > 1 && steps[other] <= steps[axis])
                within += steps[other] * (n[other] - 1);
        if (n[axis] > 1 && steps[axis] < within)
            return 0;
    }
    return B == 1 || (a->batch && is_apart(a, B));
}

/* Whether `count` results begin at places of their own, and not where anything that is read
 * begins. */
RP_INLINE int
begin_apart(const rp_array *const results[], int count, const rp_array *const read[],
            int read_count)
{
    for (int k = 0; k < count; k++) {
        const char *begin = results[k]->data;
        for (int other = 0; begin && other < k; other++)
            if (results[other]->data == begin)
                return 0;
        for (int other = 0; begin && other < read_count; other++)
            if (read[other]->data == begin)
                return 0;
    }
    return 1;
}

RP_INLINE int
check_sight(const rp_attention *p)
{
    const rp_sight *sight = &p->sight;
    int64_t left = sight->window_left;
    rp_assert(is_side(left, 0));
    rp_assert(
        is_side(sight->window_right, left == RP_UNBOUNDED ? -RP_FARTHEST : -left));
    for (int64_t b = 0; b < p->B; b++) {
        rp_assert(is_within(rp_query_offset(p, b), -RP_FARTHEST, RP_FARTHEST));
        rp_assert(!sight->key_lengths || is_within(sight->key_lengths[b], 0, p->Lk));
        rp_assert(!p->fire.lines.data || follows_offset(p, &p->fire.offsets, b));
    }
    if (!sight->key_blocks.data)
        return 1;
    rp_assert(is_within(sight->block_heads, 1, RP_LONGEST));
    rp_assert(p->H % sight->block_heads == 0);
    rp_assert(is_within(sight->block_queries, 1, RP_LONGEST));
    rp_assert(is_within(sight->block_keys, 1, RP_LONGEST));
    return 1;
}

RP_INLINE int
check_lengths(const rp_attention *p)
{
    rp_assert(p->B >= 0 && p->Lq >= 0 && p->Lk >= 0 && p->D >= 0 && p->Dv >= 0);
    rp_assert(rp_longest(p) <= RP_LONGEST);
    rp_assert((double)p->B * (double)p->H * (double)p->Lq <= RP_MOST_ROWS);
    rp_assert(p->Hk > 0 && p->H % p->Hk == 0);
    rp_assert(p->position_query.data || p->Dp == p->D);
    return 1;
}

RP_INLINE int
is_decay_finite(const rp_attention *p)
{
    const rp_table *decay = &p->log_decay;
    for (int64_t b = 0; decay->array.data && b < p->B; b++)
        for (int64_t h = 0; h < p->H; h++)
            for (int64_t t = 0; t < decay->rows; t++)
                if (!isfinite(*(const T *)rp_at(&decay->array, b, h, t)))
                    return 0;
    return 1;
}

/* An index lists rows of its table. */
RP_INLINE int
check_index(const rp_attention *p, const rp_table *table)
{
    if (!table->array.data || !table->index)
        return 1;
    rp_assert(p->labels.count == 0 && table->listed > 0);
    for (int64_t l = 0; l < table->rows; l++)
        rp_assert(is_within(table->index[l], 0, table->listed - 1));
    return 1;
}

/* Labels, and a decay, which hides the keys after a query. */
RP_INLINE int
check_pairs(const rp_attention *p)
{
    const rp_table *decay = &p->log_decay;
    rp_assert(is_within(p->labels.count, 0, RP_MOST_LABELS));
    for (int k = 0; k < p->labels.count; k++) {
        int size = p->labels.of[k].size;
        rp_assert(size == 1 || size == 2 || size == 4 || size == 8);
    }
    rp_assert(p->dropout.p >= 0 && p->dropout.p < 1);
    rp_assert(!decay->array.data || decay->rows >= p->Lk);
    rp_assert(is_decay_finite(p));
    return 1;
}

/* What attention writes. */
RP_INLINE int
check_results(const rp_attention *p)
{
    const rp_results *to = &p->results;
    const rp_array *results[] = {&to->out,     &to->kept,    &to->lse,
                                 &to->row_max, &to->row_sum, &to->weights};
    const rp_array *read[] = {&p->query, &p->key, &p->value, &p->sight.mask};
    const int64_t columns[] = {p->Dv, p->Dv, 1, 1, 1, p->Lk};
    for (int k = 0; k < 6; k++)
        rp_assert(is_spread(results[k], p->B, p->H, p->Lq, columns[k],
                            size_of(RP_KIND(results[k]))));
    rp_assert(p->B * p->H * p->Lq * p->Lk * p->D * p->Dv == 0 ||
              begin_apart(results, 6, read, 4));
    return 1;
}

/* What a backward writes, beside the sums that it adds to. */
RP_INLINE int
check_written_gradients(const rp_gradients *g)
{
    const rp_attention *p = &g->forward;
    const rp_array *results[] = {&g->grad_query, &g->grad_key, &g->grad_value,
                                 &g->grad_position_query, &g->grad_mask};
    const rp_array *read[] = {&p->query, &p->key, &p->value, &p->results.out,
                              &g->grad_out};
    const int64_t heads[] = {p->H, p->Hk, p->Hk, p->H, p->H};
    const int64_t rows[] = {p->Lq, p->Lk, p->Lk, p->Lq, p->Lq};
    const int64_t columns[] = {p->D, p->D, p->Dv, p->Dp, p->Lk};
    for (int k = 0; k < 5; k++)
        rp_assert(is_spread(results[k], p->B, heads[k], rows[k], columns[k],
                            size_of(RP_KIND(results[k]))));
    rp_assert(p->B * p->H * p->Lq * p->Lk * p->D * p->Dv * p->Dp == 0 ||
              begin_apart(results, 5, read, 5));
    return 1;
}

/* What problems.h asks of attention, of a call that computes and does not only count bytes.
 * */
RP_INLINE int
check_attention(const rp_attention *p)
{
    const rp_part *part = &p->part;
    rp_assert(is_within(p->threads, 1, RP_MAX_THREADS));
    rp_assert(is_within(p->rel_key.first, -RP_FARTHEST, RP_FARTHEST));
    rp_assert(is_within(p->rel_bias.first, -RP_FARTHEST, RP_FARTHEST));
    rp_assert(!p->picks.keys.data && !p->picks.labels.data);
    rp_assert(p->rel_query.first == p->rel_key.first || !p->rel_query.array.data);
    rp_assert(p->rel_value.first == p->rel_key.first || !p->rel_value.array.data);
    check_index(p, &p->rel_key);
    check_index(p, &p->rel_query);
    check_index(p, &p->rel_value);
    check_index(p, &p->rel_bias);
    rp_assert(is_within(part->query, 0, RP_FARTHEST) &&
              is_within(part->key, 0, RP_FARTHEST) &&
              is_within(part->head, 0, RP_FARTHEST) &&
              is_within(part->key_heads, 0, RP_FARTHEST));
    check_lengths(p);
    check_pairs(p);
    check_sight(p);
    return 1;
}

RP_INLINE int
check_gradients(const rp_gradients *g)
{
    const rp_attention *p = &g->forward;
    const rp_array *summed[] = {
        &g->grad_rel_key,   &g->grad_rel_query,  &g->grad_rel_value,
        &g->grad_rel_bias,  &g->grad_pos_bias_u, &g->grad_pos_bias_v,
        &g->grad_log_decay, &g->grad_sinks,      &g->grad_fire};
    const rp_array *slopes = &g->fire_offset_slopes;
    check_attention(p);
    check_written_gradients(g);
    rp_assert(p->Lq > 0 && (p->Lk > 0 || g->grad_sinks.data));
    rp_assert(p->results.out.data && p->results.row_max.data &&
              p->results.row_sum.data && RP_KIND(&p->results.out) == RP_OWN);
    rp_assert(!p->results.kept.data && !p->results.lse.data &&
              !p->results.weights.data);
    for (size_t i = 0; i < sizeof summed / sizeof *summed; i++)
        rp_assert(is_apart(summed[i], p->B));
    if (slopes->data && slopes->batch)
        for (int64_t b = 1; b < p->B; b++)
            rp_assert(slopes->batch[b] == slopes->batch[0] || p->fire.offsets.batch ||
                      p->fire.queries.batch);
    return 1;
}

RP_INLINE int
check_picks(const rp_graph *p)
{
    const rp_picks *picks = &p->picks;
    rp_assert(!p->indptr && !p->indices && !p->labels && picks->groups > 0 &&
              p->H % picks->groups == 0 && p->edges == p->Lq * picks->count);
    for (int64_t n = 0; n < p->B * picks->groups * p->Lq; n++) {
        const char *keys = rp_at(&picks->keys, n / p->Lq / picks->groups,
                                 n / p->Lq % picks->groups, n % p->Lq);
        for (int64_t k = 0; k < picks->count; k++)
            rp_assert(*(const int64_t *)(keys + k * picks->keys.col) < p->Lk);
    }
    return 1;
}

RP_INLINE int
check_graph(const rp_graph *p)
{
    rp_assert(is_within(p->threads, 1, RP_MAX_THREADS) && p->Hk > 0 &&
              p->H % p->Hk == 0 && is_within(p->edges, 0, RP_LONGEST));
    if (p->picks.keys.data)
        return check_picks(p);
    rp_assert(p->indptr[0] == 0 && p->indptr[p->Lq] == p->edges);
    for (int64_t i = 0; i < p->Lq; i++)
        rp_assert(p->indptr[i] <= p->indptr[i + 1]);
    for (int64_t e = 0; e < p->edges; e++)
        rp_assert(is_within(p->indices[e], 0, p->Lk - 1));
    return 1;
}

RP_INLINE int
check_graph_gradients(const rp_graph_gradients *g)
{
    const rp_graph *p = &g->forward;
    check_graph(p);
    rp_assert(p->Lq > 0 && (p->Lk > 0 || g->grad_sinks.data));
    rp_assert(is_apart(&g->grad_rel_key, p->B) && is_apart(&g->grad_rel_value, p->B) &&
              is_apart(&g->grad_sinks, p->B));
    return 1;
}

RP_INLINE int
check_indexer(const rp_indexer *p)
{
    rp_assert(is_within(p->threads, 1, RP_MAX_THREADS));
    rp_assert(p->H >= 0 && p->D >= 0 && RP_MAX(p->H, p->D) <= RP_LONGEST);
    rp_assert(is_within(p->Lk, 0, INT32_MAX) && is_within(p->picked, 0, p->Lk));
    rp_assert((p->mask.data == NULL) == (p->mask_type == RP_MASK_NONE));
    rp_assert(is_spread(&p->keys, p->B, 1, p->Lq, p->picked, sizeof(int32_t)));
    return 1;
}

#endif
