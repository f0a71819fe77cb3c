/* rel_query.h: the term scale * k.C[l], and the way back to k and C.
 *
 * The products k.C[l] are made by position: for each panel of NR keys and each band column
 * that the tile meets, a line of NR products with the column's table row. The pair of query m
 * and key n has column c = n - m + BQ - 1, so each row of the tile is a diagonal of these
 * lines: `shear` takes VL rows at a time from 2 VL - 1 lines, by blends.
 *
 * With a panel a query tile meets BQ + NR - 1 columns, of which the last NR - 1 are the first
 * of the query tile before it. So each makes BQ lines, and two buffers of them take turns. A
 * tile that does not follow the one before makes NR more. */
#ifndef RELPOS_ATTENTION_TERMS_REL_QUERY_H
#define RELPOS_ATTENTION_TERMS_REL_QUERY_H

#include "../tiles/listed.h"
#include "../tiles/products.h"

/* ---- lines by band column ---------------------------------------------------------- */

RP_INLINE int64_t
lined_panels(const plan_t *plan)
{
    return is_used(&plan->rel_query) ? plan->key_tile / NR : 0;
}

static void
lay_out_band_lines(const plan_t *plan, arena_t *arena, band_lines_t *all)
{
    int64_t panels = lined_panels(plan);
    /* products of columns read up to a whole micro-tile behind the last line */
    all->lines = take_numbers(arena, panels * 2 * BQ * NR + MR);
    all->last = take(arena, panels, sizeof(int64_t));
}

/* Begins a key tile. */
static void
start_band_lines(const plan_t *plan, band_lines_t *all)
{
    for (int64_t n = 0; n < lined_panels(plan); n++)
        all->last[n] = -1;
}

/* A panel of keys, and a query tile that meets it. */
typedef struct {
    int64_t j, column; /* first key; its band column with the last query of the tile */
    T *lines, *before; /* those from `column` on; from `column + BQ` on */
    int64_t *last;     /* i0 of the panel's last query tile */
    int follows;       /* whether that is the one before, which has filled `before` */
} panel_lines_t;

/* Those of the query tile at i0 and the panel that begins with key j. */
static panel_lines_t
lines_of_panel(const plan_t *plan, const band_lines_t *all, int64_t i0, int64_t j)
{
    int64_t panel = j % plan->key_tile / NR, odd = i0 / BQ % 2;
    int64_t *last = all->last + panel;
    T *lines = all->lines + panel * 2 * BQ * NR;
    return (panel_lines_t){.j = j,
                           .column = j - i0 + plan->Lq_pad - BQ,
                           .lines = lines + odd * BQ * NR,
                           .before = lines + (1 - odd) * BQ * NR,
                           .last = last,
                           .follows = *last == i0 - BQ};
}

/* Whether `count` band columns have one row of the table, or none: beyond one of its ends. */
RP_INLINE int
lie_beyond(const plan_t *plan, int64_t b, int64_t column, int64_t count)
{
    const rp_table *table = &plan->p->rel_query;
    const int64_t clip = plan->p->beyond == RP_CLIP; /* then its end rows lie there */
    int64_t r = position_of_column(plan, b, column);
    return r + count - 1 < table->first + clip ||
           r >= table->first + table->rows - clip;
}

/* The packed rows from a band column on, of a tile of head h: BQ + NR, or TAIL_ROWS where all
 * columns of the tile lie beyond the table. */
RP_INLINE const T *
rows_from(const plan_t *plan, int64_t b, int64_t h, int64_t column)
{
    const band_t *band = &plan->query_band;
    int64_t packed = RP_MAX(RP_MIN(column, band->end - TAIL_ROWS), band->first);
    return copy_of(&plan->rel_query, b, h) +
           (packed - band->first) * plan->rel_query.padded;
}

/* VL lines from `low` on and VL - 1 from `high` on, sheared. */
RP_INLINE void
shear_lines(const T *low, ptrdiff_t low_step, const T *high, ptrdiff_t high_step,
            V rows[2 * VL - 1])
{
#pragma GCC unroll 16
    for (int i = 0; i < VL; i++)
        rows[i] = load(low + i * low_step);
#pragma GCC unroll 16
    for (int i = 0; i < VL - 1; i++)
        rows[VL + i] = load(high + i * high_step);
    shear(rows);
}

/* ---- forward ----------------------------------------------------------------------- */

/* lines = `rows` table rows times a panel of `keys` keys; rows a multiple of TAIL_ROWS. */
static void
set_lines(const T *table, ptrdiff_t width, int64_t rows, const T *panel, int64_t keys,
          ptrdiff_t depth, T *lines)
{
    for (int64_t taken; rows > 0; rows -= taken) {
        taken = rows_at_once(rows);
        gemm_set(table, width, panel, taken, keys, depth, depth, lines, NR);
        table += taken * width;
        lines += taken * NR;
    }
}

/* The lines of `count` band columns whose rows an index lists. */
static void
set_listed_lines(const plan_t *plan, const listed_t *listed, const queries_t *q,
                 int64_t column, int count, const T *panel, int64_t keys, T *lines)
{
    const rp_attention *p = plan->p;
    const ptrdiff_t width = plan->rel_query.padded;
    const T *table = copy_of(&plan->rel_query, q->b, q->h);
    columns_t all = list_columns(
        p, &p->rel_query, position_of_column(plan, q->b, column), count, listed->rows);
    memset(lines, 0, (size_t)(all.begin * NR) * sizeof(T));
    for (int c = all.begin; c < all.end;) {
        piece_t piece = next_piece(&all, c);
        set_lines(table + piece.first * width, width,
                  RP_ROUND_UP(piece.past - piece.first, TAIL_ROWS), panel, keys, p->D,
                  listed->products);
        for (; c < piece.end; c++)
            memcpy(lines + c * NR, listed->products + (all.rows[c] - piece.first) * NR,
                   NR * sizeof(T));
    }
    memset(lines + all.end * NR, 0, (size_t)((count - all.end) * NR) * sizeof(T));
}

/* Row m of `rows` rows of s, key n of `keys` += line n - m + BQ - 1 at n; instead of what it
 * holds, constant[m * step], unless that is NULL. Behind BQ lines come those of `before`, which
 * are `far` numbers apart. */
static void
add_sheared(const T *lines, const T *before, ptrdiff_t far, int rows, int keys,
            const T *constant, ptrdiff_t step, T *s, ptrdiff_t ld)
{
    for (int n = 0; n < keys; n += VL)
        for (int m = 0; m < rows; m += VL) {
            int c = n - m + BQ - VL, beyond = c >= BQ, last = c + VL >= BQ;
            const T *low = beyond ? before + (c - BQ) * far : lines + c * NR;
            const T *high = last ? before + (c + VL - BQ) * far : low + VL * NR;
            T *to = s + m * ld + n;
            V x[2 * VL - 1];
            shear_lines(low + n, beyond ? far : NR, high + n, last ? far : NR, x);
            if (constant)
                for (int i = 0; i < VL; i++)
                    store(to + i * ld, splat(constant[(m + i) * step]) + x[VL - 1 - i]);
            else
#pragma GCC unroll 16
                for (int i = 0; i < VL; i++)
                    store(to + i * ld, load(to + i * ld) + x[VL - 1 - i]);
        }
}

/* The same where all lines are one. */
static void
add_line(const T *line, int rows, int keys, const T *constant, ptrdiff_t step, T *s,
         ptrdiff_t ld)
{
    for (int m = 0; m < rows; m++, s += ld)
        for (int n = 0; n < keys; n += VL)
            store(s + n, (constant ? splat(constant[m * step]) : load(s + n)) +
                             load(line + n));
}

/* Fills the lines that pairs of the tile need and that are not there; of columns
 * with one table row only the first, and what follows. Columns behind the band have hidden
 * pairs only, and no lines. */
static void
fill_lines(const plan_t *plan, const listed_t *listed, const queries_t *q,
           const panel_lines_t *x, const T *panel, int is_one_line)
{
    const rp_attention *p = plan->p;
    const ptrdiff_t width = plan->rel_query.padded;
    int64_t columns = plan->band.end - x->column;
    int64_t keys = RP_MIN(NR, RP_ROUND_UP(p->Lk, VL) - x->j);
    int64_t first = (BQ - q->rows) / TAIL_ROWS * TAIL_ROWS;
    if (is_one_line && x->follows) {
        memcpy(x->lines, x->before, NR * sizeof(T));
        return;
    }
    if (by_list(&plan->rel_query)) {
        set_listed_lines(plan, listed, q, x->column, is_one_line ? 1 : BQ, panel, keys,
                         x->lines);
        if (!is_one_line && !x->follows)
            set_listed_lines(plan, listed, q, x->column + BQ, NR, panel, keys,
                             x->before);
        return;
    }
    const T *table = rows_from(plan, q->b, q->h, x->column);
    if (is_one_line) {
        set_lines(table, width, TAIL_ROWS, panel, keys, p->D, x->lines);
        return;
    }
    set_lines(table + first * width, width, RP_MIN(BQ, columns) - first, panel, keys,
              p->D, x->lines + first * NR);
    if (!x->follows)
        set_lines(table + BQ * width, width, RP_MIN(NR, columns - BQ), panel, keys,
                  p->D, x->before);
}

/* Adds the term to what the tile holds or, unless that is NULL, to the one value `constant` of
 * each row, `step` from the next. */
static void
add_rel_query(const plan_t *plan, scratch_t *w, const queries_t *q, const tile_t *t,
              const T *keys, const T *constant, ptrdiff_t step)
{
    const int rows = RP_ROUND_UP(q->rows, VL);
    for (int n = 0; n < t->columns; n += NR) {
        panel_lines_t x = lines_of_panel(plan, &w->dots, q->i0, t->j0 + n);
        int count = RP_MIN(NR, t->columns - n);
        *x.last = q->i0;
        rp_assert(plan->band.first <= x.column && x.column < plan->band.end);
        int is_one_line = lie_beyond(plan, q->b, x.column, BQ + NR - 1);
        int was_one_line =
            x.follows && lie_beyond(plan, q->b, x.column + BQ, BQ + NR - 1);
        fill_lines(plan, &w->listed, q, &x, keys + x.j * plan->p->D, is_one_line);
        if (is_one_line)
            add_line(x.lines, rows, count, constant, step, t->s + n, t->ld);
        else
            add_sheared(x.lines, x.before, was_one_line ? 0 : NR, rows, count, constant,
                        step, t->s + n, t->ld);
    }
}

/* ---- backward ---------------------------------------------------------------------- */

/* The way back of add_sheared: lines = d of `rows` rows and `keys` keys by band column, 0 where
 * there is none, and before += what lies in the columns behind them. Rows and keys are whole
 * vectors. */
static void
shear_back(const T *d, ptrdiff_t ld, int rows, int keys, T *lines, T *before)
{
    static const T zeros[NR] = {0};
    for (int n = 0; n < NR; n += VL) {
        int c = 0, begin = n < keys ? n : BQ; /* earlier columns have no pair */
        for (; c < begin; c++)
            store(lines + c * NR + n, (V){0});
        for (; n < keys && c <= BQ + n; c += VL) {
            int m = n - c + BQ - VL; /* line c + VL - 1 begins with this row */
            int is_low = 0 <= m && m < rows, is_high = m + VL < rows;
            const T *low = is_low ? d + m * ld + n : zeros;
            const T *high = is_high ? d + (m + VL) * ld + n : zeros;
            T *to = n + (c < BQ ? lines + c * NR : before + (c - BQ) * NR);
            V x[2 * VL - 1];
            shear_lines(low, is_low ? ld : 0, high, is_high ? ld : 0, x);
#pragma GCC unroll 16
            for (int i = 0; i < VL; i++, to += NR)
                store(to, c < BQ ? x[VL - 1 - i] : load(to) + x[VL - 1 - i]);
        }
    }
}

/* sums += a line. */
RP_INLINE void
add_line_to(const T *line, T *sums)
{
    for (int n = 0; n < NR; n += VL)
        store(sums + n, load(sums + n) + load(line + n));
}

/* The first of some lines becomes their sum, others of TAIL_ROWS become 0. */
static void
join_lines(T *lines, int count)
{
    column_totals(lines, NR, count, NR, lines);
    memset(lines + NR, 0, (TAIL_ROWS - 1) * NR * sizeof(T));
}

/* The same as multiply_lines where an index lists the rows of `count` columns. */
static void
multiply_listed(const gradients_t *gp, grad_scratch_t *w, const visit_t *x,
                int keys_bad, int64_t j, int64_t column, int count, const T *lines)
{
    const plan_t *plan = &gp->plan;
    const ptrdiff_t width = plan->D_pad;
    const T *table = copy_of(&plan->rel_query, x->q.b, x->q.h);
    const int64_t chunk_key = x->chunk * gp->chunk_keys;
    const int64_t keys =
        RP_MIN(NR, RP_MIN(plan->p->Lk, chunk_key + gp->chunk_keys) - j);
    T *sums = partial_of(gp, RP_GRAD_QUERY, x->index, x->chunk);
    T *joined = w->forward.listed.products;
    columns_t all = list_columns(plan->p, &plan->p->rel_query,
                                 position_of_column(plan, x->q.b, column), count,
                                 w->forward.listed.rows);
    for (int c = all.begin; c < all.end;) {
        piece_t piece = next_piece(&all, c);
        const int64_t rows = piece.past - piece.first;
        clear_sums(&piece, NR, joined);
        for (; c < piece.end; c++)
            add_line_to(lines + c * NR, joined + (all.rows[c] - piece.first) * NR);
        if (gp->g->grad_key.data)
            add_columns(gp->key_rows_bad, joined, NR, table + piece.first * width,
                        width, keys, width, rows, NULL,
                        w->grad_key + (j - chunk_key) * width, width);
        if (sums)
            add_lines(keys_bad, joined, NR, rows, x->keys + j * x->key_stride,
                      x->key_stride, width, keys, sums + piece.first * width, width);
    }
}

/* s = scale * k.C: grad_key and grad of rel_query, from `count` lines of dS from `column` on,
 * of which those behind the band have hidden pairs only. Beyond an end of the table all meet
 * one row, or none. */
static void
multiply_lines(const gradients_t *gp, grad_scratch_t *w, const visit_t *x, int keys_bad,
               int64_t j, int64_t column, int64_t count, T *lines)
{
    const plan_t *plan = &gp->plan;
    const ptrdiff_t width = plan->D_pad;
    int64_t chunk_key = x->chunk * gp->chunk_keys;
    int64_t end = RP_MIN(plan->p->Lk, chunk_key + gp->chunk_keys);
    int64_t keys = RP_MIN(NR, end - j);
    int64_t rows = RP_MIN(count, plan->band.end - column), terms = rows;
    T *sums = partial_of(gp, RP_GRAD_QUERY, x->index, x->chunk);
    if (rows <= 0)
        return;
    if (by_list(&plan->rel_query)) {
        multiply_listed(gp, w, x, keys_bad, j, column, (int)rows, lines);
        return;
    }
    if (lie_beyond(plan, x->q.b, column, rows)) {
        if (plan->p->beyond == RP_ZERO)
            return;
        join_lines(lines, (int)rows);
        rows = TAIL_ROWS;
        terms = 1;
    }
    if (gp->g->grad_key.data)
        add_columns(gp->key_rows_bad, lines, NR,
                    rows_from(plan, x->q.b, x->q.h, column), width, keys, width, terms,
                    NULL, w->grad_key + (j - chunk_key) * width, width);
    if (sums)
        add_lines(keys_bad, lines, NR, rows, x->keys + j * x->key_stride, x->key_stride,
                  width, keys, sums + (column - chunk_key) * width, width);
}

/* Multiplies the lines that the last query tile of a panel has left, if there is one. */
static void
finish_panel(const gradients_t *gp, grad_scratch_t *w, const visit_t *x, int keys_bad,
             int64_t j)
{
    int64_t *last = &w->sheared.last[j % gp->plan.key_tile / NR];
    panel_lines_t left = lines_of_panel(&gp->plan, &w->sheared, *last, j);
    if (*last < 0)
        return;
    multiply_lines(gp, w, x, keys_bad, j, left.column, BQ, left.lines);
    *last = -1;
}

/* Ends a key tile. */
static void
finish_rel_query(const gradients_t *gp, grad_scratch_t *w, const visit_t *x, int64_t j0,
                 int keys_bad)
{
    for (int64_t n = 0; n < lined_panels(&gp->plan); n++)
        finish_panel(gp, w, x, keys_bad, j0 + n * NR);
}

/* Shears dS of the tile back to lines by band column. Those of the query tile before are then
 * complete, and are multiplied. */
static void
rel_query_grads(const gradients_t *gp, grad_scratch_t *w, const visit_t *x,
                int keys_bad)
{
    const plan_t *plan = &gp->plan;
    const int rows = RP_ROUND_UP(x->q.rows, VL);
    if (!is_used(&plan->rel_query))
        return;
    for (int m = x->q.rows_pad; m < rows; m++)
        memset(x->d + m * x->t.ld, 0, (size_t)x->t.columns * sizeof(T));
    for (int n = 0; n < x->t.columns; n += NR) {
        int64_t j = x->t.j0 + n;
        panel_lines_t at = lines_of_panel(plan, &w->sheared, x->q.i0, j);
        if (!at.follows) {
            finish_panel(gp, w, x, keys_bad, j);
            memset(at.before, 0, NR * NR * sizeof(T));
        }
        shear_back(x->d + n, x->t.ld, rows, RP_MIN(NR, x->t.columns - n), at.lines,
                   at.before);
        multiply_lines(gp, w, x, keys_bad, j, at.column + BQ, at.follows ? BQ : NR,
                       at.before);
        *at.last = x->q.i0;
    }
}

#endif
