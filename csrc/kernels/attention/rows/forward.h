/* forward.h: the forward one query row at a time, keys read where they lie.
 *
 * For few queries (decoding), where packing would read and write every key for a handful
 * of products, and where reading keys and values once from memory is all the time there
 * is; and for labels that the tiles do not take. Keys are split into spans, cut from the
 * shape alone, whose results are merged in order. */
#ifndef RELPOS_ATTENTION_ROWS_FORWARD_H
#define RELPOS_ATTENTION_ROWS_FORWARD_H

#include "../terms/sinks.h"
#include "row.h"

enum {
    RP_SPANS = 64, /* parts that the keys of few queries are split into, at most */
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

/* to = (row (b, h, i) of a + bias) * factor, `padded` numbers, whose last are zeros. */
static void
pack_query(T *to, const rp_array *a, const rp_array *bias, int64_t b, int64_t h,
           int64_t i, ptrdiff_t count, ptrdiff_t padded, T factor)
{
    pack_row(to, a, rp_at(a, b, h, i), count, padded);
    if (bias->data)
        add_row(to, bias, rp_at(bias, b, h, 0), count);
    scale_row(to, padded, factor);
}

/* Lays *rows out in a worker's scratch. */
static void
start_rows(const rows_plan_t *plan, query_rows_t *rows, int64_t slice, int count,
           T *scratch)
{
    const rp_attention *p = plan->p;
    rows->p = p;
    rows->bias = &plan->bias;
    rows->width = plan->width;
    rows->b = (plan->first + slice) / p->Hk;
    rows->hk = (plan->first + slice) % p->Hk;
    rows->count = count;
    rows->slopes = NULL;
    rows->piece = piece_keys(p, count);
    rows->in_cache = (double)(p->B * p->Hk) * bytes_of_head(p) <= RP_LAST_CACHE;
    rows->s = scratch;
    rows->content = rows->s + RP_BLOCK_ROWS * RP_STRETCH_KEYS;
    rows->relative = rows->content + RP_BLOCK_ROWS * RP_ROUND_UP(p->D, VL);
    rows->buffer = rows->relative + RP_BLOCK_ROWS * RP_ROUND_UP(p->Dp, VL);
    rows->line = rows->buffer + piece_size(p);
}

/* Sets row r up as row f (head f / Lq of its group, query f % Lq) of the slice. */
static void
start_row(const rows_plan_t *plan, query_rows_t *rows, int r, int64_t f)
{
    const rp_attention *p = plan->p;
    const rp_array *left = rel_key_queries(p);
    const ptrdiff_t width = RP_ROUND_UP(p->D, VL), left_width = RP_ROUND_UP(p->Dp, VL);
    T *content = rows->content + r * width, *relative = rows->relative + r * left_width;
    query_row_t *q = &rows->row[r];
    q->b = rows->b;
    q->h = rows->hk * plan->group + f / p->Lq;
    q->i = f % p->Lq;
    q->visible = rp_visible(p, q->b, q->i);
    q->s = rows->s + r * RP_STRETCH_KEYS;
    q->relative = relative;
    pack_query(content, &p->query, &p->pos_bias_u, q->b, q->h, q->i, p->D, width,
               (T)(p->scale * RP_LOG2E));
    if (p->rel_key.array.data)
        pack_query(relative, left, &p->pos_bias_v, q->b, q->h, q->i, p->Dp, left_width,
                   (T)(rel_key_scale(p) * RP_LOG2E));
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
        whole.sum += running[s].sum;
        for (ptrdiff_t k = 0; k < plan->width; k += VL) {
            V sum = load(part + k) * factor;
            store(out + k, s > 0 ? load(out + k) + sum : sum);
        }
    }
    int64_t slice = plan->first + unit / plan->rows, f = unit % plan->rows;
    int64_t b = slice / p->Hk, h = slice % p->Hk * plan->group + f / p->Lq;
    write_row(&p->results, &p->sinks, b, h, f % p->Lq, whole, out, p->Dv,
              1 - p->dropout.p);
    if (p->results.weights.data)
        write_weights(&p->results.weights, b, h, f % p->Lq, p->Lk, whole);
}

/* Nothing seen yet of row f's span of keys; the sink is in the first one. */
static void
start_span(const rows_plan_t *plan, query_row_t *q, int64_t slice, int64_t f,
           int64_t span)
{
    int64_t partial = (slice * plan->rows + f) * plan->spans + span;
    q->running = plan->running + partial;
    q->out = plan->out + partial * plan->width;
    *q->running =
        span ? RP_NOTHING_SEEN : start_softmax(&plan->p->sinks, q->b, q->h, q->i);
    memset(q->out, 0, (size_t)plan->width * sizeof(T));
}

/* A block of rows of one key head over one span of keys. */
static void
rows_unit(void *context, int64_t unit, int worker)
{
    const rows_plan_t *plan = context;
    int64_t block = unit % plan->blocks, span = unit / plan->blocks % plan->spans;
    int64_t slice = unit / plan->spans / plan->blocks;
    int64_t first = block * plan->rows / plan->blocks;
    int64_t end_row = (block + 1) * plan->rows / plan->blocks;
    query_rows_t rows;
    start_rows(plan, &rows, slice, (int)(end_row - first),
               plan->scratch + worker * plan->scratch_size);
    rows.out =
        plan->out + ((slice * plan->rows + first) * plan->spans + span) * plan->width;
    rows.out_step = plan->spans * plan->width;
    for (int r = 0; r < rows.count; r++) {
        start_row(plan, &rows, r, first + r);
        start_span(plan, &rows.row[r], slice, first + r, span);
    }
    int64_t end = RP_MIN(plan->stretches, (span + 1) * plan->span_stretches);
    for (int64_t n = span * plan->span_stretches; n < end && !rp_stopping(); n++)
        rows_stretch(&rows, n * RP_STRETCH_KEYS,
                     RP_MIN((n + 1) * RP_STRETCH_KEYS, plan->p->Lk));
    for (int64_t r = first; r < end_row && plan->spans == 1; r++)
        merge_unit(context, slice * plan->rows + r, worker);
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
        if (!status && plan->spans > 1)
            status = rp_parallel(slices * plan->rows, merge_unit, plan, p->threads);
    }
    return status;
}

/* Few queries, as in decoding: packing would read and write every key for a handful of
 * products. A few more where there are no tables, which each row reads for itself; fewer where
 * the keys are few, so that packing them is cheap. */
static int
few_queries(const rp_attention *p)
{
    const int64_t rows = p->Lq * (p->H / p->Hk);
    const int most =
        bytes_of_head(p) < RP_LONG_HEAD ? RP_ROWS_UNPACKED : RP_ROWS_UNPACKED_LONG;
    const int tables =
        p->rel_key.array.data || p->rel_query.array.data || p->rel_value.array.data;
    if (p->Lk <= RP_SHORT_KEYS && rows > RP_SHORT_ROWS)
        return 0;
    return p->Lq <= RP_FEW_QUERIES || (!tables && rows <= most);
}

/* The key spans of a row, cut from the shape alone, and what rows share. */
static void
plan_rows(rows_plan_t *plan, const rp_attention *p)
{
    *plan = (rows_plan_t){.p = p, .group = p->H / p->Hk};
    plan->width = RP_ROUND_UP(p->Dv, VL);
    plan->rows = plan->group * p->Lq;
    rp_assert(plan->rows > 0);
    plan->blocks = (plan->rows + RP_BLOCK_ROWS - 1) / RP_BLOCK_ROWS;
    plan->stretches = (p->Lk + RP_STRETCH_KEYS - 1) / RP_STRETCH_KEYS;
    plan->span_stretches = few_queries(p)
                               ? RP_MAX(1, (plan->stretches + RP_SPANS - 1) / RP_SPANS)
                               : RP_MAX(1, plan->stretches);
    plan->spans =
        RP_MAX(1, (plan->stretches + plan->span_stretches - 1) / plan->span_stretches);
    plan->scratch_size = RP_BLOCK_ROWS * (RP_STRETCH_KEYS + RP_ROUND_UP(p->D, VL) +
                                          RP_ROUND_UP(p->Dp, VL)) +
                         piece_size(p) + 2 * line_size(p);
    plan->scratch_size = RP_ROUND_UP(plan->scratch_size, 64);
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
