/* chunk.h: what has been summed up over a chunk of keys, by table row, by key and by offset,
 * becomes gradients. */
#ifndef RELPOS_ATTENTION_TILES_CHUNK_H
#define RELPOS_ATTENTION_TILES_CHUNK_H

#include "../terms/content.h"
#include "../terms/rel_key.h"
#include "../terms/rel_value.h"
#include "partials.h"

/* Writes the gradient of rel_bias by offset; that by label is complete already. */
static void
finish_bias(const gradients_t *gp, const grad_scratch_t *w, const visit_t *x,
            rp_interval tiles)
{
    T *sums = partial_of(gp, RP_GRAD_BIAS, x->index, x->chunk);
    int by_label = has_labels(gp->plan.p);
    rp_interval span = partial_span(gp, &gp->partials[RP_GRAD_BIAS], tiles);
    for (int64_t n = span.begin; sums && !by_label && n < span.end; n++)
        sums[n] = (T)w->offset_sums[n];
}

static void
finish_chunk(const gradients_t *gp, grad_scratch_t *w, const visit_t *x,
             rp_interval tiles)
{
    int bad = 0;
    for (int64_t tile = tiles.begin; tile < tiles.end; tile++)
        bad |= x->head->bad[tile];
    finish_rel_value(gp, w, x, tiles, bad);
    finish_rel_key(gp, w, x, tiles, bad);
    finish_bias(gp, w, x, tiles);
    finish_u(gp, w, x);
    finish_v(gp, w, x, tiles);
}

#endif
