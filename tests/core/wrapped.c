/* wrapped.c: what stands between the C core and its memory, its clock and its stacks. Link
 * with --wrap of each function below. */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "wrapped.h"

wrapped_t wrapped;

static _Atomic size_t taken, peak;
static _Atomic int64_t clock_added;

void *__real_rp_alloc(size_t count, size_t size);
void __real_rp_free(void *block);
int __real_clock_gettime(clockid_t id, struct timespec *now);
int __real_pthread_attr_setstacksize(pthread_attr_t *attributes, size_t bytes);
void *__wrap_rp_alloc(size_t count, size_t size);
void __wrap_rp_free(void *block);
int __wrap_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_pthread_attr_setstacksize(pthread_attr_t *attributes, size_t bytes);

size_t
wrapped_peak(void)
{
    return atomic_load(&peak);
}

void
reset_peak(void)
{
    atomic_store(&peak, atomic_load(&taken));
}

void *
__wrap_rp_alloc(size_t count, size_t size)
{
    size_t bytes = count * size; /* where it overflows, the allocator fails */
    if (wrapped.most_bytes > 0 && atomic_load(&taken) + bytes > wrapped.most_bytes)
        return NULL;
    void *block = __real_rp_alloc(count, size);
    if (block == NULL)
        return NULL;
    if (wrapped.fills_scratch)
        memset(block, 0xff, bytes);
    size_t now =
        atomic_fetch_add(&taken, malloc_usable_size(block)) + malloc_usable_size(block);
    size_t before = atomic_load(&peak);
    while (now > before && !atomic_compare_exchange_weak(&peak, &before, now))
        continue;
    return block;
}

void
__wrap_rp_free(void *block)
{
    if (block != NULL) {
        atomic_fetch_sub(&taken, malloc_usable_size(block));
        if (wrapped.fills_scratch)
            memset(block, 0xff, malloc_usable_size(block));
    }
    __real_rp_free(block);
}

/* A clock that runs ahead, so that signals are polled at each look. */
int
__wrap_clock_gettime(clockid_t id, struct timespec *now)
{
    int status = __real_clock_gettime(id, now);
    int64_t ns = now->tv_nsec + atomic_fetch_add(&clock_added, wrapped.clock_steps);
    now->tv_sec += (time_t)(ns / 1000000000);
    now->tv_nsec = (long)(ns % 1000000000);
    return status;
}

int
__wrap_pthread_attr_setstacksize(pthread_attr_t *attributes, size_t bytes)
{
    wrapped.stack_bytes = bytes * STACK_FACTOR;
    return __real_pthread_attr_setstacksize(attributes, wrapped.stack_bytes);
}
