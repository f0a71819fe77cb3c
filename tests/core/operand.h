/* operand.h: an array of a problem with the memory that it lies in: any strides, any number
 * type, and the numbers in it. */
#ifndef RELPOS_TESTS_CORE_OPERAND_H
#define RELPOS_TESTS_CORE_OPERAND_H

#include <math.h>
#include <string.h>

#include "../../csrc/isa/isa.h"
#include "memory.h"

enum { BATCH, HEADS, ROWS, COLUMNS, AXES };
enum {
    REPEAT_BATCH = 1 << BATCH,
    REPEAT_HEADS = 1 << HEADS,
    REPEAT_ROWS = 1 << ROWS,
    REPEAT_COLUMNS = 1 << COLUMNS,
    REPEAT_ANY = 15,
};
/* What is stored: numbers of the problem's type, doubles, floats, truth values, integers. */
typedef enum { NUMBERS, DOUBLES, FLOATS, TRUTHS, INTEGERS } storage_t;
/* How a result comes to be: written; added to numbers, or to zeros. */
enum { READ, WRITTEN, ADDED, ADDED_TO_ZEROS };

typedef struct {
    const char *name;
    rp_array *array;
    int64_t n[AXES];
    storage_t storage;
    int item;    /* bytes of an item; 0: as storage and kind say */
    int kind;    /* of numbers: RP_OWN, or 16 bits */
    int repeat;  /* axes that have one item only */
    int in_rows; /* rows lie side by side, batch items apart */
    int result;
    block_t block, offsets;
    /* Of a result: its bytes before the call and after another call; what its items should
     * become, and how far off they may be. */
    char *before, *after;
    double *want, *tolerance;
} operand_t;

enum {
    MOST_OPERANDS = 64,
    MOST_VECTORS = 12,
    SLOTS = sizeof(rp_gradients) / sizeof(void *)
};
enum { ATTENTION, GRAPH };
/* Numbers of operands: of order 1; logits that spread by hundreds; biases that fall with the
 * distance until whole tiles weigh nothing; sinks beside which keys weigh nothing; infinities
 * and NaN that no visible pair reads, and that some read; any bits at all. */
typedef enum { PLAIN, SPREAD, FALLING, SINKS, INFINITE, SEEN, ANY_BITS } numbers_t;

/* A problem, and all memory that it refers to. */
typedef struct {
    source_t s;
    int dtype, kind, is_backward;
    numbers_t numbers;
    int mixed;     /* a kind of 16 bits that most arrays have, or RP_OWN */
    int is_even;   /* batch items lie evenly apart, as those of a loop do */
    double slopes; /* sizes of all finite dS of a backward, and what they may be off */
    rp_gradients g;
    rp_graph_gradients graph;
    operand_t operands[MOST_OPERANDS];
    int count;
    unsigned char slot[SLOTS]; /* one more than the operand of an array of g; 0: none */
    block_t vectors[MOST_VECTORS];
    int vector_count;
} case_t;

static operand_t *
operand_of(case_t *c, const rp_array *array)
{
    ptrdiff_t slot =
        ((const char *)array - (const char *)&c->g) / (ptrdiff_t)sizeof(void *);
    int index = c->slot[slot];
    return index > 0 ? &c->operands[index - 1] : NULL;
}

static char *
item_at(const operand_t *o, int64_t b, int64_t h, int64_t r, int64_t column)
{
    const rp_array *a = o->array;
    ptrdiff_t batch = a->batch ? a->batch[b] : 0;
    return a->data + batch + h * a->head + r * a->row + column * a->col;
}

/* ---- numbers -------------------------------------------------------------------------- */

static double
half_number(uint16_t x)
{
    int exponent = x >> 10 & 31, digits = x & 1023;
    double size = exponent ? ldexp(1024 + digits, exponent - 25) : ldexp(digits, -24);
    if (exponent == 31)
        size = digits ? NAN : INFINITY;
    return x >> 15 ? -size : size;
}

static double
number_at(const operand_t *o, const char *at)
{
    uint16_t bits;
    uint32_t word;
    float x;
    double y;
    switch (o->item) {
    case 1:
        return *at != 0;
    case 2:
        memcpy(&bits, at, sizeof bits);
        if (o->kind == RP_F16)
            return half_number(bits);
        word = (uint32_t)bits << 16;
        memcpy(&x, &word, sizeof x);
        return x;
    case 4:
        memcpy(&x, at, sizeof x);
        return x;
    default:
        memcpy(&y, at, sizeof y);
        return y;
    }
}

/* Writes a number of up to 3 digits of binary (16 bits) or rounded (others). */
static void
put_number(const operand_t *o, char *at, double x)
{
    float narrow = (float)x;
    uint32_t word;
    uint16_t bits;
    if (o->item == 8)
        memcpy(at, &x, sizeof x);
    else if (o->item == 4)
        memcpy(at, &narrow, sizeof narrow);
    else if (o->item == 1)
        *at = x != 0;
    else {
        memcpy(&word, &narrow, sizeof word);
        bits = (uint16_t)(word >> 16);
        if (o->kind == RP_F16) {
            int exponent = (int)(word >> 23 & 255) - 112;
            bits = (uint16_t)((word >> 16 & 0x8000) | (exponent >= 31 ? 0x7c00 : 0) |
                              (x != x ? 0x200 : 0));
            if (exponent > 0 && exponent < 31)
                bits |= (uint16_t)(exponent << 10 | (word >> 13 & 1023));
        }
        memcpy(at, &bits, sizeof bits);
    }
}

static int64_t
integer_at(const operand_t *o, const char *at)
{
    int8_t a;
    int16_t b;
    int32_t c;
    int64_t d;
    switch (o->item) {
    case 1:
        memcpy(&a, at, sizeof a);
        return a;
    case 2:
        memcpy(&b, at, sizeof b);
        return b;
    case 4:
        memcpy(&c, at, sizeof c);
        return c;
    default:
        memcpy(&d, at, sizeof d);
        return d;
    }
}

static void
put_integer(const operand_t *o, char *at, int64_t x)
{
    const int8_t a = (int8_t)x;
    const int16_t b = (int16_t)x;
    const int32_t c = (int32_t)x;
    const void *from = o->item == 1   ? (const void *)&a
                       : o->item == 2 ? (const void *)&b
                       : o->item == 4 ? (const void *)&c
                                      : (const void *)&x;
    memcpy(at, from, (size_t)o->item);
}

/* The largest number of an operand, which becomes infinite where it is multiplied. */
static double
largest_number(const operand_t *o)
{
    if (o->item == 8)
        return 0x1.fep1023;
    return o->kind == RP_F16 ? 65504 : 0x1.fep127;
}

/* An infinity, a NaN, or one of the smallest and largest numbers. */
static double
draw_odd(source_t *s, const operand_t *o)
{
    const double most = largest_number(o);
    const double odd[] = {INFINITY, -INFINITY, NAN, 0x1p-126, most, -most};
    return odd[draw(s) % 6];
}

static void
fill_numbers(case_t *c, const operand_t *o)
{
    source_t *s = &c->s;
    size_t count = o->block.bytes / (size_t)o->item;
    for (size_t k = 0; k < count; k++) {
        char *at = o->block.data + k * (size_t)o->item;
        uint64_t x = draw(s);
        if (o->storage == TRUTHS)
            *at = (x & 3) != 0;
        else if (c->numbers == ANY_BITS && x >> 60 == 0)
            memcpy(at, &(uint64_t){draw(s)}, (size_t)o->item);
        else if (c->numbers == ANY_BITS && x >> 60 == 1)
            put_number(o, at, draw_odd(s, o));
        else
            put_number(o, at, (double)(int64_t)x * 0x1p-63);
    }
}

/* ---- layout --------------------------------------------------------------------------- */

/* How an array lies in its block. */
typedef struct {
    ptrdiff_t stride[AXES], low, high;
    int64_t slots;    /* batch items that there are */
    int is_scattered; /* batch items lie anywhere, several at one place */
    int is_empty;
} layout_t;

static int64_t
axis_length(const operand_t *o, const layout_t *l, int axis)
{
    return axis == BATCH ? l->slots : o->n[axis];
}

/* Strides from the innermost axis out, with gaps, and negative. */
static void
choose_strides(source_t *s, const operand_t *o, layout_t *l)
{
    int order[AXES] = {BATCH, HEADS, ROWS, COLUMNS};
    int is_odd = !o->in_rows && once_in(s, 2);
    ptrdiff_t step = o->item;
    if (is_odd && pick(s, 2))
        for (int k = AXES - 1; k > 0; k--) {
            int other = (int)pick(s, k + 1), moved = order[k];
            order[k] = order[other];
            order[other] = moved;
        }
    for (int k = AXES - 1; k >= 0; k--) {
        int axis = order[k];
        int64_t n = axis_length(o, l, axis);
        l->stride[axis] = 0;
        if (o->repeat >> axis & 1)
            continue;
        if (is_odd && once_in(s, 3))
            step += o->item * pick(s, 4);
        l->stride[axis] = step;
        if (is_odd && axis == COLUMNS && once_in(s, 6))
            l->stride[axis] *= 2;
        if (is_odd && once_in(s, 4))
            l->stride[axis] = -l->stride[axis];
        step = (ptrdiff_t)llabs(l->stride[axis]) * (n > 0 ? n : 1);
    }
}

static void
measure_layout(source_t *s, const operand_t *o, layout_t *l)
{
    for (int axis = 0; axis < AXES; axis++) {
        int64_t n = axis_length(o, l, axis);
        ptrdiff_t far = n > 0 ? l->stride[axis] * (n - 1) : 0;
        l->is_empty |= o->n[axis] == 0;
        l->low += far < 0 ? far : 0;
        l->high += far > 0 ? far : 0;
        if (n <= 1 && axis != BATCH && !o->in_rows && once_in(s, 2))
            l->stride[axis] = 0; /* of one item any stride will do */
    }
}

/* The offsets of batch items. NULL stands for zeros; no result moves without them. */
static void
lay_batch(case_t *c, operand_t *o, const layout_t *l)
{
    source_t *s = &c->s;
    int64_t B = o->n[BATCH];
    if (B <= 1 || (l->stride[BATCH] == 0 && (o->result != READ || once_in(s, 2))))
        return;
    o->offsets = take_block(s, (size_t)B * sizeof(ptrdiff_t));
    ptrdiff_t *offsets = (ptrdiff_t *)(void *)o->offsets.data;
    for (int64_t b = 0; b < B; b++)
        offsets[b] = l->stride[BATCH] * (l->is_scattered ? pick(s, l->slots) : b);
    o->array->batch = offsets;
}

/* Adds an operand, with numbers of its kind, to the problem. */
static operand_t *
lay(case_t *c, operand_t asked)
{
    source_t *s = &c->s;
    operand_t *o = &c->operands[c->count++];
    layout_t l = {.slots = asked.n[BATCH]};
    *o = asked;
    if (o->item == 0 && o->storage == NUMBERS)
        o->item = o->kind != RP_OWN ? 2 : c->dtype == RP_F32 ? 4 : 8;
    else if (o->item == 0)
        o->item = o->storage == TRUTHS ? 1 : o->storage == FLOATS ? 4 : 8;
    if (o->result == READ && !o->in_rows && !c->is_even &&
        !(o->repeat & REPEAT_BATCH) && l.slots > 1)
        l.is_scattered = once_in(s, 8);
    if (l.is_scattered)
        l.slots = between(s, 1, l.slots);
    choose_strides(s, o, &l);
    measure_layout(s, o, &l);
    o->block = take_block(s, l.is_empty ? 0 : (size_t)(l.high - l.low + o->item));
    *o->array = (rp_array){.data = o->block.data + (l.is_empty ? 0 : -l.low),
                           .head = l.stride[HEADS],
                           .row = l.stride[ROWS],
                           .col = l.stride[COLUMNS],
                           .kind = o->kind};
    lay_batch(c, o, &l);
    ptrdiff_t slot = ((char *)o->array - (char *)&c->g) / (ptrdiff_t)sizeof(void *);
    c->slot[slot] = (unsigned char)c->count;
    if (o->storage != INTEGERS)
        fill_numbers(c, o);
    return o;
}

static int64_t *
lay_vector(case_t *c, int64_t n)
{
    block_t *block = &c->vectors[c->vector_count++];
    *block = take_block(&c->s, (size_t)n * sizeof(int64_t));
    return (int64_t *)(void *)block->data;
}

static void
free_case(case_t *c)
{
    for (int k = 0; k < c->count; k++) {
        operand_t *o = &c->operands[k];
        give_block(&o->block);
        give_block(&o->offsets);
        free(o->before);
        free(o->after);
        free(o->want);
        free(o->tolerance);
    }
    for (int k = 0; k < c->vector_count; k++)
        give_block(&c->vectors[k]);
}

#endif
