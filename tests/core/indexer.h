/* indexer.h: the keys that an indexer picks, against all scores sorted. Numbers are -1, 0 and
 * 1, so that scores are exact in any order, and many are equal. A case lends the places of its
 * arrays. */
#ifndef RELPOS_TESTS_CORE_INDEXER_H
#define RELPOS_TESTS_CORE_INDEXER_H

#include "pairs.h"
#include "loops.h"

static void
fill_small(case_t *c, const operand_t *o, int has_odd)
{
    for (size_t k = 0; k < o->block.bytes / (size_t)o->item; k++) {
        double x = (double)between(&c->s, -1, 1);
        if (has_odd && once_in(&c->s, 9))
            x = once_in(&c->s, 2) ? (double)NAN : -(double)INFINITY;
        put_number(o, o->block.data + k * (size_t)o->item, x);
    }
}

static void
lay_indexer(case_t *c, rp_indexer *x)
{
    rp_attention *p = &c->g.forward;
    x->B = p->B;
    x->H = choose_size(&c->s, 70);
    x->Lq = choose_size(&c->s, 40);
    x->Lk = choose_size(&c->s, 300);
    x->D = choose_size(&c->s, 70);
    x->picked = once_in(&c->s, 3) ? x->Lk : between(&c->s, 0, x->Lk);
    x->threads = (int)between(&c->s, 1, 3);
    p->H = 1; /* of ranges and masks */
    p->Lq = x->Lq, p->Lk = x->Lk;
    operand_t *query = lay(c, (operand_t){.name = "query",
                                          .array = &p->query,
                                          .n = {x->B, x->H, x->Lq, x->D},
                                          .kind = choose_kind(c)});
    operand_t *key = lay(c, (operand_t){.name = "key",
                                        .array = &p->key,
                                        .n = {x->B, 1, x->Lk, x->D},
                                        .kind = choose_kind(c),
                                        .repeat = REPEAT_HEADS});
    operand_t *weights = lay(c, (operand_t){.name = "weights",
                                            .array = &p->sinks,
                                            .n = {x->B, x->H, x->Lq, 1},
                                            .kind = choose_kind(c)});
    const int has_odd = once_in(&c->s, 8);
    fill_small(c, query, 0);
    fill_small(c, key, has_odd);
    fill_small(c, weights, 0);
    lay_ranges(c);
    if (once_in(&c->s, 2))
        lay_mask(c);
    lay(c, (operand_t){.name = "keys",
                       .array = &p->results.out,
                       .n = {x->B, 1, x->Lq, x->picked},
                       .storage = INTEGERS,
                       .item = 4,
                       .repeat = REPEAT_HEADS,
                       .result = WRITTEN});
    x->query = p->query, x->key = p->key, x->weights = p->sinks;
    x->ranges = p->sight.key_ranges, x->mask = p->sight.mask;
    x->mask_type = p->sight.mask_type;
    x->keys = p->results.out;
}

/* The score of a pair; returns whether the query sees the key. */
static int
score_of_pair(case_t *c, const rp_indexer *x, int64_t b, int64_t i, int64_t j,
              double *score)
{
    rp_attention *p = &c->g.forward;
    const operand_t *ranges = operand_of(c, &p->sight.key_ranges);
    if (j < integer_at(ranges, item_at(ranges, b, 0, i, 0)) ||
        j >= integer_at(ranges, item_at(ranges, b, 0, i, 1)))
        return 0;
    *score = 0;
    for (int64_t h = 0; h < x->H; h++) {
        double product = 0;
        for (int64_t d = 0; d < x->D; d++)
            product +=
                number_of(c, &p->query, b, h, i, d) * number_of(c, &p->key, b, 0, j, d);
        *score += number_of(c, &p->sinks, b, h, i, 0) * (product < 0 ? 0 : product);
    }
    if (x->mask_type == RP_MASK_NONE)
        return 1;
    double mask = number_of(c, &p->sight.mask, b, 0, i, j);
    if (x->mask_type == RP_MASK_BOOL)
        return mask != 0;
    *score = c->dtype == RP_F32 ? (float)*score + (float)mask : *score + mask;
    return mask != -(double)INFINITY;
}

/* Whether the picks of a query are the places of its scores, sorted by insertion. */
static int
has_wrong_picks(case_t *c, const rp_indexer *x, int64_t b, int64_t i)
{
    const operand_t *keys = operand_of(c, &c->g.forward.results.out);
    double scores[300];
    int64_t order[300], count = 0;
    for (int64_t j = 0; j < x->Lk; j++) {
        double score;
        if (!score_of_pair(c, x, b, i, j, &score))
            continue;
        int64_t at = count++;
        /* a NaN goes before nothing, and any number before a NaN */
        for (; at > 0 &&
               (score > scores[order[at - 1]] ||
                (score == score && scores[order[at - 1]] != scores[order[at - 1]]));
             at--)
            order[at] = order[at - 1];
        order[at] = j;
        scores[j] = score;
    }
    for (int64_t n = 0; n < x->picked; n++)
        if (integer_at(keys, item_at(keys, b, 0, i, n)) != (n < count ? order[n] : -1))
            return 1;
    return 0;
}

static int
check_indexed(source_t s, const rp_isa *isa, int dtype)
{
    case_t *c = start_loop(s, dtype);
    rp_indexer x = {0};
    c->is_even = 0;
    lay_indexer(c, &x);
    const int may_fail = fail_at_times(&c->s);
    rp_status status = isa->kernels[dtype]->indexer_top_k(&x);
    rp_fail_at(0, 0);
    int is_wrong = (status != RP_OK && !may_fail) || rp_live_blocks() != 0;
    for (int64_t n = 0; status == RP_OK && n < x.B * x.Lq; n++)
        is_wrong |= has_wrong_picks(c, &x, n / x.Lq, n % x.Lq);
    if (is_wrong)
        fprintf(stderr,
                "  of an indexer, status %d: B %" PRId64 " H %" PRId64 " Lq %" PRId64
                " Lk %" PRId64 " D %" PRId64 " picked %" PRId64 "\n",
                status, x.B, x.H, x.Lq, x.Lk, x.D, x.picked);
    free_case(c);
    return is_wrong;
}

#endif
