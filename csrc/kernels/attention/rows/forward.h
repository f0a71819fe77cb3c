/* forward.h: the forward one query row at a time, keys read where they lie.
 *
 * For few queries (decoding), where packing would read and write every key for a handful
 * of products, and where reading keys and values once from memory is all the time there
 * is; and for labels that the tiles do not take. Keys are split into spans, cut from the
 * shape alone, whose results are merged in order. */
#ifndef RELPOS_ATTENTION_ROWS_FORWARD_H
#define RELPOS_ATTENTION_ROWS_FORWARD_H

#include "../dropout.h"
#include "../results.h"
#include "../terms/mask.h"

enum {
    RP_FEW_QUERIES = 8, /* rows that share the keys of a stretch while they are warm */
    RP_SPANS = 64,      /* parts that the keys of few queries are split into, at most */
};

typedef struct {
    const rp_attention *p;
    int64_t group, rows; /* query heads to a key head; query rows to a key head */
    int64_t blocks, stretches,
        spans; /* row blocks to a key head; keys: stretches, spans */
    int64_t span_stretches;
    ptrdiff_t width; /* Dv in whole vectors */
    bias_t bias;
    int64_t first, slices; /* the wave: slices (b, hk) whose partial results are kept */
    running_t *running; /* of each (slice, row, span) of it, and what it accumulated */
    T *out;
    T *scratch;
    ptrdiff_t scratch_size; /* elements to a worker */
} rows_plan_t;

/* One query row in work. */
typedef struct {
    int64_t b, h, i;
    rp_interval visible;
    const T *content, *relative; /* (q + u) and (q + v), times scale * log2e */
    T *s, *gathered;             /* a stretch's logits; a strided row made contiguous */
    running_t *running;
    T *out;
} query_row_t;

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
        int64_t l = pair_row(p, q->b, q->i, j, &p->rel_query);
        if (l < 0)
            continue;
        const T *key = operand_row(&p->key, q->b, hk, j, p->D, q->gathered);
        const T *row = operand_row(&p->rel_query.array, q->b, q->h, l, p->D, second);
        q->s[j - j0] += dot(key, row, p->D) * factor;
    }
}

/* The rel_key term of the keys [j0, end): those whose rows follow each other in the table
 * together, the others, by label or beyond its ends, one by one. */
static void
score_rel_key(const rp_attention *p, const query_row_t *q, int64_t j0, int64_t end)
{
    int64_t shift = -q->i - rp_query_offset(p, q->b) - p->rel_key.first;
    int64_t low = j0, high = j0;
    if (!p->labels.array.data) {
        low = RP_MIN(end, RP_MAX(j0, -shift));
        high = RP_MAX(low, RP_MIN(end, p->rel_key.rows - shift));
        add_dots(&p->rel_key.array, q->b, q->h, low + shift, high - low, q->relative,
                 p->D, q->gathered, q->s + low - j0);
    }
    for (int64_t j = j0; j < end; j++) {
        int64_t l = j < low || j >= high ? pair_row(p, q->b, q->i, j, &p->rel_key) : -1;
        if (l >= 0)
            add_dots(&p->rel_key.array, q->b, q->h, l, 1, q->relative, p->D,
                     q->gathered, q->s + j - j0);
    }
}

/* Logits of the keys [j0, end), all visible by position, into q->s. */
static void
score_stretch(const bias_t *bias, const query_row_t *q, int64_t hk, int64_t j0,
              int64_t end)
{
    const rp_attention *p = bias->p;
    const rp_array *weights = &p->results.weights;
    memset(q->s, 0, (size_t)(end - j0) * sizeof(T));
    add_dots(&p->key, q->b, hk, j0, end - j0, q->content, p->D, q->gathered, q->s);
    if (p->rel_key.array.data)
        score_rel_key(p, q, j0, end);
    if (p->rel_query.array.data)
        score_rel_query(p, q, hk, j0, end);
    add_bias_run(bias, q->b, q->h, q->i, j0, end - j0, q->s);
    add_mask(p, q->b, q->h, q->i, j0, (int)(end - j0), q->s);
    if (weights->data)
        unpack_row(rp_at(weights, q->b, q->h, q->i) + j0 * weights->col, weights->col,
                   q->s, end - j0);
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
            int64_t row =
                by_pair ? pair_row(p, q->b, q->i, j0 + n, &p->rel_value) : j0 + n;
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

/* One stretch of keys: logits, running softmax, share of the output. */
static void
row_stretch(const rows_plan_t *plan, const query_row_t *q, int64_t hk, int64_t j0,
            int64_t end)
{
    const rp_attention *p = plan->p;
    int64_t count = end - j0, padded = RP_ROUND_UP(count, VL);
    score_stretch(&plan->bias, q, hk, j0, end);
    hide(q->s, count, padded);
    take_logits(q->running, q->s, padded, q->out, plan->width);
    if (p->dropout.p > 0) {
        unsigned char keep[RP_STRETCH_KEYS];
        rp_dropout_kept(p, q->b, q->h, q->i, j0, count, keep);
        scale_by_dropout(q->s, keep, (int)count, 1);
    }
    add_weighted(p, q, &p->value, hk, j0, count, 0);
    if (p->rel_value.array.data)
        add_weighted(p, q, &p->rel_value.array, q->h, j0, count, 1);
}

/* Sets *q up for row f (head f / Lq of its group, query f % Lq) of a slice. */
static void
start_row(const rows_plan_t *plan, query_row_t *q, int64_t slice, int64_t f, T *queries)
{
    const rp_attention *p = plan->p;
    const T factor = (T)(p->scale * RP_LOG2E);
    q->b = (plan->first + slice) / p->Hk;
    q->h = (plan->first + slice) % p->Hk * plan->group + f / p->Lq;
    q->i = f % p->Lq;
    q->visible = rp_visible(p, q->b, q->i);
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

/* Nothing seen yet of row f's span of keys. */
static void
start_span(const rows_plan_t *plan, query_row_t *q, int64_t slice, int64_t f,
           int64_t span)
{
    int64_t partial = (slice * plan->rows + f) * plan->spans + span;
    q->running = plan->running + partial;
    q->out = plan->out + partial * plan->width;
    *q->running = RP_NOTHING_SEEN;
    for (ptrdiff_t k = 0; k < plan->width; k++)
        q->out[k] = 0;
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
        rows[r].gathered = scratch + RP_STRETCH_KEYS + VL;
        start_row(plan, &rows[r], slice, first + r,
                  rows[r].gathered + 2 * RP_MAX(p->D, p->Dv) + r * 2 * p->D);
        start_span(plan, &rows[r], slice, first + r, span);
    }
    int64_t end = RP_MIN(plan->stretches, (span + 1) * plan->span_stretches);
    for (int64_t stretch = span * plan->span_stretches; stretch < end; stretch++)
        for (int r = 0; r < count; r++) {
            int64_t j0 = RP_MAX(stretch * RP_STRETCH_KEYS, rows[r].visible.begin);
            int64_t j1 = RP_MIN((stretch + 1) * RP_STRETCH_KEYS, rows[r].visible.end);
            if (rp_stopping())
                return;
            if (j0 < j1)
                row_stretch(plan, &rows[r], (plan->first + slice) % p->Hk, j0, j1);
        }
}

/* Merges the spans of one row, in order, into the first, and writes it. */
static void
merge_unit(void *context, int64_t unit, int worker)
{
    const rows_plan_t *plan = context;
    const rp_attention *p = plan->p;
    (void)worker;
    running_t *running = plan->running + unit * plan->spans, whole = *running;
    T *out = plan->out + unit * plan->spans * plan->width;
    for (int64_t s = 1; s < plan->spans; s++)
        whole.max = running[s].max > whole.max ? running[s].max : whole.max;
    whole.max = running_base(whole.max);
    whole.sum = 0;
    for (int64_t s = 0; s < plan->spans; s++) {
        T factor = vexp2(splat(running[s].max - whole.max))[0];
        T *part = out + s * plan->width;
        running[s].sum *= factor;
        scale_row(part, plan->width, factor);
        whole.sum += running[s].sum;
        if (s > 0)
            for (ptrdiff_t k = 0; k < plan->width; k += VL)
                store(out + k, load(out + k) + load(part + k));
    }
    int64_t slice = plan->first + unit / plan->rows, f = unit % plan->rows;
    int64_t b = slice / p->Hk, h = slice % p->Hk * plan->group + f / p->Lq;
    write_row(&p->results, b, h, f % p->Lq, whole, out, p->Dv, 1 - p->dropout.p);
    if (p->results.weights.data)
        write_weights(&p->results.weights, b, h, f % p->Lq, p->Lk, whole);
}

/* How many slices a wave takes, as the tiles' wave_of. */
static int64_t
rows_wave(const rows_plan_t *plan)
{
    const rp_attention *p = plan->p;
    double results = (double)plan->rows * (double)plan->spans;
    double bytes = results * (double)((size_t)(plan->width + 2) * sizeof(T));
    int64_t wave = (int64_t)(p->threads * (double)RP_WAVE_BYTES / bytes);
    int64_t units = RP_MIN(plan->blocks, p->threads) * plan->spans;
    wave = RP_MAX(wave, (p->threads + units - 1) / units);
    return RP_MIN(wave, p->B * p->Hk);
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

/* The key spans of a row, cut from the shape alone, and what rows share. */
static void
plan_rows(rows_plan_t *plan, const rp_attention *p)
{
    *plan = (rows_plan_t){.p = p, .group = p->H / p->Hk};
    plan->width = RP_ROUND_UP(p->Dv, VL);
    plan->rows = plan->group * p->Lq;
    plan->blocks = (plan->rows + RP_FEW_QUERIES - 1) / RP_FEW_QUERIES;
    plan->stretches = (p->Lk + RP_STRETCH_KEYS - 1) / RP_STRETCH_KEYS;
    plan->span_stretches = p->Lq <= RP_FEW_QUERIES
                               ? RP_MAX(1, (plan->stretches + RP_SPANS - 1) / RP_SPANS)
                               : RP_MAX(1, plan->stretches);
    plan->spans =
        RP_MAX(1, (plan->stretches + plan->span_stretches - 1) / plan->span_stretches);
    plan->scratch_size = RP_ROUND_UP(
        RP_STRETCH_KEYS + VL + 2 * RP_MAX(p->D, p->Dv) + RP_FEW_QUERIES * 2 * p->D, 64);
    plan->slices = rows_wave(plan);
}

static void
lay_out_rows(void *context, arena_t *arena)
{
    rows_plan_t *plan = context;
    int64_t rows = plan->slices * plan->rows;
    size_t spans = (size_t)plan->spans;
    plan->running = take(arena, rows, spans * sizeof(running_t));
    plan->out = take(arena, rows, spans * (size_t)plan->width * sizeof(T));
    plan->scratch =
        take(arena, plan->p->threads, (size_t)plan->scratch_size * sizeof(T));
    lay_out_bias(&plan->bias, arena);
}

/* Runs the problem, or only counts: see `reserve`. */
static rp_status
forward_by_rows(const rp_attention *p, size_t *bytes)
{
    const rp_array *weights = &p->results.weights;
    rows_plan_t plan;
    arena_t arena;
    plan_rows(&plan, p);
    plan_bias(&plan.bias, p, NULL);
    rp_status status = reserve(&arena, lay_out_rows, &plan, bytes);
    if (status || bytes)
        return status;
    for (int64_t n = 0; weights->data && n < p->B * p->H * p->Lq; n++)
        hide_weights(weights, n / p->Lq / p->H, n / p->Lq % p->H, n % p->Lq, p->Lk);
    status = start_bias(&plan.bias);
    if (!status)
        status = run_rows(&plan);
    rp_free(arena.memory);
    return status;
}

#endif
