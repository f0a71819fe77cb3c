/* rotary.h: pairs of columns turned by position * frequency, and scaled.
 *
 *   (a, b) -> m * (a cos t - b sin t, b cos t + a sin t),  t = position * (high + low)
 *
 * Cosines and sines are those of sinusoid.h, in double, and so is everything else,
 * whatever T: a result is rounded once. A block of rows has its table of them, made once
 * and kept for all batch items, heads among them, that share the angles. Rows that are
 * not contiguous pass through a buffer, so that their bits are the same. */
#ifndef RELPOS_ENCODINGS_ROTARY_H
#define RELPOS_ENCODINGS_ROTARY_H

#include "../ground/lines.h"
#include "sinusoid.h"

/* Doubles of a table: 16 KiB, which a first-level cache keeps beside the rows. */
#define ROTARY_TABLE 2048
/* Pairs of a row taken at a time: as many as fill the table where it holds each twice. */
#define ROTARY_PAIRS (ROTARY_TABLE / 4)
/* Elements that a unit turns, if it has that many items: enough to make its table pay. */
#define ROTARY_WORK (1 << 18)

typedef T part_t __attribute__((vector_size(sizeof(T) * DL)));

#if RP_VECTOR_BYTES == 16
#define ROTARY_SWAP(v) RP_SHUFFLE(v, v, 1, 0)
#elif RP_VECTOR_BYTES == 32
#define ROTARY_SWAP(v) RP_SHUFFLE(v, v, 1, 0, 3, 2)
#else
#define ROTARY_SWAP(v) RP_SHUFFLE(v, v, 1, 0, 3, 2, 5, 4, 7, 6)
#endif

typedef struct {
    double table[ROTARY_TABLE]; /* per row: cosines, then sines, both times m */
    T buffer[2 * ROTARY_PAIRS];
} rotary_scratch __attribute__((aligned(64)));

/* A call cut into units: `rows` rows of `items` items. */
typedef struct {
    const rp_rotary *p;
    rotary_scratch *scratch; /* one per worker */
    int64_t rows, items, row_blocks;
} rotary_job_t;

RP_INLINE DV
as_doubles(const T *from)
{
    part_t x;
    memcpy(&x, from, sizeof x);
    return __builtin_convertvector(x, DV);
}

RP_INLINE void
round_doubles(T *to, DV x)
{
    part_t rounded = __builtin_convertvector(x, part_t);
    memcpy(to, &rounded, sizeof rounded);
}

/* Doubles of a table's row that are cosines; as many sines follow. Interleaved pairs have
 * theirs twice, the first sine negative, for sums without a shuffle of the table. */
RP_INLINE int
rotary_width(const rp_rotary *p, int64_t pairs)
{
    return RP_ROUND_UP((int)pairs << (p->interleaved != 0), DL);
}

/* Rotates VL pairs whose halves (a, b) lie apart; in place if the ends are the starts. */
RP_INLINE void
turn_halves(T *a_to, T *b_to, const T *a_from, const T *b_from, const double *cosine,
            const double *sine)
{
    DV a = as_doubles(a_from), b = as_doubles(b_from);
    DV c = *(const DV *)cosine, s = *(const DV *)sine;
    round_doubles(a_to, a * c - b * s);
    round_doubles(b_to, b * c + a * s);
}

/* Rotates the pairs of one vector of a, b, a, b, .. */
RP_INLINE void
turn_interleaved(T *to, const T *from, const double *cosine, const double *sine)
{
    DV x = as_doubles(from);
    round_doubles(to, x * *(const DV *)cosine + ROTARY_SWAP(x) * *(const DV *)sine);
}

/* `pairs` pairs of contiguous halves; the last vector, if it is not full, is padded. */
RP_INLINE void
turn_row_halves(T *a_to, T *b_to, const T *a, const T *b, const double *cosine,
                const double *sine, int pairs)
{
    int i = 0, rest = pairs % DL;
    size_t size = (size_t)rest * sizeof(T);
    for (; i < pairs - rest; i += DL)
        turn_halves(a_to + i, b_to + i, a + i, b + i, cosine + i, sine + i);
    if (rest == 0)
        return;
    T a_last[DL] = {0}, b_last[DL] = {0};
    memcpy(a_last, a + i, size);
    memcpy(b_last, b + i, size);
    turn_halves(a_last, b_last, a_last, b_last, cosine + i, sine + i);
    memcpy(a_to + i, a_last, size);
    memcpy(b_to + i, b_last, size);
}

RP_INLINE void
turn_row_interleaved(T *to, const T *from, const double *cosine, const double *sine,
                     int pairs)
{
    int i = 0, rest = 2 * pairs % DL;
    size_t size = (size_t)rest * sizeof(T);
    for (; i < 2 * pairs - rest; i += DL)
        turn_interleaved(to + i, from + i, cosine + i, sine + i);
    if (rest == 0)
        return;
    T last[DL] = {0};
    memcpy(last, from + i, size);
    turn_interleaved(last, last, cosine + i, sine + i);
    memcpy(to + i, last, size);
}

/* The pairs [first, first + pairs) of one row; direct: its numbers are T, side by side. */
RP_INLINE void
turn_row(const rp_rotary *p, const char *x, char *y, int64_t first, int pairs,
         const double *table, int direct, T *buffer)
{
    const ptrdiff_t from_step = p->x.col, to_step = p->out.col;
    const double *sine = table + rotary_width(p, pairs);
    int64_t second = p->interleaved ? 1 : p->h,
            run = p->interleaved ? 2 * pairs : pairs;
    x += (p->interleaved ? 2 * first : first) * from_step;
    y += (p->interleaved ? 2 * first : first) * to_step;
    const T *a = direct ? (const T *)x : buffer;
    T *to = direct ? (T *)y : buffer;
    int64_t apart = direct ? second : pairs;
    if (!direct)
        widen(buffer, x, from_step, RP_KIND(&p->x), run);
    if (p->interleaved) {
        turn_row_interleaved(to, a, table, sine, pairs);
    } else {
        if (!direct)
            widen(buffer + pairs, x + second * from_step, from_step, RP_KIND(&p->x),
                  run);
        turn_row_halves(to, to + apart, a, a + apart, table, sine, pairs);
    }
    if (direct)
        return;
    unpack_row(&p->out, y, buffer, run);
    if (!p->interleaved)
        unpack_row(&p->out, y + second * to_step, buffer + pairs, run);
}

/* Cosines and sines of up to ANGLES pairs from `at` on, times the magnitude, to a row of
 * the table whose pairs start at `first`. */
RP_INLINE void
store_rotary(const rp_rotary *p, const angles *block, const char *magnitude, int count,
             double *cosine, double *sine)
{
    for (int i = 0; i < count; i++) {
        double m = *(const double *)(magnitude + i * p->magnitude.col);
        double c = m * block->cosine[i], s = m * block->sine[i];
        if (p->interleaved) {
            cosine[2 * i] = cosine[2 * i + 1] = c;
            sine[2 * i] = -s;
            sine[2 * i + 1] = s;
        } else {
            cosine[i] = c;
            sine[i] = s;
        }
    }
}

/* Fills a row of the table of cosines and sines, for the pairs [first, first + pairs). */
static void
rotary_table_row(const rp_rotary *p, int64_t n, int64_t row, int64_t first, int pairs,
                 double *cosine)
{
    int width = rotary_width(p, pairs), step = p->interleaved ? 2 : 1;
    double *sine = cosine + width;
    double position = *(const double *)rp_at(&p->position, n, 0, row);
    const char *high = rp_at(&p->high, n, 0, row) + first * p->high.col;
    const char *low = rp_at(&p->low, n, 0, row) + first * p->low.col;
    const char *m = rp_at(&p->magnitude, n, 0, row) + first * p->magnitude.col;
    angles block;
    for (int at = 0; at < pairs; at += ANGLES) {
        int count = RP_MIN(ANGLES, pairs - at);
        load_frequencies(block.high, high + at * p->high.col, p->high.col, count);
        load_frequencies(block.low, low + at * p->low.col, p->low.col, count);
        if (sincos_block(position, &block, count))
            sincos_far(position, &block, count);
        store_rotary(p, &block, m + at * p->magnitude.col, count, cosine + step * at,
                     sine + step * at);
    }
    for (int i = step * pairs; i < width; i++)
        cosine[i] = sine[i] = 0;
}

/* Whether item n has the angles and magnitudes of the item before. */
RP_INLINE int
rotary_shared(const rp_rotary *p, int64_t n)
{
    const rp_array *arrays[] = {&p->position, &p->high, &p->low, &p->magnitude};
    for (int i = 0; i < 4; i++)
        if (arrays[i]->batch && arrays[i]->batch[n] != arrays[i]->batch[n - 1])
            return 0;
    return 1;
}

/* Whether all rows of an item have the same. */
RP_INLINE int
rotary_constant(const rp_rotary *p)
{
    return !p->position.row && !p->high.row && !p->low.row && !p->magnitude.row;
}

/* Asks for a row that will be turned soon. The rows of one item are too few for the
 * hardware to foresee those of the next; this gains a tenth to a third. */
RP_INLINE void
rotary_prefetch(const rp_rotary *p, int64_t n, int64_t row)
{
    enum { LINE = 64, FARTHEST = 1024 };
    const char *x = rp_at(&p->x, n, 0, row), *y = rp_at(&p->out, n, 0, row);
    const ptrdiff_t unit = size_of(RP_KIND(&p->x));
    int64_t size = RP_MIN(p->D * unit, FARTHEST);
    if (p->x.col != unit || p->out.col != unit)
        return;
    for (int64_t at = 0; at < size; at += LINE) {
        __builtin_prefetch(x + at, 0);
        if (x != y)
            __builtin_prefetch(y + at, 1);
    }
}

/* `count` numbers as they are, of one kind. */
RP_INLINE void
copy_numbers(const rp_array *out, char *to, const rp_array *x, const char *from,
             int64_t count)
{
    if (RP_KIND(x) == RP_OWN)
        copy_run(to, out->col, from, x->col, count);
    for (int64_t k = 0; RP_KIND(x) != RP_OWN && k < count; k++)
        memcpy(to + k * out->col, from + k * x->col, sizeof(uint16_t));
}

/* Rows [row, row + rows) of item n, by a table whose rows are `step` doubles apart. */
RP_INLINE void
turn_rows(const rp_rotary *p, int64_t n, int64_t row, int64_t rows, int64_t first,
          int pairs, rotary_scratch *scratch, int64_t step, int next)
{
    const int64_t copied = 2 * p->h;
    const int direct = is_plain(&p->x) && is_plain(&p->out);
    for (int64_t i = 0; i < rows; i++) {
        const char *x = rp_at(&p->x, n, 0, row + i);
        char *y = rp_at(&p->out, n, 0, row + i);
        if (next)
            rotary_prefetch(p, n + 1, row + i);
        turn_row(p, x, y, first, pairs, scratch->table + i * step, direct,
                 scratch->buffer);
        if (first == 0 && x != y && copied < p->D)
            copy_numbers(&p->out, y + copied * p->out.col, &p->x, x + copied * p->x.col,
                         p->D - copied);
    }
}

static void
rotary_unit(void *context, int64_t unit, int worker)
{
    const rotary_job_t *job = context;
    const rp_rotary *p = job->p;
    rotary_scratch *scratch = job->scratch + worker;
    int64_t row = unit % job->row_blocks * job->rows, first = 0;
    int64_t item = unit / job->row_blocks * job->items;
    int64_t rows = RP_MIN(job->rows, p->L - row);
    int64_t last = RP_MIN(item + job->items, p->N);
    int64_t table_rows = rotary_constant(p) ? 1 : rows;
    do { /* once, too, where there are no pairs but columns to copy */
        int pairs = (int)RP_MIN(ROTARY_PAIRS, p->h - first);
        int64_t step = table_rows == 1 ? 0 : 2 * rotary_width(p, pairs);
        for (int64_t n = item; n < last; n++) {
            if (n == item || !rotary_shared(p, n))
                for (int64_t i = 0; i < table_rows; i++)
                    rotary_table_row(p, n, row + i, first, pairs,
                                     scratch->table + i * step);
            turn_rows(p, n, row, rows, first, pairs, scratch, step, n + 1 < last);
        }
        first += pairs;
    } while (first < p->h);
}

static rp_status
apply_rotary(const rp_rotary *p)
{
    rotary_job_t job = {.p = p};
    if (p->N <= 0 || p->L <= 0 || p->D <= 0)
        return RP_OK;
    int width = rotary_width(p, RP_MIN(ROTARY_PAIRS, p->h));
    job.rows = RP_MIN(ROTARY_TABLE / (2 * RP_MAX(width, DL)), p->L);
    job.items = RP_MIN(RP_MAX(1, ROTARY_WORK / (job.rows * p->D)), p->N);
    job.row_blocks = (p->L + job.rows - 1) / job.rows;
    int64_t units = job.row_blocks * ((p->N + job.items - 1) / job.items);
    int threads = (int)RP_MIN(p->threads, units);
    job.scratch = rp_alloc((size_t)threads, sizeof *job.scratch);
    if (job.scratch == NULL)
        return RP_NO_MEMORY;
    rp_status status = rp_parallel(units, rotary_unit, &job, threads);
    rp_free(job.scratch);
    return status;
}

/* Runs items [n, n + p->N) of a gufunc's call; places[i] is where operand i belongs. */
static rp_status
rotary_items(rp_rotary *p, rp_array **places, int operands, char **args,
             const ptrdiff_t *steps, int64_t n)
{
    ptrdiff_t *batch = rp_alloc((size_t)p->N * (size_t)operands, sizeof *batch);
    if (batch == NULL)
        return RP_NO_MEMORY;
    for (int i = 0; i < operands; i++) {
        if (places[i] == NULL)
            continue;
        for (int64_t item = 0; item < p->N; item++)
            batch[i * p->N + item] = (n + item) * steps[i];
        places[i]->data = args[i];
        places[i]->batch = batch + i * p->N;
    }
    p->threads = rp_get_num_threads();
    rp_status status = apply_rotary(p);
    rp_free(batch);
    return status;
}

/* (l,d),(l),(l,h),(l,h),(l,h),()->(l,d): items in a row that agree on `interleaved` are the
 * items of one problem. */
static void
rotary(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data)
{
    (void)data;
    enum { FLAG = 5, OPERANDS = 7 };
    rp_rotary p = {.L = dims[1], .D = dims[2], .h = dims[3]};
    rp_array *places[OPERANDS] = {&p.x,         &p.position, &p.high, &p.low,
                                  &p.magnitude, NULL,        &p.out};
    const ptrdiff_t *core = steps + OPERANDS;
    if (p.h > p.D / 2) {
        rp_loop_error("rotary: x must have at least 2h columns for h frequencies");
        return;
    }
    if (p.L == 0 || p.D == 0)
        return; /* however many items there are of nothing */
    for (int i = 0; i < OPERANDS; i++) {
        if (places[i] == NULL)
            continue;
        places[i]->row = *core++;
        places[i]->col = places[i] == &p.position ? 0 : *core++;
    }
    for (int64_t n = 0; n < dims[0]; n += p.N) {
        const char *flag = args[FLAG] + n * steps[FLAG];
        p.interleaved = *(const int64_t *)flag != 0;
        for (p.N = 1; n + p.N < dims[0]; p.N++)
            if (p.interleaved != (*(const int64_t *)(flag + p.N * steps[FLAG]) != 0))
                break;
        rp_status status = rotary_items(&p, places, OPERANDS, args, steps, n);
        rp_loop_status(status);
        if (status != RP_OK)
            return;
    }
}

#endif
