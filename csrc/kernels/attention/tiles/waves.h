/* waves.h: slices (b, hk), the keys and values of one head, are packed and used in
 * waves, to keep the packed copies small and warm. They are numbered as they lie in memory,
 * which is then read as one stream; or, where the heads have tables of their own that are
 * too large to be kept side by side, head by head, the batch within: a wave packs the tables
 * of its heads, each once for the whole batch. */
#ifndef RELPOS_ATTENTION_TILES_WAVES_H
#define RELPOS_ATTENTION_TILES_WAVES_H

#include "plan.h"

enum {
    RP_SLICES_EACH =
        16, /* slices of a wave for each thread from which units are slices */
};

/* Whether what rel_key is dotted with is packed apart from what keys are. */
RP_INLINE int
packs_two(const plan_t *plan)
{
    const rp_attention *p = plan->p;
    return is_used(&plan->rel_key) &&
           (p->pos_bias_u.data || p->pos_bias_v.data || p->position_query.data);
}

/* How many slices of `bytes` bytes a wave takes: as many as stay in the caches of the
 * threads' cores, but enough for every thread, each slice being `units` units of work, or, as
 * windows make some of them short, two. Head by head it ends where a head does, or lies
 * within one. */
static int64_t
wave_of(const plan_t *plan, size_t bytes, int64_t units)
{
    const rp_attention *p = plan->p;
    int uneven = p->sight.window_left != RP_UNBOUNDED ||
                 p->sight.window_right != RP_UNBOUNDED || p->sight.key_ranges.data ||
                 rp_has_mask(p);
    int64_t least = units > 1 && uneven && p->threads > 1 ? 2 * p->threads : p->threads;
    int64_t wave = p->threads * (int64_t)RP_WAVE_BYTES / (int64_t)RP_MAX(bytes, 1);
    wave = RP_MAX(wave, (least + units - 1) / units);
    wave = RP_MIN(wave, p->B * p->Hk);
    return plan->by_head && wave > p->B ? wave / p->B * p->B : wave;
}

/* Lets waves pack a table with their slices, so that it is still in the cache when they use
 * it, and returns the bytes that it adds to a slice; 0 where other waves would have to pack
 * the same again, or where all copies stay there for the whole batch. */
static size_t
pack_by_wave(plan_t *plan, packed_t *t)
{
    if (!is_used(t) || t->heads == 1 || (t->batches > 1 && plan->group > 1))
        return 0;
    double all = (double)t->size * (double)(t->heads * t->batches) * sizeof(T);
    if (plan->p->B > 1 && all <= RP_WAVE_BYTES)
        return 0;
    plan->by_head = 1;
    t->by_wave = 1;
    t->first = -1;
    return (size_t)(t->size * plan->group) * sizeof(T);
}

/* Adds a table to those that the call packs. */
static void
add_table(plan_t *plan, packed_t *t, const rp_table *table, const band_t *band,
          int64_t columns, int panels, double factor)
{
    if (!is_used(t))
        return;
    plan_packed(t, plan->p, band, table, columns, panels, factor);
    plan->tables[plan->table_count++] = t;
}

static void
lay_out_tables(const plan_t *plan, arena_t *arena)
{
    int64_t heads = RP_MAX(1, plan->slices / plan->p->B) * plan->group;
    for (int i = 0; i < plan->table_count; i++) {
        packed_t *t = plan->tables[i];
        int64_t copies = t->heads * t->batches;
        if (t->by_wave)
            copies = t->batches > 1 ? plan->slices : heads;
        t->data = take(arena, copies, (size_t)t->size * sizeof(T));
    }
}

/* Packs the tables that are packed once. */
static rp_status
pack_tables(const plan_t *plan)
{
    rp_status status = RP_OK;
    for (int i = 0; i < plan->table_count && !status; i++) {
        packed_t *t = plan->tables[i];
        if (!t->by_wave)
            status = rp_parallel(t->heads * t->batches * t->units, pack_table_unit, t,
                                 plan->p->threads);
    }
    return status;
}

/* Packs what the wave's slices read of the others, unless the wave before, of the same
 * head, has done it. */
static rp_status
pack_wave_tables(const plan_t *plan)
{
    const rp_attention *p = plan->p;
    rp_status status = RP_OK;
    for (int i = 0; i < plan->table_count && !status; i++) {
        packed_t *t = plan->tables[i];
        int64_t first = plan->first_slice, count = plan->slices;
        if (!t->by_wave)
            continue;
        if (t->batches == 1) {
            first = first / p->B * plan->group;
            count = (count + p->B - 1) / p->B * plan->group;
        }
        if (t->batches == 1 && first == t->first)
            continue;
        t->first = first;
        status = rp_parallel(count * t->units, pack_table_unit, t, p->threads);
    }
    return status;
}

/* Whether a unit does all of a slice, so that what it packs is used at once: not where threads
 * would wait for the last of few. */
RP_INLINE int
by_slice(const plan_t *plan)
{
    int threads = plan->p->threads;
    return threads == 1 || plan->slices >= RP_SLICES_EACH * threads;
}

/* Runs those units of a step that a slice has, `count` of them, within one unit. */
RP_INLINE void
run_units_of(rp_body body, void *context, int64_t slice, int64_t count, int worker)
{
    for (int64_t unit = slice * count; unit < (slice + 1) * count; unit++) {
        if (unit > slice * count && rp_stopping())
            return;
        body(context, unit, worker);
    }
}

/* Starts the wave of up to `wave` slices at slice `first`. */
static void
start_wave(plan_t *plan, int64_t first, int64_t wave)
{
    const rp_attention *p = plan->p;
    plan->first_slice = first;
    plan->slices = RP_MIN(wave, p->B * p->Hk - first);
    if (plan->by_head && wave < p->B)
        plan->slices = RP_MIN(plan->slices, p->B - first % p->B);
}

#endif
