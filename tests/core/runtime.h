/* runtime.h: what problems do not reach of the runtime: the number of threads, the limits of
 * memory, a fork within a call, and threads of others. */
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

static atomic_int polls;
static atomic_int teams; /* that have run */

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
        int teams_before = teams;
        int is_wrong = complain(status != RP_INTERRUPTED, "a call in a forked child");
        x.has_forked = 1;
        status = rp_parallel(64, fork_unit, &x, 2);
        is_wrong |= complain(teams != teams_before, "a team in a forked child");
        exit(is_wrong | complain(status != RP_OK, "a later call in a forked child"));
    }
    int ended = 0;
    int is_wrong = complain(status != RP_OK, "a call that forked");
    waitpid(x.child, &ended, 0);
    return is_wrong | complain(ended != 0, "a forked child");
}

static pthread_t waiting; /* the thread that is to poll */
static atomic_int strangers;

static int
count_polls(void)
{
    if (!pthread_equal(waiting, pthread_self()))
        strangers++;
    polls++;
    return 0;
}

static void
sleep_unit(void *context, int64_t unit, int worker)
{
    (void)context;
    (void)unit;
    (void)worker;
    usleep(pthread_equal(waiting, pthread_self()) ? 100 : 200000);
}

/* Who waits for the last of the workers polls signals meanwhile, 20 times a second; without a
 * wait a call is too short for three of them. Nobody else polls them. */
static int
check_waiting(void)
{
    enum { LEAST = 3, MOST_TRIES = 50 };
    waiting = pthread_self();
    rp_set_poll(count_polls);
    for (int tries = 0; tries < MOST_TRIES && polls < LEAST; tries++) {
        polls = 0;
        rp_parallel(64, sleep_unit, NULL, 2);
    }
    rp_set_poll(NULL);
    return complain(polls < LEAST, "few polls while a worker is waited for") |
           complain(strangers > 0, "polls of another thread");
}

enum { TEAM = 3 };

static int
team_size(void)
{
    return TEAM;
}

typedef struct {
    void (*body)(void *);
    void *context;
} member_t;

static int late_us; /* of all members but the caller */

static void *
member_of_team(void *member)
{
    const member_t *x = member;
    usleep(late_us);
    x->body(x->context);
    return NULL;
}

/* Stands in for OpenMP's GOMP_parallel. */
static void
run_team(void (*body)(void *), void *context, unsigned threads, unsigned flags)
{
    pthread_t others[TEAM - 1];
    member_t member = {body, context};
    (void)threads;
    (void)flags;
    teams++;
    for (int i = 0; i < TEAM - 1; i++)
        pthread_create(&others[i], NULL, member_of_team, &member);
    body(context);
    for (int i = 0; i < TEAM - 1; i++)
        pthread_join(others[i], NULL);
}

enum { TEAM_UNITS = 64 };

typedef struct {
    atomic_int runs[TEAM_UNITS];
    atomic_int is_wrong, workers; /* a bit for each */
    int threads;
} team_t;

static void
team_unit(void *context, int64_t unit, int worker)
{
    team_t *x = context;
    x->runs[unit]++;
    atomic_fetch_or(&x->workers, 1 << worker);
    if (worker < 0 || worker >= x->threads)
        x->is_wrong = 1;
    usleep(500); /* in which the others start */
}

/* Returns 1 if a unit runs never or twice, or by a worker that the call has no room for. */
static int
check_team_of(int threads)
{
    team_t x = {.threads = threads};
    int is_wrong = rp_parallel(TEAM_UNITS, team_unit, &x, threads) != RP_OK;
    for (int unit = 0; unit < TEAM_UNITS; unit++)
        is_wrong |= x.runs[unit] != 1;
    return complain(is_wrong | x.is_wrong, "units of a team") |
           complain(threads > 1 && (x.workers & (x.workers - 1)) == 0, "a lone worker");
}

static void
short_unit(void *context, int64_t unit, int worker)
{
    (void)context;
    (void)unit;
    (void)worker;
}

/* A team whose members come late is left alone for a while. */
static int
check_late_team(void)
{
    rp_set_team(run_team, team_size);
    int before = teams;
    late_us = 20000;
    rp_parallel(2, short_unit, NULL, 2);
    int is_wrong = complain(teams != before + 1, "the call of a late team");
    late_us = 0;
    rp_parallel(2, short_unit, NULL, 2);
    is_wrong |= complain(teams != before + 1, "a call after that of a late team");
    usleep(300000);
    rp_parallel(2, short_unit, NULL, 2);
    return is_wrong | complain(teams != before + 2, "a team that was late before");
}

/* Calls of more threads than the team has run by the pool, and so do those of forked
 * processes, whose call within the team is abandoned as any other. */
static int
check_team(void)
{
    int is_wrong = 0;
    for (int threads = 1; threads <= TEAM + 1; threads++) {
        int before = teams;
        rp_set_team(run_team, team_size); /* no member was late */
        is_wrong |= check_team_of(threads);
        int has_team = threads > 1 && threads <= TEAM;
        is_wrong |= complain(teams - before != has_team, "a call's team");
    }
    is_wrong |= check_fork();
    is_wrong |= check_late_team();
    rp_set_team(NULL, team_size);
    int before = teams;
    is_wrong |= check_team_of(2);
    return is_wrong | complain(teams != before, "a team that is no more");
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
           check_team() | check_threads();
}

#endif
