/* micro.c: each micro-kernel of one object against plain C.
 *
 *     micro FIRST COUNT [KERNEL ..]
 *
 * A micro-kernel is a function of csrc/kernels that works on vectors, or in a loop on numbers at
 * an address, that is handed no struct of a problem, and that a function which is none calls.
 * test_micro.py searches the sources for them. What only micro-kernels call is a part of them.
 * Kernels behind the last comment of the list are handed such a struct, and work on vectors.
 *
 * Each runs on random shapes, strides and numbers: those of the seeds FIRST, FIRST + 1, ..
 * Numbers that are small integers must come out exactly; others within what roundings come to,
 * which the header of each group says. Bytes before, between and behind results, and all that
 * a kernel reads, must stay as they are. It ends with status 1 at the first that is wrong, with
 * 77 where this CPU lacks the instruction set.
 *
 * MICRO_ISA is the header of the instruction set; RP_OBJECT and RP_IS_F32 are as csrc/isa has
 * them. */
#include <stdio.h>
#include <stdlib.h>

#include MICRO_ISA
#include "../../csrc/kernels/kernels.h"
#include "micro/checksums.h"
#include "micro/encodings.h"
#include "micro/labels.h"
#include "micro/listed.h"
#include "micro/pack.h"
#include "micro/pairs.h"
#include "micro/products.h"
#include "micro/rows.h"
#include "micro/shears.h"
#include "micro/streams.h"
#include "micro/tables.h"
#include "micro/vectors.h"

typedef struct {
    const char *name;
    void (*run)(source_t *s);
} check_t;

/* clang-format off */
#define CHECK(name) {#name, check_##name}
static const check_t checks[] = {
    CHECK(add_columns), CHECK(add_dots), CHECK(add_head), CHECK(add_line), CHECK(add_line_to),
    CHECK(add_lines), CHECK(add_mask_run),
    CHECK(add_narrow_columns), CHECK(add_narrow_rows), CHECK(add_numbers),
    CHECK(add_panel),
    CHECK(add_partial_row), CHECK(add_row), CHECK(add_rows), CHECK(add_scaled),
    CHECK(add_sheared), CHECK(add_total), CHECK(add_weighted_row), CHECK(add_wide_mask),
    CHECK(cap_row), CHECK(checksum), CHECK(class_of_run), CHECK(class_row),
    CHECK(class_truths), CHECK(class_wide_row), CHECK(clear_gradient),
    CHECK(column_totals), CHECK(conv_add), CHECK(conv_cell), CHECK(copy_numbers),
    CHECK(copy_run), CHECK(dot), CHECK(exponents), CHECK(fetch_ahead), CHECK(fill_line),
    CHECK(first_lanes), CHECK(fma_loop), CHECK(gemm_add_rows),
    CHECK(gemm_add_rows_selected), CHECK(gemm_few_rows), CHECK(gemm_pack_left),
    CHECK(gemm_pack_right), CHECK(gemm_set), CHECK(gemm_store), CHECK(grad_row),
    CHECK(hide), CHECK(join_lines), CHECK(keep_lanes), CHECK(largest), CHECK(lines_of), CHECK(load),
    CHECK(load_frequencies), CHECK(long_dot), CHECK(longest_key), CHECK(longest_row),
    CHECK(mask_numbers), CHECK(max_lanes), CHECK(narrow), CHECK(not_finite),
    CHECK(number_at), CHECK(operand_row), CHECK(pack_panel), CHECK(pack_query),
    CHECK(pack_row), CHECK(pack_sums), CHECK(pass_cap), CHECK(product),
    CHECK(raise_maxima), CHECK(rows_not_finite), CHECK(rows_of_not_finite),
    CHECK(rp_philox), CHECK(scale_by_dropout), CHECK(scale_query), CHECK(scale_row),
    CHECK(set_lines), CHECK(shear), CHECK(shear_back), CHECK(sincos_block),
    CHECK(sincos_far), CHECK(sink_share), CHECK(splat), CHECK(start_softmax),
    CHECK(store), CHECK(store_angles), CHECK(sum_lanes), CHECK(sum_line),
    CHECK(sum_rows), CHECK(sum_run), CHECK(take_logits), CHECK(transpose), CHECK(turn),
    CHECK(turn_row_halves), CHECK(turn_row_interleaved), CHECK(unpack_row),
    CHECK(vexp2), CHECK(vmax), CHECK(weigh_lines), CHECK(widen), CHECK(write_line),
    CHECK(write_row_sum), CHECK(write_total), CHECK(write_weights), CHECK(zero_run),
    /* what is handed a struct of a problem */
    CHECK(fill_clipped), CHECK(fill_decay_row), CHECK(fill_fire_row), CHECK(find_lanes),
    CHECK(gemm_block), CHECK(index_rows), CHECK(join_piece), CHECK(rel_shift), CHECK(rel_unshift), CHECK(skew),
    CHECK(spread_piece), CHECK(subtract_row), CHECK(sum_by_row), CHECK(sum_decay_row), CHECK(sum_fire_row),
    CHECK(unskew),
};
#undef CHECK
/* clang-format on */

enum { CHECKS = sizeof checks / sizeof *checks };

/* Runs one kernel on the problem of one seed; returns 1, with a report, if it is wrong. Numbers
 * are small integers in every other seed, and zones are NaN in every other pair. */
static int
run_check(const check_t *check, uint64_t seed)
{
    uint64_t number = seed;
    for (const char *at = check->name; *at; at++)
        number = number * 31 + (unsigned char)*at;
    source_t s = seeded(number);
    trial.kernel = check->name;
    trial.seed = seed;
    trial.is_wrong = 0;
    trial.is_exact = seed % 2 == 0;
    trial.filling = seed / 2 % 2 == 0 ? 0xff : 0x7d;
    check->run(&s);
    judge_zones();
    free_areas();
    return trial.is_wrong;
}

static int
is_chosen(const check_t *check, int names, char **name)
{
    for (int n = 0; n < names; n++)
        if (strcmp(name[n], check->name) == 0)
            return 1;
    return names == 0;
}

static int
run_checks(uint64_t first, uint64_t count, int names, char **name)
{
    int chosen = 0, wrong = 0;
    for (int n = 0; n < CHECKS && !wrong; n++) {
        if (!is_chosen(&checks[n], names, name))
            continue;
        chosen++;
        for (uint64_t k = 0; k < count && !wrong; k++)
            wrong = run_check(&checks[n], first + k);
    }
    printf("%d kernels, %d wrong\n", chosen, wrong);
    return wrong || chosen == 0;
}

#if RP_VECTOR_BYTES > 16 /* whose headers open a target region */
#include "../../csrc/isa/end.h"
#endif

static int
is_supported(void)
{
#if RP_VECTOR_BYTES == 64
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#elif RP_VECTOR_BYTES == 32
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
    return 1;
#endif
}

int
main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "micro FIRST COUNT [KERNEL ..]\n");
        return 2;
    }
    if (!is_supported())
        return 77;
    return run_checks(strtoull(argv[1], NULL, 0), strtoull(argv[2], NULL, 0), argc - 3,
                      argv + 3);
}
