/* forward.h: the forward one query row at a time, keys read where they lie.
 *
 * For few queries (decoding), where packing would read and write every key for a handful
 * of products, and where reading keys and values once from memory is all the time there
 * is; and for labels that the tiles do not take. Keys are split into spans, cut from the
 * shape alone, whose results are merged in order. */
#ifndef RELPOS_ATTENTION_ROWS_FORWARD_H
#define RELPOS_ATTENTION_ROWS_FORWARD_H

#include "../../ground/arena.h"
#include "../dropout.h"
#include "../results.h"
#include "../terms/bias.h"
#include "../terms/mask.h"

enum {
    RP_FEW_QUERIES = 8, /* rows that share the keys of a chunk while they are warm */
    RP_SPANS = 64,      /* parts that the keys of few queries are split into, at most */
};

typedef struct {
    const rp_attention *p;
    int64_t group, rows; /* query heads to a key head; query rows to a key head */
    int64_t blocks, chunks, spans; /* row blocks to a key head; keys: chunks, spans */
    int64_t span_chunks;
    ptrdiff_t width; /* Dv in whole vectors */
    fire_t fire;
    int64_t first, slices; /* the wave: slices (b, hk) whose partial results are kept */
    T *max, *sum, *out;    /* of each (slice, row, span) of it */
    T *scratch;
    ptrdiff_t scratch_size; /* elements to a worker */
} rows_plan_t;

/* One query row in work. */
typedef struct {
    int64_t b, h, i;
    rp_interval visible;
    const T *content, *relative; /* (q + u) and (q + v), times scale * log2e */
    T *s, *gathered;             /* a chunk's logits; a strided row made contiguous */
    T *max, *sum, *out;
    const fire_t *fire;
} query_row_t;

/* The row of a table with `rows` rows that pair (i, j) uses; -1: none. */
RP_INLINE int64_t
pair_row(const rp_attention *p, const query_row_t *q, int64_t j, int64_t rows,
         int64_t min_position)
{
    if (p->labels.data)
        return rp_label(rp_at(&p->labels, q->b, 0, q->i) + j * p->labels.col,
                        p->label_size, rows);
    return rp_table_row(j - q->i - rp_query_offset(p, q->b), min_position, rows,
                        p->beyond);
}

RP_INLINE const T *
operand_row(const rp_array *a, int64_t b, int64_t h, int64_t row, ptrdiff_t count,
            T *buffer)
{
    return row_of(rp_at(a, b, h, row), a->col, count, buffer);
}

static void
score_rel_query(const rp_attention *p, const query_row_t *q, int64_t hk, int64_t j0,
                int64_t end)
{
    const T factor = (T)(p->scale * RP_LOG2E);
    T *second = q->gathered + RP_MAX(p->D, p->Dv);
    for (int64_t j = j0; j < end; j++) {
        int64_t l = pair_row(p, q, j, p->query_rows, p->min_position);
        if (l < 0)
            continue;
        const T *key = operand_row(&p->key, q->b, hk, j, p->D, q->gathered);
        const T *row = operand_row(&p->rel_query, q->b, q->h, l, p->D, second);
        q->s[j - j0] += dot(key, row, p->D) * factor;
    }
}

/* The rel_key term of the keys [j0, end): those whose rows follow each other in the table
 * together, the others, by label or beyond its ends, one by one. */
static void
score_rel_key(const rp_attention *p, const query_row_t *q, int64_t j0, int64_t end)
{
    int64_t shift = -q->i - rp_query_offset(p, q->b) - p->min_position;
    int64_t low = j0, high = j0;
    if (!p->labels.data) {
        low = RP_MIN(end, RP_MAX(j0, -shift));
        high = RP_MAX(low, RP_MIN(end, p->key_rows - shift));
        add_dots(&p->rel_key, q->b, q->h, low + shift, high - low, q->relative, p->D,
                 q->gathered, q->s + low - j0);
    }
    for (int64_t j = j0; j < end; j++) {
        int64_t l =
            j < low || j >= high ? pair_row(p, q, j, p->key_rows, p->min_position) : -1;
        if (l >= 0)
            add_dots(&p->rel_key, q->b, q->h, l, 1, q->relative, p->D, q->gathered,
                     q->s + j - j0);
    }
}

/* Logits of the keys [j0, end), all visible by position, into q->s. */
static void
score_chunk(const rp_attention *p, const query_row_t *q, int64_t hk, int64_t j0,
            int64_t end)
{
    memset(q->s, 0, (size_t)(end - j0) * sizeof(T));
    add_dots(&p->key, q->b, hk, j0, end - j0, q->content, p->D, q->gathered, q->s);
    if (p->rel_key.data)
        score_rel_key(p, q, j0, end);
    if (p->rel_query.data)
        score_rel_query(p, q, hk, j0, end);
    for (int64_t j = j0; p->rel_bias.data && j < end; j++)
        q->s[j - j0] = add_or_hide(
            q->s[j - j0],
            bias_of_row(p, q->b, q->h,
                        pair_row(p, q, j, p->bias_rows, p->min_bias_position)));
    if (p->fire_lines.data)
        add_fire_row(q->fire, q->b, q->h, q->i, j0, (int)(end - j0), q->s);
    if (p->mask_type != RP_MASK_NONE)
        add_mask_row(p, rp_at(&p->mask, q->b, q->h, q->i) + j0 * p->mask.col,
                     (int)(end - j0), q->s);
    for (int64_t j = j0; p->weights.data && j < end; j++)
        *(T *)(rp_at(&p->weights, q->b, q->h, q->i) + j * p->weights.col) =
            q->s[j - j0];
}

/* out += sum_n w[n] * row n, skipping weights of 0 (hidden pairs may sit on NaN). Rows are
 * read in strips of 8 vectors that stay in registers over the keys. */
static void
add_weighted(const rp_attention *p, const query_row_t *q, const rp_array *rows,
             int64_t h, int64_t j0, int64_t count, int by_pair)
{
    ptrdiff_t k0 = 0;
    if (!by_pair && rows->col == (ptrdiff_t)sizeof(T))
        for (; k0 + 4 * VL <= p->Dv; k0 += 4 * VL)
            weigh_rows(q->s, rp_at(rows, q->b, h, j0) + k0 * rows->col, rows->row,
                       count, q->out + k0);
    for (; k0 < p->Dv; k0 += 8 * VL) {
        ptrdiff_t k1 = RP_MIN(p->Dv, k0 + 8 * VL), whole = (k1 - k0) / VL;
        V acc[8] = {{0}};
        T tail[VL] = {0};
        for (int64_t n = 0; n < count; n++) {
            T weight = q->s[n];
            int64_t row = by_pair
                              ? pair_row(p, q, j0 + n, p->value_rows, p->min_position)
                              : j0 + n;
            if (weight == 0 || row < 0)
                continue;
            const T *v = row_of(rp_at(rows, q->b, h, row) + k0 * rows->col, rows->col,
                                k1 - k0, q->gathered);
#pragma GCC unroll 8
            for (int c = 0; c < 8; c++)
                if (c < whole)
                    acc[c] += weight * load(v + c * VL);
            for (ptrdiff_t k = whole * VL; k < k1 - k0; k++)
                tail[k - whole * VL] += weight * v[k];
        }
        for (int c = 0; c < whole; c++)
            store(q->out + k0 + c * VL, load(q->out + k0 + c * VL) + acc[c]);
        for (ptrdiff_t k = k0 + whole * VL; k < k1; k++)
            q->out[k] += tail[k - k0 - whole * VL];
    }
}

/* One chunk of keys: logits, running softmax, share of the output. */
static void
row_chunk(const rows_plan_t *plan, const query_row_t *q, int64_t hk, int64_t j0,
          int64_t end)
{
    const rp_attention *p = plan->p;
    int64_t count = end - j0;
    score_chunk(p, q, hk, j0, end);
    hide(q->s, count, RP_ROUND_UP(count, VL));
    V top = splat(*q->max), sum = (V){0};
    for (int64_t n = 0; n < count; n += VL)
        top = vmax(load(q->s + n), top);
    T raised = max_lanes(top)[0];
    if (raised > *q->max) {
        T factor = vexp2(splat(*q->max - raised))[0];
        *q->max = raised;
        *q->sum *= factor;
        scale_row(q->out, plan->width, factor);
    }
    T base = *q->max == -(T)INFINITY ? 0 : *q->max;
    for (int64_t n = 0; n < count; n += VL) {
        V e = vexp2(load(q->s + n) - base);
        store(q->s + n, e);
        sum += e;
    }
    *q->sum += sum_lanes(sum)[0];
    if (p->dropout_p > 0) {
        unsigned char keep[RP_CHUNK_KEYS];
        rp_dropout_kept(p, q->b, q->h, q->i, j0, count, keep);
        for (int64_t n = 0; n < count; n++)
            q->s[n] = keep[n] ? q->s[n] : 0;
    }
    add_weighted(p, q, &p->value, hk, j0, count, 0);
    if (p->rel_value.data)
        add_weighted(p, q, &p->rel_value, q->h, j0, count, 1);
}

/* Sets *q up for row f (head f / Lq of its group, query f % Lq) of slice and span. */
static void
start_row(const rows_plan_t *plan, query_row_t *q, int64_t slice, int64_t f,
          int64_t span, T *queries)
{
    const rp_attention *p = plan->p;
    const T factor = (T)(p->scale * RP_LOG2E);
    int64_t partial = (slice * plan->rows + f) * plan->spans + span;
    q->b = (plan->first + slice) / p->Hk;
    q->h = (plan->first + slice) % p->Hk * plan->group + f / p->Lq;
    q->i = f % p->Lq;
    q->fire = &plan->fire;
    q->visible = rp_visible(p, q->b, q->i);
    q->max = plan->max + partial;
    q->sum = plan->sum + partial;
    q->out = plan->out + partial * plan->width;
    *q->max = -(T)INFINITY;
    *q->sum = 0;
    for (ptrdiff_t k = 0; k < plan->width; k++)
        q->out[k] = 0;
    const char *row = rp_at(&p->query, q->b, q->h, q->i);
    for (ptrdiff_t k = 0; k < p->D; k++) {
        T x = *(const T *)(row + k * p->query.col), u = 0, v = 0;
        if (p->pos_bias_u.data)
            u = *(const T *)(rp_at(&p->pos_bias_u, q->b, q->h, 0) +
                             k * p->pos_bias_u.col);
        if (p->pos_bias_v.data)
            v = *(const T *)(rp_at(&p->pos_bias_v, q->b, q->h, 0) +
                             k * p->pos_bias_v.col);
        queries[k] = (x + u) * factor;
        queries[p->D + k] = (x + v) * factor;
    }
    q->content = queries;
    q->relative = queries + p->D;
}

/* A block of rows of one key head over one span of keys. Chunks outside: the rows of the
 * block meet a chunk's keys in the second-level cache. */
static void
rows_unit(void *context, int64_t unit, int worker)
{
    const rows_plan_t *plan = context;
    const rp_attention *p = plan->p;
    int64_t span = unit % plan->spans, block = unit / plan->spans % plan->blocks;
    int64_t slice = unit / plan->spans / plan->blocks, first = block * RP_FEW_QUERIES;
    int count = (int)RP_MIN(RP_FEW_QUERIES, plan->rows - first);
    T *scratch = plan->scratch + worker * plan->scratch_size;
    query_row_t rows[RP_FEW_QUERIES];
    for (int r = 0; r < count; r++) {
        rows[r].s = scratch;
        rows[r].gathered = scratch + RP_CHUNK_KEYS + VL;
        start_row(plan, &rows[r], slice, first + r, span,
                  rows[r].gathered + 2 * RP_MAX(p->D, p->Dv) + r * 2 * p->D);
    }
    int64_t end = RP_MIN(plan->chunks, (span + 1) * plan->span_chunks);
    for (int64_t chunk = span * plan->span_chunks; chunk < end; chunk++)
        for (int r = 0; r < count; r++) {
            int64_t j0 = RP_MAX(chunk * RP_CHUNK_KEYS, rows[r].visible.begin);
            int64_t j1 = RP_MIN((chunk + 1) * RP_CHUNK_KEYS, rows[r].visible.end);
            if (rp_stopping())
                return;
            if (j0 < j1)
                row_chunk(plan, &rows[r], (plan->first + slice) % p->Hk, j0, j1);
        }
}

/* Merges the spans of one row, in order, into the first, and writes it. */
static void
merge_unit(void *context, int64_t unit, int worker)
{
    const rows_plan_t *plan = context;
    const rp_attention *p = plan->p;
    (void)worker;
    T *max = plan->max + unit * plan->spans, *sum = plan->sum + unit * plan->spans;
    T *out = plan->out + unit * plan->spans * plan->width, top = max[0];
    for (int64_t s = 1; s < plan->spans; s++)
        top = max[s] > top ? max[s] : top;
    T base = top == -(T)INFINITY ? 0 : top;
    for (int64_t s = 0; s < plan->spans; s++) {
        T factor = vexp2(splat(max[s] - base))[0];
        T *part = out + s * plan->width;
        sum[s] *= factor;
        scale_row(part, plan->width, factor);
        if (s > 0) {
            sum[0] += sum[s];
            for (ptrdiff_t k = 0; k < plan->width; k += VL)
                store(out + k, load(out + k) + load(part + k));
        }
    }
    int64_t slice = plan->first + unit / plan->rows, f = unit % plan->rows;
    write_row(p, slice / p->Hk, slice % p->Hk * plan->group + f / p->Lq, f % p->Lq,
              base, sum[0], out);
}

static void
hide_weights(const rp_attention *p)
{
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t h = 0; h < p->H; h++)
            for (int64_t i = 0; i < p->Lq; i++)
                for (int64_t j = 0; j < p->Lk; j++)
                    *(T *)(rp_at(&p->weights, b, h, i) + j * p->weights.col) =
                        -(T)INFINITY;
}

/* How many slices a wave takes, as the tiles' wave_of. */
static int64_t
rows_wave(rows_plan_t *plan)
{
    const rp_attention *p = plan->p;
    double results = (double)plan->rows * (double)plan->spans;
    double bytes = results * (double)((size_t)(plan->width + 2) * sizeof(T));
    int64_t wave = (int64_t)(p->threads * (double)RP_WAVE_BYTES / bytes);
    int64_t units = RP_MIN(plan->blocks, p->threads) * plan->spans;
    wave = RP_MAX(wave, (p->threads + units - 1) / units);
    plan->slices = RP_MIN(wave, p->B * p->Hk);
    return plan->slices;
}

/* Waves as of the tiles, or partial results of many small items would take many times the
 * memory of what comes out. */
static rp_status
run_rows(rows_plan_t *plan)
{
    const rp_attention *p = plan->p;
    rp_status status = RP_OK;
    int64_t all = p->B * p->Hk, wave = plan->slices;
    for (; !status && plan->first < all; plan->first += wave) {
        int64_t slices = RP_MIN(wave, all - plan->first);
        status = rp_parallel(slices * plan->blocks * plan->spans, rows_unit, plan,
                             p->threads);
        if (!status)
            status = rp_parallel(slices * plan->rows, merge_unit, plan, p->threads);
    }
    return status;
}

static rp_status
attention_rows(const rp_attention *p)
{
    rows_plan_t plan = {.p = p, .group = p->H / p->Hk, .width = RP_ROUND_UP(p->Dv, VL)};
    plan.rows = plan.group * p->Lq;
    plan.blocks = (plan.rows + RP_FEW_QUERIES - 1) / RP_FEW_QUERIES;
    plan.chunks = (p->Lk + RP_CHUNK_KEYS - 1) / RP_CHUNK_KEYS;
    plan.span_chunks = p->Lq <= RP_FEW_QUERIES
                           ? RP_MAX(1, (plan.chunks + RP_SPANS - 1) / RP_SPANS)
                           : RP_MAX(1, plan.chunks);
    plan.spans = RP_MAX(1, (plan.chunks + plan.span_chunks - 1) / plan.span_chunks);
    plan.scratch_size = RP_ROUND_UP(
        RP_CHUNK_KEYS + VL + 2 * RP_MAX(p->D, p->Dv) + RP_FEW_QUERIES * 2 * p->D, 64);
    size_t results, partials;
    if (!rp_multiply((size_t)plan.rows, (size_t)plan.spans, &results) ||
        !rp_multiply(results, (size_t)rows_wave(&plan), &partials))
        return RP_NO_MEMORY;
    plan.max = rp_alloc(partials, sizeof(T));
    plan.sum = rp_alloc(partials, sizeof(T));
    plan.out = rp_alloc(partials, (size_t)plan.width * sizeof(T));
    plan.scratch = rp_alloc((size_t)p->threads, (size_t)plan.scratch_size * sizeof(T));
    rp_status status = plan_fire(&plan.fire, p, NULL);
    if (!plan.max || !plan.sum || !plan.out || !plan.scratch)
        status = RP_NO_MEMORY;
    if (!status) {
        if (p->weights.data)
            hide_weights(p);
        status = run_rows(&plan);
    }
    free_fire(&plan.fire);
    rp_free(plan.scratch);
    rp_free(plan.out);
    rp_free(plan.sum);
    rp_free(plan.max);
    return status;
}

#endif
