/* attention.h: a valid problem of attention: sizes first, then arrays of exactly those
 * sizes. */
#ifndef RELPOS_TESTS_CORE_ATTENTION_H
#define RELPOS_TESTS_CORE_ATTENTION_H

#include "operand.h"

/* Sizes at and around those of vectors, panels and tiles, or small ones. */
static int64_t
choose_size(source_t *s, int64_t most)
{
    static const int64_t edges[] = {0,  1,  2,  15, 16, 17, 31,  32, 33,
                                    47, 48, 49, 63, 64, 65, 127, 129};
    enum { EDGES = sizeof edges / sizeof *edges };
    int64_t n = once_in(s, 3)   ? edges[pick(s, EDGES)]
                : once_in(s, 4) ? pick(s, 80)
                                : between(s, 1, 9);
    if (n == 0 && pick(s, 4) != 0)
        n = 1;
    return n < most ? n : most;
}

/* Axes among some, along which an operand shall have one item. */
static int
choose_repeat(source_t *s, int axes)
{
    int chosen = (int)pick(s, 16) & axes;
    return once_in(s, 3) ? chosen : 0;
}

/* One of the kinds of 16 bits, or mostly none. */
static int
choose_kind(case_t *c)
{
    if (c->dtype != RP_F32)
        return RP_OWN;
    if (c->mixed != RP_OWN && pick(&c->s, 4) != 0)
        return c->mixed;
    return once_in(&c->s, 4) ? (int)between(&c->s, RP_F16, RP_BF16) : RP_OWN;
}

/* An operand of numbers, (B, H, rows, columns), of 16 bits where it may be. */
static operand_t *
lay_numbers(case_t *c, const char *name, rp_array *array, int may_be_short, int64_t H,
            int64_t rows, int64_t columns, int repeat)
{
    return lay(c, (operand_t){.name = name,
                              .array = array,
                              .n = {c->g.forward.B, H, rows, columns},
                              .kind = may_be_short ? choose_kind(c) : RP_OWN,
                              .repeat = repeat});
}

static operand_t *
lay_result(case_t *c, const char *name, rp_array *array, int may_be_short, int64_t H,
           int64_t rows, int64_t columns)
{
    return lay(c, (operand_t){.name = name,
                              .array = array,
                              .n = {c->g.forward.B, H, rows, columns},
                              .kind = may_be_short ? choose_kind(c) : RP_OWN,
                              .result = WRITTEN});
}

/* ---- sizes ----------------------------------------------------------------------------- */

/* Keys for several tiles and chunks of them, mostly of one head; at times the last has one
 * key. */
static void
choose_many_keys(source_t *s, rp_attention *p)
{
    p->B = p->H = p->Hk = 1;
    if (once_in(s, 6))
        p->B = p->H = p->Hk = 2;
    p->Lk = between(s, 240, once_in(s, 4) ? 1400 : 700);
    if (once_in(s, 6))
        p->Lk = 256 * between(s, 1, 2) + 1;
    p->Lq = choose_size(s, 70);
    p->D = choose_size(s, 20);
    p->Dv = choose_size(s, 20);
}

/* Slices that do not all fit into one wave (csrc/kernels/attention/tiles/waves.h). */
static void
choose_waves(source_t *s, rp_attention *p)
{
    p->B = between(s, 2, 5);
    p->Hk = between(s, 2, 8);
    p->H = p->Hk * (once_in(s, 3) ? 2 : 1);
    p->Lk = between(s, 100, 260);
    p->Lq = once_in(s, 2) ? between(s, 1, 8) : between(s, 9, 20);
    p->D = 16 * between(s, 1, 4);
    p->Dv = once_in(s, 2) ? p->D : between(s, 1, 48);
}

static void
choose_sizes(case_t *c)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    p->B = once_in(s, 3) ? between(s, 1, 4) : 1;
    p->Hk = once_in(s, 2) ? between(s, 1, 3) : 1;
    p->H = p->Hk * (once_in(s, 2) ? 1 : between(s, 1, 3));
    p->Lq = choose_size(s, 1000);
    p->Lk = once_in(s, 4) ? p->Lq : choose_size(s, 1000);
    p->D = choose_size(s, 70);
    p->Dv = once_in(s, 2) ? p->D : choose_size(s, 70);
    if (c->mixed != RP_OWN && once_in(s, 4)) /* whole vectors of 16 bits */
        p->D = p->Dv = 64;
    if (c->numbers == SINKS && once_in(s, 4)) /* one number says whether keys count */
        p->Dv = 1;
    if (c->kind == ATTENTION && (c->numbers == FALLING || once_in(s, 8)))
        choose_many_keys(s, p);
    else if (c->kind == ATTENTION && once_in(s, 60))
        choose_waves(s, p);
    p->Dp = p->D;
    p->scale = p->D ? 1 / sqrt((double)p->D) : 1;
    if (once_in(s, 30))
        p->scale = once_in(s, 3) ? 0 : -p->scale;
    if (c->numbers == SPREAD && once_in(s, 2))
        p->scale *= 400;
    if (c->numbers == INFINITE && once_in(s, 2)) /* what it multiplies may overflow */
        p->scale = 2;
    p->softcap = once_in(s, 5) ? 0.5 + (double)pick(s, 20) : 0;
    p->threads = once_in(s, 2) ? 1 : (int)between(s, 1, 4);
    p->sight.window_left = p->sight.window_right = RP_UNBOUNDED;
}

/* ---- tokens and tables ------------------------------------------------------------------ */

static void
lay_tokens(case_t *c)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    int is_attention = c->kind == ATTENTION;
    lay_numbers(c, "query", &p->query, is_attention, p->H, p->Lq, p->D,
                choose_repeat(s, REPEAT_BATCH));
    lay_numbers(c, "key", &p->key, is_attention, p->Hk, p->Lk, p->D,
                choose_repeat(s, REPEAT_BATCH));
    lay_numbers(c, "value", &p->value, is_attention, p->Hk, p->Lk, p->Dv,
                choose_repeat(s, REPEAT_BATCH));
    if (is_attention && once_in(s, 5))
        lay_numbers(c, "pos_bias_u", &p->pos_bias_u, 0, p->H, 1, p->D,
                    choose_repeat(s, REPEAT_BATCH | REPEAT_HEADS));
}

enum { OF_KEY, OF_QUERY, OF_VALUE, OF_BIAS, TABLES };

/* Rows of each table, and the position of their first: around the query, or at the end of
 * what positions may be. */
static void
choose_rows(case_t *c, int64_t rows[TABLES])
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    for (int k = 0; k < TABLES; k++)
        rows[k] = 1 + choose_size(s, 140);
    if (once_in(s, 2))
        rows[OF_QUERY] = rows[OF_VALUE] = rows[OF_BIAS] = rows[OF_KEY];
    if (once_in(s, 3))
        for (int k = 0; k < TABLES; k++)
            rows[k] = 2 * (p->Lq > p->Lk ? p->Lq : p->Lk) + 1;
    int64_t first = once_in(s, 2) ? -(rows[OF_KEY] / 2) : between(s, -20, 19);
    if (p->Lk > 200 && once_in(s, 2)) /* rows that only later chunks of keys meet */
        first = pick(s, p->Lk);
    if (once_in(s, 40))
        first = once_in(s, 2) ? RP_FARTHEST : -RP_FARTHEST;
    p->rel_key.first = p->rel_query.first = p->rel_value.first = first;
    p->rel_bias.first = once_in(s, 2) ? first : between(s, -15, 14);
}

/* An index of a table: it rises or falls by 0 or 1 from row to row, as buckets of distances do,
 * at times by 2, falls and then leaps and rises, or has any rows. */
static void
lay_index(case_t *c, rp_table *table)
{
    enum { RISES, FALLS, TURNS, ANY_ROWS, WAYS };
    source_t *s = &c->s;
    int way = (int)pick(s, WAYS), leaps = once_in(s, 3);
    int64_t *index = lay_vector(c, table->rows), steps = between(s, 1, 4);
    table->listed = 1 + choose_size(s, once_in(s, 2) ? 30 : 140);
    table->index = index;
    int64_t x = way == RISES ? 0 : table->listed - 1;
    for (int64_t l = 0; l < table->rows; l++) {
        int falls = way == FALLS || (way == TURNS && l < table->rows / 2);
        int64_t step = (int64_t)(draw(s) % (uint64_t)steps) == 0;
        if (leaps && draw(s) % 16 == 0)
            step = 2;
        if (way == ANY_ROWS)
            x = (int64_t)(draw(s) % (uint64_t)table->listed);
        else if (way == TURNS && l == table->rows / 2)
            x = table->listed / 2;
        else if (falls)
            x = x > step ? x - step : 0;
        else
            x = x + step < table->listed ? x + step : x;
        index[l] = x;
    }
}

/* A table that heads and batch items may share. */
static void
lay_table(case_t *c, const char *name, rp_table *table, int may_be_short, int64_t rows,
          int64_t columns)
{
    table->rows = rows;
    if (c->kind == ATTENTION && c->numbers != FALLING && once_in(&c->s, 4))
        lay_index(c, table);
    lay_numbers(c, name, &table->array, may_be_short, c->g.forward.H,
                table->index ? table->listed : rows, columns,
                choose_repeat(&c->s, REPEAT_BATCH | REPEAT_HEADS));
}

/* rel_key with what only it brings: a position query, and v. */
static void
lay_rel_key(case_t *c, int64_t rows)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    int is_attention = c->kind == ATTENTION;
    if (once_in(s, 4))
        p->Dp = choose_size(s, 40);
    lay_table(c, "rel_key", &p->rel_key, is_attention, rows, p->Dp);
    if (p->Dp != p->D || once_in(s, 4))
        lay_numbers(c, "position_query", &p->position_query, is_attention, p->H, p->Lq,
                    p->Dp, choose_repeat(s, REPEAT_BATCH));
    if (is_attention && once_in(s, 3))
        lay_numbers(c, "pos_bias_v", &p->pos_bias_v, 0, p->H, 1, p->Dp,
                    choose_repeat(s, REPEAT_BATCH | REPEAT_HEADS));
}

/* A bias that falls by a few for each position away from the query. */
static void
let_bias_fall(case_t *c)
{
    const rp_table *table = &c->g.forward.rel_bias;
    operand_t *o = operand_of(c, &table->array);
    double slope = (double)between(&c->s, 1, 6);
    for (int64_t b = 0; b < o->n[BATCH]; b++)
        for (int64_t h = 0; h < o->n[HEADS]; h++)
            for (int64_t r = 0; r < table->rows; r++)
                put_number(o, item_at(o, b, h, r, 0),
                           -slope * fabs((double)(r + table->first)));
}

/* Tables; those of a graph are rel_key and rel_value. */
static void
lay_tables(case_t *c)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    int64_t rows[TABLES];
    choose_rows(c, rows);
    if (c->numbers != FALLING && once_in(s, 2))
        lay_rel_key(c, rows[OF_KEY]);
    if (once_in(s, 4) || (p->Lk > 200 && p->rel_key.rows && once_in(s, 2)))
        lay_table(c, "rel_value", &p->rel_value, c->kind == ATTENTION, rows[OF_VALUE],
                  p->Dv);
    if (c->kind == GRAPH)
        return;
    if (c->numbers != FALLING && once_in(s, c->numbers == INFINITE || p->B > 1 ? 2 : 4))
        lay_table(c, "rel_query", &p->rel_query, 1, rows[OF_QUERY], p->D);
    if (once_in(s, c->numbers == FALLING ? 2 : 4))
        lay_table(c, "rel_bias", &p->rel_bias, 0, rows[OF_BIAS], 1);
    if (c->numbers == FALLING && p->rel_bias.rows > 0)
        let_bias_fall(c);
}

/* Makes the numbers of an operand larger; those of 16 bits stay as they are. */
static void
scale_numbers(operand_t *o, double factor)
{
    for (size_t k = 0; o->item > 2 && k < o->block.bytes / (size_t)o->item; k++) {
        char *at = o->block.data + k * (size_t)o->item;
        put_number(o, at, number_at(o, at) * factor);
    }
}

/* Sinks, in some problems so large that keys change neither the maximum nor the sum of a row,
 * with values so large that they count nevertheless. */
static void
lay_sinks(case_t *c)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    double most = c->dtype == RP_F32 ? 0x1.fffffep127 : 0x1.fffffffffffffp1023;
    const double large[] = {40, 60, 64, 200, 1e4, -1e4, most, -most, -INFINITY};
    operand_t *o = lay_numbers(c, "sinks", &p->sinks, 0, p->H, p->Lq, 1,
                               choose_repeat(s, REPEAT_BATCH | REPEAT_ROWS));
    if (c->numbers != SINKS)
        return;
    int is_scaled = once_in(s, 2);
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t h = 0; h < p->H; h++)
            for (int64_t i = 0; i < p->Lq; i++)
                put_number(o, item_at(o, b, h, i, 0),
                           large[pick(s, is_scaled ? 3 : 9)]);
    if (is_scaled)
        scale_numbers(operand_of(c, &p->value), 1e20);
}

/* ---- results --------------------------------------------------------------------------- */

static void
lay_results(case_t *c)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    rp_results *to = &p->results;
    operand_t *out =
        lay_result(c, "out", &to->out, c->kind == ATTENTION, p->H, p->Lq, p->Dv);
    if (out->item == 2 && (c->is_backward || once_in(s, 2)))
        lay_result(c, "kept", &to->kept, 0, p->H, p->Lq, p->Dv);
    if (once_in(s, 2))
        lay_result(c, "lse", &to->lse, 0, p->H, p->Lq, 1);
    if (c->is_backward || once_in(s, 4)) {
        lay_result(c, "row_max", &to->row_max, 0, p->H, p->Lq, 1);
        lay_result(c, "row_sum", &to->row_sum, 0, p->H, p->Lq, 1);
    }
    if (c->kind == ATTENTION && once_in(s, 8))
        lay_result(c, "weights", &to->weights, 0, p->H, p->Lq, p->Lk);
}

#endif
