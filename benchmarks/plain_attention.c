/* plain_attention.c: attention over short rows by loops that do nothing else: no masks, no
 * strides, no blocks of keys, one length. It tells what positions cost at the least.
 * plain_loops.py compiles it for this CPU. */
#include <math.h>

#include "plain_softmax.h"

enum { NR = 2 * LANES, MR = 4, LONGEST = 256, BAND = 2 * LONGEST + NR };

/* Columns side by side, NR lines to a panel: panels[line / NR][column][line % NR]. */
static void
pack_panels(const float *lines, int64_t count, float *panels)
{
    for (int64_t n = 0; n < count; n++)
        for (int64_t k = 0; k < DIM; k++)
            panels[n / NR * NR * DIM + k * NR + n % NR] = lines[n * DIM + k];
}

/* c = MR lines of a, lda apart, times depth rows of b, ldb apart; plus c if `add`. */
static inline __attribute__((always_inline)) void
multiply(const float *a, int64_t lda, const float *b, int64_t ldb, int64_t depth,
         int add, float *c, int64_t ldc)
{
    vector sums[MR][2] = {{{0}}};
    for (int64_t k = 0; k < depth; k++, b += ldb)
#pragma GCC unroll 8
        for (int i = 0; i < MR; i++) {
            sums[i][0] += a[i * lda + k] * ((const loaded *)b)[0];
            sums[i][1] += a[i * lda + k] * ((const loaded *)b)[1];
        }
#pragma GCC unroll 8
    for (int i = 0; i < MR; i++)
        for (int n = 0; n < 2; n++) {
            loaded *cell = (loaded *)(c + i * ldc) + n;
            if (add)
                sums[i][n] += *cell;
            *cell = sums[i][n];
        }
}

/* MR rows of out, from MR lines of queries at `row` of `length`. table, NULL or panels of
 * 2 * length lines: products with the line of their distance, which begins at -length + 1,
 * join those with keys; rel_value, NULL or such lines, joins the values. */
static void
attend_rows(const float *query, const float *keys, const float *value,
            const float *table, const float *rel_value, float *out, int64_t row,
            int64_t length)
{
    static _Alignas(64) float s[MR * BAND], q[MR * DIM];
    const int64_t first = length - MR - row, begin = first / NR * NR,
                  end = first + length + MR;
    const int64_t step = table ? BAND - 1 : BAND;
    float *weights = table ? s + first - begin + MR - 1 : s;
    for (int k = 0; k < MR * DIM; k++)
        q[k] = query[row * DIM + k] * (1.4426950408889634f / sqrtf(DIM));
    for (int64_t l = begin; table && l < end; l += NR)
        multiply(q, DIM, table + l * DIM, NR, DIM, 0, s + l - begin, BAND);
    for (int64_t n = 0; n < length; n += NR)
        multiply(q, DIM, keys + n * DIM, NR, DIM, table != NULL, weights + n, step);
    out += row * DIM;
    for (int i = 0; i < MR; i++) {
        float *line = weights + i * step, factor = 1 / soften(line, length);
        for (int64_t n = 0; n < length / LANES; n++)
            ((loaded *)line)[n] *= factor;
    }
    for (int n = 0; n < DIM; n += NR)
        multiply(weights, step, value + n, DIM, length, 0, out + n, DIM);
    if (!rel_value)
        return;
    for (int i = 0; i < MR; i++)
        for (int n = 0; n < MR; n++) /* outside of the row's distances */
            if (n != MR - 1 - i)
                s[i * BAND + first - begin + (n < MR - 1 - i ? n : length + n - 1)] = 0;
    for (int n = 0; n < DIM; n += NR)
        multiply(s + first - begin, BAND, rel_value + first * DIM + n, DIM,
                 length + MR - 1, 1, out + n, DIM);
}

/* Softmax attention of `heads` heads of `length` positions, a multiple of LANES up to LONGEST,
 * with tables of 2 * length - 1 lines for all heads, or NULL. */
void
attend(const float *query, const float *key, const float *value, const float *rel_key,
       const float *rel_value, float *out, int64_t heads, int64_t length)
{
    static _Alignas(64) float keys[LONGEST * DIM], table[2 * LONGEST * DIM];
    const int64_t size = length * DIM;
    if (rel_key)
        pack_panels(rel_key, 2 * length - 1, table);
    for (int64_t h = 0; h < heads; h++) {
        pack_panels(key + h * size, length, keys);
        for (int64_t row = 0; row < length; row += MR)
            attend_rows(query + h * size, keys, value + h * size,
                        rel_key ? table : NULL, rel_value, out + h * size, row, length);
    }
}
