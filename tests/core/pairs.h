/* pairs.h: what a problem says of pairs: which are visible, their labels, their biases by
 * position, and dropout. */
#ifndef RELPOS_TESTS_CORE_PAIRS_H
#define RELPOS_TESTS_CORE_PAIRS_H

#include "attention.h"

/* ---- where queries stand, and what they see ---------------------------------------------- */

static void
choose_positions(case_t *c)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    if (once_in(s, p->B > 1 ? 2 : 3)) {
        int64_t *offsets = lay_vector(c, p->B);
        int64_t most = p->Lk > 130 ? p->Lk : 130;
        p->sight.query_offset = offsets;
        for (int64_t b = 0; b < p->B; b++) {
            offsets[b] = between(s, -70, most);
            if (once_in(s, 60))
                offsets[b] = once_in(s, 2) ? RP_FARTHEST : -RP_FARTHEST;
        }
    }
    if (once_in(s, 4)) {
        int64_t *lengths = lay_vector(c, p->B);
        p->sight.key_lengths = lengths;
        for (int64_t b = 0; b < p->B; b++)
            lengths[b] = pick(s, p->Lk + 1);
    }
}

/* A side of a window from `low` on. */
static int64_t
choose_side(source_t *s, int64_t low)
{
    if (once_in(s, 20))
        return once_in(s, 2) ? RP_WIDEST : RP_FARTHEST;
    return low == 0 || once_in(s, 4) ? between(s, low, 100) : pick(s, 100);
}

static void
choose_window(case_t *c)
{
    source_t *s = &c->s;
    rp_sight *sight = &c->g.forward.sight;
    if (once_in(s, 4)) {
        sight->window_left = choose_side(s, 0);
        int64_t low = sight->window_left < 100 ? -sight->window_left : -100;
        sight->window_right = once_in(s, 4) ? RP_UNBOUNDED : choose_side(s, low);
    } else if (once_in(s, 3))
        sight->window_right = once_in(s, 4) ? choose_side(s, -70) : 0;
}

/* Ranges of keys: around those that there are, and any numbers at all. */
static void
lay_ranges(case_t *c)
{
    static const int64_t far[] = {INT64_MAX,   INT64_MAX - 15, INT64_MAX - 31,
                                  INT64_MIN,   INT64_MIN + 1,  RP_FARTHEST,
                                  -RP_FARTHEST};
    enum { FAR = sizeof far / sizeof *far };
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    int repeat = REPEAT_HEADS | choose_repeat(s, REPEAT_BATCH | REPEAT_ROWS);
    operand_t *o = lay(c, (operand_t){.name = "key_ranges",
                                      .array = &p->sight.key_ranges,
                                      .n = {p->B, 1, p->Lq, 2},
                                      .storage = INTEGERS,
                                      .repeat = repeat});
    for (size_t k = 0; k < o->block.bytes / 8; k++)
        put_integer(o, o->block.data + 8 * k,
                    once_in(s, 12) ? far[pick(s, FAR)] : between(s, -4, p->Lk + 3));
}

/* Blocks of a mask: rows and keys with one rule, so that whole classes of keys (shown.h) are
 * shown, or hidden, or neither. */
static void
mask_blocks(case_t *c, operand_t *o, int rows, int keys)
{
    enum { SHOWN, HIDDEN, AS_DRAWN, RULES };
    source_t *s = &c->s;
    const int64_t *n = o->n;
    const double shown = o->storage == TRUTHS ? 1 : 0;
    const double hidden = o->storage == TRUTHS ? 0 : -INFINITY;
    for (int64_t b = 0; b < n[BATCH]; b++)
        for (int64_t h = 0; h < n[HEADS]; h++)
            for (int64_t i = 0; i < n[ROWS]; i++)
                for (int64_t j = 0, rule = 0; j < n[COLUMNS]; j++) {
                    source_t block =
                        seeded(s->state ^ (uint64_t)(i / rows * 4099 + j / keys));
                    if (j % keys == 0)
                        rule = (int64_t)(draw(&block) % RULES);
                    if (rule != AS_DRAWN)
                        put_number(o, item_at(o, b, h, i, j),
                                   rule == SHOWN ? shown : hidden);
                }
}

static void
lay_mask(case_t *c)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    int most = c->numbers == FALLING ? RP_MASK_BOOL : RP_MASK_F64;
    int type = (int)between(s, RP_MASK_BOOL, most);
    int kind = type == RP_MASK_F32 && c->dtype == RP_F32 && once_in(s, 3)
                   ? (int)between(s, RP_F16, RP_BF16)
                   : RP_OWN;
    p->sight.mask_type = type;
    operand_t *o = lay(c, (operand_t){.name = "mask",
                                      .array = &p->sight.mask,
                                      .n = {p->B, p->H, p->Lq, p->Lk},
                                      .storage = type == RP_MASK_BOOL  ? TRUTHS
                                                 : type == RP_MASK_F32 ? FLOATS
                                                                       : DOUBLES,
                                      .item = kind == RP_OWN ? 0 : 2,
                                      .kind = kind,
                                      .repeat = choose_repeat(s, REPEAT_ANY)});
    for (size_t k = 0; type > RP_MASK_BOOL && k < o->block.bytes / (size_t)o->item; k++)
        if (draw(s) % 7 == 0)
            put_number(o, o->block.data + k * (size_t)o->item, -INFINITY);
    if (once_in(s, 2))
        mask_blocks(c, o, (int)between(s, 1, 40), 16 * (int)between(s, 1, 9));
    if (c->numbers == SPREAD && type > RP_MASK_BOOL)
        scale_numbers(o, 200);
}

/* Blocks of queries and keys, of each head, of a group of heads or of all. */
static void
lay_blocks(case_t *c)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    rp_sight *sight = &p->sight;
    const int64_t heads[] = {1, p->H, p->H / p->Hk};
    sight->block_heads = heads[pick(s, 3)];
    sight->block_queries = once_in(s, 3) ? 1 : between(s, 1, 80);
    sight->block_keys = once_in(s, 3) ? 16 * between(s, 1, 9) : between(s, 1, 150);
    if (once_in(s, 20))
        sight->block_keys = RP_LONGEST;
    lay(c, (operand_t){.name = "key_blocks",
                       .array = &sight->key_blocks,
                       .n = {p->B, p->H / sight->block_heads,
                             (p->Lq + sight->block_queries - 1) / sight->block_queries,
                             (p->Lk + sight->block_keys - 1) / sight->block_keys},
                       .storage = TRUTHS,
                       .repeat = choose_repeat(s, REPEAT_ANY)});
}

/* ---- labels ---------------------------------------------------------------------------- */

/* Labels at random, in runs, rising or falling; some are no row of a table. */
static void
fill_labels(case_t *c, const operand_t *o, int64_t rows)
{
    enum { ANY, RUNS, RISING, FALLING, WAYS };
    source_t *s = &c->s;
    int way = (int)pick(s, WAYS);
    int64_t x = 0;
    for (size_t k = 0; k < o->block.bytes / (size_t)o->item; k++) {
        if (way == ANY || (way != FALLING && k % 16 == 0))
            x = (int64_t)(draw(s) % (uint64_t)rows);
        else if (way == RISING)
            x = x + 1 < rows ? x + 1 : 0;
        else if (way == FALLING)
            x = x > 0 ? x - 1 : rows - 1;
        int64_t label = x;
        if (draw(s) % 97 == 0)
            label = draw(s) % 3 ? (int64_t)(draw(s) % 9) - 4 : (int64_t)draw(s);
        put_integer(o, o->block.data + k * (size_t)o->item, label);
    }
}

static int
has_index(const rp_attention *p)
{
    return p->rel_key.index || p->rel_query.index || p->rel_value.index ||
           p->rel_bias.index;
}

static void
lay_labels(case_t *c)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    const int64_t rows[] = {p->rel_key.rows, p->rel_query.rows, p->rel_value.rows,
                            p->rel_bias.rows};
    int64_t count = once_in(s, 3) ? between(s, 1, RP_MOST_LABELS) : 1,
            least = INT64_MAX;
    for (int k = 0; k < TABLES; k++)
        if (rows[k] > 0 && rows[k] < least)
            least = rows[k];
    if (least == INT64_MAX) /* labels without a table say nothing */
        return;
    for (; p->labels.count < count; p->labels.count++) {
        rp_label_array *labels = &p->labels.of[p->labels.count];
        labels->size = 1 << pick(s, 4);
        operand_t *o = lay(c, (operand_t){.name = "labels",
                                          .array = &labels->array,
                                          .n = {p->B, 1, p->Lq, p->Lk},
                                          .storage = INTEGERS,
                                          .item = labels->size,
                                          .repeat = choose_repeat(s, REPEAT_ANY)});
        fill_labels(c, o, least);
    }
}

/* ---- biases by position ------------------------------------------------------------------ */

/* Hides what lies after a query, as its condition asks. */
static void
lay_decay(case_t *c)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    int64_t rows = (p->Lk > 0 ? p->Lk : 1) + (once_in(s, 3) ? pick(s, 50) : 0);
    if (p->sight.window_right > 0)
        p->sight.window_right = 0;
    p->log_decay.rows = rows;
    operand_t *o = lay_numbers(c, "log_decay", &p->log_decay.array, 0, p->H, rows, 1,
                               choose_repeat(s, REPEAT_BATCH));
    const int rises = once_in(s, 4);
    if (c->numbers == SPREAD || c->numbers == FALLING)
        for (size_t k = 0; k < o->block.bytes / (size_t)o->item; k++)
            put_number(o, o->block.data + k * (size_t)o->item,
                       (rises ? 4 : -4) * fabs(draw_unit(s)));
    for (size_t k = 0; k < o->block.bytes / (size_t)o->item; k++) {
        char *at = o->block.data + k * (size_t)o->item;
        if (!isfinite(number_at(o, at))) /* of any bits */
            put_number(o, at, -1);
    }
}

static operand_t *
lay_doubles(case_t *c, const char *name, rp_array *array, int64_t H, int64_t rows,
            int64_t columns, int repeat)
{
    return lay(c, (operand_t){.name = name,
                              .array = array,
                              .n = {c->g.forward.B, H, rows, columns},
                              .storage = DOUBLES,
                              .repeat = repeat});
}

/* Offsets fall along a row, or up to the query's own position, of each item its own. */
static void
lay_fire_offsets(case_t *c, int repeat)
{
    rp_attention *p = &c->g.forward;
    int64_t n = p->Lq + p->Lk;
    operand_t *o = lay(c, (operand_t){.name = "fire_offsets",
                                      .array = &p->fire.offsets,
                                      .n = {p->B, 1, n, 1},
                                      .storage = DOUBLES,
                                      .repeat = REPEAT_HEADS | REPEAT_COLUMNS | repeat,
                                      .in_rows = 1});
    for (int64_t b = 0; b < p->B; b++)
        for (int64_t t = 0; t < n; t++) {
            int64_t item = repeat ? 0 : b;
            double at = p->sight.query_offset ? (double)p->sight.query_offset[item] : 0;
            double r = (double)(t - p->Lq) - at;
            put_number(o, item_at(o, b, 0, t, 0),
                       p->fire.is_signed ? -r : log1p(fabs(r) * 0.3));
        }
}

/* Lines whose starts rise; x may lie below the first. */
static void
lay_fire_lines(case_t *c)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    operand_t *o = lay_doubles(c, "fire_lines", &p->fire.lines, p->H, p->fire.ranges, 3,
                               REPEAT_BATCH | choose_repeat(s, REPEAT_HEADS));
    if (c->numbers == SPREAD || c->numbers == FALLING)
        scale_numbers(o, 50);
    double start = (double)between(s, -3, 3);
    for (int64_t k = 0; k < p->fire.ranges; k++) {
        start += (double)(draw(s) % 1000) * 1e-3;
        for (int64_t h = 0; h < p->H; h++)
            put_number(o, item_at(o, 0, h, k, 0), start);
    }
}

/* What the backward asks of FIRE. Slopes are as the offsets and the factors are. */
static void
lay_fire_gradients(case_t *c)
{
    rp_gradients *g = &c->g;
    rp_attention *p = &g->forward;
    int by_offset = p->fire.offsets.batch ? 0 : REPEAT_BATCH;
    int by_query = p->fire.queries.batch ? 0 : REPEAT_BATCH;
    lay_doubles(c, "fire_offset_slopes", &g->fire_offset_slopes, 1, p->Lq + p->Lk, 1,
                REPEAT_COLUMNS | by_offset);
    lay_doubles(c, "fire_query_slopes", &g->fire_query_slopes, 1, p->Lq, 2, by_query);
    operand_t *o = lay(c, (operand_t){.name = "grad_fire",
                                      .array = &g->grad_fire,
                                      .n = {p->B, p->H, p->fire.ranges + 1, 2},
                                      .storage = DOUBLES,
                                      .repeat = choose_repeat(&c->s, REPEAT_BATCH),
                                      .result = ADDED});
    (void)o;
}

/* Factors of queries, which fall with their positions in each of the packed documents. */
static void
lay_fire_factors(case_t *c, const operand_t *o)
{
    source_t *s = &c->s;
    double step = 0.05 * (double)pick(s, 4);
    int64_t length = once_in(s, 2) ? o->n[ROWS] + 1 : between(s, 1, 40);
    for (int64_t b = 0; b < o->n[BATCH]; b++) {
        double first = 0.05 + (double)(draw(s) % 1000) * 1e-3;
        for (int64_t i = 0; i < o->n[ROWS]; i++)
            put_number(o, item_at(o, b, 0, i, 0),
                       first / (1 + step * (double)(i % length)));
    }
}

static void
lay_fire(case_t *c)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    int repeat = once_in(s, 3) ? 0 : REPEAT_BATCH;
    for (int64_t b = 1; p->sight.query_offset && b < p->B; b++)
        if (p->sight.query_offset[b] != p->sight.query_offset[0])
            repeat = 0; /* x turns at each item's own position */
    p->fire.ranges = between(s, 1, 9);
    p->fire.is_signed = (int)pick(s, 2);
    lay_fire_offsets(c, repeat);
    operand_t *o =
        lay_doubles(c, "fire_queries", &p->fire.queries, 1, p->Lq, 1,
                    REPEAT_COLUMNS | choose_repeat(s, REPEAT_BATCH | REPEAT_ROWS));
    lay_fire_factors(c, o);
    lay_fire_lines(c);
    if (c->is_backward)
        lay_fire_gradients(c);
}

/* ---- dropout and parts ------------------------------------------------------------------- */

static void
choose_part(case_t *c)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    p->part.query = pick(s, 100);
    p->part.key = pick(s, 100);
    p->part.head = pick(s, 5);
    p->part.key_heads = once_in(s, 2) ? 0 : p->Hk + pick(s, 20);
    p->part.has_more_keys = once_in(s, 4);
    if (once_in(s, 2)) {
        int64_t *items = lay_vector(c, p->B);
        for (int64_t b = 0; b < p->B; b++)
            items[b] = pick(s, 100);
        p->part.items = items;
    }
}

/* All that a problem of attention says of pairs beside its tables. */
static void
lay_pairs(case_t *c)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    choose_positions(c);
    choose_window(c);
    if (once_in(s, 8))
        lay_ranges(c);
    if (once_in(s, 4))
        lay_mask(c);
    int64_t rarely = c->numbers == FALLING ? 3 : 8;
    if (once_in(s, rarely))
        lay_decay(c);
    if (once_in(s, 5) && !has_index(p))
        lay_labels(c);
    if (once_in(s, rarely))
        lay_fire(c);
    if (c->numbers != SEEN && once_in(s, 6)) /* 0 times NaN may be 0 or NaN */
        p->dropout = (rp_dropout){(double)between(s, 1, 9) / 10, draw(s)};
    /* a row beyond the table is no number or 0, and so is what NaN times it adds */
    p->beyond = once_in(s, 3) && c->numbers != SEEN ? RP_ZERO : RP_CLIP;
    p->weigh_all = once_in(s, 4);
    if (once_in(s, 8))
        choose_part(c);
    if (p->Hk > 0 && once_in(s, 8))
        lay_blocks(c);
}

#endif
