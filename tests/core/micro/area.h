/* area.h: memory between two zones that a kernel may not touch, and what is wrong with what it
 * wrote. */
#ifndef RELPOS_TESTS_CORE_MICRO_AREA_H
#define RELPOS_TESTS_CORE_MICRO_AREA_H

#include <inttypes.h>
#include <stdarg.h>

#include "../source.h"

enum { ZONE = 512, MOST_AREAS = 32, LARGEST_ITEM = 64 };

/* Bytes with a zone before and a zone behind them; what they were before the kernel ran;
 * which of them it may write. */
typedef struct {
    unsigned char *raw, *before, *is_free;
    size_t bytes;
} area_t;

/* One run of one kernel. */
static struct {
    const char *kernel;
    uint64_t seed;
    int is_wrong;
    int is_exact;          /* its numbers are small integers: sums have no rounding */
    unsigned char filling; /* of zones, and of all that nobody fills: 0xff is NaN */
    area_t areas[MOST_AREAS];
    int count;
} trial;

/* Reports the first thing that is wrong with a trial. */
static void
report(const char *format, ...)
{
    va_list words;
    if (!trial.is_wrong) {
        fprintf(stderr, "%s, seed %" PRIu64 ": ", trial.kernel, trial.seed);
        va_start(words, format);
        vfprintf(stderr, format, words);
        va_end(words);
        fprintf(stderr, "\n");
    }
    trial.is_wrong = 1;
}

static void *
checked(void *memory)
{
    if (memory == NULL || trial.count == MOST_AREAS) {
        fprintf(stderr, "no memory for a trial of %s\n", trial.kernel);
        exit(2);
    }
    return memory;
}

/* `bytes` bytes at any multiple of `item`, which are as the zones are. */
static void *
take_area(source_t *s, size_t bytes, size_t item)
{
    area_t *area = &trial.areas[trial.count];
    area->bytes = RP_ROUND_UP(bytes + 2 * ZONE + LARGEST_ITEM, LARGEST_ITEM);
    area->raw = checked(aligned_alloc(LARGEST_ITEM, area->bytes));
    area->before = checked(malloc(area->bytes));
    area->is_free = checked(calloc(1, area->bytes));
    memset(area->raw, trial.filling, area->bytes);
    trial.count++;
    return area->raw + ZONE + (size_t)pick(s, (int64_t)(LARGEST_ITEM / item)) * item;
}

/* Says that the kernel may write these bytes, which somebody else judges. */
static void
allow(const void *at, size_t bytes)
{
    const unsigned char *first = at;
    for (int n = 0; n < trial.count && bytes > 0; n++) {
        area_t *area = &trial.areas[n];
        if (first >= area->raw && first < area->raw + area->bytes) {
            memset(area->is_free + (first - area->raw), 1, bytes);
            return;
        }
    }
}

/* Notes all bytes, right before the kernel runs. */
static void
start_kernel(void)
{
    for (int n = 0; n < trial.count; n++)
        memcpy(trial.areas[n].before, trial.areas[n].raw, trial.areas[n].bytes);
}

/* The bytes of what was at an address when the kernel began. */
static const void *
before_kernel(const void *at)
{
    const unsigned char *first = at;
    for (int n = 0; n < trial.count; n++) {
        area_t *area = &trial.areas[n];
        if (first >= area->raw && first < area->raw + area->bytes)
            return area->before + (first - area->raw);
    }
    return NULL;
}

/* Looks whether the kernel wrote anything else: zones, gaps, operands. */
static void
judge_zones(void)
{
    for (int n = 0; n < trial.count; n++) {
        const area_t *area = &trial.areas[n];
        for (size_t k = 0; k < area->bytes && !trial.is_wrong; k++)
            if (!area->is_free[k] && area->raw[k] != area->before[k])
                report("area %d of %zu bytes was written at byte %td", n,
                       area->bytes - 2 * ZONE, (ptrdiff_t)k - ZONE);
    }
}

static void
free_areas(void)
{
    for (int n = 0; n < trial.count; n++) {
        free(trial.areas[n].raw);
        free(trial.areas[n].before);
        free(trial.areas[n].is_free);
    }
    trial.count = 0;
}

#endif
