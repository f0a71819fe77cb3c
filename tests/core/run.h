/* run.h: a problem, run as often as it takes and judged. */
#ifndef RELPOS_TESTS_CORE_RUN_H
#define RELPOS_TESTS_CORE_RUN_H

#include "judge.h"
#include "wrapped.h"

/* What is done with a problem beside one call of it: calls whose allocations fail, which are
 * told to stop, and which use another number of threads. */
static struct {
    int most_threads, is_plain;
} settings = {.most_threads = 4};

/* The entries of problems.h: the forward, then a backward from what it wrote. `bytes`: only
 * the memory of the larger of them is counted. */
static rp_status
run_backward(case_t *c, const rp_kernels *kernels, size_t *bytes)
{
    rp_results *to = &c->g.forward.results, results = *to;
    if (to->kept.data)
        to->out = to->kept;
    to->kept = to->lse = to->weights = (rp_array){0}; /* a backward has none of them */
    fill_graph(c);
    rp_status status = c->kind == GRAPH ? kernels->graph_backward(&c->graph, bytes)
                                        : kernels->attention_backward(&c->g, bytes);
    *to = results;
    return status;
}

static rp_status
run_case(case_t *c, const rp_isa *isa, int threads, size_t *bytes)
{
    const rp_kernels *kernels = isa->kernels[c->dtype];
    const rp_attention *p = &c->g.forward;
    size_t forward = 0;
    c->g.forward.threads = threads;
    fill_graph(c);
    rp_status status = c->kind == GRAPH
                           ? kernels->graph_forward(&c->graph.forward, bytes)
                           : kernels->attention_forward(p, bytes);
    forward = bytes ? *bytes : 0;
    if (status || !c->is_backward || p->Lq == 0 ||
        (p->Lk == 0 && !c->g.grad_sinks.data))
        return status; /* csrc/python would call no kernel */
    status = run_backward(c, kernels, bytes);
    if (bytes && forward > *bytes)
        *bytes = forward;
    return status;
}

/* ---- calls that do not end well ------------------------------------------------------------ */

static int
always_stop(void)
{
    return 1;
}

enum { FAIL_ONCE, FAIL_FOREVER, LITTLE_MEMORY, STOP, WAYS_TO_FAIL };

/* Runs a call of which something fails, or is told to stop: it returns a status that fits,
 * loses no block, and writes nowhere else. */
static int
fail_case(case_t *c, const rp_isa *isa, int threads, size_t bytes)
{
    source_t *s = &c->s;
    int way = (int)pick(s, WAYS_TO_FAIL), is_wrong = 0;
    if (way <= FAIL_FOREVER)
        rp_fail_at(between(s, 1, 4), way == FAIL_FOREVER);
    else if (way == LITTLE_MEMORY)
        wrapped.most_bytes = 1 + bytes / (size_t)between(s, 1, 4);
    else {
        rp_set_poll(always_stop);
        wrapped.clock_steps = once_in(s, 4) ? 1000 : INT64_C(60) * 1000 * 1000;
    }
    rp_status status = run_case(c, isa, threads, NULL);
    rp_fail_at(0, 0);
    rp_set_poll(NULL);
    wrapped.most_bytes = 0;
    wrapped.clock_steps = 0;
    if (status != RP_OK && status != (way == STOP ? RP_INTERRUPTED : RP_NO_MEMORY))
        is_wrong = report(c, "a call that fails has the wrong status");
    if (rp_live_blocks() != 0)
        is_wrong = report(c, "a call that fails loses a block");
    if (!is_wrong && status != RP_OK)
        is_wrong = judge(c, 1);
    reset(c);
    return is_wrong;
}

/* Runs the case again by another number of threads: the bits must be the same. */
static int
run_by_others(case_t *c, const rp_isa *isa, int threads)
{
    int others = threads == 1 && settings.most_threads >= 3 ? 3 : 1;
    keep_results(c);
    reset(c);
    run_case(c, isa, others, NULL);
    return differs_from_kept(c, "depends on the number of threads");
}

/* ---- one problem ---------------------------------------------------------------------------- */

/* Makes a problem of its source. */
static void
start_case(case_t *c, source_t s, int dtype)
{
    static const case_t nothing;
    *c = nothing;
    c->s = s;
    make_case(c, dtype);
    if (c->numbers == INFINITE)
        make_infinite(c);
    if (c->numbers == SEEN)
        show_infinite(c);
    prepare(c);
}

/* Returns 1, with a report, if something about the problem is wrong. */
static int
check_case(case_t *c, const rp_isa *isa)
{
    source_t *s = &c->s;
    int threads = c->g.forward.threads;
    size_t bytes = 0;
    threads = threads < settings.most_threads ? threads : settings.most_threads;
    if (run_case(c, isa, threads, &bytes) != RP_OK)
        return report(c, "counting memory failed");
    if (!settings.is_plain && once_in(s, 5) && fail_case(c, isa, threads, bytes))
        return 1;
    reset_peak();
    if (run_case(c, isa, threads, NULL) != RP_OK)
        return report(c, "a call failed");
    if (rp_live_blocks() != 0)
        return report(c, "a call lost a block");
    if (c->numbers != ANY_BITS)
        define(c);
    if (judge(c, c->numbers == ANY_BITS))
        return 1;
    return !settings.is_plain && once_in(s, 4) && run_by_others(c, isa, threads);
}

#endif
