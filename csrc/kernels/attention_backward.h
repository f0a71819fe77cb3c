/* attention_backward.h: the fused backward: gradients of every operand, nothing Lq x Lk
 * stored but the mask's gradient, which is dense by nature.
 *
 * Key tiles outside, query tiles inside: grad_key and grad_value of a tile stay in the
 * second-level cache while queries stream by, packed once per head. */

/* ---- one unit ------------------------------------------------------------------------- */

static size_t
FN(lay_out_worker)(const FN(gradients) * gp, char *memory, FN(worker) * w)
{
    const FN(plan) *plan = &gp->plan;
    const rp_attention *p = plan->p;
    size_t used = 0;
#define TAKE(count) FN(take)(memory, &used, count, sizeof(T))
    w->forward =
        (FN(scratch)){.scores = TAKE(BQ * LDS + MR), .lane_max = TAKE(BQ * VL)};
    w->forward.bias = TAKE(p->rel_bias.data ? LDS : 0);
    w->forward.keys = TAKE(plan->use_query ? MR * (p->D + BQ + MR + 2 * NR) : 0);
    w->grads = TAKE(BQ * LDS + MR);
    w->grad_key = TAKE((gp->chunk_keys + MR) * gp->D_pad);
    w->grad_value = TAKE((gp->chunk_keys + MR) * plan->Dv_pad);
    w->key_sums =
        TAKE(plan->use_key > RP_BAND ? plan->Lq_pad * plan->key_stride + MR : 0);
    w->value_sums =
        TAKE(plan->use_value > RP_BAND ? plan->Lq_pad * plan->value_stride + MR : 0);
    w->offset_sums = TAKE(gp->chunk_keys + plan->Lq_pad);
    w->columns = TAKE(BK);
    w->corner = TAKE(MR * (BQ + MR) + MR);
#undef TAKE
    w->clean[0] = w->clean[1] = -1;
    return used;
}

RP_INLINE int
FN(wants)(const FN(gradients) * gp, int which)
{
    return gp->partials[which].data != NULL;
}

static void
FN(backward_tile)(const FN(gradients) * gp, FN(worker) * w, FN(step) * x, const T *keys,
                  const T *values, int keys_bad)
{
    const FN(plan) *plan = &gp->plan;
    const rp_attention *p = plan->p;
    FN(score_tile)(plan, &w->forward, &x->q, &x->t, keys);
    FN(fill_grads)(gp, w, x, values);
    FN(grad_tile)(p, x);
    if (plan->use_value > RP_BAND && FN(wants)(gp, RP_GRAD_VALUE))
        FN(sum_by_table_row)(plan, &x->q, &x->t, x->t.s,
                             w->value_sums + x->q.i0 * plan->value_stride,
                             plan->value_stride, p->value_rows);
    FN(value_products)(gp, w, x);
    FN(content_products)(gp, w, x, keys_bad);
    if (plan->use_key == RP_BAND)
        FN(band_products)(gp, w, x);
    else if (plan->use_key != RP_ABSENT)
        FN(sum_by_table_row)(plan, &x->q, &x->t, x->d,
                             w->key_sums + x->q.i0 * plan->key_stride, plan->key_stride,
                             p->key_rows);
    if (plan->use_query != RP_ABSENT)
        FN(rel_query_products)(gp, w, x, keys_bad);
    if (p->labels.data && FN(wants)(gp, RP_GRAD_BIAS))
        FN(sum_bias_labels)(p, x, FN(partial_of)(gp, RP_GRAD_BIAS, x->index, x->chunk));
    else if (FN(wants)(gp, RP_GRAD_BIAS) || FN(wants)(gp, RP_GRAD_V))
        FN(sum_offsets)(gp, x, w->offset_sums);
    if (FN(wants)(gp, RP_GRAD_U))
        FN(sum_keys)(gp, w, x, FN(partial_of)(gp, RP_GRAD_U, x->index, x->chunk),
                     keys_bad);
    if (gp->g->grad_mask.data)
        FN(write_mask_grad)(gp->g, x);
}

/* Sets the tile (i0, j0) up; 0 when no pair of it is visible. */
static int
FN(start_step)(const FN(gradients) * gp, FN(worker) * w, FN(step) * x, int64_t i0,
               int64_t j0)
{
    const FN(plan) *plan = &gp->plan;
    const rp_attention *p = plan->p;
    FN(queries) *q = &x->q;
    FN(tile) *t = &x->t;
    q->i0 = i0;
    q->rows = (int)RP_MIN(BQ, p->Lq - i0);
    q->rows_pad = RP_ROUND_UP(q->rows, MR);
    q->begin = rp_visible(p, q->b, i0).begin;
    q->end = rp_visible(p, q->b, i0 + q->rows - 1).end;
    if (!rp_overlaps(q->begin, q->end, j0, BK))
        return 0;
    q->content = x->head->content + i0 * p->D;
    q->relative = x->head->relative + i0 * p->D;
    q->key_dots = x->head->key_dots ? x->head->key_dots + i0 * plan->key_stride : NULL;
    q->saved_column = -1;
    *t = (FN(tile)){.j0 = j0, .keys = (int)RP_MIN(BK, q->end - j0)};
    t->columns = RP_ROUND_UP(t->keys, NR);
    t->w0 = j0 - i0 + plan->Lq_pad - BQ;
    t->ld = LDS - plan->skew;
    t->s = w->forward.scores + plan->skew * (BQ - 1);
    x->d = w->grads + plan->skew * (BQ - 1);
    x->selected = x->head->bad[i0 / BQ];
    return 1;
}

static void
FN(clear_partials)(const FN(gradients) * gp, FN(worker) * w, const FN(step) * x,
                   rp_interval tiles)
{
    const FN(plan) *plan = &gp->plan;
    const int64_t first = tiles.begin * BQ, rows = (tiles.end - tiles.begin) * BQ;
    for (int which = 0; which < RP_PARTIALS; which++) {
        const FN(partial) *s = &gp->partials[which];
        rp_interval span = FN(partial_span)(gp, s, tiles);
        if (s->data && span.end > span.begin)
            memset(FN(partial_of)(gp, which, x->index, x->chunk) +
                       span.begin * s->width,
                   0, (size_t)((span.end - span.begin) * s->width) * sizeof(T));
    }
    if (x->grad_query)
        memset(x->grad_query + first * gp->D_pad, 0,
               (size_t)(rows * gp->D_pad) * sizeof(T));
    if (plan->use_key > RP_BAND)
        memset(w->key_sums + first * plan->key_stride, 0,
               (size_t)(rows * plan->key_stride) * sizeof(T));
    if (plan->use_value > RP_BAND)
        memset(w->value_sums + first * plan->value_stride, 0,
               (size_t)(rows * plan->value_stride) * sizeof(T));
    memset(w->offset_sums, 0, (size_t)(gp->chunk_keys + plan->Lq_pad) * sizeof(T));
}

/* sum += sum_n weights[n] * row n of a table packed as rows */
static void
FN(add_weighted_rows)(const FN(gradients) * gp, const T *weights, const T *table,
                      int64_t count, T *sum)
{
    for (int64_t n = 0; n < count; n++) {
        if (weights[n] == 0) /* rows that no pair used may hold NaN, or lie outside */
            continue;
        for (ptrdiff_t k = 0; k < gp->D_pad; k += VL)
            FN(store)(sum + k, FN(load)(sum + k) +
                                   weights[n] * FN(load)(table + n * gp->D_pad + k));
    }
}

/* What table rows and offsets have summed up over the chunk becomes gradients. */
static void
FN(finish_chunk)(const FN(gradients) * gp, FN(worker) * w, const FN(step) * x,
                 rp_interval tiles)
{
    const FN(plan) *plan = &gp->plan;
    const rp_attention *p = plan->p;
    const int64_t i0 = tiles.begin * BQ, rows = (tiles.end - tiles.begin) * BQ;
    const T *table = plan->use_key ? FN(copy)(&gp->key_rows, x->q.b, x->q.h) : NULL;
    T *sums, *weights = w->offset_sums;
    int bad = 0;
    for (int64_t tile = tiles.begin; tile < tiles.end; tile++)
        bad |= x->head->bad[tile];
    if ((sums = FN(partial_of)(gp, RP_GRAD_BIAS, x->index, x->chunk)) &&
        !p->labels.data)
        memcpy(sums, weights, (size_t)gp->partials[RP_GRAD_BIAS].rows * sizeof(T));
    if (plan->use_value > RP_BAND &&
        (sums = FN(partial_of)(gp, RP_GRAD_VALUE, x->index, x->chunk)))
        FN(add_columns)(bad, w->value_sums + i0 * plan->value_stride,
                        plan->value_stride, x->head->grad_rows + i0 * plan->Dv_pad,
                        plan->Dv_pad, p->value_rows, plan->Dv_pad, rows, sums,
                        plan->Dv_pad);
    if (plan->use_key > RP_BAND) {
        const T *dots = w->key_sums + i0 * plan->key_stride;
        if (x->grad_query)
            FN(add_rows)(gp->key_rows_bad, dots, plan->key_stride, table, gp->D_pad,
                         rows, gp->D_pad, p->key_rows, x->grad_query + i0 * gp->D_pad,
                         gp->D_pad);
        if ((sums = FN(partial_of)(gp, RP_GRAD_KEY, x->index, x->chunk)))
            FN(add_columns)(bad, dots, plan->key_stride,
                            x->head->rows_v + i0 * gp->D_pad, gp->D_pad, p->key_rows,
                            gp->D_pad, rows, sums, gp->D_pad);
    }
    if (!(sums = FN(partial_of)(gp, RP_GRAD_V, x->index, x->chunk)))
        return;
    if (plan->use_key == RP_BAND) {
        int64_t first = x->chunk * gp->chunk_keys; /* band column of offset_sums[0] */
        int64_t low = RP_MAX(plan->band_first - first, 0);
        int64_t high = RP_MIN(plan->band_end - first, gp->chunk_keys + plan->Lq_pad);
        FN(add_weighted_rows)(gp, weights + low,
                              table + (first + low - plan->band_first) * gp->D_pad,
                              high - low, sums);
    } else {
        for (int64_t i = i0; i < i0 + rows; i++)
            FN(add_weighted_rows)(gp, w->key_sums + i * plan->key_stride, table,
                                  p->key_rows, sums);
    }
}

/* One query head over the chunk. */
static void
FN(backward_head)(const FN(gradients) * gp, FN(worker) * w, FN(step) * x, int64_t slice)
{
    const FN(plan) *plan = &gp->plan;
    const rp_attention *p = plan->p;
    int64_t hk = x->q.h / plan->group;
    int64_t end = RP_MIN(p->Lk, (x->chunk + 1) * gp->chunk_keys);
    const T *keys = plan->keys + slice * plan->Lk_pad * p->D;
    const T *values = gp->value_panel + slice * plan->Lk_pad * p->Dv;
    FN(head) head = FN(head_of)(gp, x->index, NULL);
    rp_interval tiles = FN(chunk_queries)(gp, x->q.b, x->chunk);
    x->head = &head;
    x->keys = FN(slice_keys)(gp, x->q.b, hk, &x->key_stride);
    x->grad_query = gp->grad_query
                        ? gp->grad_query + (x->index * gp->chunks + x->chunk) *
                                               plan->Lq_pad * gp->D_pad
                        : NULL;
    FN(clear_partials)(gp, w, x, tiles);
    for (int64_t j0 = x->chunk * gp->chunk_keys; j0 < end; j0 += BK) {
        int keys_bad = gp->keys_bad[slice * plan->key_tiles + j0 / BK];
        for (int64_t tile = tiles.begin; tile < tiles.end; tile++) {
            if (rp_stopping())
                return;
            if (FN(start_step)(gp, w, x, tile * BQ, j0))
                FN(backward_tile)(gp, w, x, keys, values, keys_bad);
        }
    }
    if (tiles.end > tiles.begin)
        FN(finish_chunk)(gp, w, x, tiles);
}

static void
FN(backward_unit)(void *context, int64_t unit, int worker)
{
    const FN(gradients) *gp = context;
    const FN(plan) *plan = &gp->plan;
    const rp_attention *p = plan->p;
    FN(worker) w;
    FN(lay_out_worker)(gp, plan->scratch + (size_t)worker * plan->scratch_size, &w);
    int64_t slice = unit / gp->chunks, chunk = unit % gp->chunks;
    int64_t b = (plan->first_slice + slice) / p->Hk,
            hk = (plan->first_slice + slice) % p->Hk;
    int64_t first = chunk * gp->chunk_keys, end = RP_MIN(p->Lk, first + gp->chunk_keys);
    memset(w.grad_key, 0, (size_t)(gp->chunk_keys * gp->D_pad) * sizeof(T));
    memset(w.grad_value, 0, (size_t)(gp->chunk_keys * plan->Dv_pad) * sizeof(T));
    for (int64_t member = 0; member < plan->group; member++) {
        FN(step) x = {.index = slice * plan->group + member, .chunk = chunk};
        x.q.b = b;
        x.q.h = hk * plan->group + member;
        FN(backward_head)(gp, &w, &x, slice);
    }
    for (int64_t j = first; j < end; j++) {
        T *row = w.grad_key + (j - first) * gp->D_pad;
        const rp_array *key = &gp->g->grad_key, *value = &gp->g->grad_value;
        FN(scale_row)(row, gp->D_pad, (T)p->scale);
        if (key->data)
            FN(unpack_row)(rp_at(key, b, hk, j), key->col, row, p->D);
        if (value->data)
            FN(unpack_row)(rp_at(value, b, hk, j), value->col,
                           w.grad_value + (j - first) * plan->Dv_pad, p->Dv);
    }
}

/* Adds the chunks' grad_query of one query tile up, in order, and writes it. */
static void
FN(write_query_unit)(void *context, int64_t unit, int worker)
{
    const FN(gradients) *gp = context;
    const FN(plan) *plan = &gp->plan;
    const rp_attention *p = plan->p;
    (void)worker;
    int64_t tiles = FN(query_tiles)(gp), index = unit / tiles, tile = unit % tiles;
    int64_t slice = plan->first_slice + index / plan->group, b = slice / p->Hk;
    int64_t h = slice % p->Hk * plan->group + index % plan->group;
    int64_t size = plan->Lq_pad * gp->D_pad, i0 = tile * BQ;
    T *sum = NULL;
    for (int64_t chunk = 0; chunk < gp->chunks; chunk++) {
        rp_interval seen = FN(chunk_queries)(gp, b, chunk);
        T *part = gp->grad_query + (index * gp->chunks + chunk) * size + i0 * gp->D_pad;
        if (tile < seen.begin || tile >= seen.end)
            continue;
        for (ptrdiff_t k = 0; sum && k < BQ * gp->D_pad; k += VL)
            FN(store)(sum + k, FN(load)(sum + k) + FN(load)(part + k));
        sum = sum ? sum : part;
    }
    const rp_array *grad = &gp->g->grad_query;
    for (int64_t i = i0; sum && i < RP_MIN(p->Lq, i0 + BQ); i++) {
        T *row = sum + (i - i0) * gp->D_pad;
        FN(scale_row)(row, gp->D_pad, (T)p->scale);
        FN(unpack_row)(rp_at(grad, b, h, i), grad->col, row, p->D);
    }
}

/* ---- the whole ------------------------------------------------------------------------- */

static void
FN(plan_gradients)(FN(gradients) * gp, const rp_gradients *g)
{
    const rp_attention *p = &g->forward;
    const ptrdiff_t size = sizeof(T);
    FN(plan) *plan = &gp->plan;
    gp->g = g;
    FN(plan_paths)(plan, p);
    /* The sums by table row are kept for all queries: with many rows the band is smaller. */
    if (plan->use_key == RP_ROWS && p->key_rows > RP_FEW_ROWS)
        plan->use_key = RP_BAND;
    if (plan->use_value == RP_ROWS && p->value_rows > RP_FEW_ROWS)
        plan->use_value = RP_BAND;
    plan->skew = plan->use_key == RP_BAND || plan->use_value == RP_BAND;
    plan->copy_values = plan->may_hide = 0; /* values are packed as panels only */
    gp->D_pad = RP_ROUND_UP(p->D, VL);
    gp->copy_keys = p->key.col != size || p->D % VL || p->key.row % size ||
                    p->key.row > 128 * size || p->key.row < 0;
    int64_t most = plan->key_tiles < 16 ? 4 : 8;
    int64_t tiles = RP_MAX(1, (plan->key_tiles + most - 1) / most);
    gp->chunk_keys = tiles * BK;
    gp->chunks = RP_MAX(1, (plan->key_tiles + tiles - 1) / tiles);
    FN(head_of)(gp, 0, &gp->head_size);
}

static void
FN(plan_partial)(FN(gradients) * gp, int which, const rp_array *grad, int path,
                 int64_t grad_rows, int64_t min_position, ptrdiff_t columns,
                 double factor)
{
    FN(partial) *s = &gp->partials[which];
    int64_t rows = path == RP_BAND ? gp->chunk_keys + gp->plan.Lq_pad : grad_rows;
    ptrdiff_t width = which == RP_GRAD_BIAS ? 1 : RP_ROUND_UP(columns, VL);
    *s = (FN(partial)){grad,    path,  rows,      grad_rows, min_position,
                       columns, width, (T)factor, NULL};
}

static void
FN(plan_partials)(FN(gradients) * gp)
{
    const rp_gradients *g = gp->g;
    const rp_attention *p = &g->forward;
    const FN(plan) *plan = &gp->plan;
    FN(plan_partial)(gp, RP_GRAD_KEY, &g->grad_rel_key, plan->use_key, p->key_rows,
                     p->min_position, p->D, p->scale);
    FN(plan_partial)(gp, RP_GRAD_QUERY, &g->grad_rel_query, plan->use_query,
                     p->query_rows, p->min_position, p->D, p->scale);
    FN(plan_partial)(gp, RP_GRAD_VALUE, &g->grad_rel_value, plan->use_value,
                     p->value_rows, p->min_position, p->Dv, 1);
    FN(plan_partial)(gp, RP_GRAD_BIAS, &g->grad_rel_bias,
                     p->labels.data ? RP_LABELS : RP_BAND, p->bias_rows,
                     p->min_bias_position, 1, 1);
    FN(plan_partial)(gp, RP_GRAD_U, &g->grad_pos_bias_u, RP_ROWS, 1, 0, p->D, p->scale);
    FN(plan_partial)(gp, RP_GRAD_V, &g->grad_pos_bias_v, RP_ROWS, 1, 0, p->D, p->scale);
}

/* Takes `count` times `size` bytes that are freed with the call. */
static void *
FN(reserve)(FN(gradients) * gp, int64_t count, size_t size)
{
    void *block = rp_alloc((size_t)count, size);
    if (!block)
        gp->failed = 1;
    gp->blocks[gp->block_count++] = block;
    return block;
}

static void
FN(reserve_wave)(FN(gradients) * gp)
{
    FN(plan) *plan = &gp->plan;
    const rp_attention *p = plan->p;
    const size_t size = sizeof(T);
    size_t head =
        (size_t)(gp->head_size + gp->chunks * plan->Lq_pad * gp->D_pad) * size;
    for (int which = 0; which < RP_PARTIALS; which++)
        if (gp->partials[which].grad->data)
            head += (size_t)(gp->chunks * gp->partials[which].rows *
                             gp->partials[which].width) *
                    size;
    int64_t wave = RP_WAVE_BYTES / (int64_t)(head * (size_t)plan->group);
    wave = RP_MAX(wave, (p->threads + gp->chunks - 1) / gp->chunks);
    plan->slices = RP_MIN(p->B * p->Hk, wave);
    int64_t heads = plan->slices * plan->group;
    plan->keys = FN(reserve)(gp, plan->slices * plan->Lk_pad, (size_t)p->D * size);
    gp->value_panel =
        FN(reserve)(gp, plan->slices * plan->Lk_pad, (size_t)p->Dv * size);
    if (gp->copy_keys)
        gp->key_copy = FN(reserve)(gp, plan->slices * p->Lk, (size_t)gp->D_pad * size);
    gp->keys_bad = FN(reserve)(gp, plan->slices, (size_t)plan->key_tiles);
    gp->heads_bad = FN(reserve)(gp, heads, (size_t)FN(query_tiles)(gp));
    gp->heads = FN(reserve)(gp, heads, (size_t)gp->head_size * size);
    if (gp->g->grad_query.data)
        gp->grad_query = FN(reserve)(gp, heads * gp->chunks,
                                     (size_t)plan->Lq_pad * (size_t)gp->D_pad * size);
    for (int which = 0; which < RP_PARTIALS; which++) {
        FN(partial) *s = &gp->partials[which];
        if (s->grad->data)
            s->data = FN(reserve)(gp, heads * gp->chunks,
                                  (size_t)s->rows * (size_t)s->width * size);
    }
    FN(worker) unused;
    plan->scratch_size = FN(lay_out_worker)(gp, NULL, &unused);
    plan->scratch = FN(reserve)(gp, p->threads, plan->scratch_size);
}

/* Tables as the products of scores, dP and gradients need them. */
static rp_status
FN(pack_gradient_tables)(FN(gradients) * gp)
{
    FN(plan) *plan = &gp->plan;
    const rp_attention *p = plan->p;
    const ptrdiff_t size = sizeof(T);
    rp_status status = FN(pack_table)(plan, &p->rel_key, &plan->rel_key, p->key_rows,
                                      p->D, plan->use_key, 1, 1);
    if (!status)
        status = FN(pack_table)(plan, &p->rel_key, &gp->key_rows, p->key_rows, p->D,
                                plan->use_key, 0, 1);
    if (!status)
        status = FN(pack_table)(plan, &p->rel_query, &plan->rel_query, p->query_rows,
                                p->D, plan->use_query, 1, p->scale * RP_LOG2E);
    if (!status)
        status = FN(pack_table)(plan, &p->rel_query, &gp->query_rows, p->query_rows,
                                p->D, plan->use_query, 0, 1);
    if (!status)
        status = FN(pack_table)(plan, &p->rel_value, &gp->value_panels, p->value_rows,
                                p->Dv, plan->use_value, 1, 1);
    const FN(copies) * tables[] = {&gp->key_rows, &gp->query_rows};
    for (int i = 0; !status && i < 2; i++)
        if (tables[i]->data && gp->D_pad)
            gp->key_rows_bad |= FN(not_finite)(
                (const char *)tables[i]->data, gp->D_pad * size, size,
                tables[i]->size / gp->D_pad * tables[i]->heads * tables[i]->batches,
                gp->D_pad);
    return status;
}

static rp_status
FN(run_gradient_wave)(FN(gradients) * gp)
{
    const FN(plan) *plan = &gp->plan;
    int threads = plan->p->threads;
    int64_t tiles = FN(query_tiles)(gp), heads = plan->slices * plan->group;
    rp_status status =
        rp_parallel(plan->slices * plan->key_tiles, FN(pack_keys_unit), gp, threads);
    if (!status)
        status = rp_parallel(heads * tiles, FN(pack_head_unit), gp, threads);
    if (!status)
        status = rp_parallel(plan->slices * gp->chunks, FN(backward_unit), gp, threads);
    if (!status && gp->grad_query)
        status = rp_parallel(heads * tiles, FN(write_query_unit), gp, threads);
    for (int which = 0; !status && which < RP_PARTIALS; which++)
        status = FN(sum_partial)(gp, which);
    return status;
}

static rp_status
FN(attention_backward)(const rp_gradients *g)
{
    const rp_attention *p = &g->forward;
    if (p->B == 0 || p->H == 0 || p->Lq == 0 || p->Lk == 0)
        return RP_OK;
    if (FN(labels_apply)(p))
        return FN(attention_rows_backward)(g);
    FN(gradients) gp = {0};
    FN(plan_gradients)(&gp, g);
    FN(plan_partials)(&gp);
    rp_status status = FN(pack_gradient_tables)(&gp);
    if (!status) {
        FN(reserve_wave)(&gp);
        status = gp.failed ? RP_NO_MEMORY : RP_OK;
    }
    int64_t wave = gp.plan.slices;
    for (int64_t s = 0; !status && s < p->B * p->Hk; s += wave) {
        gp.plan.first_slice = s;
        gp.plan.slices = RP_MIN(wave, p->B * p->Hk - s);
        status = FN(run_gradient_wave)(&gp);
    }
    for (int i = 0; i < gp.block_count; i++)
        rp_free(gp.blocks[i]);
    rp_free(gp.value_panels.data);
    rp_free(gp.query_rows.data);
    rp_free(gp.plan.rel_query.data);
    rp_free(gp.key_rows.data);
    rp_free(gp.plan.rel_key.data);
    return status;
}
