/* classes.h: what a mask, and blocks of keys, show and hide of the pairs of a query tile, for
 * RP_CLASS_KEYS keys at a time. */
#ifndef RELPOS_ATTENTION_TILES_CLASSES_H
#define RELPOS_ATTENTION_TILES_CLASSES_H

#include "../../ground/lines.h"
#include "../../ground/micro.h"
#include "tile.h"

enum {
    RP_CLASS_KEYS = 32, /* keys of a class: whole panels */
    RP_GAP_CLASSES = 2, /* hidden ones that end a part of a tile */
    RP_SHOWS = 1,       /* a pair that the mask leaves as it is, */
    RP_HIDES = 2,       /* one that it hides; both: also one that it adds to */
    RP_BLOCK_SHOWS = 4, /* a pair of a block that is shown, */
    RP_BLOCK_HIDES = 8, /* and one of a block that is hidden, until both are joined */
};

/* ---- the mask ------------------------------------------------------------------------ */

/* Looks whether a mask of numbers shows, hides or changes the pairs at `at`, `step` apart.
 * */
#define CLASS_OF_RUN(type)                                                             \
    for (int64_t n = 0; n < count; n++) {                                              \
        type x = *(const type *)(at + n * step);                                       \
        shows |= x == 0;                                                               \
        hides |= x == -(type)INFINITY;                                                 \
        adds |= (x != 0) & (x != -(type)INFINITY);                                     \
    }

RP_INLINE int
class_of_run(int type, const char *at, ptrdiff_t step, int64_t count)
{
    int shows = 0, hides = 0, adds = 0;
    if (type == RP_MASK_F32)
        CLASS_OF_RUN(float)
    else if (type == RP_MASK_F64)
        CLASS_OF_RUN(double)
    else
        for (int64_t n = 0; n < count; n++) {
            int x = *(const unsigned char *)(at + n * step) != 0;
            shows |= x;
            hides |= !x;
        }
    return adds ? RP_SHOWS | RP_HIDES : shows * RP_SHOWS | hides * RP_HIDES;
}

#undef CLASS_OF_RUN

/* One class of truth values side by side, and what was met in it: any, and none. */
typedef signed char truths_t
    __attribute__((vector_size(RP_CLASS_KEYS), aligned(1), may_alias));

RP_INLINE int
is_any(const truths_t *x)
{
    uint64_t words[RP_CLASS_KEYS / 8], any = 0;
    memcpy(words, x, sizeof words);
    for (int n = 0; n < RP_CLASS_KEYS / 8; n++)
        any |= words[n];
    return any != 0;
}

/* Classes of `rows` rows of truth values side by side, `step` apart. A row is read along
 * its bytes, as memory likes it; what was met waits in the first-level cache. */
static void
class_truths(const char *at, ptrdiff_t step, int64_t rows, int64_t blocks,
             unsigned char *classes)
{
    enum { RUN = 64 };
    truths_t any[RUN], none[RUN];
    for (int64_t first = 0; first < blocks; first += RUN) {
        int count = (int)RP_MIN(RUN, blocks - first);
        memset(any, 0, sizeof any);
        memset(none, 0, sizeof none);
        for (int64_t i = 0; i < rows; i++) {
            const char *row = at + i * step + first * RP_CLASS_KEYS;
            for (int n = 0; n < count; n++) {
                truths_t x = *(const truths_t *)(row + n * RP_CLASS_KEYS);
                any[n] |= x;
                none[n] |= x == 0;
            }
        }
        for (int n = 0; n < count; n++)
            classes[first + n] = (unsigned char)(is_any(any + n) * RP_SHOWS |
                                                 is_any(none + n) * RP_HIDES);
    }
}

/* Adds one row of the mask to the classes of its blocks; a class that is both already stays
 * so. */
RP_INLINE void
class_row(int type, const char *at, ptrdiff_t step, int64_t blocks,
          unsigned char *classes)
{
    for (int64_t n = 0; n < blocks; n++, at += RP_CLASS_KEYS * step)
        if (classes[n] != (RP_SHOWS | RP_HIDES))
            classes[n] |= (unsigned char)class_of_run(type, at, step, RP_CLASS_KEYS);
}

/* Adds one row of a mask of 16 bits to the classes of its blocks, and of what is left
 * behind them. */
static void
class_wide_row(const rp_array *mask, const char *at, int64_t count,
               unsigned char *classes)
{
    T numbers[RP_CLASS_KEYS];
    for (int64_t n = 0; n < count; n += RP_CLASS_KEYS, classes++) {
        int64_t some = RP_MIN(RP_CLASS_KEYS, count - n);
        widen(numbers, at + n * mask->col, mask->col, RP_KIND(mask), some);
        *classes |= (unsigned char)class_of_run(RP_MASK_F32, (const char *)numbers,
                                                sizeof(float), some);
    }
}

/* Finds the classes of the rows [i0, end) of a mask, which differ if it has a row stride. Where
 * numbers lie side by side, `class_row` is called with a constant step: the compiler then takes
 * many pairs at once. */
static void
class_mask(const rp_attention *p, int64_t b, int64_t h, int64_t i0, int64_t end,
           unsigned char *classes)
{
    const rp_array *mask = &p->sight.mask;
    const int type = p->sight.mask_type;
    const ptrdiff_t step = mask->col;
    int64_t whole = p->Lk / RP_CLASS_KEYS, done = whole * RP_CLASS_KEYS;
    int truths = type == RP_MASK_BOOL && step == 1;
    end = mask->row ? end : i0 + 1;
    /* Truth values side by side have a loop of their own, over all rows; the loop below
     * then adds the keys behind the last whole block only. */
    if (truths)
        class_truths(rp_at(mask, b, h, i0), mask->row, end - i0, whole, classes);
    for (int64_t i = i0; i < end; i++) {
        const char *row = rp_at(mask, b, h, i);
        if (RP_KIND(mask) != RP_OWN) {
            class_wide_row(mask, row, p->Lk, classes);
            continue;
        }
        if (type == RP_MASK_F32 && step == sizeof(float))
            class_row(RP_MASK_F32, row, sizeof(float), whole, classes);
        else if (type == RP_MASK_F64 && step == sizeof(double))
            class_row(RP_MASK_F64, row, sizeof(double), whole, classes);
        else if (!truths)
            class_row(type, row, step, whole, classes);
        if (done < p->Lk)
            classes[whole] |= (unsigned char)class_of_run(type, row + done * step, step,
                                                          p->Lk - done);
    }
}

/* ---- blocks of keys ------------------------------------------------------------------ */

/* Adds what a row of blocks shows and hides to the classes that its keys lie in. */
static void
class_row_of_blocks(const rp_attention *p, const char *blocks, unsigned char *classes)
{
    const ptrdiff_t step = p->sight.key_blocks.col;
    const int64_t size = p->sight.block_keys;
    for (int64_t begin = 0; begin < p->Lk; begin += size, blocks += step) {
        int64_t last = (RP_MIN(begin + size, p->Lk) - 1) / RP_CLASS_KEYS;
        for (int64_t n = begin / RP_CLASS_KEYS; n <= last; n++)
            classes[n] |= *blocks ? RP_BLOCK_SHOWS : RP_BLOCK_HIDES;
    }
}

/* Joins the classes of the rows [i0, end) of a mask, RP_SHOWS alone where there is none, with
 * those of the blocks that these rows meet: a pair is shown where both show it. */
static void
class_blocks(const rp_attention *p, int64_t b, int64_t h, int64_t i0, int64_t end,
             int64_t count, unsigned char *classes)
{
    const int64_t size = p->sight.block_queries;
    end = p->sight.key_blocks.row ? end : i0 + 1;
    for (int64_t i = i0; i < end; i = (i / size + 1) * size)
        class_row_of_blocks(p, rp_blocks_of(p, b, h, i), classes);
    for (int64_t n = 0; n < count; n++) {
        int x = classes[n];
        int shows = (x & RP_SHOWS) && (x & RP_BLOCK_SHOWS);
        int hides = (x & RP_HIDES) || (x & RP_BLOCK_HIDES);
        classes[n] = (unsigned char)(shows * RP_SHOWS | hides * RP_HIDES);
    }
}

#endif
