/* ufuncs.h: attention in the Shaw, Music and Transformer-XL forms as gufuncs:
 * adaptors that hand the N items of a call to attention_forward as its batch. */
#ifndef RELPOS_ATTENTION_UFUNCS_H
#define RELPOS_ATTENTION_UFUNCS_H

#include "attention.h"

/* Runs the problem on the operands of a call: places[i] is where operand i belongs. The
 * caller has set sizes, tables, window_right and query_offset. */
static void
attention_items(rp_attention *p, rp_array **places, int operands, char **args,
                const ptrdiff_t *steps)
{
    const ptrdiff_t *core = steps + operands;
    if (p->B == 0 || p->Lq == 0 || p->Dv == 0)
        return; /* attention_forward is only called with something to write */
    ptrdiff_t *batch = rp_alloc((size_t)p->B * (size_t)operands, sizeof *batch);
    if (batch == NULL) {
        rp_loop_status(RP_NO_MEMORY);
        return;
    }
    for (int i = 0; i < operands; i++) {
        for (int64_t n = 0; n < p->B; n++)
            batch[i * p->B + n] = n * steps[i];
        int is_vector = places[i] == &p->pos_bias_u || places[i] == &p->pos_bias_v;
        *places[i] = (rp_array){.data = args[i], .batch = batch + i * p->B};
        places[i]->row = is_vector ? 0 : *core++;
        places[i]->col = *core++;
    }
    p->H = p->Hk = 1;
    p->Dp = p->D;
    p->sight.window_left = RP_UNBOUNDED;
    p->scale = 1 / sqrt((double)RP_MAX(p->D, 1)); /* without columns all scores are 0 */
    p->threads = rp_get_num_threads();
    rp_loop_status(attention_forward(p, NULL));
    rp_free(batch);
}

/* (q,d),(k,d),(k,v),(r,d),(r,v)->(q,v) */
static void
shaw_attention(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data)
{
    (void)data;
    rp_attention p = {.B = dims[0], .Lq = dims[1], .D = dims[2], .Lk = dims[3]};
    rp_array *places[] = {&p.query,           &p.key,        &p.value, &p.rel_key.array,
                          &p.rel_value.array, &p.results.out};
    p.Dv = dims[4];
    p.rel_key.rows = p.rel_value.rows = dims[5];
    if (dims[5] % 2 == 0) {
        rp_loop_error(
            "shaw_attention: the tables must have an odd number of rows, 2k + 1");
        return;
    }
    p.rel_key.first = p.rel_value.first = -(dims[5] - 1) / 2;
    p.sight.window_right = RP_UNBOUNDED;
    attention_items(&p, places, 6, args, steps);
}

/* (q,d),(k,d),(k,v),(r,d)->(q,v), causal: rows are relative positions -(r - 1) .. 0 */
static void
relative_global_attention(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                          void *data)
{
    (void)data;
    rp_attention p = {.B = dims[0], .Lq = dims[1], .D = dims[2], .Lk = dims[3]};
    rp_array *places[] = {&p.query, &p.key, &p.value, &p.rel_key.array, &p.results.out};
    p.Dv = dims[4];
    p.rel_key.rows = dims[5];
    if (p.Lk > 0 && p.rel_key.rows < p.Lq) {
        rp_loop_error(
            "relative_global_attention: rel_key has fewer rows than there are "
            "queries");
        return;
    }
    p.rel_key.first = -(dims[5] - 1);
    attention_items(&p, places, 5, args, steps);
}

/* (q,d),(k,d),(k,v),(r,d),(d),(d)->(q,v): the last query is at the last key; rows are
 * relative positions from -(k - 1) on: k of them for causal attention, k + q - 1 or 2k - 1
 * for both directions. Another number would not tell where they begin. */
static void
transformer_xl_attention(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps,
                         void *data)
{
    (void)data;
    rp_attention p = {.B = dims[0], .Lq = dims[1], .D = dims[2], .Lk = dims[3]};
    rp_array *places[] = {&p.query,      &p.key,        &p.value,      &p.rel_key.array,
                          &p.pos_bias_u, &p.pos_bias_v, &p.results.out};
    p.Dv = dims[4];
    p.rel_key.rows = dims[5];
    int causal = p.rel_key.rows == p.Lk;
    int both = p.rel_key.rows == p.Lk + p.Lq - 1 || p.rel_key.rows == 2 * p.Lk - 1;
    if (!causal && !both && p.Lk > 0) {
        rp_loop_error("transformer_xl_attention: rel_key must have k rows (causal), "
                      "k + q - 1 or 2k - 1 (both directions)");
        return;
    }
    int64_t *offsets = rp_alloc((size_t)p.B, sizeof *offsets);
    if (offsets == NULL) {
        rp_loop_status(RP_NO_MEMORY);
        return;
    }
    for (int64_t n = 0; n < p.B; n++)
        offsets[n] = p.Lk - p.Lq;
    p.sight.query_offset = offsets;
    p.rel_key.first = -(p.Lk - 1);
    p.sight.window_right = causal ? 0 : RP_UNBOUNDED;
    attention_items(&p, places, 7, args, steps);
    rp_free(offsets);
}

#endif
