/* others.h: what an object has beside attention and loops: products, rows of the index, the
 * numbers of a mask, checksums, picks of an indexer, and the sizes that it refuses. */
#ifndef RELPOS_TESTS_CORE_OTHERS_H
#define RELPOS_TESTS_CORE_OTHERS_H

#include "dense.h"
#include "indexer.h"

/* c = alpha * a . b, or added to c. */
static int
check_product(source_t s, const rp_isa *isa, int dtype)
{
    case_t *c = start_loop(s, dtype);
    rp_attention *p = &c->g.forward;
    int is_added = once_in(&c->s, 2), threads = (int)between(&c->s, 1, 3);
    p->B = 1;
    rp_product x = {.m = once_in(&c->s, 8) ? 200 : choose_size(&c->s, 140),
                    .n = once_in(&c->s, 8) ? 300 : choose_size(&c->s, 140),
                    .k = once_in(&c->s, 8) ? 260 : choose_size(&c->s, 140),
                    .alpha = once_in(&c->s, 2) ? 1 : 0.75,
                    .beta = is_added};
    lay_operand(c, "a", &p->query, x.m, x.k, NUMBERS, 0);
    lay_operand(c, "b", &p->key, x.k, x.n, NUMBERS, 0);
    lay(c, (operand_t){.name = "c",
                       .array = &p->results.out,
                       .n = {1, 1, x.m, x.n},
                       .in_rows = 1,
                       .repeat = REPEAT_HEADS,
                       .result = is_added ? ADDED : WRITTEN});
    prepare(c);
    x.a = p->query.data, x.a_row = p->query.row, x.a_col = p->query.col;
    x.b = p->key.data, x.b_row = p->key.row, x.b_col = p->key.col;
    x.c = p->results.out.data;
    x.c_row = p->results.out.row / operand_of(c, &p->results.out)->item;
    const int may_fail = fail_at_times(&c->s);
    rp_status status = isa == rp_best_isa() ? rp_gemm(&x, dtype, threads)
                                            : rp_gemm_tiles(isa, dtype, &x, threads);
    const row_t at = {.c = c};
    for (int64_t i = 0; i < x.m; i++)
        for (int64_t j = 0; j < x.n; j++)
            for (int64_t k = 0; k < x.k; k++) {
                double term = x.alpha * number_of(c, &p->query, 0, 0, i, k) *
                              number_of(c, &p->key, 0, 0, k, j);
                expect(&at, &p->results.out, 0, i, j, term,
                       rounding(c) * (double)(x.k + 4) * fabs(term));
            }
    int is_wrong = judge_call(c, status != RP_OK, 0, may_fail);
    if (is_wrong)
        fprintf(stderr, "  of a product, status %d\n", status);
    free_case(c);
    return is_wrong;
}

/* Rows of n / divisor. */
static int
check_index_rows(source_t s, const rp_isa *isa, int dtype)
{
    case_t *c = start_loop(s, dtype);
    rp_attention *p = &c->g.forward;
    const int64_t count = choose_size(&c->s, 200), columns = 1 + choose_size(&c->s, 70);
    const double divisor = (double)between(&c->s, 1, 9);
    p->B = 1;
    operand_t *out = lay(c, (operand_t){.name = "rows",
                                        .array = &p->results.out,
                                        .n = {1, 1, count, columns},
                                        .in_rows = 1,
                                        .repeat = REPEAT_HEADS,
                                        .result = WRITTEN});
    prepare(c);
    rp_status status =
        isa->kernels[dtype]->index_rows(out->block.data, count, columns, divisor);
    const row_t at = {.c = c};
    for (int64_t n = 0; n < count; n++)
        for (int64_t k = 0; k < columns; k++) {
            double number = (double)n / divisor;
            expect(&at, &p->results.out, 0, n, k,
                   dtype == RP_F32 ? (double)(float)number : number, 0);
        }
    int is_wrong = judge(c, 0) || status != RP_OK;
    free_case(c);
    return is_wrong;
}

/* Whether a line has zeros, ones and others; of others nothing else need be found. */
static int
check_mask_numbers(source_t s, const rp_isa *isa, int dtype)
{
    case_t *c = start_loop(s, dtype);
    rp_attention *p = &c->g.forward;
    static const double numbers[] = {0, -0.0, 1, 1, 0.5, -1};
    static const int ranges[][2] = {{0, 2}, {2, 4}, {0, 4}, {0, 6}};
    const int *range = ranges[pick(&c->s, 4)];
    const int64_t count = 1 + choose_size(&c->s, 140) * between(&c->s, 1, 12);
    int wanted = 0;
    p->B = 1;
    operand_t *line = lay_operand(c, "line", &p->query, 1, count, NUMBERS, REPEAT_ROWS);
    for (int64_t k = 0; k < count; k++) {
        int end = range[1] > 4 && !once_in(&c->s, 40) ? 4 : range[1]; /* few others */
        double x = numbers[range[0] + pick(&c->s, end - range[0])];
        put_number(line, item_at(line, 0, 0, 0, k), x);
        wanted |= x == 0 ? RP_ZEROS : x == 1 ? RP_ONES : RP_OTHERS;
    }
    int found = isa->kernels[dtype]->mask_numbers(p->query.data, p->query.col, count);
    int is_wrong = wanted >= RP_OTHERS ? found < RP_OTHERS : found != wanted;
    if (is_wrong)
        fprintf(stderr, "mask_numbers: %d, expected %d, of %" PRId64 " numbers\n",
                found, wanted, count);
    free_case(c);
    return is_wrong;
}

/* Whether bytes have the same checksum at another place, and another one once a bit changed.
 * micro.c compares it with its definition. */
static int
check_checksum(source_t s, const rp_isa *isa, int dtype)
{
    const rp_kernels *kernels = isa->kernels[dtype];
    const size_t count = 1 + (size_t)pick(&s, 5000);
    uint64_t sums[3][2];
    block_t one = take_block(&s, count), other = take_block(&s, count);
    for (size_t n = 0; n < count; n++)
        one.data[n] = other.data[n] = (char)draw(&s);
    kernels->checksum(one.data, count, sums[0]);
    kernels->checksum(other.data, count, sums[1]);
    other.data[draw(&s) % count] ^= (char)(1 << draw(&s) % 8);
    kernels->checksum(other.data, count, sums[2]);
    give_block(&one);
    give_block(&other);
    int is_wrong = memcmp(sums[0], sums[1], sizeof *sums) != 0 ||
                   sums[0][0] == sums[2][0] || sums[0][1] == sums[2][1];
    if (is_wrong)
        fprintf(stderr, "the checksum of %zu bytes\n", count);
    return is_wrong;
}

/* Problems of more memory than there can be, which are refused when it is counted; and those
 * without a query, whose calls read and write nothing. */
static int
check_sizes(source_t s, const rp_isa *isa, int dtype)
{
    case_t *c = start_loop(s, dtype);
    const rp_kernels *kernels = isa->kernels[dtype];
    rp_attention *p = &c->g.forward;
    const int is_empty = once_in(&c->s, 2);
    size_t counted, *bytes = is_empty ? NULL : &counted;
    p->H = p->Hk = 1;
    p->Lq = is_empty ? 0 : RP_LONGEST;
    p->Lk = p->D = p->Dp = p->Dv = RP_LONGEST;
    const rp_status wanted = is_empty ? RP_OK : RP_NO_MEMORY;
    int is_wrong = 0;
    is_wrong |= kernels->attention_forward(p, bytes) != wanted;
    is_wrong |= kernels->attention_backward(&c->g, bytes) != wanted;
    fill_graph(c);
    if (is_empty)
        is_wrong |= kernels->graph_forward(&c->graph.forward, NULL) != RP_OK ||
                    kernels->graph_backward(&c->graph, NULL) != RP_OK;
    if (is_wrong)
        fprintf(stderr, "a problem of %" PRId64 " queries\n", p->Lq);
    return is_wrong;
}

/* One problem of something else. */
static int
check_others(source_t s, const rp_isa *isa, int dtype)
{
    switch (pick(&s, 9)) {
    case 0:
        return check_product(s, isa, dtype);
    case 1:
        return check_index_rows(s, isa, dtype) || check_mask_numbers(s, isa, dtype) ||
               check_checksum(s, isa, dtype) || check_sizes(s, isa, dtype) ||
               !(isa->kernels[dtype]->fma_loop(3) > 0);
    case 2:
        return check_indexed(s, isa, dtype);
    default:
        return check_gufunc(s, isa, dtype);
    }
}

#endif
