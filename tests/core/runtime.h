/* runtime.h: what problems do not reach of the runtime: the number of threads, the limits of
 * memory, and a fork within a call. */
#ifndef RELPOS_TESTS_CORE_RUNTIME_H
#define RELPOS_TESTS_CORE_RUNTIME_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "judge.h"
#include "wrapped.h"

/* Returns 1, with a line, if something holds that should not. */
static int
complain(int is_wrong, const char *what)
{
    if (is_wrong)
        fprintf(stderr, "the runtime: %s\n", what);
    return is_wrong;
}

static int
answer_three(void)
{
    return 3;
}

static int
answer_none(void)
{
    return 0;
}

/* The hook is asked for a number that nobody has set, once; or always, which stays so. */
static int
check_threads(void)
{
    int limited, cpus = rp_count_cpus(&limited);
    int is_wrong = complain(cpus < 1 || cpus > RP_MAX_THREADS, "the number of CPUs");
    rp_set_num_threads(0);
    is_wrong |= complain(rp_get_num_threads() != 1, "threads without a hook");
    rp_set_threads_hook(answer_three);
    is_wrong |= complain(rp_get_num_threads() != 3, "threads of the hook");
    rp_set_threads_hook(answer_none);
    is_wrong |= complain(rp_get_num_threads() != 3, "threads after the hook was asked");
    rp_set_num_threads(7);
    is_wrong |= complain(rp_get_num_threads() != 7, "threads that were set");
    rp_set_num_threads(RP_MAX_THREADS + 1);
    is_wrong |= complain(rp_get_num_threads() != RP_MAX_THREADS, "too many threads");
    rp_always_ask_threads();
    is_wrong |= complain(rp_get_num_threads() != 1, "threads of a hook that fails");
    rp_set_threads_hook(answer_three);
    is_wrong |=
        complain(rp_get_num_threads() != 3, "threads where a hook is always asked");
    return is_wrong | complain(rp_stopping(), "a call to stop, where there is none");
}

static int
check_memory(void)
{
    const size_t large = (size_t)8 << 20;
    int is_wrong = complain(rp_alloc(SIZE_MAX / 2, 4) != NULL, "a size that overflows");
    is_wrong |=
        complain(rp_alloc(1, SIZE_MAX) != NULL, "more bytes than any block has");
    char *block = rp_alloc(1, large), *empty = rp_alloc(0, 8);
    is_wrong |= complain(block == NULL || empty == NULL, "no block");
    is_wrong |= complain(((uintptr_t)block | (uintptr_t)empty) % 64 != 0, "alignment");
    is_wrong |= complain(rp_live_blocks() != 2, "the number of blocks");
    rp_free(block);
    rp_free(empty);
    rp_free(NULL);
    rp_blas_set_path("nowhere");
    is_wrong |= complain(strcmp(rp_blas_info(), "none") != 0, "the BLAS of this build");
    return is_wrong | complain(rp_live_blocks() != 0, "a block that is left");
}

static int polls;

typedef struct {
    pthread_t caller;
    atomic_int has_forked;
    pid_t child;
} fork_t;

static void
fork_unit(void *context, int64_t unit, int worker)
{
    fork_t *x = context;
    (void)unit;
    (void)worker;
    if (pthread_equal(x->caller, pthread_self()) && !atomic_exchange(&x->has_forked, 1))
        x->child = fork();
}

/* In a child that is forked within a call, the call is abandoned; a later one runs. */
static int
check_fork(void)
{
    fork_t x = {.caller = pthread_self(), .child = -1};
    rp_status status = RP_OK;
    fflush(NULL);
    while (!x.has_forked) /* the workers may take all units */
        status = rp_parallel(64, fork_unit, &x, 2);
    if (x.child == 0) {
        int is_wrong = complain(status != RP_INTERRUPTED, "a call in a forked child");
        x.has_forked = 1;
        status = rp_parallel(64, fork_unit, &x, 2);
        exit(is_wrong | complain(status != RP_OK, "a later call in a forked child"));
    }
    int ended = 0;
    int is_wrong = complain(status != RP_OK, "a call that forked");
    waitpid(x.child, &ended, 0);
    return is_wrong | complain(ended != 0, "a forked child");
}

static int
count_polls(void)
{
    polls++;
    return 0;
}

static void
sleep_unit(void *context, int64_t unit, int worker)
{
    const pthread_t *caller = context;
    (void)unit;
    (void)worker;
    usleep(pthread_equal(*caller, pthread_self()) ? 100 : 200000);
}

/* Who waits for the last of the workers polls signals meanwhile, 20 times a second; without a
 * wait a call is too short for three of them. */
static int
check_waiting(void)
{
    enum { LEAST = 3, MOST_TRIES = 50 };
    pthread_t caller = pthread_self();
    rp_set_poll(count_polls);
    for (int tries = 0; tries < MOST_TRIES && polls < LEAST; tries++) {
        polls = 0;
        rp_parallel(64, sleep_unit, &caller, 2);
    }
    rp_set_poll(NULL);
    return complain(polls < LEAST, "few polls while a worker is waited for");
}

/* Frames are at most 16 KiB in a release; where they are larger, so are the stacks. */
static int
check_stacks(void)
{
    const size_t least = STACK_FACTOR > 1 ? (size_t)4 << 20 : (size_t)64 << 10;
    return complain(wrapped.stack_bytes < least, "the stacks of workers");
}

static int
check_runtime(void)
{
    return check_memory() | check_fork() | check_stacks() | check_waiting() |
           check_threads();
}

#endif
