/* plain_queries.c: attention of a few queries over long rows of keys by loops that do nothing
 * else: no masks, no strides, no prefetch, all logits of a head at once. plain_loops.py
 * compiles it for this CPU. */
#include <math.h>

#include "plain_softmax.h"

enum { AT_ONCE = 6, MOST = 16, PIECE = 64, KEYS = 8192 };

/* s[r][n] = x[r] . line n for `rows` lines x and PIECE lines, two at a time. */
static inline __attribute__((always_inline)) void
dot(const int rows, const float *x, const float *line, float *s, int64_t keys)
{
    for (int64_t n = 0; n < PIECE; n += 2, line += 2 * DIM) {
        vector sums[AT_ONCE][2] = {{{0}}};
#pragma GCC unroll 16
        for (int c = 0; c < VECTORS; c++)
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < 2; i++)
                    sums[r][i] += ((const loaded *)(x + r * DIM))[c] *
                                  ((const loaded *)(line + i * DIM))[c];
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < 2; i++) {
                float total = 0;
                for (int l = 0; l < LANES; l++)
                    total += sums[r][i][l];
                s[r * keys + n + i] = total;
            }
    }
}

/* out[r] += sum_n w[r][n] * line n over PIECE lines, two vectors of them at a time. */
static inline __attribute__((always_inline)) void
weigh(const int rows, const float *w, const float *line, float *out, int64_t keys)
{
    for (int c = 0; c < VECTORS; c += 2) {
        vector sums[AT_ONCE][2] = {{{0}}};
        for (int64_t n = 0; n < PIECE; n++)
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++)
                for (int i = 0; i < 2; i++)
                    sums[r][i] +=
                        w[r * keys + n] * ((const loaded *)(line + n * DIM))[c + i];
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < 2; i++)
                ((loaded *)(out + r * DIM))[c + i] += sums[r][i];
    }
}

/* f(rows, ..), in a loop of its own for each number of rows. */
#define BY_NUMBER(f, rows, ...)                                                        \
    switch (rows) {                                                                    \
    case 1:                                                                            \
        f(1, __VA_ARGS__);                                                             \
        break;                                                                         \
    case 2:                                                                            \
        f(2, __VA_ARGS__);                                                             \
        break;                                                                         \
    case 3:                                                                            \
        f(3, __VA_ARGS__);                                                             \
        break;                                                                         \
    case 4:                                                                            \
        f(4, __VA_ARGS__);                                                             \
        break;                                                                         \
    case 5:                                                                            \
        f(5, __VA_ARGS__);                                                             \
        break;                                                                         \
    default:                                                                           \
        f(6, __VA_ARGS__);                                                             \
    }

/* The logits of `rows` queries become weights. */
static void
soften_rows(float *s, int rows, int64_t keys)
{
    for (int r = 0; r < rows; r++, s += keys) {
        const float factor = 1 / soften(s, keys);
        for (int64_t j = 0; j < keys; j++)
            s[j] *= factor;
    }
}

/* Softmax attention of `queries`, up to MOST, of each item over its `keys`, a multiple of PIECE
 * up to KEYS. Up to AT_ONCE rows meet a piece at once, in even parts. */
void
attend_few(const float *query, const float *key, const float *value, float *out,
           int64_t items, int64_t queries, int64_t keys)
{
    static _Alignas(64) float s[MOST * KEYS], q[MOST * DIM];
    const int rows = (int)queries, parts = (rows + AT_ONCE - 1) / AT_ONCE;
    memset(out, 0, (size_t)(items * rows * DIM) * sizeof *out);
    for (; items > 0; items--, key += keys * DIM, value += keys * DIM) {
        for (int k = 0; k < rows * DIM; k++)
            q[k] = *query++ * (1.4426950408889634f / sqrtf(DIM));
        for (int64_t j = 0; j < keys; j += PIECE)
            for (int part = 0, r = 0, end; part < parts; part++, r = end) {
                end = (part + 1) * rows / parts;
                BY_NUMBER(dot, end - r, q + r * DIM, key + j * DIM, s + r * keys + j,
                          keys)
            }
        soften_rows(s, rows, keys);
        for (int64_t j = 0; j < keys; j += PIECE)
            for (int part = 0, r = 0, end; part < parts; part++, r = end) {
                end = (part + 1) * rows / parts;
                BY_NUMBER(weigh, end - r, s + r * keys + j, value + j * DIM,
                          out + r * DIM, keys)
            }
        out += rows * DIM;
    }
}
