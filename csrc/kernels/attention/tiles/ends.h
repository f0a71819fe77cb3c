/* ends.h: the ends of a clipped rel_key, relieved of the rounding errors that
 * all pairs of a query share.
 *
 * Pairs beyond an end of the tables share one rounded number grad_out . W, and all pairs
 * of a query share delta, which has the rounding of out. Sums of dS over the pairs of an
 * end keep these errors, where a softmax held in memory, which takes delta from the same
 * rounded numbers, cancels them. The sum over all keys tells what they come to:
 *   rest_i = sum_j dS_ij - grad_lse_i - p_sink_i * delta_i    is 0 but for rounding, and
 *   sum of dS over an end -= rest_i * sum of p over the end / sum of p over all keys.
 * Rows with one pair each hold too little to matter; rows with many by their labels are
 * left as they are: that would take sums of p by label over all chunks. */
#ifndef RELPOS_ATTENTION_TILES_ENDS_H
#define RELPOS_ATTENTION_TILES_ENDS_H

#include "../terms/sinks.h"
#include "backward/memory.h"
#include "partials.h"

/* What the keys of a row weigh beside its sink, at least: less is only rounding. */
#define RP_LEAST_SHARE 0.001

/* The first or the last row of rel_key, which takes all distances beyond the table, for one
 * query head. */
typedef struct {
    const T *row;     /* of rel_key; NULL: no pair of the head lies there */
    T *sums, *v_sums; /* partial sums that take its corrections; NULL: not asked for */
    double weight;    /* what v's gradient loses, in units of row */
} table_end_t;

static table_end_t
find_end(const gradients_t *gp, int64_t index, int64_t b, int64_t h, int64_t t)
{
    const plan_t *plan = &gp->plan;
    const partial_t *s = &gp->partials[RP_GRAD_KEY];
    for (int64_t chunk = 0; chunk < gp->chunks; chunk++) {
        rp_interval span = partial_span(gp, s, chunk_queries(gp, b, chunk));
        /* origin: the row of the partial that the packed table begins at */
        int64_t n, end, origin = 0;
        partial_rows(gp, s, b, chunk, span, t, &n, &end);
        if (s->path == RP_BAND) {
            origin = plan->band.first - chunk * gp->chunk_keys;
            n = RP_MAX(n, origin);
            end = RP_MIN(end, plan->band.end - chunk * gp->chunk_keys);
        }
        if (n >= end)
            continue;
        T *sums = partial_of(gp, RP_GRAD_KEY, index, chunk);
        return (table_end_t){copy_of(&gp->key_rows, b, h) + (n - origin) * plan->Dp_pad,
                             sums ? sums + n * plan->Dp_pad : NULL,
                             partial_of(gp, RP_GRAD_V, index, chunk), 0};
    }
    return (table_end_t){0};
}

/* The row of rel_key's partial sums, but for those of a band, that row l of the table is. */
RP_INLINE int64_t
end_row(const gradients_t *gp, int64_t l)
{
    return by_list(&gp->plan.rel_key) ? listed_row(&gp->plan.p->rel_key, l) : l;
}

RP_INLINE void
subtract_row(const gradients_t *gp, T *row, double weight, const T *other)
{
    for (ptrdiff_t k = 0; row && k < gp->plan.Dp_pad; k += VL)
        store(row + k, load(row + k) - (T)weight * load(other + k));
}

/* Corrects what one query added at the ends of the table: its keys weigh `keys` together,
 * and its dS should sum up to `sum`; `grad`: its row in one of the partial sums. An end
 * without pairs, whose row of the table may hold NaN, is left out. */
static void
correct_query(const gradients_t *gp, const rp_interval *seen, table_end_t ends[2],
              int64_t index, int64_t i, double sum, double keys, const T *rows_v,
              T *grad)
{
    row_ends_t all = {-sum, {0, 0}};
    for (int64_t chunk = 0; chunk < gp->chunks; chunk++) {
        const row_ends_t *part = ends_of(gp, index, chunk) + i;
        if (i < seen[chunk].begin * BQ || i >= seen[chunk].end * BQ)
            continue;
        all.grad += part->grad;
        all.share[0] += part->share[0];
        all.share[1] += part->share[1];
    }
    for (int e = 0; e < 2; e++) {
        double weight = all.grad * (all.share[e] / keys);
        if (all.share[e] == 0 || weight == 0 || !ends[e].row)
            continue;
        subtract_row(gp, grad, weight, ends[e].row);
        subtract_row(gp, ends[e].sums, weight, rows_v);
        ends[e].weight += weight;
    }
}

/* Corrects the ends of one query head, after its sums over chunks and before these are
 * added. */
static void
correct_ends_unit(void *context, int64_t index, int worker)
{
    const gradients_t *gp = context;
    const plan_t *plan = &gp->plan;
    const rp_attention *p = plan->p;
    const rp_array *lse = &gp->g->grad_lse;
    (void)worker;
    int64_t b, h;
    head_at(plan, index, &b, &h);
    head_t head = head_of(gp, index);
    table_end_t ends[2] = {find_end(gp, index, b, h, end_row(gp, 0)),
                           find_end(gp, index, b, h, end_row(gp, p->rel_key.rows - 1))};
    rp_interval seen[RP_CHUNKS];
    for (int64_t chunk = 0; chunk < gp->chunks; chunk++)
        seen[chunk] = chunk_queries(gp, b, chunk);
    for (int64_t i = 0; i < p->Lq; i++) {
        int64_t chunk = 0; /* the first one that it sees */
        while (chunk < gp->chunks &&
               (i < seen[chunk].begin * BQ || i >= seen[chunk].end * BQ))
            chunk++;
        if (chunk == gp->chunks)
            continue;
        T *sums = query_sums_of(gp, relative_sums(gp), index, chunk);
        T sink = sink_of(&p->sinks, b, h, i);
        double share = sink_share(sink, head.max[i], head.norm[i]);
        double sum = lse->data ? *(const T *)rp_at(lse, b, h, i) : 0;
        correct_query(gp, seen, ends, index, i, sum + share * head.delta[i],
                      RP_MAX(1 - share, RP_LEAST_SHARE), head.rows_v + i * plan->Dp_pad,
                      sums ? sums + i * plan->Dp_pad : NULL);
    }
    for (int e = 0; e < 2; e++)
        if (ends[e].weight != 0)
            subtract_row(gp, ends[e].v_sums, ends[e].weight, ends[e].row);
}

#endif
