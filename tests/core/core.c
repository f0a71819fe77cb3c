/* core.c: random problems for the C core, without Python.
 *
 *     core [ISA|all] [f32|f64|all] FIRST COUNT [nanfill] [guard] [plain] [verbose] [every]
 *     core ISA DTYPE race SEED RUNS
 *     core runtime
 *
 * Problems are those of the seeds FIRST, FIRST + 1, ..; it ends with status 1 at the first
 * that is wrong, or with `every` goes on.
 *   nanfill   scratch memory is NaN before its use and after its release
 *   guard     operands lie flush with a page that cannot be touched, in front and behind in
 *             turn
 *   plain     no failing allocations, no other numbers of threads
 *   verbose   writes each seed before its problem
 * `race` runs one problem by four threads RUNS times: results must have the bits of one.
 * `runtime` looks at what problems do not reach of csrc/runtime. */
#include "others.h"
#include "run.h"
#include "runtime.h"

typedef struct {
    const char *isa, *dtype;
    uint64_t first, count;
    int is_guarded, is_verbose, goes_on, is_race;
} options_t;

static void
usage(void)
{
    fprintf(stderr, "core [ISA|all] [f32|f64|all] FIRST COUNT "
                    "[nanfill] [guard] [plain] [verbose] [every]\n"
                    "core ISA DTYPE race SEED RUNS\n"
                    "core runtime\n");
    exit(2);
}

static uint64_t
read_number(const char *text)
{
    char *end;
    uint64_t number = strtoull(text, &end, 0);
    if (end == text || *end != 0)
        usage();
    return number;
}

static void
read_switch(options_t *options, const char *text)
{
    if (strcmp(text, "nanfill") == 0)
        wrapped.fills_scratch = 1;
    else if (strcmp(text, "guard") == 0)
        options->is_guarded = 1;
    else if (strcmp(text, "plain") == 0)
        settings.is_plain = 1;
    else if (strcmp(text, "verbose") == 0)
        options->is_verbose = 1;
    else if (strcmp(text, "every") == 0)
        options->goes_on = 1;
    else
        usage();
}

static options_t
read_options(int argc, char **argv)
{
    options_t options = {0};
    if (argc < 5)
        usage();
    options.isa = argv[1];
    options.dtype = argv[2];
    options.is_race = strcmp(argv[3], "race") == 0;
    if (options.is_race && argc != 6)
        usage();
    options.first = read_number(argv[3 + options.is_race]);
    options.count = read_number(argv[4 + options.is_race]);
    for (int k = 5 + options.is_race; k < argc; k++)
        read_switch(&options, argv[k]);
    return options;
}

/* Whether a choice of the command line is a name, or "all". */
static int
is_chosen(const char *choice, const char *name)
{
    return strcmp(choice, "all") == 0 || strcmp(choice, name) == 0;
}

/* Runs one problem by four threads again and again. */
static int
race_case(case_t *c, const rp_isa *isa, uint64_t runs)
{
    run_case(c, isa, 1, NULL);
    keep_results(c);
    for (uint64_t k = 0; k < runs; k++) {
        reset(c);
        run_case(c, isa, 4, NULL);
        if (differs_from_kept(c, "differs between four threads and one"))
            return 1;
    }
    return 0;
}

static int
run_seed(const options_t *options, const rp_isa *isa, int dtype, uint64_t seed)
{
    static case_t c;
    int is_wrong;
    if (options->is_guarded)
        guard = seed & 1 ? GUARD_IN_FRONT : GUARD_BEHIND;
    if (options->is_verbose)
        fprintf(stderr, "seed %" PRIu64 " %s %s\n", seed, isa->name,
                dtype_names[dtype]);
    start_case(&c, seeded(seed), dtype);
    is_wrong =
        options->is_race ? race_case(&c, isa, options->count) : check_case(&c, isa);
    free_case(&c);
    if (!is_wrong && !options->is_race)
        is_wrong = check_loops(seeded(seed), isa, dtype) ||
                   check_others(seeded(seed), isa, dtype);
    if (is_wrong)
        fprintf(stderr, "SEED %" PRIu64 " %s %s\n", seed, isa->name,
                dtype_names[dtype]);
    return is_wrong;
}

int
main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "runtime") == 0)
        return check_runtime();
    options_t options = read_options(argc, argv);
    uint64_t problems = 0, wrong = 0, seeds = options.is_race ? 1 : options.count;
    for (uint64_t k = 0; k < seeds && (wrong == 0 || options.goes_on); k++)
        for (int i = 0; i < RP_ISAS; i++) {
            if (rp_isas[i].supported == NULL || !rp_isas[i].supported() ||
                !is_chosen(options.isa, rp_isas[i].name))
                continue;
            for (int dtype = 0; dtype < RP_DTYPES; dtype++) {
                if (!is_chosen(options.dtype, dtype_names[dtype]) ||
                    rp_isas[i].kernels[dtype] == NULL)
                    continue;
                wrong +=
                    (uint64_t)run_seed(&options, &rp_isas[i], dtype, options.first + k);
                problems++;
            }
        }
    printf("%" PRIu64 " problems, %" PRIu64 " wrong\n", problems, wrong);
    return wrong > 0 || problems == 0;
}
