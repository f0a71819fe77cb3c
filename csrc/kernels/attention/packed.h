/* packed.h: tables as products read them, by the way in which they meet a tile of pairs.
 *
 *   BAND    one product per tile with the table rows its relative positions span
 *   LISTED  the same, where an index lists these rows: with each of them once (tiles/listed.h)
 *   ROWS    few rows: one product per query with the whole table, spread by clipping
 *   LABELS  the same, spread by the label array */
#ifndef RELPOS_ATTENTION_PACKED_H
#define RELPOS_ATTENTION_PACKED_H

#include "table.h"

enum { RP_ABSENT, RP_BAND, RP_LISTED, RP_ROWS, RP_LABELS };

enum {
    RP_MANY_ROWS = 1024, /* up to this many rows the forward takes ROWS */
    RP_FEW_ROWS = 256,   /* the backward, which keeps sums by row for all queries */
    RP_PACK_ROWS = 256,  /* rows that a unit of packing takes */
    RP_NARROW = 4, /* columns of a band up to which vectors lie along its other side */
};

/* Band columns that any tile reads, [first, end); column 0 is that of relative position
 * `position` plus the query offset. */
typedef struct {
    int64_t first, end, position;
} band_t;

/* A table as products read it: in one copy, or one for each head, or for each batch item
 * (and head). */
typedef struct {
    T *data;
    ptrdiff_t size;         /* elements of a copy */
    int64_t heads, batches; /* copies */
    int64_t first;          /* the copy at data: where waves pack it, not 0 */
    int by_wave;            /* waves pack it with their slices */
    int path;               /* RP_ABSENT .. RP_LABELS */
    ptrdiff_t stride;       /* rows, rounded up to panels or vectors */
    const rp_attention *p;
    const rp_table *table;
    const band_t *band;
    int64_t columns, padded, packed_rows, units; /* of a copy */
    int panels; /* panels of NR rows; else rows of whole vectors */
    T factor;
} packed_t;

RP_INLINE int
is_used(const packed_t *t)
{
    return t->path != RP_ABSENT;
}

RP_INLINE int
by_band(const packed_t *t)
{
    return t->path == RP_BAND;
}

RP_INLINE int
by_list(const packed_t *t)
{
    return t->path == RP_LISTED;
}

/* Whether products with a table of so few columns cost less than to spread them. */
RP_INLINE int
is_narrow(const rp_attention *p)
{
    return p->Dp <= RP_NARROW && p->Dp < p->D;
}

/* Whether LISTED packs the rows of the array; else those of the index, which are fewer. */
RP_INLINE int
packs_array(const rp_table *table)
{
    return table->listed <= table->rows;
}

/* How many rows it packs. */
RP_INLINE int64_t
listed_rows(const rp_table *table)
{
    return packs_array(table) ? table->listed : table->rows;
}

/* The packed row that is row l of the table. */
RP_INLINE int64_t
listed_row(const rp_table *table, int64_t l)
{
    return packs_array(table) ? table->index[l] : l;
}

/* Whether the scores of a tile lie skewed for it, so that its rows are columns of the buffer. */
RP_INLINE int
in_band(const packed_t *t)
{
    return by_band(t) || by_list(t);
}

/* Whether a table is met by ROWS or by LABELS: one product with all of it, which is spread.
 * */
RP_INLINE int
by_row(const packed_t *t)
{
    return t->path == RP_ROWS || t->path == RP_LABELS;
}

/* ROWS multiplies each query with every row of the table, and passes over the few tiles near
 * the diagonal; BAND multiplies it with a row for each key, and half a tile more. From half
 * as many rows on that is cheaper. */
RP_INLINE int
choose_path(const rp_attention *p, const rp_table *table, int64_t most_rows)
{
    if (!table->array.data)
        return RP_ABSENT;
    if (has_labels(p))
        return RP_LABELS;
    int few = table->rows <= most_rows && 2 * table->rows <= p->Lk + 64;
    return few ? RP_ROWS : RP_BAND;
}

RP_INLINE T *
copy_of(const packed_t *t, int64_t b, int64_t h)
{
    int64_t index = (t->heads > 1 ? h : 0) * t->batches + (t->batches > 1 ? b : 0);
    return t->data + (index - t->first) * t->size;
}

/* How many rows are packed. Behind those that an index lists are zeros, which products read up to
 * a whole micro-tile. */
RP_INLINE int64_t
packed_rows_of(const packed_t *t)
{
    if (by_band(t))
        return t->band->end - t->band->first;
    return by_list(t) ? listed_rows(t->table) + TAIL_ROWS : t->table->rows;
}

/* One copy for all batch items unless the table, or the band's origin, differs by item. */
RP_INLINE int64_t
table_batches(const rp_attention *p, const rp_table *table, int path)
{
    const ptrdiff_t *batch = table->array.batch;
    for (int64_t b = 1; b < p->B && (batch || p->sight.query_offset); b++) {
        if (batch && batch[b] != batch[0])
            return p->B;
        if (path == RP_BAND && rp_query_offset(p, b) != rp_query_offset(p, 0))
            return p->B;
    }
    return 1;
}

/* Plans the copies of a table whose path is chosen. */
static void
plan_packed(packed_t *t, const rp_attention *p, const band_t *band,
            const rp_table *table, int64_t columns, int panels, double factor)
{
    t->p = p;
    t->band = band;
    t->table = table;
    t->columns = columns;
    t->panels = panels;
    t->factor = (T)factor;
    t->packed_rows = packed_rows_of(t);
    if (panels)
        t->packed_rows = RP_ROUND_UP(t->packed_rows, NR);
    t->padded = panels ? columns : RP_ROUND_UP(columns, VL);
    t->units = (t->packed_rows + RP_PACK_ROWS - 1) / RP_PACK_ROWS;
    t->heads = table->array.head ? p->H : 1;
    t->batches = table_batches(p, table, t->path);
    t->size = t->packed_rows * t->padded;
}

/* Address of packed row n of a copy, or NULL for a row of zeros. */
RP_INLINE const char *
table_source(const packed_t *t, int64_t b, int64_t h, int64_t n)
{
    const rp_table *table = t->table;
    int64_t rows = by_list(t) ? listed_rows(table) : table->rows;
    int64_t row = n < rows ? n : -1;
    if (by_band(t)) {
        int64_t r = n + t->band->first + t->band->position - rp_query_offset(t->p, b);
        row = rp_table_row(r, table->first, table->rows, t->p->beyond);
    }
    if (!by_list(t) || !packs_array(table))
        row = array_row(table, row);
    return row < 0 ? NULL : rp_at(&table->array, b, h, row);
}

static void
pack_table_unit(void *context, int64_t unit, int worker)
{
    const packed_t *t = context;
    const rp_array *array = &t->table->array;
    (void)worker;
    int64_t part = unit % t->units, copy = unit / t->units;
    T *data = t->data + copy * t->size;
    copy += t->first;
    int64_t b = copy % t->batches, h = copy / t->batches;
    int64_t end = RP_MIN(t->packed_rows, (part + 1) * RP_PACK_ROWS);
    for (int64_t n = part * RP_PACK_ROWS; n < end; n += t->panels ? NR : 1) {
        const char *rows[NR];
        if (!t->panels) {
            pack_row(data + n * t->padded, array, table_source(t, b, h, n), t->columns,
                     t->padded);
            for (ptrdiff_t k = 0; t->factor != 1 && k < t->columns; k++)
                data[n * t->padded + k] *= t->factor;
            continue;
        }
        for (int i = 0; i < NR; i++)
            rows[i] = table_source(t, b, h, n + i);
        pack_panel(data + n * t->columns, rows, array->col, RP_KIND(array), t->columns,
                   t->factor, NR * array->row);
    }
}

/* 1 when any copy of the table holds NaN or infinity. */
static int
table_not_finite(const packed_t *t)
{
    int bad = 0;
    for (int64_t b = 0; is_used(t) && b < t->batches; b++)
        for (int64_t h = 0; h < t->heads; h++)
            bad |= rows_of_not_finite(&t->table->array, b, h, 0, array_rows(t->table),
                                      t->columns);
    return bad;
}

/* 1 when a copy of rows, as they are packed, holds NaN or infinity: a number near the largest
 * becomes infinite by t->factor. Not of tables that waves pack. */
static int
packed_not_finite(const packed_t *t)
{
    if (!is_used(t) || t->padded == 0)
        return 0;
    return not_finite((const char *)t->data, t->padded * (ptrdiff_t)sizeof(T),
                      sizeof(T), t->packed_rows * t->heads * t->batches, t->padded);
}

#endif
