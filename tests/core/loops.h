/* loops.h: the loops of dense scores and rotary encodings, against their definitions. A case
 * lends them the places of its arrays. */
#ifndef RELPOS_TESTS_CORE_LOOPS_H
#define RELPOS_TESTS_CORE_LOOPS_H

#include "judge.h"

static operand_t *
lay_operand(case_t *c, const char *name, rp_array *array, int64_t rows, int64_t columns,
            storage_t storage, int repeat)
{
    return lay(c, (operand_t){.name = name,
                              .array = array,
                              .n = {c->g.forward.B, 1, rows, columns},
                              .storage = storage,
                              .repeat = REPEAT_HEADS | repeat});
}

static case_t *
start_loop(source_t s, int dtype)
{
    static case_t c, nothing;
    c = nothing;
    c.s = s;
    c.dtype = dtype;
    c.is_even = 1;
    c.g.forward.B = between(&c.s, 1, 3);
    c.g.forward.threads = 1;
    return &c;
}

/* ---- dense scores ------------------------------------------------------------------------ */

/* Which loop: its row of ufuncs.h, and what it adds to the formula of scores.h. */
typedef struct {
    int loop, clips, has_first, has_biases;
} scores_t;

static const scores_t score_loops[] = {{RP_UFUNC_shaw_scores, 1, 0, 0},
                                       {RP_UFUNC_skewed_scores, 0, 1, 0},
                                       {RP_UFUNC_transformer_xl_scores, 0, 0, 1}};

enum { MOST_LOOP_OPERANDS = 8 };

/* A call of a loop: its operands in order, with one step of the batch each and then the
 * strides of their own axes. */
typedef struct {
    char *args[MOST_LOOP_OPERANDS];
    ptrdiff_t outer[MOST_LOOP_OPERANDS], inner[2 * MOST_LOOP_OPERANDS];
    int count, inner_count;
} loop_call_t;

static void
add_operand(loop_call_t *call, const operand_t *o, int axes)
{
    const rp_array *a = o->array;
    call->args[call->count] = a->data;
    call->outer[call->count++] = a->batch ? a->batch[1] - a->batch[0] : 0;
    if (axes == 3)
        call->inner[call->inner_count++] = a->head;
    if (axes >= 2)
        call->inner[call->inner_count++] = a->row;
    if (axes >= 1)
        call->inner[call->inner_count++] = a->col;
}

static int loop_errors;

static void
note_error(const char *message)
{
    (void)message;
    __atomic_fetch_add(&loop_errors, 1, __ATOMIC_RELAXED);
}

static void
note_status(rp_status status)
{
    (void)status;
    __atomic_fetch_add(&loop_errors, 1, __ATOMIC_RELAXED);
}

/* Calls a loop, and counts what it reports in loop_errors. */
static void
run_loop(const rp_kernels *kernels, int loop, const loop_call_t *call,
         const ptrdiff_t *dimensions)
{
    static const rp_loop_hooks hooks = {note_error, note_status};
    char *args[MOST_LOOP_OPERANDS];
    ptrdiff_t steps[3 * MOST_LOOP_OPERANDS];
    memcpy(args, call->args, sizeof args);
    memcpy(steps, call->outer, (size_t)call->count * sizeof *steps);
    memcpy(steps + call->count, call->inner, (size_t)call->inner_count * sizeof *steps);
    loop_errors = 0;
    rp_set_loop_hooks(&hooks);
    kernels->loops[loop](args, dimensions, steps, NULL);
    rp_set_loop_hooks(NULL);
}

/* Lets an allocation of the call that follows fail, at times; returns whether it does. */
static int
fail_at_times(source_t *s)
{
    const int fails = once_in(s, 8);
    rp_fail_at(fails ? between(s, 1, 2) : 0, 0);
    return fails;
}

/* Judges a call that reported `errors`: of one that `fails`, or that a failed allocation
 * ended, only whether it wrote nothing beside its results. */
static int
judge_call(case_t *c, int errors, int fails, int may_fail)
{
    const int is_wrong = may_fail && !fails ? errors > 1 : errors != fails;
    rp_fail_at(0, 0);
    return judge(c, errors > 0) || is_wrong || rp_live_blocks() != 0;
}

/* Integers of any size: query_offset and min_relative_position are read as they come. */
static void
fill_positions(case_t *c, const operand_t *o)
{
    static const int64_t far[] = {INT64_MAX,     INT64_MAX - 7, INT64_MIN,
                                  INT64_MIN + 7, INT64_MAX / 8, -(INT64_MAX / 8)};
    for (size_t k = 0; k < o->block.bytes / 8; k++)
        put_integer(o, o->block.data + 8 * k,
                    once_in(&c->s, 6) ? far[pick(&c->s, 6)] : between(&c->s, -60, 60));
}

/* The operands of a scores loop; the problem's arrays of the same names hold them. */
typedef struct {
    const scores_t *which;
    int64_t q, k, d, r;
    int fails; /* Shaw's have an odd number of rows */
    const operand_t *scale, *offset, *first;
} scores_call_t;

static void
lay_scores(case_t *c, scores_call_t *x, loop_call_t *call)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    x->q = choose_size(s, 200), x->k = choose_size(s, 200), x->d = choose_size(s, 40);
    x->fails = x->which->clips && once_in(s, 8);
    x->r = (choose_size(s, 140) | x->which->clips) + x->fails;
    add_operand(call, lay_operand(c, "query", &p->query, x->q, x->d, NUMBERS, 0), 2);
    add_operand(call, lay_operand(c, "key", &p->key, x->k, x->d, NUMBERS, 0), 2);
    add_operand(call,
                lay_operand(c, "rel_key", &p->rel_key.array, x->r, x->d, NUMBERS,
                            choose_repeat(s, REPEAT_BATCH)),
                2);
    if (x->which->has_biases) {
        add_operand(call, lay_operand(c, "u", &p->pos_bias_u, 1, x->d, NUMBERS, 0), 1);
        add_operand(call, lay_operand(c, "v", &p->pos_bias_v, 1, x->d, NUMBERS, 0), 1);
    }
    x->scale = lay_operand(c, "scale", &p->fire.queries, 1, 1, DOUBLES, 0);
    x->offset =
        lay_operand(c, "query_offset", &p->labels.of[0].array, 1, 1, INTEGERS, 0);
    fill_positions(c, x->offset);
    add_operand(call, x->scale, 0);
    add_operand(call, x->offset, 0);
    if (x->which->has_first) {
        x->first = lay_operand(c, "min_relative_position", &p->labels.of[1].array, 1, 1,
                               INTEGERS, 0);
        fill_positions(c, x->first);
        add_operand(call, x->first, 0);
    }
    operand_t *out = lay_operand(c, "out", &p->results.out, x->q, x->k, NUMBERS, 0);
    out->result = WRITTEN;
    add_operand(call, out, 2);
}

/* Row of the table for a pair; negative: none. */
static int64_t
score_row(const scores_call_t *x, int64_t b, int64_t i, int64_t j)
{
    wide_t first =
        x->which->has_biases ? -(wide_t)(x->k - 1) : -(wide_t)((x->r - 1) / 2);
    if (x->first)
        first = integer_at(x->first, item_at(x->first, b, 0, 0, 0));
    wide_t row =
        (wide_t)j - i - integer_at(x->offset, item_at(x->offset, b, 0, 0, 0)) - first;
    if (x->which->clips)
        row = row < 0 ? 0 : row >= x->r ? x->r - 1 : row;
    return row < 0 || row >= x->r ? -1 : (int64_t)row;
}

static void
expect_score(case_t *c, const scores_call_t *x, int64_t b, int64_t i, int64_t j)
{
    rp_attention *p = &c->g.forward;
    const row_t at = {.c = c, .b = b};
    const double scale = number_at(x->scale, item_at(x->scale, b, 0, 0, 0));
    int64_t row = score_row(x, b, i, j);
    double sum = 0, size = 0;
    for (int64_t d = 0; d < x->d; d++) {
        double query = number_of(c, &p->query, b, 0, i, d);
        double key = number_of(c, &p->key, b, 0, j, d);
        double u = number_of(c, &p->pos_bias_u, b, 0, 0, d);
        double v = number_of(c, &p->pos_bias_v, b, 0, 0, d);
        double e = row < 0 ? 0 : number_of(c, &p->rel_key.array, b, 0, row, d);
        sum += (query + u) * key + (query + v) * e;
        size += (fabs(query) + fabs(u)) * fabs(key) + (fabs(query) + fabs(v)) * fabs(e);
    }
    expect(&at, &p->results.out, 0, i, j, scale * sum,
           rounding(c) * (double)(x->d + 4) * fabs(scale) * size);
}

static int
check_scores(source_t s, const rp_isa *isa, int dtype)
{
    case_t *c = start_loop(s, dtype);
    scores_call_t x = {.which = &score_loops[pick(&c->s, 3)]};
    loop_call_t call = {.count = 0};
    lay_scores(c, &x, &call);
    const ptrdiff_t dimensions[] = {c->g.forward.B, x.q, x.d, x.k, x.r};
    prepare(c);
    const int may_fail = fail_at_times(&c->s);
    run_loop(isa->kernels[dtype], x.which->loop, &call, dimensions);
    for (int64_t b = 0; !x.fails && b < c->g.forward.B; b++)
        for (int64_t i = 0; i < x.q; i++)
            for (int64_t j = 0; j < x.k; j++)
                expect_score(c, &x, b, i, j);
    int is_wrong = judge_call(c, loop_errors, x.fails, may_fail);
    if (is_wrong)
        fprintf(stderr, "  of loop %d (ufuncs.h): %d errors\n", x.which->loop,
                loop_errors);
    free_case(c);
    return is_wrong;
}

/* ---- rotary ------------------------------------------------------------------------------ */

/* Positions; far ones are products of few digits with frequencies of few, too, which the
 * definition knows exactly. */
static void
fill_rotary_angles(case_t *c)
{
    source_t *s = &c->s;
    const int is_far = once_in(s, 8);
    operand_t *position = operand_of(c, &c->g.forward.fire.queries);
    operand_t *high = operand_of(c, &c->g.forward.fire.offsets);
    for (size_t k = 0; k < position->block.bytes / 8; k++)
        put_number(position, position->block.data + 8 * k,
                   (double)between(s, -3000, 3000) * (is_far ? 0x1p20 : 1));
    scale_numbers(operand_of(c, &c->g.forward.fire.lines), is_far ? 0 : 0x1p-54);
    for (size_t k = 0; is_far && k < high->block.bytes / 8; k++) {
        char *at = high->block.data + 8 * k;
        put_number(high, at, (double)(float)number_at(high, at));
    }
}

/* `fails`: with more pairs than there are columns. */
static void
lay_rotary(case_t *c, rp_rotary *to, int kind, int fails)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    int varies = choose_repeat(s, REPEAT_BATCH | REPEAT_ROWS);
    to->N = p->B;
    to->L = choose_size(s, 200);
    to->D = choose_size(s, 140);
    to->h = fails ? to->D / 2 + 1 : pick(s, to->D / 2 + 1);
    to->interleaved = (int)pick(s, 2);
    to->threads = (int)between(s, 1, 4);
    lay(c, (operand_t){.name = "x",
                       .array = &p->query,
                       .n = {p->B, 1, to->L, to->D},
                       .kind = kind,
                       .repeat = REPEAT_HEADS});
    lay_operand(c, "position", &p->fire.queries, to->L, 1, DOUBLES,
                REPEAT_COLUMNS | choose_repeat(s, REPEAT_BATCH));
    lay_operand(c, "high", &p->fire.offsets, to->L, to->h, DOUBLES, varies);
    lay_operand(c, "low", &p->fire.lines, to->L, to->h, DOUBLES, varies);
    fill_rotary_angles(c);
    lay_operand(c, "magnitude", &c->g.fire_offset_slopes, to->L, to->h, DOUBLES,
                varies);
    lay(c, (operand_t){.name = "out",
                       .array = &p->results.out,
                       .n = {p->B, 1, to->L, to->D},
                       .kind = kind,
                       .repeat = REPEAT_HEADS,
                       .result = WRITTEN});
}

/* Whether the pairs of each item are neighbours: of a loop items may differ. */
static void
lay_flags(case_t *c, const rp_rotary *x, int is_loop)
{
    operand_t *o = lay_operand(c, "interleaved", &c->g.forward.labels.of[0].array, 1, 1,
                               INTEGERS, 0);
    for (size_t k = 0; k < o->block.bytes / 8; k++)
        put_integer(o, o->block.data + 8 * k,
                    is_loop ? pick(&c->s, 2) : x->interleaved);
}

static int
is_interleaved(case_t *c, int64_t n)
{
    const operand_t *o = operand_of(c, &c->g.forward.labels.of[0].array);
    return integer_at(o, item_at(o, n, 0, 0, 0)) != 0;
}

static void
rotate_by_loop(case_t *c, const rp_rotary *x, const rp_kernels *kernels)
{
    rp_attention *p = &c->g.forward;
    loop_call_t call = {.count = 0};
    const ptrdiff_t dimensions[] = {x->N, x->L, x->D, x->h};
    add_operand(&call, operand_of(c, &p->query), 2);
    add_operand(&call, operand_of(c, &p->fire.queries), 0);
    call.inner[call.inner_count++] = p->fire.queries.row;
    add_operand(&call, operand_of(c, &p->fire.offsets), 2);
    add_operand(&call, operand_of(c, &p->fire.lines), 2);
    add_operand(&call, operand_of(c, &c->g.fire_offset_slopes), 2);
    add_operand(&call, operand_of(c, &p->labels.of[0].array), 0);
    add_operand(&call, operand_of(c, &p->results.out), 2);
    run_loop(kernels, RP_UFUNC_rotary, &call, dimensions);
}

static void
expect_pair(case_t *c, const rp_rotary *x, int64_t n, int64_t row, int64_t pair)
{
    rp_attention *p = &c->g.forward;
    const row_t at = {.c = c, .b = n};
    int64_t first = is_interleaved(c, n) ? 2 * pair : pair;
    int64_t second = is_interleaved(c, n) ? first + 1 : x->h + pair;
    long double frequency =
        (long double)number_of(c, &p->fire.offsets, n, 0, row, pair) +
        (long double)number_of(c, &p->fire.lines, n, 0, row, pair);
    long double angle = number_of(c, &p->fire.queries, n, 0, row, 0) * frequency;
    double m = number_of(c, &c->g.fire_offset_slopes, n, 0, row, pair);
    double cosine = m * (double)cosl(angle), sine = m * (double)sinl(angle);
    double a = number_of(c, &p->query, n, 0, row, first);
    double b = number_of(c, &p->query, n, 0, row, second);
    double off = rounding(c) * fabs(m) * (fabs(a) + fabs(b));
    expect(&at, &p->results.out, 0, row, first, a * cosine - b * sine, off);
    expect(&at, &p->results.out, 0, row, second, b * cosine + a * sine, off);
}

static void
expect_rotary(case_t *c, const rp_rotary *x)
{
    rp_attention *p = &c->g.forward;
    for (int64_t n = 0; n < x->N; n++)
        for (int64_t row = 0; row < x->L; row++) {
            const row_t at = {.c = c, .b = n};
            for (int64_t pair = 0; pair < x->h; pair++)
                expect_pair(c, x, n, row, pair);
            for (int64_t d = 2 * x->h; d < x->D; d++)
                expect(&at, &p->results.out, 0, row, d,
                       number_of(c, &p->query, n, 0, row, d), 0);
        }
}

static int
check_rotary(source_t s, const rp_isa *isa, int dtype)
{
    case_t *c = start_loop(s, dtype);
    rp_rotary x = {0};
    rp_attention *p = &c->g.forward;
    const int kind = choose_kind(c), is_loop = kind == RP_OWN && once_in(&c->s, 2);
    const int fails = is_loop && once_in(&c->s, 8);
    lay_rotary(c, &x, kind, fails);
    lay_flags(c, &x, is_loop);
    prepare(c);
    x.x = p->query, x.out = p->results.out, x.position = p->fire.queries;
    x.high = p->fire.offsets, x.low = p->fire.lines,
    x.magnitude = c->g.fire_offset_slopes;
    const int may_fail = fail_at_times(&c->s);
    if (is_loop)
        rotate_by_loop(c, &x, isa->kernels[dtype]);
    else
        loop_errors = isa->kernels[dtype]->apply_rotary(&x) != RP_OK;
    if (!fails)
        expect_rotary(c, &x);
    int is_wrong = judge_call(c, loop_errors, fails, may_fail);
    if (is_wrong)
        fprintf(stderr,
                "  of rotary, loop %d: %d errors, N %" PRId64 " L %" PRId64
                " D %" PRId64 " h %" PRId64 " interleaved %d\n",
                is_loop, loop_errors, x.N, x.L, x.D, x.h, x.interleaved);
    free_case(c);
    return is_wrong;
}

/* One problem of one of the loops. */
static int
check_loops(source_t s, const rp_isa *isa, int dtype)
{
    return once_in(&s, 2) ? check_scores(s, isa, dtype) : check_rotary(s, isa, dtype);
}

#endif
