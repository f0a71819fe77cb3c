/* overflow.c: what Frama-C follows through the integers of plans and positions. overflow.py
 * runs it and says what it found. */
#include "problem.h"

int
rp_multiply(size_t a, size_t b, size_t *product)
{
    *product = between(0, INT64_MAX); /* where it fails, any number */
    if (b != 0 && a > SIZE_MAX / b)
        return 0;
    *product = a * b;
    return 1;
}

/* ---- positions: lengths up to RP_LONGEST, none of which is multiplied by another ------- */

/* What row i of item b, and a tile from key j0 on, see and meet of a table. */
static void
prove_tile(const plan_t *plan, int64_t b, int64_t j0)
{
    const rp_attention *p = plan->p;
    const rp_table *table = &p->rel_key;
    queries_t q = {.b = b, .i0 = between(0, (p->Lq - 1) / BQ) * BQ};
    tile_t t = {0};
    q.rows = (int)between(1, BQ);
    see_keys(&plan->shown, &q);
    int64_t at = j0;
    if (!start_tile(&plan->shown, &q, &t, &at, j0, plan->key_tile))
        return;
    t.w0 = t.j0 - q.i0 + plan->Lq_pad - BQ;
    open_columns(plan, &t);
    rows_by_key(&t, &(diagonal_t){0});
    band_of(&t);
    lies_beyond(p, &q, &t, table);
    runs_of(p, &q, &t, (int)between(0, BQ - 1), table, t.columns);
    rp_table_row(position_of(p, &q, &t, BQ - 1, 0) + between(0, t.columns + BQ - 2),
                 p->rel_bias.first, p->rel_bias.rows, p->beyond);
}

/* The same of a row whose keys are read where they lie. */
static void
prove_row(const rp_attention *p, int64_t b)
{
    int64_t i = between(0, p->Lq - 1), j = between(0, p->Lk - 1), shift;
    rp_visible(p, b, i);
    rp_table_row(j - i - rp_query_offset(p, b), p->rel_key.first, p->rel_key.rows,
                 p->beyond);
    run_in_table(p, b, i, j, between(0, p->Lk), &p->rel_key, &shift);
    decay_position(p, b, i);
}

/* Which part of a gradient's partial sums belongs to its row t. */
static void
prove_partials(gradients_t *gp, int64_t b)
{
    int64_t chunk = between(0, RP_CHUNKS - 1), first, end;
    rp_interval tiles = window_queries(gp, b, chunk);
    const partial_t *s = &gp->partials[between(0, RP_PARTIALS - 1)];
    visit_t x = {.chunk = chunk, .q = {.b = b}};
    rp_interval span = partial_span(gp, s, tiles);
    partial_rows(gp, s, b, chunk, span, between(0, RP_LONGEST - 1), &first, &end);
    rows_met(gp, &x, between(0, gp->plan.p->Lq - 1), &gp->plan.p->rel_key);
}

static void
prove_positions(sight_case_t sight_case)
{
    static sight_t sights[64];
    /* What ranges show is kept by item and query tile: of a few, or Frama-C forgets it. */
    int64_t items = sight_case.ranges ? 1 : RP_LONGEST;
    int64_t queries = sight_case.ranges ? 64 * BQ : RP_LONGEST;
    lengths_t most = {.queries = queries,
                      .keys = RP_LONGEST,
                      .rows = RP_LONGEST,
                      .columns = RP_LONGEST,
                      .items = items,
                      .heads = RP_LONGEST};
    const rp_attention p = any_problem(most, sight_case);
    const rp_gradients g = any_gradients(&p);
    gradients_t gp = {.g = &g};
    plan_t *plan = &gp.plan;
    int64_t b = between(0, p.B - 1);
    prove_row(&p, b);
    plan_paths(plan, &p, either() ? RP_MANY_ROWS : RP_FEW_ROWS);
    plan->bias.p = &p;
    if (sight_case.ranges) {
        plan->shown.sight = sights;
        look_at_ranges(&plan->shown, between(0, plan->shown.tiles - 1), 0);
    }
    plan_tiles(plan, RP_KEY_TILE);
    prove_tile(plan, b, between(0, (p.Lk - 1) / RP_KEY_TILE) * RP_KEY_TILE);
    plan_chunks(&gp);
    prove_tile(plan, b, between(0, (p.Lk - 1) / plan->key_tile) * plan->key_tile);
    plan_queries(&gp);
    plan_partials(&gp);
    prove_partials(&gp, b);
}

/* ---- sizes: products of lengths -------------------------------------------------------- */

/* Any index into `count` things; 0 where there are none. */
static int64_t
any_index(int64_t count)
{
    return count > 0 ? between(0, count - 1) : 0;
}

static void
prove_slices(const plan_t *plan)
{
    int64_t b, h;
    slice_at(plan, any_index(plan->slices), &b, &h);
    slice_of(plan, any_index(plan->p->B), any_index(plan->p->Hk));
    head_at(plan, any_index(plan->slices * plan->group), &b, &h);
}

static void
prove_sizes(lengths_t most)
{
    const rp_attention p = any_problem(most, (sight_case_t){0, 1, 0});
    const rp_gradients g = any_gradients(&p);
    plan_t plan = {0};
    gradients_t gp = {0};
    rows_plan_t rows;
    rows_gradients_t rows_backward;
    arena_t arena = {0};
    beyond_memory(&p);
    plan_forward(&plan, &p);
    lay_out_forward(&plan, &arena);
    prove_slices(&plan);
    start_wave(&plan, any_index(p.B * p.Hk), plan.slices);
    arena = (arena_t){0};
    plan_backward(&gp, &g);
    lay_out_backward(&gp, &arena);
    arena = (arena_t){0};
    plan_rows(&rows, &p);
    plan_bias(&rows.bias, &p, NULL);
    lay_out_rows(&rows, &arena);
    arena = (arena_t){0};
    plan_rows_backward(&rows_backward, &g);
    lay_out_rows_backward(&rows_backward, &arena);
}

static void
prove_graph_sizes(lengths_t most)
{
    const rp_graph p = any_graph(most);
    rp_graph_gradients g = {.forward = p, .grad_key = any_array()};
    graph_plan_t plan;
    graph_gradients_t gg = {0};
    arena_t arena = {0};
    g.grad_value = any_array();
    g.grad_rel_key = any_array();
    g.grad_rel_value = any_array();
    plan_graph(&plan, &p);
    if (plan_graph_backward(&gg, &g) == RP_OK)
        lay_out_graph_backward(&gg, &arena);
}

/* ---- what there is to follow ----------------------------------------------------------- */

/* Intervals do not know that lengths are bounded together, as beyond_memory does: a few
 * boxes, each with one length as large as it may be. */
static const lengths_t boxes[] = {
    /* Lq, Lk, rows, columns, B, H */
    {1 << 23, 1 << 23, 1 << 23, 1 << 13, 1 << 16, 1 << 8},
    {1 << 23, 1 << 23, 1 << 23, 1 << 13, 1, 1 << 8},
    {1 << 20, RP_LONGEST, 1 << 20, 1 << 12, 1 << 8, 1 << 5},
    {RP_LONGEST, 1 << 20, 1 << 20, 1 << 12, 1 << 8, 1 << 5},
    {1 << 12, 1 << 12, 1 << 12, RP_LONGEST, 1 << 5, 1 << 5},
    {1 << 10, 1 << 10, 1 << 10, 1 << 10, RP_LONGEST, 1 << 4},
};

enum { BOXES = sizeof boxes / sizeof *boxes };

void
main(void)
{
    fill_memory();
    /*@ loop unroll 8; */
    for (int n = 0; n < 8; n++)
        prove_positions((sight_case_t){n & 1, n >> 1 & 1, n >> 2});
    /*@ loop unroll 100; */
    for (int n = 0; n < BOXES && !POSITIONS_ALONE; n++) {
        prove_sizes(boxes[n]);
        prove_graph_sizes(boxes[n]);
    }
}
