/* memory.h: the memory of operands: anywhere, or flush with a page that cannot be touched. */
#ifndef RELPOS_TESTS_CORE_MEMORY_H
#define RELPOS_TESTS_CORE_MEMORY_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "source.h"

/* Where the page lies that a block is flush with. */
enum { NO_GUARD, GUARD_IN_FRONT, GUARD_BEHIND };
static int guard;

typedef struct {
    char *data, *raw;
    size_t bytes, raw_bytes; /* raw_bytes: of a mapping; 0: the block is malloc's */
} block_t;

static void *
checked(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "no memory for a problem\n");
        exit(2);
    }
    return memory;
}

static block_t
take_guarded(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE),
           whole = (bytes + page - 1) / page * page;
    block_t block = {.bytes = bytes, .raw_bytes = whole + 2 * page};
    block.raw =
        mmap(NULL, block.raw_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    checked(block.raw == MAP_FAILED ? NULL : block.raw);
    if (whole > 0 && mprotect(block.raw + page, whole, PROT_READ | PROT_WRITE) != 0)
        checked(NULL);
    block.data = block.raw + page;
    if (guard == GUARD_BEHIND)
        block.data += whole - bytes;
    return block;
}

/* Without a guard half of the blocks begin at other multiples of 8 than those of malloc. A
 * seed makes the same problem with and without a guard. */
static block_t
take_block(source_t *s, size_t bytes)
{
    size_t lead = once_in(s, 2) ? 0 : (size_t)pick(s, 8) * 8;
    if (guard != NO_GUARD)
        return take_guarded(bytes);
    block_t block = {.bytes = bytes, .raw = checked(calloc(1, bytes + lead + 1))};
    block.data = block.raw + lead;
    return block;
}

static void
give_block(block_t *block)
{
    if (block->raw_bytes > 0)
        munmap(block->raw, block->raw_bytes);
    else
        free(block->raw);
    *block = (block_t){0};
}

#endif
