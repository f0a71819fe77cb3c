/* infinite.h: infinities and NaN in a problem whose definition follows them: biases of -inf,
 * numbers of any kind where no visible pair reads them, and one that a visible pair reads. */
#ifndef RELPOS_TESTS_CORE_INFINITE_H
#define RELPOS_TESTS_CORE_INFINITE_H

#include "definition_backward.h"

/* Items of an operand that visible pairs read. */
typedef struct {
    operand_t *o;
    char *is_read;
} reads_t;

enum {
    KEYS,
    VALUES,
    QUERIES,
    POSITION_QUERIES,
    GRAD_OUTS,
    KEY_ROWS,
    QUERY_ROWS,
    VALUE_ROWS,
    WATCHED
};

/* Hides pairs by a bias: some rows of a table, a line of FIRE. */
static void
hide_by_bias(case_t *c)
{
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    operand_t *bias = operand_of(c, &p->rel_bias.array);
    operand_t *lines = operand_of(c, &p->fire.lines);
    for (int64_t n = bias && p->labels.count < 2 ? between(s, 1, 4) : 0; n > 0; n--)
        put_number(
            bias,
            item_at(bias, pick(s, p->B), pick(s, p->H), pick(s, bias->n[ROWS]), 0),
            -INFINITY);
    if (lines && once_in(s, 2))
        put_number(lines, item_at(lines, 0, pick(s, p->H), pick(s, p->fire.ranges), 2),
                   -INFINITY);
}

static void
note_line(reads_t *reads, int64_t b, int64_t h, int64_t r)
{
    const operand_t *o = reads->o;
    for (int64_t n = 0; o && n < o->n[COLUMNS]; n++)
        reads->is_read[(item_at(o, b, h, r, n) - o->block.data) / o->item] = 1;
}

static void
note_reads(row_t *x, void *context)
{
    static const int tables[] = {OF_KEY, OF_QUERY, OF_VALUE};
    reads_t *reads = context;
    for (int64_t k = 0; k < x->n; k++) {
        const cell_t *cell = &x->cells[k];
        if (cell->is_hidden)
            continue;
        note_line(&reads[QUERIES], x->b, x->h, x->i);
        note_line(&reads[POSITION_QUERIES], x->b, x->h, x->i);
        note_line(&reads[GRAD_OUTS], x->b, x->h, x->i);
        note_line(&reads[KEYS], x->b, x->hk, cell->j);
        note_line(&reads[VALUES], x->b, x->hk, cell->j);
        for (int t = 0; t < 3; t++)
            for (int row = 0; row < cell->rows[tables[t]].count; row++)
                note_line(&reads[KEY_ROWS + t], x->b, x->h,
                          cell->rows[tables[t]].row[row]);
    }
}

/* Puts infinities and NaN, or the largest number alone, among the items of an operand, all or
 * a few, that are not read. */
static void
spoil(case_t *c, const reads_t *reads, int by_largest)
{
    const operand_t *o = reads->o;
    source_t *s = &c->s;
    int64_t rarely = once_in(s, 2) ? 1 : between(s, 2, 50);
    for (size_t k = 0; o && k < o->block.bytes / (size_t)o->item; k++)
        if (!reads->is_read[k] && draw(s) % (uint64_t)rarely == 0)
            put_number(o, o->block.data + k * (size_t)o->item,
                       by_largest ? largest_number(o) : draw_odd(s, o));
}

/* A visible pair, any of `count`. */
typedef struct {
    cell_t cell;
    int64_t b, h, hk, i;
    uint64_t count;
} pair_t;

static void
note_pair(row_t *x, void *context)
{
    pair_t *pair = context;
    for (int64_t k = 0; k < x->n; k++)
        if (!x->cells[k].is_hidden && draw(&x->c->s) % ++pair->count == 0) {
            pair->cell = x->cells[k];
            pair->b = x->b, pair->h = x->h, pair->hk = x->hk, pair->i = x->i;
        }
}

/* A row of an operand that the pair reads; -1: none. */
typedef struct {
    const rp_array *array;
    int64_t h, row;
} line_t;

static line_t
line_of_table(const pair_t *pair, const rp_table *table, int which)
{
    const rows_t *rows = &pair->cell.rows[which];
    return (line_t){&table->array, pair->h, rows->count > 0 ? rows->row[0] : -1};
}

/* Puts a number that is not finite where a visible pair reads it: NaN in a logit, which makes
 * all results of its row NaN; an infinity or NaN in a value or a bias. */
static void
show_infinite(case_t *c)
{
    const double odd[] = {NAN, INFINITY, -INFINITY};
    source_t *s = &c->s;
    rp_attention *p = &c->g.forward;
    pair_t x = {.count = 0};
    visit_rows(c, note_pair, &x);
    const line_t lines[] = {{&p->query, x.h, x.i},
                            {&p->key, x.hk, x.cell.j},
                            line_of_table(&x, &p->rel_key, OF_KEY),
                            line_of_table(&x, &p->rel_query, OF_QUERY),
                            line_of_table(&x, &p->rel_bias, OF_BIAS),
                            {&p->value, x.hk, x.cell.j},
                            line_of_table(&x, &p->rel_value, OF_VALUE)};
    enum { OF_LOGITS = 4, OF_ANY = 5, LINES = sizeof lines / sizeof *lines };
    int which = (int)pick(s, LINES);
    const line_t *line = &lines[which];
    const operand_t *o = operand_of(c, line->array);
    if (x.count == 0 || o == NULL || line->row < 0 || o->n[COLUMNS] == 0)
        return;
    int64_t kinds = which < OF_LOGITS ? 1 : which < OF_ANY ? 2 : 3;
    put_number(o, item_at(o, x.b, line->h, line->row, pick(s, o->n[COLUMNS])),
               odd[pick(s, kinds)]);
}

static void
make_infinite(case_t *c)
{
    rp_gradients *g = &c->g;
    rp_attention *p = &g->forward;
    const rp_array *watched[] = {
        &p->key,      &p->value,         &p->query,           &p->position_query,
        &g->grad_out, &p->rel_key.array, &p->rel_query.array, &p->rel_value.array};
    reads_t reads[WATCHED];
    const int by_largest = once_in(&c->s, 2); /* infinite once it is multiplied */
    hide_by_bias(c);
    for (int k = 0; k < WATCHED; k++) {
        reads[k] = (reads_t){.o = operand_of(c, watched[k])};
        if (reads[k].o)
            reads[k].is_read = checked(calloc(reads[k].o->block.bytes + 1, 1));
    }
    visit_rows(c, note_reads, reads);
    for (int k = 0; k < WATCHED; k++) {
        spoil(c, &reads[k], by_largest);
        free(reads[k].is_read);
    }
}

#endif
