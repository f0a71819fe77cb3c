/* gufuncs.h: the loops of encodings, of dense arrays and of three forms of attention, against
 * their definitions. A case lends them the places of its arrays. */
#ifndef RELPOS_TESTS_CORE_GUFUNCS_H
#define RELPOS_TESTS_CORE_GUFUNCS_H

#include "definition_backward.h"
#include "loops.h"

/* A call of a loop: its operands, the sizes of their axes, and whether it reports an error. */
typedef struct {
    case_t *c;
    const operand_t *of[MOST_LOOP_OPERANDS];
    loop_call_t call;
    ptrdiff_t n[8];
    int fails, is_across;
} gufunc_t;

/* Adds an operand whose last `axes` axes are those of the signature. */
static operand_t *
take(gufunc_t *x, storage_t storage, int result, int axes, int64_t h, int64_t r,
     int64_t k)
{
    static const char *const names[] = {"operand 0", "operand 1", "operand 2",
                                        "operand 3", "operand 4", "operand 5",
                                        "operand 6"};
    static const int absent[] = {REPEAT_HEADS | REPEAT_ROWS | REPEAT_COLUMNS,
                                 REPEAT_HEADS | REPEAT_ROWS, REPEAT_HEADS, 0};
    case_t *c = x->c;
    rp_attention *p = &c->g.forward;
    rp_array *places[] = {&p->query,           &p->key,
                          &p->value,           &p->rel_key.array,
                          &p->rel_query.array, &p->rel_value.array,
                          &p->results.out};
    const int n = x->call.count;
    int repeat = absent[axes];
    if (result == READ)
        repeat |= choose_repeat(&c->s, REPEAT_BATCH);
    operand_t *o = lay(c, (operand_t){.name = names[n],
                                      .array = places[n],
                                      .n = {p->B, h, r, k},
                                      .storage = storage,
                                      .repeat = repeat,
                                      .result = result});
    x->of[n] = o;
    add_operand(&x->call, o, axes);
    return o;
}

static double
get(const gufunc_t *x, int operand, int64_t b, int64_t h, int64_t r, int64_t k)
{
    const operand_t *o = x->of[operand];
    return number_at(o, item_at(o, b, h, r, k));
}

static int64_t
get_integer(const gufunc_t *x, int operand, int64_t b, int64_t k)
{
    const operand_t *o = x->of[operand];
    return integer_at(o, item_at(o, b, 0, 0, k));
}

static void
want(const gufunc_t *x, int operand, int64_t b, int64_t h, int64_t r, int64_t k,
     double number, double off)
{
    const row_t at = {.c = x->c, .b = b};
    expect(&at, x->of[operand]->array, h, r, k, number, off);
}

/* ---- sinusoids ----------------------------------------------------------------------------- */

/* Sines and cosines are two rows of one array or, as pairs, two columns. Far angles are
 * products of few digits, which the definition knows exactly. */
static void
lay_sinusoidal(gufunc_t *x)
{
    source_t *s = &x->c->s;
    const int is_far = once_in(s, 4);
    int64_t h = x->n[1] = choose_size(s, 140);
    operand_t *position = take(x, DOUBLES, READ, 0, 1, 1, 1);
    operand_t *high = take(x, DOUBLES, READ, 1, 1, 1, h);
    operand_t *low = take(x, DOUBLES, READ, 1, 1, 1, h);
    for (size_t k = 0; k < position->block.bytes / 8; k++)
        put_number(position, position->block.data + 8 * k,
                   (double)between(s, -3000, 3000) * (is_far ? 0x1p20 : 1));
    scale_numbers(low, is_far ? 0 : 0x1p-54);
    for (size_t k = 0; is_far && k < high->block.bytes / 8; k++) {
        char *at = high->block.data + 8 * k;
        put_number(high, at, (double)(float)number_at(high, at));
    }
    x->is_across = once_in(s, 2);
    operand_t *out =
        lay_operand(x->c, "angles", &x->c->g.forward.results.out, x->is_across ? 2 : h,
                    x->is_across ? h : 2, NUMBERS, 0);
    const rp_array *a = out->array;
    out->result = WRITTEN;
    x->of[3] = out;
    for (int part = 0; part < 2; part++) {
        x->call.args[x->call.count] = a->data + part * (x->is_across ? a->row : a->col);
        x->call.outer[x->call.count++] = a->batch ? a->batch[1] - a->batch[0] : 0;
        x->call.inner[x->call.inner_count++] = x->is_across ? a->col : a->row;
    }
}

static void
want_sinusoidal(const gufunc_t *x)
{
    const double off = rounding(x->c);
    for (int64_t b = 0; b < x->n[0]; b++)
        for (int64_t k = 0; k < x->n[1]; k++) {
            long double frequency =
                (long double)get(x, 1, b, 0, 0, k) + (long double)get(x, 2, b, 0, 0, k);
            long double angle = get(x, 0, b, 0, 0, 0) * frequency;
            for (int part = 0; part < 2; part++)
                want(x, 3, b, 0, x->is_across ? part : k, x->is_across ? k : part,
                     (double)(part ? cosl(angle) : sinl(angle)), off);
        }
}

/* ---- learned encodings ---------------------------------------------------------------------- */

/* Positions that rise, or are anywhere in a table of r rows; at times one is outside of it. */
static void
take_positions(gufunc_t *x, int64_t n, int64_t r)
{
    source_t *s = &x->c->s;
    operand_t *o = take(x, INTEGERS, READ, 1, 1, 1, n);
    for (int64_t b = 0; b < x->n[0]; b++)
        for (int64_t k = 0, at = 0; k < n; k++) {
            at = once_in(s, 3) || at + 1 >= r ? pick(s, r) : at + 1;
            put_integer(o, item_at(o, b, 0, 0, k), at);
        }
    x->fails = n > 0 && once_in(s, 8);
    if (x->fails)
        put_integer(o, item_at(o, 0, 0, 0, pick(s, n)), once_in(s, 2) ? -1 : r);
}

static void
lay_learned(gufunc_t *x)
{
    source_t *s = &x->c->s;
    x->n[1] = 1 + choose_size(s, 140), x->n[2] = 1 + choose_size(s, 70);
    x->n[3] = choose_size(s, 200);
    take(x, NUMBERS, READ, 2, 1, x->n[1], x->n[2]);
    take_positions(x, x->n[3], x->n[1]);
    take(x, NUMBERS, WRITTEN, 2, 1, x->n[3], x->n[2]);
}

static void
want_learned(const gufunc_t *x)
{
    for (int64_t b = 0; b < x->n[0]; b++)
        for (int64_t n = 0; n < x->n[3]; n++)
            for (int64_t d = 0; d < x->n[2]; d++)
                want(x, 2, b, 0, n, d, get(x, 0, b, 0, get_integer(x, 1, b, n), d), 0);
}

static void
lay_learned_backward(gufunc_t *x)
{
    source_t *s = &x->c->s;
    const int is_large = once_in(s, 8); /* for more than one thread */
    x->n[1] = is_large ? 160 : choose_size(s, 200);
    x->n[2] = is_large ? 130 : 1 + choose_size(s, 70);
    x->n[3] = 1 + choose_size(s, 140);
    take(x, NUMBERS, READ, 2, 1, x->n[1], x->n[2]);
    take_positions(x, x->n[1], x->n[3]);
    take(x, NUMBERS, WRITTEN, 2, 1, x->n[3], x->n[2]);
}

static void
want_learned_backward(const gufunc_t *x)
{
    const double off = rounding(x->c) * (double)x->n[1];
    for (int64_t b = 0; b < x->n[0]; b++)
        for (int64_t n = 0; n < x->n[1]; n++)
            for (int64_t d = 0; d < x->n[2]; d++) {
                double grad = get(x, 0, b, 0, n, d);
                want(x, 2, b, 0, get_integer(x, 1, b, n), d, grad, off * fabs(grad));
            }
}

/* ---- convolutions ---------------------------------------------------------------------------- */

/* Sizes of the grid, the channels and the kernel: many of one of them, at most. */
static void
choose_grid(gufunc_t *x)
{
    source_t *s = &x->c->s;
    int is_long = once_in(s, 3);
    x->n[1] = 1 + pick(s, 3),
    x->n[2] = is_long ? 1 + choose_size(s, 80) : 1 + pick(s, 5);
    x->n[3] = is_long ? 1 + pick(s, 5) : choose_size(s, 130);
    x->n[4] = pick(s, 4), x->n[5] = pick(s, 5);
}

static void
take_mask(gufunc_t *x)
{
    operand_t *o = take(x, NUMBERS, READ, 2, 1, x->n[1], x->n[2]);
    for (size_t k = 0; k < o->block.bytes / (size_t)o->item; k++)
        if (once_in(&x->c->s, 4))
            put_number(o, o->block.data + k * (size_t)o->item, 0);
}

/* Rows and columns before the first: few, or at times more than any array has. */
static void
take_pads(gufunc_t *x)
{
    source_t *s = &x->c->s;
    for (int k = 0; k < 2; k++) {
        operand_t *o = take(x, INTEGERS, READ, 0, 1, 1, 1);
        for (size_t n = 0; n < o->block.bytes / 8; n++)
            put_integer(o, o->block.data + 8 * n,
                        once_in(s, 20)   ? INT64_MAX
                        : once_in(s, 20) ? INT64_MIN
                                         : between(s, -2, 4));
    }
}

/* Whether a cell of the grid is there, and its mask is not 0. */
static int
is_seen(const gufunc_t *x, int mask, int64_t b, wide_t r, wide_t c)
{
    return r >= 0 && r < x->n[1] && c >= 0 && c < x->n[2] &&
           get(x, mask, b, 0, (int64_t)r, (int64_t)c) != 0;
}

static void
lay_conv(gufunc_t *x)
{
    choose_grid(x);
    take(x, NUMBERS, READ, 3, x->n[1], x->n[2], x->n[3]);
    take(x, NUMBERS, READ, 3, x->n[4], x->n[5], x->n[3]);
    take(x, NUMBERS, READ, 1, 1, 1, x->n[3]);
    take_mask(x);
    take_pads(x);
    take(x, NUMBERS, WRITTEN, 3, x->n[1], x->n[2], x->n[3]);
}

static void
want_cell(const gufunc_t *x, int64_t b, int64_t r, int64_t c, int64_t e)
{
    const wide_t top = get_integer(x, 4, b, 0), left = get_integer(x, 5, b, 0);
    double sum = get(x, 0, b, r, c, e), size = fabs(sum);
    if (!is_seen(x, 3, b, r, c)) {
        want(x, 6, b, r, c, e, sum, 0);
        return;
    }
    sum += get(x, 2, b, 0, 0, e), size += fabs(get(x, 2, b, 0, 0, e));
    for (int64_t i = 0; i < x->n[4]; i++)
        for (int64_t j = 0; j < x->n[5]; j++)
            if (is_seen(x, 3, b, r + i - top, c + j - left)) {
                double term =
                    get(x, 1, b, i, j, e) *
                    get(x, 0, b, (int64_t)(r + i - top), (int64_t)(c + j - left), e);
                sum += term, size += fabs(term);
            }
    want(x, 6, b, r, c, e, sum, rounding(x->c) * 8 * size);
}

static void
want_conv(const gufunc_t *x)
{
    for (int64_t b = 0; b < x->n[0]; b++)
        for (int64_t r = 0; r < x->n[1]; r++)
            for (int64_t c = 0; c < x->n[2]; c++)
                for (int64_t e = 0; e < x->n[3]; e++)
                    want_cell(x, b, r, c, e);
}

static void
lay_conv_backward(gufunc_t *x)
{
    choose_grid(x);
    take(x, NUMBERS, READ, 3, x->n[1], x->n[2], x->n[3]);
    take(x, NUMBERS, READ, 3, x->n[1], x->n[2], x->n[3]);
    take_mask(x);
    take_pads(x);
    take(x, NUMBERS, WRITTEN, 3, x->n[4], x->n[5], x->n[3]);
    take(x, NUMBERS, WRITTEN, 1, 1, 1, x->n[3]);
}

/* What the gradient of one cell's output adds to those of the weights and of the bias. */
static void
want_cell_gradients(const gufunc_t *x, int64_t b, int64_t r, int64_t c, int64_t e)
{
    const wide_t top = get_integer(x, 3, b, 0), left = get_integer(x, 4, b, 0);
    const double off = rounding(x->c) * 8, grad = get(x, 0, b, r, c, e);
    if (!is_seen(x, 2, b, r, c))
        return;
    want(x, 6, b, 0, 0, e, grad, off * fabs(grad));
    for (int64_t i = 0; i < x->n[4]; i++)
        for (int64_t j = 0; j < x->n[5]; j++)
            if (is_seen(x, 2, b, r + i - top, c + j - left)) {
                double term = grad * get(x, 1, b, (int64_t)(r + i - top),
                                         (int64_t)(c + j - left), e);
                want(x, 5, b, i, j, e, term, off * fabs(term));
            }
}

static void
want_conv_backward(const gufunc_t *x)
{
    for (int64_t b = 0; b < x->n[0]; b++)
        for (int64_t r = 0; r < x->n[1]; r++)
            for (int64_t c = 0; c < x->n[2]; c++)
                for (int64_t e = 0; e < x->n[3]; e++)
                    want_cell_gradients(x, b, r, c, e);
}

static void
lay_gelu(gufunc_t *x)
{
    source_t *s = &x->c->s;
    x->n[1] = choose_size(s, 200);
    operand_t *o = take(x, NUMBERS, READ, 1, 1, 1, x->n[1]);
    scale_numbers(o, 6);
    if (x->n[1] > 0 && once_in(s, 2))
        put_number(o, item_at(o, 0, 0, 0, pick(s, x->n[1])),
                   once_in(s, 2) ? INFINITY : -INFINITY);
    take(x, NUMBERS, WRITTEN, 1, 1, 1, x->n[1]);
    take(x, NUMBERS, WRITTEN, 1, 1, 1, x->n[1]);
}

/* To round the argument of erfc changes it by as many units as its square. */
static void
want_gelu(const gufunc_t *x)
{
    for (int64_t b = 0; b < x->n[0]; b++)
        for (int64_t k = 0; k < x->n[1]; k++) {
            const double at = get(x, 0, b, 0, 0, k);
            const int is_far = fabs(at) == INFINITY;
            const double off = is_far ? 0 : rounding(x->c) * (8 + at * at);
            double below = (double)(erfcl(-at / sqrtl(2)) / 2), slope = 0;
            double value = at > 0 ? at : 0;
            if (!is_far) {
                value = at * below;
                slope = at * exp(-at * at / 2) / sqrt(2 * acos(-1));
            }
            want(x, 1, b, 0, 0, k, value, is_far ? 0 : off * fabs(value));
            want(x, 2, b, 0, 0, k, below + slope, off * (below + fabs(slope)));
        }
}

#endif
