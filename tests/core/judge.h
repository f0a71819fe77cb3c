/* judge.h: whether a call wrote what the definition says, and nothing else. */
#ifndef RELPOS_TESTS_CORE_JUDGE_H
#define RELPOS_TESTS_CORE_JUDGE_H

#include <inttypes.h>

#include "infinite.h"

static const char *const dtype_names[] = {"f32", "f64"};

static void
print_operand(const operand_t *o)
{
    static const char *const kinds[] = {"", " float16", " bfloat16"};
    fprintf(stderr, "  %s [", o->name);
    for (int axis = 0; axis < AXES; axis++)
        fprintf(stderr, "%" PRId64 "%s", o->n[axis], axis < COLUMNS ? "," : "]");
    fprintf(stderr, " strides %td %td %td, item %d%s%s\n", o->array->head,
            o->array->row, o->array->col, o->item, kinds[o->kind],
            o->array->batch ? ", batch" : "");
}

static void
print_case(const case_t *c)
{
    static const char *const numbers[] = {"plain",    "spread", "falling", "sinks",
                                          "infinite", "seen",   "any bits"};
    const rp_attention *p = &c->g.forward;
    fprintf(stderr, "  %s %s, %s, numbers: %s\n",
            c->kind == GRAPH ? "graph" : "attention",
            c->is_backward ? "backward" : "forward", dtype_names[c->dtype],
            numbers[c->numbers]);
    fprintf(stderr,
            "  B %" PRId64 " H %" PRId64 " Hk %" PRId64 " Lq %" PRId64 " Lk %" PRId64
            " D %" PRId64 " Dv %" PRId64 " Dp %" PRId64 "\n",
            p->B, p->H, p->Hk, p->Lq, p->Lk, p->D, p->Dv, p->Dp);
    fprintf(stderr,
            "  scale %g softcap %g dropout %g window %" PRId64 " %" PRId64
            " first %" PRId64 " %" PRId64 " beyond %d labels %d ranges %" PRId64
            " threads %d\n",
            p->scale, p->softcap, p->dropout.p, p->sight.window_left,
            p->sight.window_right, p->rel_key.first, p->rel_bias.first, p->beyond,
            p->labels.count, p->fire.ranges, p->threads);
    const rp_table *tables[] = {&p->rel_key, &p->rel_query, &p->rel_value,
                                &p->rel_bias};
    for (int k = 0; k < 4; k++)
        if (tables[k]->index)
            fprintf(stderr,
                    "  table %d: index of %" PRId64 " rows, listed %" PRId64 "\n", k,
                    tables[k]->rows, tables[k]->listed);
    for (int64_t b = 0; p->sight.query_offset && b < p->B; b++)
        fprintf(stderr, "  query_offset[%" PRId64 "] %" PRId64 "\n", b,
                p->sight.query_offset[b]);
    for (int64_t b = 0; p->sight.key_lengths && b < p->B; b++)
        fprintf(stderr, "  key_lengths[%" PRId64 "] %" PRId64 "\n", b,
                p->sight.key_lengths[b]);
    for (int k = 0; k < c->count; k++)
        print_operand(&c->operands[k]);
}

/* Says what is wrong with a call; returns 1. */
static int
report(const case_t *c, const char *what)
{
    fprintf(stderr, "%s\n", what);
    print_case(c);
    return 1;
}

static int
report_item(const case_t *c, const operand_t *o, const char *what, size_t item,
            double want)
{
    const char *at = o->block.data + item * (size_t)o->item;
    fprintf(stderr, "%s: item %zu %s: %.17g, expected %.17g within %.3g\n", o->name,
            item, what, number_at(o, at), want, o->tolerance[item]);
    print_case(c);
    return 1;
}

/* ---- before a call ---------------------------------------------------------------------- */

/* What results hold before a call: numbers where it adds, else bytes that show what it does
 * not write. */
static void
fill_result(const case_t *c, operand_t *o)
{
    const rp_attention *p = &c->g.forward;
    size_t count = o->block.bytes / (size_t)o->item;
    int is_empty = c->is_backward && strncmp(o->name, "grad_", 5) == 0 &&
                   (p->Lq == 0 || p->Lk == 0); /* as csrc/python makes them */
    for (size_t k = 0; k < count; k++) {
        char *at = o->block.data + k * (size_t)o->item;
        if (o->result == ADDED)
            put_number(o, at, (double)(k % 17) / 16 - 0.5);
        else if (o->result == ADDED_TO_ZEROS || is_empty)
            put_number(o, at, 0);
        else
            memset(at, 0x7d, (size_t)o->item);
    }
}

static void
prepare(case_t *c)
{
    for (int k = 0; k < c->count; k++) {
        operand_t *o = &c->operands[k];
        size_t count = o->block.bytes / (size_t)o->item + 1;
        if (o->result == READ)
            continue;
        o->before = checked(malloc(o->block.bytes + 1));
        o->after = checked(malloc(o->block.bytes + 1));
        o->want = checked(calloc(count, sizeof *o->want));
        o->tolerance = checked(calloc(count, sizeof *o->tolerance));
        fill_result(c, o);
        memcpy(o->before, o->block.data, o->block.bytes);
    }
}

static void
reset(case_t *c)
{
    for (int k = 0; k < c->count; k++)
        if (c->operands[k].result != READ)
            memcpy(c->operands[k].block.data, c->operands[k].before,
                   c->operands[k].block.bytes);
}

static void
keep_results(case_t *c)
{
    for (int k = 0; k < c->count; k++)
        if (c->operands[k].result != READ)
            memcpy(c->operands[k].after, c->operands[k].block.data,
                   c->operands[k].block.bytes);
}

/* ---- after a call ----------------------------------------------------------------------- */

/* Marks the items of a block that belong to its array. */
static char *
mark_items(const operand_t *o)
{
    const int64_t *n = o->n;
    char *is_item = checked(calloc(o->block.bytes + 1, 1));
    for (int64_t b = 0; o->block.bytes > 0 && b < n[BATCH]; b++)
        for (int64_t h = 0; h < n[HEADS]; h++)
            for (int64_t r = 0; r < n[ROWS]; r++)
                for (int64_t k = 0; k < n[COLUMNS]; k++)
                    is_item[(item_at(o, b, h, r, k) - o->block.data) / o->item] = 1;
    return is_item;
}

/* How far an item may be off in all. */
static double
allowed(const case_t *c, const operand_t *o, size_t item)
{
    double want = fabs(o->want[item]), off = 4 * o->tolerance[item];
    /* its items are differences of running sums, in which all dS are */
    if (o->array == &c->g.grad_log_decay)
        off += c->slopes * (o->item == 4 ? 0x1p-20 : 0x1p-49);
    if (o->item == 2)
        off += want * (o->kind == RP_F16 ? 0x1p-11 : 0x1p-8) + 0x1p-24;
    return off +
           (c->dtype == RP_F32 ? 1e-36 : 1e-290); /* the smallest normal numbers */
}

/* Adds what the items held before the call to what was added to them: last, as small terms
 * would be lost beside it. */
static void
add_initial(operand_t *o, size_t count)
{
    for (size_t k = 0; o->result == ADDED && k < count; k++) {
        double initial = number_at(o, o->before + k * (size_t)o->item);
        o->want[k] += initial;
        o->tolerance[k] += fabs(initial) * (o->item == 4 ? 0x1p-22 : 0x1p-51);
    }
}

static int
judge_item(const case_t *c, operand_t *o, size_t item)
{
    double number = number_at(o, o->block.data + item * (size_t)o->item);
    double want = o->want[item], off = allowed(c, o, item);
    double most = o->item == 2 && o->kind == RP_F16 ? 65504
                  : o->item == 8                    ? 1e308
                                                    : 3.3e38;
    if (fabs(number - want) <= off || number == want)
        return 0;
    if (c->numbers == SEEN && !isfinite(number) && (!isfinite(want) || !isfinite(off)))
        return 0;
    if (o->item < 8 && fabs(want) + off > most && !(fabs(number) < most / 2))
        return 0; /* an overflow */
    o->tolerance[item] = off;
    return report_item(c, o, "differs from the definition", item, want);
}

/* Compares a result with the definition or, where `only_bounds` is set, looks only whether
 * nothing was written between its items. */
static int
judge_result(const case_t *c, operand_t *o, int only_bounds)
{
    size_t count = o->block.bytes / (size_t)o->item, item = 0;
    char *is_item = mark_items(o);
    int is_wrong = 0;
    int is_free = o->array == &c->g.forward.results.row_max ||
                  o->array == &c->g.forward.results.row_sum;
    if (!only_bounds)
        add_initial(o, count);
    for (; item < count && !is_wrong; item++) {
        size_t at = item * (size_t)o->item;
        if (!is_item[item] &&
            memcmp(o->block.data + at, o->before + at, (size_t)o->item) != 0)
            is_wrong = report_item(c, o, "was written between the items", item, 0);
        else if (is_item[item] && !only_bounds && !is_free)
            is_wrong = judge_item(c, o, item);
    }
    free(is_item);
    return is_wrong;
}

static int
judge(case_t *c, int only_bounds)
{
    for (int k = 0; k < c->count; k++)
        if (c->operands[k].result != READ &&
            judge_result(c, &c->operands[k], only_bounds))
            return 1;
    return 0;
}

/* Whether results have other bits than those that were kept. */
static int
differs_from_kept(case_t *c, const char *what)
{
    for (int k = 0; k < c->count; k++) {
        const operand_t *o = &c->operands[k];
        size_t item = 0, size = (size_t)o->item;
        if (o->result == READ || memcmp(o->after, o->block.data, o->block.bytes) == 0)
            continue;
        while (memcmp(o->after + item * size, o->block.data + item * size, size) == 0)
            item++;
        return report_item(c, o, what, item, number_at(o, o->after + item * size));
    }
    return 0;
}

#endif
