/* row.h: query rows in work that share the keys of one head: what they take from a stretch of
 * keys, which lie where they are. Piece by piece: while one is in the first-level cache
 * all rows meet it, so that keys, values and tables are read from memory once. */
#ifndef RELPOS_ATTENTION_ROWS_ROW_H
#define RELPOS_ATTENTION_ROWS_ROW_H

#include "../../ground/line_sums.h"
#include "../dropout.h"
#include "../results.h"
#include "../terms/mask.h"
#include "../terms/softcap.h"

enum {
    RP_FEW_QUERIES = 8,              /* that read keys where they lie, at most */
    RP_BLOCK_ROWS = 16,              /* rows that meet a piece of keys, at most */
    RP_PIECE_KEYS = RP_LINES_SUMMED, /* keys of a piece where rows share them */
    RP_LAST_CACHE = 1 << 25,         /* bytes that the last cache may hold */
    RP_LONG_HEAD = 1 << 22,          /* bytes of a head of which it holds eight */
};

typedef struct {
    int64_t b, h, i;
    rp_interval visible;
    const T *relative; /* as `relative` of the rows */
    T *s;              /* a stretch's logits, then weights, in whole vectors */
    running_t *running;
    T *out;
} query_row_t;

/* Rows in work, and the keys of a stretch that any of them sees. */
typedef struct {
    const rp_attention *p;
    const bias_t *bias;
    ptrdiff_t width; /* Dv in whole vectors */
    int64_t b, hk;
    int64_t first, begin, end; /* the stretch's first key; those seen */
    T *buffer, *line;          /* room for a piece of lines, and for two lines */
    /* The rows' (q + u), and their (q + v) or (position query + v), times scale * log2e,
     * one row after the other; their logits; what they accumulate, in steps of out_step. */
    T *content, *relative, *s, *out;
    ptrdiff_t out_step;
    T *slopes; /* (RP_STRETCH_KEYS): those of the cap, of one row alone; NULL: not wanted */
    int count, piece; /* rows; keys of a piece */
    int in_cache;     /* keys and values may come from a cache, not from memory */
    query_row_t row[RP_BLOCK_ROWS];
} query_rows_t;

/* Numbers of the longest line, of D, Dv or Dp. */
RP_INLINE ptrdiff_t
line_size(const rp_attention *p)
{
    return RP_ROUND_UP(RP_MAX(p->Dp, RP_MAX(p->D, p->Dv)), VL);
}

/* Numbers of a piece of lines, each as long as the longest. */
RP_INLINE ptrdiff_t
piece_size(const rp_attention *p)
{
    return RP_PIECE_KEYS * line_size(p);
}

/* Keys of a piece. One row alone takes a stretch at once. */
RP_INLINE int
piece_keys(const rp_attention *p, int rows)
{
    int whole = rows == 1 && lie_in_place(&p->key, p->D) &&
                lie_in_place(&p->value, p->Dv) && !has_labels(p) &&
                !p->rel_value.array.data && !p->sight.key_blocks.data &&
                (!p->rel_key.array.data ||
                 (!p->rel_key.index && lie_in_place(&p->rel_key.array, p->Dp)));
    return whole ? RP_STRETCH_KEYS : RP_PIECE_KEYS;
}

/* The bytes of the keys and values of a head. */
RP_INLINE double
bytes_of_head(const rp_attention *p)
{
    return (double)p->Lk * (double)(p->D + p->Dv) * sizeof(T);
}

/* Lines of keys or values [j0, end). Most CPUs fetch best from memory by themselves. */
RP_INLINE lines_t
lines_of_keys(const query_rows_t *rows, const rp_array *a, int64_t j0, int64_t end,
              ptrdiff_t columns)
{
    lines_t lines = lines_of(a, rows->b, rows->hk, j0, end - j0, columns, rows->buffer);
    if (!rows->in_cache && !RP_MEMORY_AHEAD)
        lines.ahead = 0;
    return lines;
}

/* Whether row r is the first to read a table that may be of its head. */
RP_INLINE int
reads_first(const query_rows_t *rows, int r, const rp_array *table)
{
    return r == 0 || (table->head && rows->row[r].h != rows->row[r - 1].h);
}

/* ---- tables ---------------------------------------------------------------------- */

/* Whether labels, or an index, say the rows of pairs: then they are copied. */
RP_INLINE int
copies_rows(const rp_attention *p, const rp_table *table)
{
    return has_labels(p) || table->index;
}

/* The sums of the table's rows of the pairs of the keys [j0, end). */
static lines_t
copied_lines(const rp_attention *p, const query_row_t *q, const rp_table *table,
             ptrdiff_t columns, int64_t j0, int64_t end, T *buffer)
{
    ptrdiff_t padded = RP_ROUND_UP(columns, VL);
    for (int64_t j = j0; j < end; j++) {
        T *line = buffer + (j - j0) * padded;
        for (int n = 0; n < rows_of_pair(p); n++) {
            int64_t l = pair_row(p, n, q->b, q->i, j, table);
            const char *row = l < 0 ? NULL : rp_at(&table->array, q->b, q->h, l);
            if (n == 0)
                pack_row(line, &table->array, row, columns, padded);
            else if (row)
                add_row(line, &table->array, row, columns);
        }
    }
    return buffered_lines(buffer, padded);
}

/* ---- logits ---------------------------------------------------------------------- */

/* The rel_key term of the keys [j0, end), whose rows of the table follow each other from row l
 * on. */
static void
dot_rows(const query_rows_t *rows, const query_row_t *q, int64_t l, int64_t j0,
         int64_t end, int first)
{
    const rp_attention *p = rows->p;
    if (j0 >= end)
        return;
    lines_t lines =
        lines_of(&p->rel_key.array, q->b, q->h, l, end - j0, p->Dp, rows->buffer);
    if (!first)
        lines = warm_lines(lines);
    add_dots(q->relative, 0, 1, lines, end - j0, RP_ROUND_UP(p->Dp, VL),
             q->s + j0 - rows->first, 0);
}

/* s += (q + v) . row l of rel_key for the keys [j0, end), which all have this row: one
 * product, whose bits are those of a product for each key. */
static void
dot_row(const query_rows_t *rows, const query_row_t *q, int64_t l, int64_t j0,
        int64_t end)
{
    const rp_attention *p = rows->p;
    T *s = q->s - rows->first, product = 0;
    if (j0 >= end)
        return;
    lines_t line = lines_of(&p->rel_key.array, q->b, q->h, l, 1, p->Dp, rows->buffer);
    add_dots(q->relative, 0, 1, warm_lines(line), 1, RP_ROUND_UP(p->Dp, VL), &product,
             0);
    for (int64_t j = j0; j < end; j++)
        s[j] += product;
}

/* s += (q + v) . the row of rel_key of each key [j0, end) of a piece. */
static void
score_rel_key(const query_rows_t *rows, const query_row_t *q, int64_t j0, int64_t end,
              int first)
{
    const rp_attention *p = rows->p;
    const rp_table *table = &p->rel_key;
    int64_t shift;
    if (copies_rows(p, table)) {
        lines_t lines = copied_lines(p, q, table, p->Dp, j0, end, rows->buffer);
        add_dots(q->relative, 0, 1, lines, end - j0, RP_ROUND_UP(p->Dp, VL),
                 q->s + j0 - rows->first, 0);
        return;
    }
    rp_interval run = run_in_table(p, q->b, q->i, j0, end, table, &shift);
    dot_rows(rows, q, run.begin + shift, run.begin, run.end, first);
    if (p->beyond == RP_CLIP) {
        dot_row(rows, q, 0, j0, run.begin);
        dot_row(rows, q, table->rows - 1, run.end, end);
    }
}

static void
score_rel_query(const query_rows_t *rows, const query_row_t *q, int64_t j0, int64_t end)
{
    const rp_attention *p = rows->p;
    const T factor = (T)(p->scale * RP_LOG2E);
    for (int64_t j = j0; j < end; j++) {
        const T *key = operand_row(&p->key, q->b, rows->hk, j, p->D, rows->line);
        for (int n = 0; n < rows_of_pair(p); n++) {
            int64_t l = pair_row(p, n, q->b, q->i, j, &p->rel_query);
            if (l < 0)
                continue;
            const T *row = operand_row(&p->rel_query.array, q->b, q->h, l, p->D,
                                       rows->line + p->D);
            q->s[j - rows->first] += dot(key, row, p->D) * factor;
        }
    }
}

/* Sets the logits of all rows by the keys [j0, end) of a piece to 0. */
static void
clear_piece(const query_rows_t *rows, int64_t j0, int64_t end)
{
    for (int r = 0; r < rows->count; r++)
        memset(rows->row[r].s + j0 - rows->first, 0, (size_t)(end - j0) * sizeof(T));
}

/* The products of all rows with the keys [j0, end) of a piece. */
static void
score_keys(const query_rows_t *rows, int64_t j0, int64_t end)
{
    const rp_attention *p = rows->p;
    const ptrdiff_t width = RP_ROUND_UP(p->D, VL);
    lines_t keys = lines_of_keys(rows, &p->key, j0, end, p->D);
    clear_piece(rows, j0, end);
    add_dots(rows->content, width, rows->count, keys, end - j0, width,
             rows->s + j0 - rows->first, RP_STRETCH_KEYS);
    for (int r = 0; p->rel_key.array.data && r < rows->count; r++)
        score_rel_key(rows, &rows->row[r], j0, end,
                      reads_first(rows, r, &p->rel_key.array));
}

/* Whether blocks hide the keys [j0, end) of a piece from all rows. */
static int
skips_piece(const query_rows_t *rows, int64_t j0, int64_t end)
{
    int skips = rows->p->sight.key_blocks.data != NULL;
    for (int r = 0; skips && r < rows->count; r++) {
        const query_row_t *q = &rows->row[r];
        skips = blocks_hide(rows->p, q->b, q->h, q->i, j0, end);
    }
    return skips;
}

/* Adds rel_query, cap, bias and mask to one row's logits, and hides what it does not see.
 * */
static void
finish_logits(const query_rows_t *rows, const query_row_t *q)
{
    const rp_attention *p = rows->p;
    const rp_array *weights = &p->results.weights;
    int64_t j0 = RP_MIN(rows->end, RP_MAX(rows->begin, q->visible.begin));
    int64_t end = RP_MAX(j0, RP_MIN(rows->end, q->visible.end));
    T *s = q->s + j0 - rows->first;
    if (p->rel_query.array.data)
        score_rel_query(rows, q, j0, end);
    if (p->softcap > 0)
        cap_row(softcap_of(p->softcap * RP_LOG2E), s, end - j0,
                rows->slopes ? rows->slopes + j0 - rows->first : NULL);
    add_bias_run(rows->bias, q->b, q->h, q->i, j0, end - j0, s);
    mask_keys(p, q->b, q->h, q->i, j0, end - j0, s);
    if (weights->data && j0 < end)
        unpack_row(weights, rp_at(weights, q->b, q->h, q->i) + j0 * weights->col, s,
                   end - j0);
    hide(q->s, rows->begin - rows->first, j0 - rows->first);
    hide(q->s, end - rows->first, RP_ROUND_UP(rows->end - rows->first, VL));
}

/* All logits of the rows over the keys of a stretch, none of them behind its end. */
static void
score_stretch(query_rows_t *rows, int64_t first, int64_t end)
{
    rows->first = first;
    rows->begin = end;
    rows->end = first;
    for (int r = 0; r < rows->count; r++) {
        rp_interval visible = rows->row[r].visible;
        int64_t j0 = RP_MAX(first, visible.begin), j1 = RP_MIN(end, visible.end);
        if (j0 < j1) {
            rows->begin = RP_MIN(rows->begin, j0);
            rows->end = RP_MAX(rows->end, j1);
        }
    }
    if (rows->begin >= rows->end)
        return;
    rows->begin -= (rows->begin - first) % RP_PIECE_KEYS;
    for (int64_t j0 = rows->begin; j0 < rows->end; j0 += rows->piece) {
        int64_t past = RP_MIN(rows->end, j0 + rows->piece);
        if (skips_piece(rows, j0, past))
            clear_piece(rows, j0, past);
        else
            score_keys(rows, j0, past);
    }
    for (int r = 0; r < rows->count; r++)
        finish_logits(rows, &rows->row[r]);
}

/* ---- values ---------------------------------------------------------------------- */

/* out += the weights of the keys [j0, end) times row l of rel_value. */
static void
weigh_row(const query_rows_t *rows, const query_row_t *q, int64_t l, int64_t j0,
          int64_t end)
{
    const rp_attention *p = rows->p;
    const T sum = sum_run(q->s - rows->first, j0, end);
    if (sum != 0)
        add_scaled(q->out, sum,
                   operand_row(&p->rel_value.array, q->b, q->h, l, p->Dv, rows->line),
                   p->Dv);
}

/* out += the weight of each key [j0, end) of a piece times its row of rel_value. */
static void
weigh_rel_value(const query_rows_t *rows, const query_row_t *q, int64_t j0, int64_t end,
                int first)
{
    const rp_attention *p = rows->p;
    const rp_table *table = &p->rel_value;
    const T *w = q->s - rows->first;
    int64_t shift;
    if (copies_rows(p, table)) {
        lines_t lines = copied_lines(p, q, table, p->Dv, j0, end, rows->buffer);
        weigh_lines(w + j0, 1, lines, end - j0, rows->width, q->out, 0);
        return;
    }
    rp_interval run = run_in_table(p, q->b, q->i, j0, end, table, &shift);
    if (run.begin < run.end) {
        int64_t count = run.end - run.begin;
        lines_t lines = lines_of(&table->array, q->b, q->h, run.begin + shift, count,
                                 p->Dv, rows->buffer);
        if (!first)
            lines = warm_lines(lines);
        weigh_lines(w + run.begin, 1, lines, count, rows->width, q->out, 0);
    }
    if (p->beyond == RP_CLIP) {
        weigh_row(rows, q, 0, j0, run.begin);
        weigh_row(rows, q, table->rows - 1, run.end, end);
    }
}

/* out of all rows += their weights times the values of the keys [j0, end) of a piece. */
static void
weigh_values(const query_rows_t *rows, int64_t j0, int64_t end)
{
    const rp_attention *p = rows->p;
    lines_t values = lines_of_keys(rows, &p->value, j0, end, p->Dv);
    weigh_lines(rows->s + j0 - rows->first, rows->count, values, end - j0, rows->width,
                rows->out, rows->out_step);
    for (int r = 0; p->rel_value.array.data && r < rows->count; r++)
        weigh_rel_value(rows, &rows->row[r], j0, end,
                        reads_first(rows, r, &p->rel_value.array));
}

/* Turns one row's logits over a stretch into weights, with dropout. */
static void
weigh_logits(const query_rows_t *rows, const query_row_t *q)
{
    const rp_attention *p = rows->p;
    int64_t count = rows->end - rows->begin;
    T *s = q->s + rows->begin - rows->first;
    take_logits(q->running, s, RP_ROUND_UP(count, VL), q->out, rows->width);
    if (p->dropout.p > 0) {
        unsigned char keep[RP_STRETCH_KEYS];
        rp_dropout_kept(p, q->b, q->h, q->i, rows->begin, count, keep);
        scale_by_dropout(s, keep, (int)count, 1);
    }
}

/* A stretch of keys: logits, running softmax, share of the output. */
static void
rows_stretch(query_rows_t *rows, int64_t first, int64_t end)
{
    score_stretch(rows, first, end);
    if (rows->begin >= rows->end)
        return;
    for (int r = 0; r < rows->count; r++)
        weigh_logits(rows, &rows->row[r]);
    for (int64_t j0 = rows->begin; j0 < rows->end; j0 += rows->piece) {
        int64_t past = RP_MIN(rows->end, j0 + rows->piece);
        if (!skips_piece(rows, j0, past))
            weigh_values(rows, j0, past);
    }
}

#endif
