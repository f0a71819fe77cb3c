/* tables.h: rows of a tile that know of their problem: a table met by relative position, decay,
 * FIRE. */
#ifndef RELPOS_TESTS_CORE_MICRO_TABLES_H
#define RELPOS_TESTS_CORE_MICRO_TABLES_H

#include "pack.h"

/* ---- a table ---------------------------------------------------------------------------- */

/* A tile of pairs and the table that they meet. */
typedef struct {
    rp_attention p;
    rp_table table;
    queries_t q;
    tile_t t;
} meeting_t;

static meeting_t
draw_meeting(source_t *s)
{
    meeting_t m = {.table = {.rows = between(s, 1, 60)}};
    m.p.beyond = once_in(s, 2) ? RP_CLIP : RP_ZERO;
    m.q.i0 = BQ * pick(s, 3);
    m.q.rows = (int)between(s, 0, 6);
    m.t.j0 = NR * pick(s, 4);
    m.t.keys = (int)(1 + extent(s, 6 * VL));
    m.t.columns = RP_ROUND_UP(m.t.keys, VL);
    m.t.ld = m.t.columns + VL + pick(s, 3);
    m.table.first = m.t.j0 - m.q.i0 - m.table.rows + between(s, -20, 100);
    return m;
}

/* The row of the table of a pair of the tile; -1: none. */
static int64_t
row_met(const meeting_t *m, int64_t i, int64_t n)
{
    const int64_t row = m->t.j0 + n - (m->q.i0 + i) - m->table.first;
    if (row >= 0 && row < m->table.rows)
        return row;
    return m->p.beyond == RP_ZERO ? -1 : row < 0 ? 0 : m->table.rows - 1;
}

/* s[m, n] = dots[m, row of the pair] */
static void
check_fill_clipped(source_t *s)
{
    const meeting_t m = draw_meeting(s);
    const matrix_t dots = take_matrix(s, m.q.rows, m.table.rows, RP_OWN, PLAIN);
    matrix_t tile = take_dense(s, m.q.rows, m.t.ld);
    tile.columns = m.t.columns;
    start_kernel();
    fill_clipped(&m.p, &m.q, &m.t, (T *)tile.at, (const T *)dots.at, step_of(&dots),
                 &m.table);
    allow_matrix(&tile);
    for (int64_t i = 0; i < m.q.rows; i++)
        for (int64_t n = 0; n < m.t.columns; n++) {
            const int64_t row = row_met(&m, i, n);
            expect(number(&tile, i, n), row < 0 ? 0 : number(&dots, i, row), 0, i, n);
        }
}

/* sums[m, row of the pair] += a[m, n], or the totals of rows where all have one row. */
static void
check_sum_by_row(source_t *s)
{
    const meeting_t m = draw_meeting(s);
    const matrix_t a = take_dense(s, m.q.rows, m.t.ld);
    const matrix_t sums = take_matrix(s, m.q.rows, m.table.rows, RP_OWN, PLAIN);
    T *totals = take_line(s, m.q.rows);
    for (int64_t i = 0; i < m.q.rows; i++) {
        totals[i] = 0;
        for (int64_t n = 0; n < m.t.keys; n++)
            totals[i] += *(const T *)cell(&a, i, n);
    }
    start_kernel();
    sum_by_row(&m.p, &m.q, &m.t, (const T *)a.at, once_in(s, 2) ? totals : NULL,
               (T *)sums.at, step_of(&sums), &m.table);
    allow_matrix(&sums);
    for (int64_t i = 0; i < m.q.rows; i++)
        for (int64_t row = 0; row < m.table.rows; row++) {
            sum_t sum = {0};
            add_term(&sum, (double)*(const T *)before_kernel(cell(&sums, i, row)));
            for (int64_t n = 0; n < m.t.keys; n++)
                if (row_met(&m, i, n) == row)
                    add_term(&sum, number(&a, i, n));
            expect_sum((T)number(&sums, i, row), sum, i, row);
        }
}

/* ---- decay ------------------------------------------------------------------------------- */

/* s[n] = sum of log_decay[t], j < t <= p_i, in units of log 2, for keys up to the query. */
static void
check_fill_decay_row(source_t *s)
{
    const int64_t keys = 1 + extent(s, 4 * NR), rows = keys + pick(s, 9);
    const matrix_t steps = take_matrix(s, rows, 1, RP_OWN, STRIDED);
    const int64_t j0 = NR * pick(s, (keys + NR - 1) / NR), i = between(s, j0, rows + 3);
    rp_attention p = {.Lk = keys, .Lq = rows + 9, .H = 1, .B = 1, .threads = 1};
    p.log_decay = (rp_table){.array = array_of(&steps), .rows = rows};
    decay_t d;
    plan_decay(&d, &p);
    const int columns = (int)(d.width - j0);
    d.sums = checked(malloc((size_t)d.length * sizeof *d.sums));
    d.rest = checked(malloc((size_t)d.width * sizeof *d.rest));
    T *line = blank_line(s, columns);
    start_kernel();
    double rounding = 0; /* of running sums in double, by all steps */
    for (int64_t t = 0; t < rows; t++)
        rounding += fabs(number(&steps, t, 0)) * (double)rows * 0x1p-51;
    start_decay(&d);
    fill_decay_row(&d, 0, 0, i, j0, columns, line);
    allow_line(line, columns);
    for (int64_t j = j0; j < RP_MIN(keys, i + 1); j++) {
        sum_t sum = {0};
        for (int64_t t = j + 1; t <= RP_MIN(i, rows - 1); t++)
            add_term(&sum, number(&steps, t, 0) * RP_LOG2E);
        expect((double)line[j - j0], sum.value,
               8 * ROUNDING * sum.size + LEAST + rounding, i, j);
    }
    free(d.sums);
    free(d.rest);
}

/* Sums of dS by key and by query, in double; what is not finite is counted instead. */
static void
check_sum_decay_row(source_t *s)
{
    const int64_t keys = extent(s, 6 * VL), j0 = between(s, 0, keys);
    const int count = (int)(keys - j0);
    const rp_attention p = {.Lk = keys, .Lq = 5};
    const int64_t i = pick(s, 5), size = 2 * (keys + p.Lq);
    const matrix_t sums = take_matrix(s, 1, size, DOUBLES, PLAIN);
    const matrix_t row = take_matrix(s, 1, count, RP_OWN, PLAIN);
    if (once_in(s, 3))
        spoil(s, &row);
    start_kernel();
    sum_decay_row(&p, i, j0, count, (const T *)row.at, (double *)sums.at);
    allow_matrix(&sums);
    for (int64_t k = 0; k < size; k++) {
        const int is_bad = k >= keys + p.Lq;
        const int64_t at = k - is_bad * (keys + p.Lq);
        sum_t sum = {0};
        add_term(&sum, *(const double *)before_kernel(cell(&sums, 0, k)));
        for (int64_t n = 0; n < count; n++) {
            const double x = number(&row, 0, n);
            if ((at == j0 + n || at == keys + i) && is_bad != !!isfinite(x))
                add_term(&sum, is_bad ? 1 : x);
        }
        expect(number(&sums, 0, k), sum.value, (double)sum.terms * 0x1p-51 * sum.size,
               0, k);
    }
}

/* ---- FIRE -------------------------------------------------------------------------------- */

/* A problem of one head with FIRE, and the memory that its runs take. */
typedef struct {
    rp_gradients g;
    fire_t f;
    matrix_t offsets, queries, lines, offset_slopes, query_slopes;
    void *memory;
} firing_t;

/* x along a row falls or, unless it is signed, falls to the query's position and then rises. */
static void
fill_offsets(source_t *s, const firing_t *x)
{
    const rp_attention *p = &x->g.forward;
    const int64_t turn = p->fire.is_signed ? p->Lq + p->Lk - 1 : p->Lq;
    double at = p->fire.is_signed ? -2 : 0;
    for (int64_t n = turn; n >= 0; n--, at += fabs(draw_unit(s)))
        put_number(cell(&x->offsets, n, 0), DOUBLES, at);
    at = p->fire.is_signed ? -2 : 0;
    for (int64_t n = turn; n < p->Lq + p->Lk; n++, at += fabs(draw_unit(s)))
        put_number(cell(&x->offsets, n, 0), DOUBLES, at);
}

static void
start_firing(source_t *s, firing_t *x)
{
    rp_attention *p = &x->g.forward;
    *p = (rp_attention){.B = 1, .H = 1, .Hk = 1, .threads = 1};
    p->Lq = between(s, 1, 9);
    p->Lk = 1 + extent(s, 5 * VL);
    p->sight.window_left = p->sight.window_right = RP_UNBOUNDED;
    p->fire.ranges = between(s, 1, 5);
    p->fire.is_signed = once_in(s, 2);
    x->offsets = take_matrix(s, p->Lq + p->Lk, 1, DOUBLES, PLAIN);
    x->offset_slopes = take_matrix(s, p->Lq + p->Lk, 1, DOUBLES, STRIDED);
    x->queries = take_matrix(s, p->Lq, 1, DOUBLES, STRIDED);
    x->query_slopes = take_matrix(s, p->Lq, 2, DOUBLES, STRIDED);
    x->lines = take_matrix(s, p->fire.ranges, 3, DOUBLES, STRIDED);
    x->offsets.row = sizeof(double); /* side by side */
    fill_offsets(s, x);
    for (int64_t i = 0; i < p->Lq; i++)
        put_number(cell(&x->queries, i, 0), DOUBLES, fabs(draw_unit(s)) + 0.1);
    double start = -1;
    for (int64_t k = 0; k < p->fire.ranges; k++, start += 2 * fabs(draw_unit(s)))
        put_number(cell(&x->lines, k, 0), DOUBLES, start);
    p->fire.offsets = array_of(&x->offsets);
    p->fire.queries = array_of(&x->queries);
    p->fire.lines = array_of(&x->lines);
    x->g.fire_offset_slopes = array_of(&x->offset_slopes);
    x->g.fire_query_slopes = array_of(&x->query_slopes);
    x->f = (fire_t){0};
    plan_fire(&x->f, p, &x->g.fire_offset_slopes);
    arena_t arena = {0};
    lay_out_fire(&x->f, &arena);
    x->memory = checked(aligned_alloc(64, RP_ROUND_UP(arena.used, 64)));
    arena = (arena_t){.memory = x->memory};
    lay_out_fire(&x->f, &arena);
    start_fire(&x->f);
}

/* x of a pair, and its range: the last that begins at or before x. */
static double
fire_x(const firing_t *x, int64_t i, int64_t j, int64_t *range)
{
    const double at =
        number(&x->offsets, x->g.forward.Lq - i + j, 0) * number(&x->queries, i, 0);
    *range = 0;
    for (int64_t k = 1; k < x->g.forward.fire.ranges; k++)
        if (number(&x->lines, k, 0) <= at)
            *range = k;
    return at;
}

/* s[n] = slope x + intercept in units of log 2; up to VL numbers behind are written too. */
static void
check_fill_fire_row(source_t *s)
{
    firing_t x = {0};
    start_firing(s, &x);
    const rp_attention *p = &x.g.forward;
    const int64_t i = pick(s, p->Lq), j0 = pick(s, p->Lk);
    const int count = (int)between(s, 0, p->Lk - j0);
    T *line = blank_line(s, count + VL);
    start_kernel();
    fill_fire_row(&x.f, 0, 0, i, j0, count, line);
    allow_line(line, count + VL);
    for (int n = 0; n < count; n++) {
        int64_t range;
        sum_t sum = {0};
        const double at = fire_x(&x, i, j0 + n, &range);
        add_term(&sum, number(&x.lines, range, 1) * at * RP_LOG2E);
        add_term(&sum, number(&x.lines, range, 2) * RP_LOG2E);
        const double u = fabs(number(&x.offsets, p->Lq - i + j0 + n, 0));
        /* what slope * factor is rounded by below the normal range is multiplied by u */
        expect((double)line[n], sum.value, 8 * ROUNDING * sum.size + LEAST * (2 + u), i,
               n);
    }
    free(x.memory);
}

/* Sums of dS and of dS x by range, then what passes x: to c, and to the threshold. */
static void
check_sum_fire_row(source_t *s)
{
    firing_t x = {0};
    start_firing(s, &x);
    const rp_attention *p = &x.g.forward;
    const int64_t i = pick(s, p->Lq), j0 = pick(s, p->Lk), size = fire_sums_count(p);
    const int count = (int)between(s, 0, p->Lk - j0);
    const matrix_t sums = take_matrix(s, 1, size, DOUBLES, PLAIN);
    const T *d = take_line(s, RP_ROUND_UP(count, VL) + VL);
    sum_t want[12] = {{0}};
    for (int64_t k = 0; k < size; k++)
        add_term(&want[k], number(&sums, 0, k));
    for (int n = 0; n < count; n++) {
        int64_t range;
        const double at = fire_x(&x, i, j0 + n, &range), ds = (double)d[n];
        const int64_t offset = p->Lq - i + j0 + n;
        const double u = number(&x.offsets, offset, 0);
        const double slope = ds * number(&x.lines, range, 1);
        add_term(&want[2 * range], ds);
        add_term(&want[2 * range + 1], ds * at);
        add_term(&want[size - 2], slope * number(&x.queries, i, 0) *
                                      number(&x.offset_slopes, offset, 0));
        add_term(&want[size - 2], slope * u * number(&x.query_slopes, i, 0));
        add_term(&want[size - 1], slope * u * number(&x.query_slopes, i, 1));
    }
    start_kernel();
    sum_fire_row(&x.f, &x.g, 0, 0, i, j0, count, d, (double *)sums.at);
    allow_matrix(&sums);
    for (int64_t k = 0; k < size; k++)
        expect(number(&sums, 0, k), want[k].value,
               2 * ((double)want[k].terms + 4) * (ROUNDING * want[k].size + LEAST), i,
               k);
    free(x.memory);
}

/* ---- rows of a gradient -------------------------------------------------------------------- */

/* A row of a gradient = factor * total, or += */
static void
check_total(source_t *s,
            void (*kernel)(const rp_array *, int64_t, int64_t, int64_t, double,
                           const double *, ptrdiff_t),
            int adds)
{
    const int64_t columns = extent(s, 5 * VL);
    const matrix_t row = take_matrix(s, 1, columns, RP_OWN, STRIDED);
    const matrix_t total = take_matrix(s, 1, columns, DOUBLES, PLAIN);
    const rp_array grad = array_of(&row);
    const double factor = (double)draw_factor(s);
    start_kernel();
    kernel(&grad, 0, 0, 0, factor, (const double *)total.at, columns);
    allow_matrix(&row);
    for (int64_t k = 0; k < columns; k++) {
        sum_t sum = {0};
        add_term(&sum, factor * number(&total, 0, k));
        if (adds)
            add_term(&sum, (double)*(const T *)before_kernel(cell(&row, 0, k)));
        expect_sum((T)number(&row, 0, k), sum, 0, k);
    }
}

static void
check_add_total(source_t *s)
{
    check_total(s, add_total, 1);
}

static void
check_write_total(source_t *s)
{
    check_total(s, write_total, 0);
}

/* row -= weight * other in whole vectors; a row may be absent. */
static void
check_subtract_row(source_t *s)
{
    gradients_t *gp = checked(calloc(1, sizeof *gp));
    gp->plan.Dp_pad = VL * between(s, 0, 5);
    T *row = take_line(s, gp->plan.Dp_pad);
    const T *other = take_line(s, gp->plan.Dp_pad), weight = draw_factor(s);
    start_kernel();
    subtract_row(gp, row, (double)weight, other);
    subtract_row(gp, NULL, (double)weight, other);
    allow_line(row, gp->plan.Dp_pad);
    for (int64_t k = 0; k < gp->plan.Dp_pad; k++) {
        sum_t sum = {0};
        add_term(&sum, (double)((const T *)before_kernel(row))[k]);
        add_term(&sum, -(double)weight * (double)other[k]);
        expect_sum(row[k], sum, 0, k);
    }
    free(gp);
}

static void
check_clear_gradient(source_t *s)
{
    const matrix_t rows =
        take_matrix(s, between(s, 0, 5), extent(s, 5 * VL), RP_OWN, STRIDED);
    const rp_array grad = array_of(&rows);
    start_kernel();
    clear_gradient(&grad, 1, 1, rows.rows, rows.columns);
    allow_matrix(&rows);
    for (int64_t i = 0; i < rows.rows; i++)
        for (int64_t k = 0; k < rows.columns; k++)
            expect(number(&rows, i, k), 0, 0, i, k);
}

/* The operations of some rounds: 12 chains of a product and a sum for each lane. */
static void
check_fma_loop(source_t *s)
{
    const int64_t rounds = pick(s, 5);
    start_kernel();
    expect(fma_loop(rounds), 24.0 * VL * (double)rounds, 0, 0, 0);
}

#endif
