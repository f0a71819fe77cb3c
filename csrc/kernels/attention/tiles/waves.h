/* attention_waves.h: slices (b, hk), the keys and values of one head, are packed and used in
 * waves, to keep the packed copies small and warm, with the tables that these heads alone
 * read. They are numbered head by head, the batch within, so that a head's table is packed
 * once for the whole batch. */
#ifndef RELPOS_ATTENTION_TILES_WAVES_H
#define RELPOS_ATTENTION_TILES_WAVES_H

#include "../../ground/arena.h"
#include "../table.h"

/* How many slices of `bytes` bytes a wave takes: as many as stay in the caches of the
 * threads' cores, but enough for every thread, each slice being `units` units of work.
 * A wave ends where a head does, or lies within one. */
static int64_t
wave_of(const plan_t *plan, size_t bytes, int64_t units)
{
    const rp_attention *p = plan->p;
    int64_t wave = p->threads * (int64_t)RP_WAVE_BYTES / (int64_t)RP_MAX(bytes, 1);
    wave = RP_MAX(wave, (p->threads + units - 1) / units);
    wave = RP_MIN(wave, p->B * p->Hk);
    return wave > p->B ? wave / p->B * p->B : wave;
}

/* Lays a table out that waves pack with their slices, so that it is still in the cache when
 * they use it, and returns the bytes that it adds to a slice; 0 where other waves would
 * have to pack the same again. */
static size_t
plan_wave_table(plan_t *plan, int which, const rp_array *table, copies_t *copies,
                int64_t rows, int64_t columns, int path, int panels)
{
    if (path == RP_ABSENT)
        return 0;
    table_pack_t t = plan_table(plan, table, copies, rows, columns, path, panels, 1);
    if (copies->heads == 1 || (copies->batches > 1 && plan->group > 1))
        return 0;
    copies->first = -1;
    plan->wave_tables[which] = t;
    return (size_t)(copies->size * plan->group) * sizeof(T);
}

static rp_status
allocate_wave_tables(const plan_t *plan)
{
    int64_t heads = RP_MAX(1, plan->slices / plan->p->B) * plan->group;
    for (int i = 0; i < 2; i++) {
        copies_t *c = plan->wave_tables[i].copies;
        if (c == NULL)
            continue;
        c->data = rp_alloc((size_t)(c->batches > 1 ? plan->slices : heads),
                           (size_t)c->size * sizeof(T));
        if (c->data == NULL)
            return RP_NO_MEMORY;
    }
    return RP_OK;
}

/* Packs what the wave's slices read of those tables, unless the wave before, of the same
 * head, has done it. */
static rp_status
pack_wave_tables(plan_t *plan)
{
    const rp_attention *p = plan->p;
    rp_status status = RP_OK;
    for (int i = 0; i < 2 && !status; i++) {
        table_pack_t *t = &plan->wave_tables[i];
        int64_t first = plan->first_slice, count = plan->slices;
        if (t->plan == NULL)
            continue;
        if (t->copies->batches == 1) {
            first = first / p->B * plan->group;
            count = (count + p->B - 1) / p->B * plan->group;
        }
        if (t->copies->batches == 1 && first == t->copies->first)
            continue;
        t->copies->first = first;
        status = rp_parallel(count * t->chunks, pack_table_unit, t, p->threads);
    }
    return status;
}

/* Starts the wave of up to `wave` slices at slice `first`. */
static void
start_wave(plan_t *plan, int64_t first, int64_t wave)
{
    const rp_attention *p = plan->p;
    plan->first_slice = first;
    plan->slices = RP_MIN(wave, p->B * p->Hk - first);
    if (wave < p->B)
        plan->slices = RP_MIN(plan->slices, p->B - first % p->B);
}

#endif
