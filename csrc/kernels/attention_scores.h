/* attention_scores.h: the logits of one tile, in units of log 2:
 *   s = log2e * (scale * ((q + u).k + (q + v).A[l] + k.C[l]) + b[l] + mask).
 *
 * The band. A tile of BQ x BK pairs touches BQ + BK - 1 consecutive relative positions.
 * The buffer first holds Q_rel . A_band' with row length LDS, column c = n - m + BQ - 1 for
 * query m and key n of the tile. The content product is then added into the same memory
 * seen from BQ - 1 on with row length LDS - 1, in which row m begins at column BQ - 1 - m:
 * the skew costs nothing. The last BQ band columns of a tile are the first of the next one
 * and are saved before the content is added. */

/* One tile of queries, and what it accumulates over its key tiles. */
typedef struct {
    int64_t b, h, i0;
    int rows, rows_pad;    /* valid rows, and rounded up to whole micro-tiles */
    int64_t begin, end;    /* keys that any of its rows may see */
    int64_t saved_column;  /* w of the first saved band column; -1: none */
    T *content, *relative; /* packed (q + u) and (q + v), times scale * log2e */
    T *saved;              /* (BQ, BQ): band columns for the next key tile */
    T *out, *max, *sum;    /* running sum_j p_j v_j, maximum and sum_j p_j of each row */
    T *key_dots;           /* (BQ, rows of rel_key): (q + v).A, paths ROWS and LABELS */
    T *value_sums;         /* (BQ, rows of rel_value): sum of p by table row, likewise */
} FN(queries);

/* One worker's buffers. */
typedef struct {
    T *scores;   /* (BQ, LDS) */
    T *lane_max; /* (BQ, VL): running maxima of a tile's rows */
    T *bias;     /* (LDS): rel_bias over the band of a tile */
    T *row;      /* max(D, Dv): a gathered row */
    T *keys;     /* (MR, D) then (MR, BQ + MR + 2 NR): rel_query's operands */
    FN(queries) *queries;
} FN(scratch);

/* The part of a key tile that one query tile works on. */
typedef struct {
    int64_t j0;        /* first key */
    int keys, columns; /* visible keys, and rounded up to whole panels */
    int64_t w0;        /* first band column */
    T *s;              /* logits, then probabilities: row m at s + m * ld */
    ptrdiff_t ld;
    int finished;      /* 1: some pair of the tile may be hidden */
} FN(tile);

RP_INLINE int64_t
FN(position)(const FN(plan) *plan, const FN(queries) *q, const FN(tile) *t, int64_t m,
             int64_t n)
{
    return t->j0 + n - (q->i0 + m + rp_query_offset(plan->p, q->b));
}

/* ---- the rel_key term, before the content is added ---------------------------- */

static void
FN(fill_band)(const FN(plan) *plan, FN(scratch) *w, FN(queries) *q, const FN(tile) *t)
{
    const rp_attention *p = plan->p;
    const T *table = FN(copy)(&plan->rel_key, q->b, q->h) - plan->band_first * p->D;
    int64_t end = RP_MIN(t->columns + BQ, plan->band_end - t->w0), first = 0;
    if (q->saved_column == t->w0) {
        for (int m = 0; m < q->rows_pad; m++)
            memcpy(w->scores + m * LDS, q->saved + m * BQ, BQ * sizeof(T));
        first = BQ;
    }
    if (end > first)
        FN(gemm_set)(q->relative, table + (t->w0 + first) * p->D, q->rows_pad, end - first,
                     p->D, w->scores + first, LDS);
    q->saved_column = t->w0 + BK;
    if (end == LDS && t->j0 + BK < q->end)
        for (int m = 0; m < q->rows_pad; m++)
            memcpy(q->saved + m * BQ, w->scores + m * LDS + BK, BQ * sizeof(T));
    else
        q->saved_column = -1;
}

/* Row by row: the run of keys before the table's first row, inside it, and past its
 * last row. */
static void
FN(fill_clipped)(const FN(plan) *plan, const FN(queries) *q, const FN(tile) *t)
{
    const rp_attention *p = plan->p;
    const ptrdiff_t rows = p->key_rows, stride = plan->key_stride;
    for (int m = 0; m < q->rows; m++) {
        const T *dots = q->key_dots + m * stride;
        T before = p->beyond == RP_CLIP ? dots[0] : 0;
        T after = p->beyond == RP_CLIP ? dots[rows - 1] : 0;
        int64_t row = FN(position)(plan, q, t, m, 0) - p->min_position; /* of key 0 */
        int64_t inside = RP_MIN(t->columns, RP_MAX(0, -row));
        int64_t past = RP_MIN(t->columns, RP_MAX(0, rows - row));
        T *s = t->s + m * t->ld;
        int64_t n = 0;
        for (; n < inside; n++)
            s[n] = before;
        for (; n < past; n++)
            s[n] = dots[row + n];
        for (; n < t->columns; n++)
            s[n] = after;
    }
}

static void
FN(fill_labels)(const FN(plan) *plan, const FN(queries) *q, const FN(tile) *t)
{
    const rp_attention *p = plan->p;
    const ptrdiff_t stride = plan->key_stride;
    for (int m = 0; m < q->rows; m++) {
        const char *label = rp_at(&p->labels, q->b, 0, q->i0 + m) + t->j0 * p->labels.col;
        T *s = t->s + m * t->ld;
        for (int n = 0; n < t->columns; n++, label += p->labels.col) {
            int64_t l = n < t->keys ? rp_label(label, p->label_size, p->key_rows) : -1;
            s[n] = l < 0 ? 0 : q->key_dots[m * stride + l];
        }
    }
}

/* Fills the tile with the rel_key term and returns NULL, or returns the one value that
 * the term has in each row of the tile (ROWS, all keys on one side of the table). */
static const T *
FN(fill_positions)(const FN(plan) *plan, FN(scratch) *w, FN(queries) *q, const FN(tile) *t,
                   ptrdiff_t *step)
{
    static const T zero = 0;
    const rp_attention *p = plan->p;
    *step = 0;
    if (plan->use_key == RP_ABSENT)
        return &zero;
    if (plan->use_key == RP_BAND)
        return FN(fill_band)(plan, w, q, t), NULL;
    if (plan->use_key == RP_LABELS)
        return FN(fill_labels)(plan, q, t), NULL;
    int before = FN(position)(plan, q, t, 0, t->columns - 1) < p->min_position;
    int after =
        FN(position)(plan, q, t, q->rows - 1, 0) >= p->min_position + p->key_rows;
    if (!before && !after)
        return FN(fill_clipped)(plan, q, t), NULL;
    if (p->beyond == RP_ZERO)
        return &zero;
    *step = plan->key_stride;
    return q->key_dots + (before ? 0 : p->key_rows - 1);
}

/* ---- content ------------------------------------------------------------------- */

static void
FN(add_content)(const FN(plan) *plan, FN(scratch) *w, FN(queries) *q, const FN(tile) *t,
                const T *keys)
{
    const ptrdiff_t depth = plan->p->D;
    ptrdiff_t step;
    const T *constant = FN(fill_positions)(plan, w, q, t, &step);
    for (int i = 0; i < q->rows_pad * VL; i++)
        w->lane_max[i] = -(T)INFINITY;
    for (ptrdiff_t n = 0; n < t->columns; n += NR)
        for (ptrdiff_t m = 0; m < q->rows_pad; m += MR) {
            const T *left = q->content + m * depth, *panel = keys + (t->j0 + n) * depth;
            T *s = t->s + m * t->ld + n, *row_max = w->lane_max + m * VL;
            if (constant)
                FN(tile_offset_max)(left, panel, depth, s, t->ld, constant + m * step, step,
                                    row_max);
            else
                FN(tile_add_max)(left, panel, depth, s, t->ld, row_max);
        }
}

/* ---- rel_query: MR keys at a time against the table rows they meet ---------------- */

static void
FN(add_rel_query)(const FN(plan) *plan, FN(scratch) *w, const FN(queries) *q,
                  const FN(tile) *t)
{
    const rp_attention *p = plan->p;
    const T *table = FN(copy)(&plan->rel_query, q->b, q->h) - plan->band_first * p->D;
    T *dots = w->keys + MR * p->D;
    enum { WIDTH = BQ + MR + 2 * NR };
    for (int n0 = 0; n0 < t->keys; n0 += MR) {
        int valid = RP_MIN(MR, t->keys - n0), first = n0 / NR * NR;
        int64_t end = RP_MIN(RP_ROUND_UP(n0 + MR + BQ, NR), plan->band_end - t->w0);
        FN(pack_left)(w->keys, rp_at(&p->key, q->b, q->h / plan->group, t->j0 + n0),
                      p->key.row, p->key.col, valid, MR, p->D, NULL, 0, 1);
        FN(gemm_set)(w->keys, table + (t->w0 + first) * p->D, MR, end - first, p->D, dots,
                     WIDTH);
        for (int m = 0; m < q->rows; m++)
            for (int n = 0; n < valid; n++) {
                int c = n0 + n - m + BQ - 1 - first;
                if (c < end - first)
                    t->s[m * t->ld + n0 + n] += dots[n * WIDTH + c];
            }
    }
}

/* ---- bias, mask, hidden pairs ------------------------------------------------------ */

/* x * log2e, with finite x kept finite: only -inf hides. */
RP_INLINE T
FN(log2_units)(double x)
{
    const double limit = (RP_IS_F32 ? (double)0x1.fffffep127 : 0x1.fffffffffffffp1023) / 4;
    double y = x * RP_LOG2E;
    if (y > limit && x != INFINITY)
        y = limit;
    if (y < -limit && x != -INFINITY)
        y = -limit;
    return (T)y;
}

RP_INLINE T
FN(bias_of_row)(const rp_attention *p, int64_t b, int64_t h, int64_t row)
{
    return row < 0 ? 0 : FN(log2_units)(*(const T *)rp_at(&p->rel_bias, b, h, row));
}

static void
FN(bias_band)(const FN(plan) *plan, FN(scratch) *w, const FN(queries) *q, const FN(tile) *t)
{
    const rp_attention *p = plan->p;
    int64_t r0 = FN(position)(plan, q, t, BQ - 1, 0);
    for (int c = 0; c < t->columns + BQ - 1; c++)
        w->bias[c] = FN(bias_of_row)(
            p, q->b, q->h,
            rp_table_row(r0 + c, p->min_bias_position, p->bias_rows, p->beyond));
}

static void
FN(add_bias_row)(const rp_attention *p, const FN(scratch) *w, const FN(queries) *q,
                 const FN(tile) *t, int m)
{
    T *s = t->s + m * t->ld;
    if (!p->labels.data) {
        const T *bias = w->bias + BQ - 1 - m;
        for (int n = 0; n < t->columns; n++)
            s[n] += bias[n];
        return;
    }
    const char *label = rp_at(&p->labels, q->b, 0, q->i0 + m) + t->j0 * p->labels.col;
    for (int n = 0; n < t->keys; n++, label += p->labels.col)
        s[n] += FN(bias_of_row)(p, q->b, q->h,
                                rp_label(label, p->label_size, p->bias_rows));
}

static void
FN(add_mask_row)(const rp_attention *p, const char *mask, int count, T *s)
{
    if (p->mask_type == RP_MASK_BOOL)
        for (int n = 0; n < count; n++, mask += p->mask.col)
            s[n] = *(const unsigned char *)mask ? s[n] : -(T)INFINITY;
    else if (p->mask_type == RP_MASK_F32)
        for (int n = 0; n < count; n++, mask += p->mask.col) {
            T x = FN(log2_units)(*(const float *)mask);
            s[n] = x == -(T)INFINITY ? x : s[n] + x; /* hides NaN and inf too */
        }
    else
        for (int n = 0; n < count; n++, mask += p->mask.col) {
            T x = FN(log2_units)(*(const double *)mask);
            s[n] = x == -(T)INFINITY ? x : s[n] + x;
        }
}

RP_INLINE void
FN(hide)(T *s, int64_t first, int64_t end)
{
    for (int64_t n = first; n < end; n++)
        s[n] = -(T)INFINITY;
}

/* Bias, mask and visibility of one row, and its maximum anew. */
static void
FN(finish_row)(const FN(plan) *plan, FN(scratch) *w, const FN(queries) *q, const FN(tile) *t,
               int m)
{
    const rp_attention *p = plan->p;
    rp_interval visible = rp_visible(p, q->b, q->i0 + m);
    T *s = t->s + m * t->ld;
    if (p->rel_bias.data)
        FN(add_bias_row)(p, w, q, t, m);
    if (p->mask_type != RP_MASK_NONE)
        FN(add_mask_row)(p, rp_at(&p->mask, q->b, q->h, q->i0 + m) + t->j0 * p->mask.col,
                         t->keys, s);
    FN(hide)(s, 0, RP_MIN(t->columns, visible.begin - t->j0));
    FN(hide)(s, RP_MAX(0, visible.end - t->j0), t->columns);
    V top = FN(load)(s);
    for (int n = VL; n < t->columns; n += VL)
        top = FN(vmax)(FN(load)(s + n), top);
    FN(store)(w->lane_max + m * VL, top);
}

static void
FN(copy_logits)(const rp_attention *p, const FN(queries) *q, const FN(tile) *t)
{
    for (int m = 0; m < q->rows; m++) {
        char *at = rp_at(&p->weights, q->b, q->h, q->i0 + m) + t->j0 * p->weights.col;
        for (int n = 0; n < t->keys; n++, at += p->weights.col)
            *(T *)at = t->s[m * t->ld + n];
    }
}

/* The whole tile: logits in t->s, row maxima in w->lane_max. */
static void
FN(score_tile)(const FN(plan) *plan, FN(scratch) *w, FN(queries) *q, FN(tile) *t,
               const T *keys)
{
    const rp_attention *p = plan->p;
    FN(add_content)(plan, w, q, t, keys);
    if (plan->use_query != RP_ABSENT)
        FN(add_rel_query)(plan, w, q, t);
    t->finished = p->rel_bias.data || p->mask_type != RP_MASK_NONE || plan->use_query ||
                  rp_visible(p, q->b, q->i0 + q->rows - 1).begin > t->j0 ||
                  rp_visible(p, q->b, q->i0).end < t->j0 + t->columns;
    if (t->finished) {
        if (p->rel_bias.data && !p->labels.data)
            FN(bias_band)(plan, w, q, t);
        for (int m = 0; m < q->rows; m++)
            FN(finish_row)(plan, w, q, t, m);
    }
    if (p->weights.data)
        FN(copy_logits)(p, q, t);
}
