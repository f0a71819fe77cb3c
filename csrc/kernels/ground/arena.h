/* arena.h: how memory is handed out, and how much of it at a time. */
#ifndef RELPOS_GROUND_ARENA_H
#define RELPOS_GROUND_ARENA_H

#include "system.h"

enum {
    RP_WAVE_BYTES = 1 << 19, /* packed operands held at a time, per thread */
};

/* Hands out `count` elements of memory from *used on; without memory only counts. */
static void *
take(char *memory, size_t *used, ptrdiff_t count, size_t size)
{
    void *block = memory ? memory + *used : NULL;
    *used += RP_ROUND_UP((size_t)count * size, 64);
    return block;
}

#endif
