/* visible.h: which keys a query sees, pair by pair. */
#ifndef RELPOS_TESTS_CORE_VISIBLE_H
#define RELPOS_TESTS_CORE_VISIBLE_H

#include "expected.h"

static int
is_out_of_range(const row_t *x, int64_t j)
{
    const operand_t *o = operand_of(x->c, &x->c->g.forward.sight.key_ranges);
    return o && (j < integer_at(o, item_at(o, x->b, 0, x->i, 0)) ||
                 j >= integer_at(o, item_at(o, x->b, 0, x->i, 1)));
}

static int
is_masked(const row_t *x, int64_t j)
{
    const rp_sight *sight = &x->c->g.forward.sight;
    const operand_t *o = operand_of(x->c, &sight->mask);
    if (o == NULL)
        return 0;
    double number = number_at(o, item_at(o, x->b, x->h, x->i, j));
    return sight->mask_type == RP_MASK_BOOL ? number == 0 : number == -INFINITY;
}

/* Whether the pair lies in a block that is hidden. */
static int
is_in_hidden_block(const row_t *x, int64_t j)
{
    const rp_sight *sight = &x->c->g.forward.sight;
    const operand_t *o = operand_of(x->c, &sight->key_blocks);
    return o && number_at(o, item_at(o, x->b, x->h / sight->block_heads,
                                     x->i / sight->block_queries,
                                     j / sight->block_keys)) == 0;
}

static int
is_hidden(const row_t *x, int64_t j)
{
    const rp_attention *p = &x->c->g.forward;
    const rp_sight *sight = &p->sight;
    if (x->c->kind == GRAPH)
        return j < 0;
    wide_t r = (wide_t)j - x->i - query_offset(p, x->b);
    if (sight->window_left != RP_UNBOUNDED && r < -(wide_t)sight->window_left)
        return 1;
    if (sight->window_right != RP_UNBOUNDED && r > sight->window_right)
        return 1;
    if (sight->key_lengths && j >= sight->key_lengths[x->b])
        return 1;
    return is_out_of_range(x, j) || is_masked(x, j) || is_in_hidden_block(x, j);
}

#endif
