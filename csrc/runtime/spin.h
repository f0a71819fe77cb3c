/* spin.h: how a thread looks at memory for a while before it sleeps. */
#ifndef RELPOS_SPIN_H
#define RELPOS_SPIN_H

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

enum {
    SPIN_NS = 100 * 1000, /* a few times what waking a thread takes */
    LATE_NS = 50 * 1000,  /* no yield takes so long unless others ran meanwhile */
    CROWDED_NS = 200 * 1000 * 1000,
};

static int64_t
monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The phases of a kernel follow each other within microseconds, and waking a thread takes
 * tens of them: who waits looks at memory for a while before it sleeps. Not where other
 * threads want its CPU: it yields between two looks, and when that takes long, they ran,
 * and nobody spins for some time. */
static _Atomic int64_t calm_from; /* before it no thread spins: CPUs are short */

typedef struct {
    int64_t end, last;
} spin;

static spin
start_spin(void)
{
    int64_t now = monotonic_ns();
    int crowded = now < atomic_load_explicit(&calm_from, memory_order_relaxed);
    return (spin){crowded ? now : now + SPIN_NS, now};
}

static int
keep_spinning(spin *s)
{
    int64_t now = monotonic_ns();
    if (now - s->last > LATE_NS)
        atomic_store_explicit(&calm_from, now + CROWDED_NS, memory_order_relaxed);
    if (now >= s->end || now - s->last > LATE_NS)
        return 0;
    s->last = now;
    sched_yield();
    return 1;
}

#endif
