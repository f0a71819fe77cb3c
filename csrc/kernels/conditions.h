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
    return 1;
}

RP_INLINE int
check_lengths(const rp_attention *p)
{
    rp_assert(p->B >= 0 && p->Lq >= 0 && p->Lk >= 0 && p->D >= 0 && p->Dv >= 0);
    rp_assert(rp_longest(p) <= RP_LONGEST);
    rp_assert(p->Hk > 0 && p->H % p->Hk == 0);
    rp_assert(p->position_query.data || p->Dp == p->D);
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
    rp_assert(p->rel_query.first == p->rel_key.first || !p->rel_query.array.data);
    rp_assert(p->rel_value.first == p->rel_key.first || !p->rel_value.array.data);
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
check_graph(const rp_graph *p)
{
    rp_assert(is_within(p->threads, 1, RP_MAX_THREADS) && p->indptr[0] == 0 &&
              p->indptr[p->Lq] == p->edges);
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

#endif
