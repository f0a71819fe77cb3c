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
    all->lines = take_numbers(arena, panels * 2 * BQ * NR);
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
    int follows;       /* whether the query tile before has filled these */
} panel_lines_t;

/* Those of the query tile at i0 and the panel that begins with key j. */
static panel_lines_t
lines_of_panel(const plan_t *plan, const band_lines_t *all, int64_t i0, int64_t j)
{
    int64_t panel = j % plan->key_tile / NR, odd = i0 / BQ % 2;
    T *lines = all->lines + panel * 2 * BQ * NR;
    return (panel_lines_t){.j = j,
                           .column = j - i0 + plan->Lq_pad - BQ,
                           .lines = lines + odd * BQ * NR,
                           .before = lines + (1 - odd) * BQ * NR,
                           .follows = all->last[panel] == i0 - BQ};
}

/* Whether `count` band columns have one row of the table, or none: beyond one of its ends. */
RP_INLINE int
lie_beyond(const plan_t *plan, int64_t b, int64_t column, int64_t count)
{
    const rp_table *table = &plan->p->rel_query;
    const int64_t clip = plan->p->beyond == RP_CLIP; /* then its end rows lie there */
    int64_t r = column + plan->band.position - rp_query_offset(plan->p, b);
    return r + count - 1 < table->first + clip ||
           r >= table->first + table->rows - clip;
}

/* How many of `rows` rows, TAIL_ROWS or a multiple, a product takes at a time: whole
 * micro-tiles and a tail. */
RP_INLINE int64_t
rows_at_once(int64_t rows)
{
    return padded_rows((int)rows) == rows ? rows : TAIL_ROWS;
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
fill_lines(const plan_t *plan, const queries_t *q, const panel_lines_t *x,
           const T *panel, int is_one_line)
{
    const rp_attention *p = plan->p;
    const ptrdiff_t width = plan->rel_query.padded;
    const T *table =
        copy_of(&plan->rel_query, q->b, q->h) + (x->column - plan->band.first) * width;
    int64_t columns = plan->band.end - x->column;
    int64_t keys = RP_MIN(NR, RP_ROUND_UP(p->Lk, VL) - x->j);
    int64_t first = (BQ - q->rows) / TAIL_ROWS * TAIL_ROWS;
    if (is_one_line && x->follows) {
        memcpy(x->lines, x->before, NR * sizeof(T));
        return;
    }
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
        w->dots.last[x.j % plan->key_tile / NR] = q->i0;
        rp_assert(plan->band.first <= x.column && x.column < plan->band.end);
        int is_one_line = lie_beyond(plan, q->b, x.column, BQ + NR - 1);
        int was_one_line =
            x.follows && lie_beyond(plan, q->b, x.column + BQ, BQ + NR - 1);
        fill_lines(plan, q, &x, keys + x.j * plan->p->D, is_one_line);
        if (is_one_line)
            add_line(x.lines, rows, count, constant, step, t->s + n, t->ld);
        else
            add_sheared(x.lines, x.before, was_one_line ? 0 : NR, rows, count, constant,
                        step, t->s + n, t->ld);
    }
}

/* ---- backward ---------------------------------------------------------------------- */

/* s = scale * k.C: grad_key and grad of rel_query, MR keys at a time. */
static void
rel_query_grads(const gradients_t *gp, grad_scratch_t *w, const visit_t *x,
                int keys_bad)
{
    enum { WIDTH = BQ + MR };
    const plan_t *plan = &gp->plan;
    const ptrdiff_t width = plan->D_pad;
    if (!is_used(&plan->rel_query))
        return;
    const T *table =
        copy_of(&plan->rel_query, x->q.b, x->q.h) - plan->band.first * width;
    T *sums = partial_of(gp, RP_GRAD_QUERY, x->index, x->chunk);
    int64_t chunk_key = x->chunk * gp->chunk_keys;
    for (int n0 = 0; n0 < x->t.keys; n0 += MR) {
        int keys = RP_MIN(MR, x->t.keys - n0);
        /* no column beyond the last key's: the next chunk's sums begin there */
        int64_t w0 = x->t.w0 + n0, columns = RP_MIN(BQ + keys - 1, plan->band.end - w0);
        memset(w->corner, 0, MR * WIDTH * sizeof(T));
        for (int m = 0; m < x->q.rows; m++)
            for (int n = 0; n < keys; n++)
                w->corner[n * WIDTH + n - m + BQ - 1] = x->d[m * x->t.ld + n0 + n];
        T *grad_key = w->grad_key + (x->t.j0 + n0 - chunk_key) * width;
        if (gp->g->grad_key.data)
            add_rows(gp->key_rows_bad, w->corner, WIDTH, table + w0 * width, width, MR,
                     width, columns, NULL, grad_key, width);
        if (sums)
            add_columns(keys_bad, w->corner, WIDTH,
                        x->keys + (x->t.j0 + n0) * x->key_stride, x->key_stride,
                        columns, width, keys, NULL, sums + (w0 - chunk_key) * width,
                        width);
    }
}

#endif
