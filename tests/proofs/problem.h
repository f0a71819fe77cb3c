/* problem.h: every problem within the limits of csrc/problems.h, as one abstract value. */
#ifndef RELPOS_TESTS_PROOFS_PROBLEM_H
#define RELPOS_TESTS_PROOFS_PROBLEM_H

#include "scalars.h"

#define RP_OBJECT proved
#include "../../csrc/isa/base.h"
#include "../../csrc/kernels/ground/line_products.h" /* whose constants need the macros */

/* It learns from comparisons of variables, not of what macros repeat. */
#undef RP_MIN
#undef RP_MAX
#define RP_CHOICE(a, than, b)                                                          \
    ({                                                                                 \
        __typeof__((a) + (b)) one = (a), other = (b);                                  \
        one than other ? one : other;                                                  \
    })
#define RP_MIN(a, b) RP_CHOICE(a, <, b)
#define RP_MAX(a, b) RP_CHOICE(a, >, b)

#include "../../csrc/kernels/attention/attention.h"
#include "../../csrc/kernels/graph/backward.h"

/* The largest of each length: Lq; Lk; rows of tables; D, Dv and Dp; B, of which half is the
 * least; H. */
typedef struct {
    int64_t queries, keys, rows, columns, items, heads;
} lengths_t;

/* Which sides of a window there are, and whether there are ranges: each is a case of its own,
 * as RP_UNBOUNDED lies far from all other numbers. */
typedef struct {
    int left, right, ranges;
} sight_case_t;

/* Memory that operands may lie in. A cell holds any number of an interval that has 0. */
static int64_t query_offsets[RP_LONGEST], key_lengths[RP_LONGEST], key_range[2];
static ptrdiff_t batches[RP_LONGEST];

static int
either(void)
{
    return (int)between(0, 1);
}

static rp_array
any_array(void)
{
    static char memory;
    rp_array a = {.head = between(INT64_MIN, INT64_MAX)};
    a.row = between(INT64_MIN, INT64_MAX);
    a.col = between(INT64_MIN, INT64_MAX);
    a.kind = (int)between(RP_OWN, RP_BF16);
    if (either())
        a.data = &memory;
    if (either())
        a.batch = batches;
    return a;
}

static rp_table
any_table(int64_t most)
{
    rp_table table = {.array = any_array()};
    table.rows = between(0, most);
    table.first = between(-RP_FARTHEST, RP_FARTHEST);
    return table;
}

/* Writes to one cell, which may be any: so that Frama-C knows all of them by one interval. */
static void
fill_memory(void)
{
    batches[between(0, RP_LONGEST - 1)] = between(INT64_MIN, INT64_MAX);
    query_offsets[between(0, RP_LONGEST - 1)] = between(-RP_FARTHEST, RP_FARTHEST);
    key_lengths[between(0, RP_LONGEST - 1)] = between(0, RP_LONGEST);
    key_range[0] = between(INT64_MIN, INT64_MAX);
    key_range[1] = between(INT64_MIN, INT64_MAX);
}

static rp_sight
any_sight(sight_case_t sight_case)
{
    rp_sight sight = {.window_left = RP_UNBOUNDED, .window_right = RP_UNBOUNDED};
    if (either())
        sight.query_offset = query_offsets;
    if (either())
        sight.key_lengths = key_lengths;
    if (sight_case.left)
        sight.window_left = between(0, RP_WIDEST);
    if (sight_case.right)
        sight.window_right =
            between(sight_case.left ? -RP_WIDEST : -RP_FARTHEST, RP_WIDEST);
    if (sight_case.ranges) /* strides are a matter of memory: none here */
        sight.key_ranges = (rp_array){.data = (char *)key_range, .col = 8};
    sight.mask = any_array();
    sight.mask_type = (int)between(RP_MASK_NONE, RP_MASK_F64);
    sight.key_blocks = any_array();
    sight.block_heads = between(1, RP_LONGEST);
    sight.block_queries = between(1, RP_LONGEST);
    sight.block_keys = between(1, RP_LONGEST);
    return sight;
}

static rp_part
any_part(void)
{
    rp_part part = {.query = between(0, RP_FARTHEST), .key = between(0, RP_FARTHEST)};
    part.head = between(0, RP_FARTHEST);
    part.key_heads = between(0, RP_FARTHEST);
    part.has_more_keys = either();
    return part;
}

static rp_fire
any_fire(lengths_t most)
{
    rp_fire fire = {.offsets = any_array(), .queries = any_array()};
    fire.lines = any_array();
    fire.ranges = between(1, most.rows);
    fire.is_signed = either();
    return fire;
}

static rp_attention
any_problem(lengths_t most, sight_case_t sight_case)
{
    rp_attention p = {.query = any_array(), .key = any_array(), .value = any_array()};
    p.B = between((most.items + 1) / 2, most.items);
    p.H = between(1, most.heads);
    p.Hk = between(1, most.heads);
    p.Lq = between(1, most.queries);
    p.Lk = between(1, most.keys);
    p.D = between(0, most.columns);
    p.Dv = between(0, most.columns);
    p.Dp = between(0, most.columns);
    p.scale = p.softcap = either();
    p.rel_key = any_table(most.rows);
    p.rel_query = any_table(most.rows);
    p.rel_value = any_table(most.rows);
    p.rel_bias = any_table(most.rows);
    p.log_decay = any_table(most.rows);
    p.pos_bias_u = any_array();
    p.pos_bias_v = any_array();
    p.position_query = any_array();
    p.labels.count = (int)between(0, RP_MOST_LABELS);
    p.beyond = (int)between(RP_CLIP, RP_ZERO);
    p.fire = any_fire(most);
    p.sight = any_sight(sight_case);
    p.picks.keys = any_array();
    p.picks.labels = any_array();
    p.picks.groups = between(1, most.heads);
    p.picks.count = between(0, RP_LONGEST / (most.queries + 1));
    p.part = any_part();
    p.weigh_all = either();
    p.threads = (int)between(1, RP_MAX_THREADS);
    return p;
}

static rp_gradients
any_gradients(const rp_attention *p)
{
    rp_gradients g = {.forward = *p, .grad_out = any_array(), .grad_lse = any_array()};
    g.grad_query = any_array();
    g.grad_key = any_array();
    g.grad_value = any_array();
    g.grad_rel_key = any_array();
    g.grad_rel_query = any_array();
    g.grad_rel_value = any_array();
    g.grad_rel_bias = any_array();
    g.grad_pos_bias_u = any_array();
    g.grad_pos_bias_v = any_array();
    g.grad_position_query = any_array();
    g.grad_log_decay = any_array();
    g.grad_fire = any_array();
    return g;
}

static rp_graph
any_graph(lengths_t most)
{
    static const int64_t edges[1];
    rp_attention p = any_problem(most, (sight_case_t){0, 0, 0});
    rp_gradients g = any_gradients(&p);
    rp_graph graph = rp_along_edges(&g).forward;
    graph.edges = between(0, RP_LONGEST);
    graph.labels = either() ? edges : NULL;
    return graph;
}

#endif
