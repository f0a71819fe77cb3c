/* parallel.c: the only threads. One static pool of plain pthreads: no OpenMP, because a
 * process forked after libgomp ran hangs at its next parallel region. rp_set_team lends the
 * threads of an OpenMP library that the process has anyway, as PyTorch's.
 *
 * Two mutexes. `job` is held by the one caller that has the pool, for the whole call, and
 * is only ever tried, never waited for: who does not get it runs serially, which covers
 * nesting and concurrent callers without a deadlock. `m` guards the fields of the pool
 * and is held for a few instructions at a time.
 *
 * Workers live for the rest of the process. A forked child has none of them: its handler
 * starts again with an empty pool. */
#define _GNU_SOURCE

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#include "../relpos.h"
#include "modes.h"
#include "spin.h"

enum {
    WORKER_STACK = 256 * 1024, /* frames are at most 16 KiB (a compiler error above) */
    POLL_NS = 50 * 1000 * 1000,
    MOST_STEP = 64,                 /* units between two looks at the clock */
    LATE_TEAM_NS = 2 * 1000 * 1000, /* much longer than it takes to wake the team */
};

/* ---- calls ----------------------------------------------------------------- */

typedef struct {
    rp_body body;
    void *context;
    int64_t units;
    _Atomic int64_t next; /* first unit that nobody has claimed */
    atomic_int stop;
    int pooled; /* its caller holds pool.job */
    int forked; /* this is a child, which was forked during the call */
    int64_t opened, began, ended; /* of a team's call: it, and its caller's units */
    fp_modes modes;               /* of the caller, which every worker takes over */
} rp_call;

static struct {
    pthread_mutex_t job, m;
    pthread_cond_t go, done;
    int workers; /* threads created */
    rp_call *call;
    int wanted;              /* workers the call has room for; 0 once it is closed */
    int joined;              /* workers that came */
    _Atomic int active;      /* workers inside the call */
    _Atomic unsigned opened; /* calls so far: what idle workers watch */
} pool;

/* For milliseconds after each operation of PyTorch its threads look for the next one, and
 * keep the pool's workers from the CPUs. A call that comes in between runs on them. */
static struct {
    _Atomic rp_run_team run; /* NULL: there is none */
    int (*_Atomic size)(void);
    _Atomic int64_t calm_from; /* before it the pool runs calls: CPUs are short */
} team;

static pthread_once_t pool_once = PTHREAD_ONCE_INIT;
static int (*_Atomic poll_hook)(void);

/* What this thread is running; NULL outside rp_parallel. */
static _Thread_local rp_call *current;
static _Thread_local int is_worker;
static _Thread_local int64_t last_poll, last_look; /* at the clock */

/* ---- signals --------------------------------------------------------------- */

void
rp_set_poll(int (*poll)(void))
{
    atomic_store(&poll_hook, poll);
}

int
rp_stopping(void)
{
    rp_call *call = current;
    if (call == NULL)
        return 0;
    if (atomic_load_explicit(&call->stop, memory_order_relaxed))
        return 1;
    int (*poll)(void) = atomic_load_explicit(&poll_hook, memory_order_relaxed);
    if (is_worker || poll == NULL)
        return 0;
    /* The time of the last poll outlives the call: a loop of short calls polls too. */
    int64_t now = last_look = monotonic_ns();
    if (now - last_poll < POLL_NS)
        return 0;
    last_poll = now;
    if (poll())
        atomic_store(&call->stop, 1);
    return atomic_load(&call->stop);
}

/* ---- the pool -------------------------------------------------------------- */

/* To look at the clock takes as long as a short unit: after units that together took less
 * than a part of POLL_NS, twice as many follow before the next look. */
static void
run_units(rp_call *call, int worker)
{
    int64_t looked = INT64_MIN / 2, step = 1, left = 0;
    while (left > 0 ? !atomic_load_explicit(&call->stop, memory_order_relaxed)
                    : !rp_stopping()) {
        if (left-- <= 0) {
            step = last_look - looked < POLL_NS / 64 && step < MOST_STEP ? 2 * step : 1;
            looked = last_look;
            left = step - 1;
        }
        int64_t unit = atomic_fetch_add_explicit(&call->next, 1, memory_order_relaxed);
        if (unit >= call->units)
            break;
        call->body(call->context, unit, worker);
    }
}

/* Joins the call. Called with pool.m held, which it does not hold meanwhile. */
static void
take_part(void)
{
    rp_call *call = pool.call;
    int worker = ++pool.joined; /* the caller is worker 0 */
    pool.active++;
    pthread_mutex_unlock(&pool.m);
    fp_modes held, before = hold_modes(&held);
    set_modes(call->modes);
    current = call;
    is_worker = 1;
    run_units(call, worker);
    is_worker = 0;
    current = NULL;
    set_modes(before);
    pthread_mutex_lock(&pool.m);
    if (--pool.active == 0)
        pthread_cond_signal(&pool.done);
}

static void *
worker_main(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&pool.m);
    for (;;) {
        while (pool.joined >= pool.wanted)
            pthread_cond_wait(&pool.go, &pool.m);
        unsigned seen = atomic_load(&pool.opened);
        take_part();
        pthread_mutex_unlock(&pool.m);
        for (spin s = start_spin(); atomic_load(&pool.opened) == seen;)
            if (!keep_spinning(&s))
                break;
        pthread_mutex_lock(&pool.m);
    }
    return NULL;
}

static void
initialise_pool(void)
{
    pthread_condattr_t monotonic;
    pthread_mutex_init(&pool.job, NULL);
    pthread_mutex_init(&pool.m, NULL);
    pthread_condattr_init(&monotonic);
#ifdef __linux__
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(&pool.go, NULL);
    pthread_cond_init(&pool.done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pool.workers = pool.wanted = pool.joined = 0;
    atomic_store(&pool.active, 0);
    pool.call = NULL;
}

/* Runs in a forked child, whose only thread is the one that forked: whatever state the
 * others left behind is gone with them. When that thread forks inside a call (a signal
 * handler run by the poll hook), units claimed by the lost workers will never be done,
 * so its call is abandoned; it still owns the job. */
static void
after_fork_in_child(void)
{
    initialise_pool();
    atomic_store(&team.run, NULL);
    if (current != NULL) {
        atomic_store(&current->stop, 1);
        current->forked = 1;
        if (current->pooled)
            pthread_mutex_lock(&pool.job);
    }
}

static void
first_use(void)
{
    initialise_pool();
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

/* Called with pool.m held. Fewer workers than wanted is not an error. */
static void
grow(int wanted)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    if (pool.workers >= wanted || pthread_attr_init(&attributes) != 0)
        return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, WORKER_STACK);
    sigfillset(&all); /* the host's signals must never land in a worker */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool.workers < wanted) {
        pthread_t thread;
        if (rp_should_fail() ||
            pthread_create(&thread, &attributes, worker_main, NULL) != 0)
            break;
        pool.workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

/* Called with pool.m held. */
static void
open_call(rp_call *call, int wanted)
{
    pool.call = call;
    pool.joined = 0;
    pool.wanted = wanted;
    atomic_fetch_add(&pool.opened, 1);
}

static void
deadline_after_poll_interval(struct timespec *deadline)
{
#ifdef __linux__
    clock_gettime(CLOCK_MONOTONIC, deadline);
#else
    clock_gettime(CLOCK_REALTIME, deadline);
#endif
    deadline->tv_nsec += POLL_NS;
    if (deadline->tv_nsec >= 1000000000) {
        deadline->tv_nsec -= 1000000000;
        deadline->tv_sec++;
    }
}

/* No worker joins any more; waits for those inside, polling for signals meanwhile. */
static void
close_call(void)
{
    pthread_mutex_lock(&pool.m);
    pool.wanted = pool.joined = 0;
    pthread_mutex_unlock(&pool.m);
    for (spin s = start_spin(); atomic_load(&pool.active) > 0;)
        if (!keep_spinning(&s))
            break;
    pthread_mutex_lock(&pool.m);
    while (pool.active > 0) {
        struct timespec deadline;
        deadline_after_poll_interval(&deadline);
        if (pthread_cond_timedwait(&pool.done, &pool.m, &deadline) == ETIMEDOUT) {
            pthread_mutex_unlock(&pool.m); /* the hook waits for Python's lock */
            rp_stopping();
            pthread_mutex_lock(&pool.m);
        }
    }
    pool.call = NULL;
    pthread_mutex_unlock(&pool.m);
}

static void
run_by_pool(rp_call *call, int wanted)
{
    pthread_mutex_lock(&pool.m);
    grow(wanted);
    open_call(call, wanted < pool.workers ? wanted : pool.workers);
    for (int i = 0; i < pool.wanted; i++)
        pthread_cond_signal(&pool.go);
    pthread_mutex_unlock(&pool.m);
    run_units(call, 0);
    close_call();
}

/* ---- the team of OpenMP ------------------------------------------------------ */

/* Where a caller that was forked during its call leaves the team, which is gone. */
static _Thread_local jmp_buf after_team;

void
rp_set_team(rp_run_team run, int (*size)(void))
{
    pthread_once(&pool_once, first_use); /* children have no team */
    atomic_store(&team.size, size);
    atomic_store(&team.calm_from, 0);
    atomic_store(&team.run, run);
}

/* What each thread of the team does. Those that the call has no room for go on. */
static void
member_main(void *call)
{
    if (current == call) {
        current->began = monotonic_ns();
        run_units(call, 0);
        current->ended = monotonic_ns();
        close_call();
        if (current->forked)
            _longjmp(after_team, 1);
        return;
    }
    pthread_mutex_lock(&pool.m);
    if (pool.joined < pool.wanted)
        take_part();
    pthread_mutex_unlock(&pool.m);
}

/* OpenMP waits for each member of a team as it starts and as it ends, also for one that found
 * no unit left. Where that takes long, and longer than the caller's own units, other threads
 * have the CPUs: the pool, which waits for no worker that did not come, then runs calls. */
static void
look_for_late_members(const rp_call *call)
{
    int64_t now = monotonic_ns(), own = call->ended - call->began;
    int64_t wait = now - call->opened - own;
    if (wait > LATE_TEAM_NS && wait > own)
        atomic_store(&team.calm_from, now + CROWDED_NS);
}

/* Returns 0, and runs nothing, where there is no team of so many threads, or a late one. */
static int
run_by_team(rp_call *call, int wanted)
{
    rp_run_team run = atomic_load(&team.run);
    call->opened = monotonic_ns();
    if (run == NULL || atomic_load(&team.size)() <= wanted ||
        call->opened < atomic_load(&team.calm_from))
        return 0;
    pthread_mutex_lock(&pool.m);
    open_call(call, wanted);
    pthread_mutex_unlock(&pool.m);
    /* 0: as many threads as PyTorch's operations have, as each change ends or starts some */
    if (_setjmp(after_team) == 0) {
        run(member_main, call, 0, 0);
        look_for_late_members(call);
    }
    return 1;
}

/* ---- the entry --------------------------------------------------------------- */

static void
share_call(rp_call *call, int wanted)
{
    current = call;
    if (!call->pooled)
        run_units(call, 0);
    else if (!run_by_team(call, wanted))
        run_by_pool(call, wanted);
    current = NULL;
}

rp_status
rp_parallel(int64_t units, rp_body body, void *context, int threads)
{
    if (current != NULL) { /* nested: part of the call that is running */
        for (int64_t unit = 0; unit < units && !rp_stopping(); unit++)
            body(context, unit, 0);
        return atomic_load(&current->stop) ? RP_INTERRUPTED : RP_OK;
    }
    rp_call call = {.body = body, .context = context, .units = units};
    fp_modes before = hold_modes(&call.modes); /* nobody hears that kernels underflow */
    int64_t useful = threads < units ? threads : units;
    if (useful >= 2) {
        pthread_once(&pool_once, first_use);
        call.pooled = pthread_mutex_trylock(&pool.job) == 0;
    }
    share_call(&call, (int)useful - 1);
    if (call.pooled)
        pthread_mutex_unlock(&pool.job);
    set_modes(before);
    return atomic_load(&call.stop) ? RP_INTERRUPTED : RP_OK;
}
