/* memory.c: the only allocator. It counts its live blocks, and a test can make the n-th
 * allocation fail, so that every error path of a call can be walked. */
#define _DEFAULT_SOURCE /* madvise */

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "../relpos.h"

enum {
    ALIGNMENT = 64, /* one cache line, and the widest vector of any ISA table */
    HUGE_PAGE = 1 << 21,
};

static _Atomic int64_t live_blocks;
static _Atomic int64_t countdown; /* allocations until the planned failure; 0: none */
static atomic_int fail_forever;

int
rp_multiply(size_t a, size_t b, size_t *product)
{
    size_t result;
    if (__builtin_mul_overflow(a, b, &result))
        return 0;
    *product = result;
    return 1;
}

int64_t
rp_fail_at(int64_t n, int forever)
{
    atomic_store(&fail_forever, forever);
    return atomic_exchange(&countdown, n > 0 ? n : 0);
}

int
rp_should_fail(void)
{
    int64_t left = atomic_load_explicit(&countdown, memory_order_relaxed);
    while (left > 0) {
        /* at 1 the failure happens; "forever" leaves the counter there */
        int64_t next = left == 1 && atomic_load(&fail_forever) ? 1 : left - 1;
        if (atomic_compare_exchange_weak(&countdown, &left, next))
            return left == 1;
    }
    return 0;
}

/* A large block as whole huge pages: fresh memory is made page by page, as it is touched,
 * and with 4 KB each that is a tenth of the backward of a long sequence. */
static int
take_block(void **block, size_t bytes)
{
    if (bytes < 2 * HUGE_PAGE)
        return posix_memalign(block, ALIGNMENT, bytes > 0 ? bytes : 1);
    int status = posix_memalign(block, HUGE_PAGE, bytes);
#ifdef MADV_HUGEPAGE
    if (status == 0)
        madvise(*block, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* a wish only */
#endif
    return status;
}

void *
rp_alloc(size_t count, size_t size)
{
    size_t bytes;
    void *block;
    if (!rp_multiply(count, size, &bytes) || bytes > PTRDIFF_MAX || rp_should_fail())
        return NULL;
    /* NULL always means failure, so an empty block has an address too */
    if (take_block(&block, bytes) != 0)
        return NULL;
    atomic_fetch_add_explicit(&live_blocks, 1, memory_order_relaxed);
    return block;
}

void
rp_free(void *block)
{
    if (block == NULL)
        return;
    atomic_fetch_sub_explicit(&live_blocks, 1, memory_order_relaxed);
    free(block);
}

int64_t
rp_live_blocks(void)
{
    return atomic_load(&live_blocks);
}
