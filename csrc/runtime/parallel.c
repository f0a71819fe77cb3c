/* parallel.c: the only threads. One static pool of plain pthreads: no OpenMP, because a
 * process forked after libgomp ran hangs at its next parallel region.
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
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#ifndef __x86_64__
#include <fenv.h>
#endif

#include "../relpos.h"

enum {
    WORKER_STACK = 256 * 1024, /* frames are at most 16 KiB (a compiler error above) */
    POLL_NS = 50 * 1000 * 1000,
    SPIN_NS = 100 * 1000, /* a few times what waking a thread takes */
    LATE_NS = 50 * 1000,  /* no yield takes so long unless others ran meanwhile */
    CROWDED_NS = 200 * 1000 * 1000,
    MOST_STEP = 64, /* units between two looks at the clock */
};

/* ---- rounding, denormals and flags ----------------------------------------- */

/* On x86-64 those of vectors are one register; fenv.h knows those of the x87 as well, which
 * nothing here uses, and takes 0.2 us of each call for them. */
#ifdef __x86_64__
typedef unsigned fp_modes;
enum { FLAGS = 0x3f, MASKS = 0x1f80 };

static void
set_modes(fp_modes modes)
{
    __builtin_ia32_ldmxcsr(modes);
}

/* The modes, which then have no flag and no trap; these are *held. */
static fp_modes
hold_modes(fp_modes *held)
{
    fp_modes before = __builtin_ia32_stmxcsr();
    *held = (before & ~(fp_modes)FLAGS) | MASKS;
    set_modes(*held);
    return before;
}
#else
typedef fenv_t fp_modes;

static void
set_modes(fp_modes modes)
{
    fesetenv(&modes);
}

static fp_modes
hold_modes(fp_modes *held)
{
    fp_modes before;
    feholdexcept(&before);
    fegetenv(held);
    return before;
}
#endif

/* ---- calls ----------------------------------------------------------------- */

typedef struct {
    rp_body body;
    void *context;
    int64_t units;
    _Atomic int64_t next; /* first unit that nobody has claimed */
    atomic_int stop;
    int pooled;     /* its caller holds pool.job */
    fp_modes modes; /* of the caller, which every worker takes over */
} rp_call;

static struct {
    pthread_mutex_t job, m;
    pthread_cond_t go, done;
    int workers; /* threads created */
    rp_call *call;
    int wanted;                /* workers the call has room for; 0 once it is closed */
    int joined;                /* workers that came */
    _Atomic int active;        /* workers inside the call */
    _Atomic unsigned opened;   /* calls so far: what idle workers watch */
    _Atomic int64_t calm_from; /* before it no thread spins: CPUs are short */
} pool;

static pthread_once_t pool_once = PTHREAD_ONCE_INIT;
static int (*_Atomic poll_hook)(void);

/* What this thread is running; NULL outside rp_parallel. */
static _Thread_local rp_call *current;
static _Thread_local int is_worker;
static _Thread_local int64_t last_poll, last_look; /* at the clock */

/* ---- signals --------------------------------------------------------------- */

static int64_t
monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

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

/* ---- spinning -------------------------------------------------------------- */

/* The phases of a kernel follow each other within microseconds, and waking a thread takes
 * tens of them: who waits looks at memory for a while before it sleeps. Not where other
 * threads want its CPU: it yields between two looks, and when that takes long, they ran,
 * and nobody spins for some time. */
typedef struct {
    int64_t end, last;
} spin;

static spin
start_spin(void)
{
    int64_t now = monotonic_ns();
    int crowded = now < atomic_load_explicit(&pool.calm_from, memory_order_relaxed);
    return (spin){crowded ? now : now + SPIN_NS, now};
}

static int
keep_spinning(spin *s)
{
    int64_t now = monotonic_ns();
    if (now - s->last > LATE_NS)
        atomic_store_explicit(&pool.calm_from, now + CROWDED_NS, memory_order_relaxed);
    if (now >= s->end || now - s->last > LATE_NS)
        return 0;
    s->last = now;
    sched_yield();
    return 1;
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

static void *
worker_main(void *unused)
{
    (void)unused;
    is_worker = 1;
    pthread_mutex_lock(&pool.m);
    for (;;) {
        while (pool.joined >= pool.wanted)
            pthread_cond_wait(&pool.go, &pool.m);
        rp_call *call = pool.call;
        int worker = ++pool.joined; /* the caller is worker 0 */
        pool.active++;
        pthread_mutex_unlock(&pool.m);
        current = call;
        set_modes(call->modes);
        unsigned seen = atomic_load(&pool.opened);
        run_units(call, worker);
        current = NULL;
        pthread_mutex_lock(&pool.m);
        if (--pool.active == 0)
            pthread_cond_signal(&pool.done);
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
    if (current != NULL) {
        atomic_store(&current->stop, 1);
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

static void
open_call(rp_call *call, int wanted)
{
    pthread_mutex_lock(&pool.m);
    grow(wanted);
    pool.call = call;
    pool.joined = 0;
    pool.wanted = wanted < pool.workers ? wanted : pool.workers;
    atomic_fetch_add(&pool.opened, 1);
    for (int i = 0; i < pool.wanted; i++)
        pthread_cond_signal(&pool.go);
    pthread_mutex_unlock(&pool.m);
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
    current = &call;
    if (call.pooled)
        open_call(&call, (int)useful - 1);
    run_units(&call, 0);
    if (call.pooled)
        close_call();
    current = NULL;
    if (call.pooled)
        pthread_mutex_unlock(&pool.job);
    set_modes(before);
    return atomic_load(&call.stop) ? RP_INTERRUPTED : RP_OK;
}
