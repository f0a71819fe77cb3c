/* widen.h: numbers of 16 bits become float32 as they are read, and results become 16 bits as
 * they are written: rounded to nearest even, to infinity where they are too large, NaN kept.
 * Behind it all is T. Objects of double read and write none. */
#ifndef RELPOS_GROUND_WIDEN_H
#define RELPOS_GROUND_WIDEN_H

#include "vector.h"

#if RP_IS_F32
#define RP_KIND(a) ((a)->kind)
#else
#define RP_KIND(a) ((void)(a), RP_OWN)
#endif

/* Bytes of a number. */
RP_INLINE ptrdiff_t
size_of(int kind)
{
    return kind == RP_OWN ? (ptrdiff_t)sizeof(T) : 2;
}

/* Whether the numbers of a row are T, side by side. */
RP_INLINE int
is_plain(const rp_array *a)
{
    return RP_KIND(a) == RP_OWN && a->col == (ptrdiff_t)sizeof(T);
}

#if RP_IS_F32

/* As many numbers of 16 bits as a vector has lanes; and the same bits, each in a lane. */
typedef uint16_t words_t __attribute__((vector_size(RP_VECTOR_BYTES / 2)));
typedef uint32_t bits_t __attribute__((vector_size(RP_VECTOR_BYTES)));

#ifndef RP_WORD_BITS /* which gcc makes of more instructions than there are */
#define RP_WORD_BITS(words) __builtin_convertvector(words, bits_t)
#endif

#ifdef RP_WIDEN_HALF
#define RP_NATIVE_HALF
#else

RP_INLINE bits_t
choose_bits(VI where, bits_t a, bits_t b)
{
    return ((bits_t)where & a) | (~(bits_t)where & b);
}

/* Exponents of 0 are those of multiples of 2^-24. */
RP_INLINE V
widen_half(words_t words)
{
    const bits_t x = __builtin_convertvector(words, bits_t), size = x & 0x7fff;
    const bits_t moved = (size << 13) + (112u << 23), ends = moved + (112u << 23);
    const bits_t small = (bits_t)(__builtin_convertvector((VI)size, V) * 0x1p-24f);
    bits_t y = choose_bits(size < 0x400, small, moved);
    return (V)(choose_bits(size >= 0x7c00, ends, y) | (x & 0x8000) << 16);
}

RP_INLINE words_t
narrow_half(V number)
{
    const bits_t x = (bits_t)number, size = x & 0x7fffffff;
    const bits_t infinite = {0};
    /* adding 1/2 rounds to multiples of 2^-24 */
    const bits_t small = (bits_t)((V)size + 0.5f) - (126u << 23);
    const bits_t moved = (size - (112u << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
    const bits_t nan = 0x7e00 | ((size >> 13) & 0x3ff);
    bits_t y = choose_bits(size < (113u << 23), small, moved);
    y = choose_bits(size >= (143u << 23), infinite + 0x7c00, y);
    y = choose_bits(size > 0x7f800000, nan, y);
    return __builtin_convertvector(y | (x >> 16 & 0x8000), words_t);
}

#define RP_WIDEN_HALF widen_half
#define RP_NARROW_HALF narrow_half
#endif

RP_INLINE V
widen_words(words_t words, int kind)
{
    if (kind == RP_F16)
        return (V)RP_WIDEN_HALF(words);
    return (V)((bits_t)RP_WORD_BITS(words) << 16);
}

RP_INLINE words_t
narrow_words(V number, int kind)
{
    const bits_t x = (bits_t)number;
    if (kind == RP_F16)
        return (words_t)RP_NARROW_HALF(number);
    const bits_t nan = (bits_t)(number != number);
    const bits_t rounded = (x + 0x7fff + ((x >> 16) & 1)) >> 16;
    return __builtin_convertvector((nan & (x >> 16 | 0x40)) | (~nan & rounded),
                                   words_t);
}

/* `count` words of a row, at most VL, and zeros. */
RP_INLINE words_t
gather_words(const char *from, ptrdiff_t step, ptrdiff_t count)
{
    uint16_t words[VL] = {0};
    words_t gathered;
    for (ptrdiff_t k = 0; k < count; k++)
        memcpy(words + k, from + k * step, sizeof *words);
    memcpy(&gathered, words, sizeof gathered);
    return gathered;
}

/* A number of 16 bits as T; out of line, as it is seldom needed. */
static RP_NOINLINE T
widen_number(const char *at, int kind)
{
    return widen_words(gather_words(at, 0, 1), kind)[0];
}

#endif

/* Vector of the numbers from k on of a row whose numbers lie side by side. */
RP_INLINE V
load_as(const char *row, ptrdiff_t k, int kind)
{
#if RP_IS_F32
    words_t words;
    if (kind != RP_OWN) {
        memcpy(&words, row + 2 * k, sizeof words);
        return widen_words(words, kind);
    }
#endif
    (void)kind;
    return load((const T *)row + k);
}

/* A number of any kind as T. */
RP_INLINE T
number_at(const char *at, int kind)
{
#if RP_IS_F32
    if (kind != RP_OWN)
        return widen_number(at, kind);
#endif
    (void)kind;
    return *(const T *)at;
}

/* `count` numbers of a row -> contiguous T. */
static void
widen(T *to, const char *from, ptrdiff_t step, int kind, ptrdiff_t count)
{
    ptrdiff_t k = 0;
    if (kind == RP_OWN && step == (ptrdiff_t)sizeof(T)) {
        memcpy(to, from, (size_t)count * sizeof(T));
        return;
    }
    for (; kind == RP_OWN && k < count; k++)
        to[k] = *(const T *)(from + k * step);
#if RP_IS_F32
    for (; step == 2 && k + VL <= count; k += VL)
        store(to + k, load_as(from, k, kind));
    for (; k < count; k += VL) {
        ptrdiff_t some = RP_MIN(VL, count - k);
        V x = widen_words(gather_words(from + k * step, step, some), kind);
        memcpy(to + k, &x, (size_t)some * sizeof(T));
    }
#endif
}

/* `count` numbers, contiguous T -> a row of a kind; rounds to 16 bits. */
static void
narrow(char *to, ptrdiff_t step, int kind, const T *from, ptrdiff_t count)
{
    ptrdiff_t k = 0;
    if (kind == RP_OWN && step == (ptrdiff_t)sizeof(T)) {
        memcpy(to, from, (size_t)count * sizeof(T));
        return;
    }
    for (; kind == RP_OWN && k < count; k++)
        *(T *)(to + k * step) = from[k];
#if RP_IS_F32
    for (; step == 2 && k + VL <= count; k += VL) {
        const words_t words = narrow_words(load(from + k), kind);
        memcpy(to + 2 * k, &words, sizeof words);
    }
    for (; k < count; k += VL) {
        ptrdiff_t some = RP_MIN(VL, count - k);
        V x = {0};
        uint16_t words[VL];
        memcpy(&x, from + k, (size_t)some * sizeof(T));
        words_t rounded = narrow_words(x, kind);
        memcpy(words, &rounded, sizeof words);
        if (step == 2)
            memcpy(to + 2 * k, words, (size_t)some * sizeof *words);
        else
            for (ptrdiff_t i = 0; i < some; i++)
                memcpy(to + (k + i) * step, words + i, sizeof *words);
    }
#endif
}

#endif
