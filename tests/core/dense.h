/* dense.h: the loops of skewed arrays, of merged attention and of three forms of attention,
 * against their definitions. */
#ifndef RELPOS_TESTS_CORE_DENSE_H
#define RELPOS_TESTS_CORE_DENSE_H

#include "gufuncs.h"

/* ---- one column per position to one per key, and back ---------------------------------------- */

/* Sizes q, s and r = q + s - 1, of which a result at times has one too many. */
static void
take_skewed(gufunc_t *x, int narrows)
{
    source_t *s = &x->c->s;
    const int64_t q = choose_size(s, 140), columns = choose_size(s, 140);
    const int64_t wide = q > 0 ? q + columns - 1 : columns; /* any, without a row */
    x->fails = q > 0 && once_in(s, 8);
    x->n[1] = q;
    x->n[2] = narrows ? wide : columns;
    x->n[3] = (narrows ? columns : wide) + x->fails;
    take(x, NUMBERS, READ, 2, 1, q, x->n[2]);
    take(x, NUMBERS, WRITTEN, 2, 1, q, x->n[3]);
}

static void
lay_skew(gufunc_t *x)
{
    take_skewed(x, 1);
}

static void
lay_unskew(gufunc_t *x)
{
    take_skewed(x, 0);
}

/* Column j of the narrow array is column q - 1 - i + j of row i of the wide one. */
static void
want_skewed(const gufunc_t *x, int narrows)
{
    const int64_t columns = x->n[narrows ? 3 : 2];
    for (int64_t b = 0; b < x->n[0]; b++)
        for (int64_t i = 0; i < x->n[1]; i++)
            for (int64_t j = 0; j < columns; j++) {
                const int64_t wide = x->n[1] - 1 - i + j;
                want(x, 1, b, 0, i, narrows ? j : wide,
                     get(x, 0, b, 0, i, narrows ? wide : j), 0);
            }
}

static void
want_skew(const gufunc_t *x)
{
    want_skewed(x, 1);
}

static void
want_unskew(const gufunc_t *x)
{
    want_skewed(x, 0);
}

static void
lay_shift(gufunc_t *x)
{
    x->n[1] = choose_size(&x->c->s, 140), x->n[2] = choose_size(&x->c->s, 140);
    take(x, NUMBERS, READ, 2, 1, x->n[1], x->n[2]);
    take(x, NUMBERS, WRITTEN, 2, 1, x->n[1], x->n[2]);
}

/* Entry i * k + j of the result is entry q + i * k + j of the rows behind one zero each. */
static void
want_shift(const gufunc_t *x)
{
    const int64_t q = x->n[1], k = x->n[2];
    for (int64_t b = 0; b < x->n[0]; b++)
        for (int64_t i = 0; i < q; i++)
            for (int64_t j = 0; j < k; j++) {
                int64_t at = q + i * k + j, column = at % (k + 1);
                if (column > 0)
                    want(x, 1, b, 0, i, j, get(x, 0, b, 0, at / (k + 1), column - 1),
                         0);
            }
}

static void
want_unshift(const gufunc_t *x)
{
    const int64_t q = x->n[1], k = x->n[2];
    for (int64_t b = 0; b < x->n[0]; b++)
        for (int64_t i = 0; i < q; i++)
            for (int64_t j = 0; j < k; j++) {
                int64_t at = q + i * k + j, column = at % (k + 1);
                if (column > 0)
                    want(x, 1, b, 0, at / (k + 1), column - 1, get(x, 0, b, 0, i, j),
                         0);
            }
}

/* ---- attention over two sets of keys --------------------------------------------------------- */

static void
lay_merge(gufunc_t *x)
{
    source_t *s = &x->c->s;
    x->n[1] = choose_size(s, 140);
    for (int side = 0; side < 2; side++) {
        take(x, NUMBERS, READ, 1, 1, 1, x->n[1]);
        operand_t *lse = take(x, NUMBERS, READ, 0, 1, 1, 1);
        scale_numbers(lse, once_in(s, 4) ? 200 : 3);
        for (size_t k = 0; k < lse->block.bytes / (size_t)lse->item; k++)
            if (once_in(s, 4))
                put_number(lse, lse->block.data + k * (size_t)lse->item, -INFINITY);
    }
    take(x, NUMBERS, WRITTEN, 1, 1, 1, x->n[1]);
    take(x, NUMBERS, WRITTEN, 0, 1, 1, 1);
}

static void
want_merge(const gufunc_t *x)
{
    const double unit = rounding(x->c);
    for (int64_t b = 0; b < x->n[0]; b++) {
        double one = get(x, 1, b, 0, 0, 0), other = get(x, 3, b, 0, 0, 0);
        double most = fmax(one, other), lse = most, shares[] = {0, 0};
        if (most > -INFINITY) {
            lse = most + log(exp(one - most) + exp(other - most));
            shares[0] = exp(one - lse), shares[1] = exp(other - lse);
        }
        want(x, 5, b, 0, 0, 0, lse, most > -INFINITY ? 8 * unit * (1 + fabs(lse)) : 0);
        for (int64_t k = 0; k < x->n[1]; k++)
            for (int side = 0; side < 2; side++) {
                double term = shares[side] * get(x, 2 * side, b, 0, 0, k);
                double off = 8 * unit * (1 + fabs(one) + fabs(other));
                if (shares[side] > 0)
                    want(x, 4, b, 0, 0, k, term, off * fabs(term));
            }
    }
}

/* ---- three forms of attention ----------------------------------------------------------------- */

enum { SHAW, MUSIC, TRANSFORMER_XL };

/* The sizes of the problem that the loop makes of its operands, and its table. */
static void
choose_form(gufunc_t *x, int form)
{
    source_t *s = &x->c->s;
    rp_attention *p = &x->c->g.forward;
    const int64_t q = choose_size(s, 70), k = choose_size(s, 200);
    const int64_t of_xl[] = {k, k + q - 1, 2 * k - 1};
    const int64_t xl = of_xl[k == 0 && q == 0 ? 0 : pick(s, k > 0 ? 3 : 2)];
    int64_t rows = form == SHAW    ? 1 + 2 * choose_size(s, 40)
                   : form == MUSIC ? q + choose_size(s, 40)
                                   : xl;
    x->fails = k > 0 && q > 0 && once_in(s, 8);
    if (x->fails)
        rows = form == MUSIC ? q - 1 : form == SHAW ? rows + 1 : 2 * (k + q);
    p->Lq = x->n[1] = q, p->D = p->Dp = x->n[2] = choose_size(s, 40);
    p->Lk = x->n[3] = k, p->Dv = x->n[4] = 1 + choose_size(s, 40);
    p->rel_key.rows = p->rel_value.rows = x->n[5] = rows;
    p->rel_key.first = form == SHAW    ? -(rows - 1) / 2
                       : form == MUSIC ? -(rows - 1)
                                       : -(k - 1);
    p->rel_value.first = p->rel_key.first;
    p->H = p->Hk = 1;
    p->scale = 1 / sqrt((double)(p->D > 0 ? p->D : 1));
    p->sight.window_left = p->sight.window_right = RP_UNBOUNDED;
    if (form == MUSIC || (form == TRANSFORMER_XL && rows == k))
        p->sight.window_right = 0;
    if (form == TRANSFORMER_XL) {
        int64_t *offsets = lay_vector(x->c, p->B);
        for (int64_t b = 0; b < p->B; b++)
            offsets[b] = k - q;
        p->sight.query_offset = offsets;
    }
}

static void
lay_form(gufunc_t *x, int form)
{
    case_t *c = x->c;
    rp_attention *p = &c->g.forward;
    loop_call_t *call = &x->call;
    choose_form(x, form);
    const int64_t rows = p->rel_key.rows;
    add_operand(call, lay_operand(c, "query", &p->query, p->Lq, p->D, NUMBERS, 0), 2);
    add_operand(call, lay_operand(c, "key", &p->key, p->Lk, p->D, NUMBERS, 0), 2);
    add_operand(call, lay_operand(c, "value", &p->value, p->Lk, p->Dv, NUMBERS, 0), 2);
    add_operand(call,
                lay_operand(c, "rel_key", &p->rel_key.array, rows, p->D, NUMBERS,
                            choose_repeat(&c->s, REPEAT_BATCH)),
                2);
    if (form == SHAW)
        add_operand(call,
                    lay_operand(c, "rel_value", &p->rel_value.array, rows, p->Dv,
                                NUMBERS, choose_repeat(&c->s, REPEAT_BATCH)),
                    2);
    if (form == TRANSFORMER_XL) {
        add_operand(call, lay_operand(c, "u", &p->pos_bias_u, 1, p->D, NUMBERS, 0), 1);
        add_operand(call, lay_operand(c, "v", &p->pos_bias_v, 1, p->D, NUMBERS, 0), 1);
    }
    operand_t *out = lay_operand(c, "out", &p->results.out, p->Lq, p->Dv, NUMBERS, 0);
    out->result = WRITTEN;
    add_operand(call, out, 2);
}

static void
lay_shaw(gufunc_t *x)
{
    lay_form(x, SHAW);
}

static void
lay_music(gufunc_t *x)
{
    lay_form(x, MUSIC);
}

static void
lay_transformer_xl(gufunc_t *x)
{
    lay_form(x, TRANSFORMER_XL);
}

static void
want_attention(const gufunc_t *x)
{
    define(x->c);
}

/* ---- a call of a loop -------------------------------------------------------------------------- */

static const struct {
    int loop;
    void (*lay)(gufunc_t *x);
    void (*want)(const gufunc_t *x);
} gufuncs[] = {
    {RP_UFUNC_sinusoidal, lay_sinusoidal, want_sinusoidal},
    {RP_UFUNC_learned, lay_learned, want_learned},
    {RP_UFUNC_learned_backward, lay_learned_backward, want_learned_backward},
    {RP_UFUNC_conv_encoding, lay_conv, want_conv},
    {RP_UFUNC_conv_encoding_backward, lay_conv_backward, want_conv_backward},
    {RP_UFUNC_gelu, lay_gelu, want_gelu},
    {RP_UFUNC_skew, lay_skew, want_skew},
    {RP_UFUNC_unskew, lay_unskew, want_unskew},
    {RP_UFUNC_rel_shift, lay_shift, want_shift},
    {RP_UFUNC_rel_unshift, lay_shift, want_unshift},
    {RP_UFUNC_merge, lay_merge, want_merge},
    {RP_UFUNC_shaw_attention, lay_shaw, want_attention},
    {RP_UFUNC_relative_global_attention, lay_music, want_attention},
    {RP_UFUNC_transformer_xl_attention, lay_transformer_xl, want_attention},
};

/* One problem of one of the loops. Those of attention take memory, which at times fails. */
static int
check_gufunc(source_t s, const rp_isa *isa, int dtype)
{
    case_t *c = start_loop(s, dtype);
    gufunc_t x = {.c = c, .n = {c->g.forward.B}};
    const int64_t which = pick(&c->s, sizeof gufuncs / sizeof *gufuncs);
    gufuncs[which].lay(&x);
    const int has_no_memory = gufuncs[which].want == want_attention && x.n[1] > 0 &&
                              !x.fails && once_in(&c->s, 6);
    x.fails |= has_no_memory;
    prepare(c);
    rp_set_num_threads((int)between(&c->s, 1, 3));
    rp_fail_at(has_no_memory, 0);
    run_loop(isa->kernels[dtype], gufuncs[which].loop, &x.call, x.n);
    if (!x.fails)
        gufuncs[which].want(&x);
    int is_wrong = judge_call(c, loop_errors, x.fails, 0);
    if (is_wrong)
        fprintf(stderr, "  of loop %d (ufuncs.h): %d errors, %d wanted\n",
                gufuncs[which].loop, loop_errors, x.fails);
    free_case(c);
    return is_wrong;
}

#endif
