/* arena.h: one block of memory for a whole call, and how much a call holds at a time.
 *
 * What a call needs is laid out twice by the same function: once to count, once for good. So
 * what a call takes can be told without running it. One block, because an allocator keeps it
 * for the next call, where many large ones would go back to the system and come again page
 * by page. */
#ifndef RELPOS_GROUND_ARENA_H
#define RELPOS_GROUND_ARENA_H

#include "vector.h"

enum {
    RP_WAVE_BYTES = 1 << 19, /* packed operands held at a time, per thread */
};

typedef struct {
    char *memory; /* NULL: it only counts */
    size_t used;  /* bytes handed out so far */
    int failed;   /* they were more than there can be */
} arena_t;

typedef void (*layout)(void *context, arena_t *arena);

/* Hands out count * size bytes, 64-byte aligned, at an address of their own even where they
 * are none; NULL while it only counts. */
static void *
take(arena_t *arena, int64_t count, size_t size)
{
    const size_t most = PTRDIFF_MAX / 2;
    size_t bytes, begin = arena->used;
    if (!rp_multiply((size_t)count, size, &bytes) || bytes > most || begin > most)
        arena->failed = 1;
    else
        arena->used = begin + RP_ROUND_UP(RP_MAX(bytes, 1), 64) + RP_FENCE_BYTES;
    if (arena->memory == NULL)
        return NULL;
    ASAN_POISON_MEMORY_REGION(arena->memory + begin + bytes,
                              arena->used - begin - bytes);
    return arena->memory + begin;
}

RP_INLINE T *
take_numbers(arena_t *arena, int64_t count)
{
    return take(arena, count, sizeof(T));
}

/* Counts; where bytes is NULL, also takes the block, which is to be freed, and lays the call
 * out in it. */
static rp_status
reserve(arena_t *arena, layout lay_out, void *context, size_t *bytes)
{
    *arena = (arena_t){0};
    lay_out(context, arena);
    size_t used = arena->used;
    if (arena->failed)
        return RP_NO_MEMORY;
    if (bytes) {
        *bytes = used;
        return RP_OK;
    }
    char *memory = rp_alloc(1, used);
    if (memory == NULL)
        return RP_NO_MEMORY;
    *arena = (arena_t){.memory = memory};
    lay_out(context, arena);
    return RP_OK;
}

#endif
