/* sinusoid.h: sine and cosine of position * frequency, right to the last place.
 *
 * One double is not enough for the angle: at position 2^24 its rounding alone is 2e-9.
 * The frequency comes as high + low, the product keeps its rounding error, and the
 * reduction by pi/2 keeps both, so that the reduced angle has an absolute error near
 * 2^-79. Everything is in double, whatever T; T only says how results are stored.
 *
 * The one error-free transform that contraction could spoil, the product, is an explicit
 * fma where the hardware has one; elsewhere there is nothing to contract. The exact
 * steps of the reduction stay exact when contracted, and the rest gains by it. */
#ifndef RELPOS_ENCODINGS_SINUSOID_H
#define RELPOS_ENCODINGS_SINUSOID_H

#include "../ground/jobs.h"
#include "../ground/vector.h"

typedef double DV __attribute__((vector_size(RP_VECTOR_BYTES)));
typedef int64_t DM __attribute__((vector_size(RP_VECTOR_BYTES)));
#define DL ((int)(RP_VECTOR_BYTES / sizeof(double)))

/* Frequencies per block: its four buffers of double are 2 KiB, and stay in L1. DV, DL and
 * ANGLES also serve rotary.h. */
#define ANGLES 64
/* Angles up to here are reduced in three parts: the multiple of pi/2 has 26 bits, so its
 * products with the 27 and 23 bits of the first two are exact. */
#define REDUCIBLE 0x1p26

typedef struct {
    double high[ANGLES], low[ANGLES]; /* of the frequencies */
    double sine[ANGLES], cosine[ANGLES];
} angles __attribute__((aligned(64)));

/* a * b - product, exactly, for product = a * b rounded */
RP_INLINE DV
product_error(double a, DV b, DV product)
{
    DV error;
#if RP_HAS_FMA || defined(__FP_FAST_FMA)
    for (int i = 0; i < DL; i++)
        error[i] = __builtin_fma(a, b[i], -product[i]);
#else
    /* Dekker: halves of 26 bits, whose products are exact */
    const double split = 0x1p27 + 1;
    double wide = split * a, a_high = wide - (wide - a), a_low = a - a_high;
    DV b_wide = split * b, b_high = b_wide - (b_wide - b), b_low = b - b_high;
    error = a_low * b_low -
            (((product - a_high * b_high) - a_low * b_high) - a_high * b_low);
#endif
    return error;
}

/* Sine and cosine of high + low for |high| <= pi/4, low its rounding error. Minimax in
 * z = high^2 (Remez, 200 bits): relative errors 2^-57.9 and 2^-63.9 before rounding. */
RP_INLINE void
sincos_reduced(DV high, DV low, DV *sine, DV *cosine)
{
    DV z = high * high, half = 0.5 * z, one_less = 1 - half;
    DV p = 0x1.5d8fd18d01926p-33 + (DV){0};
    p = p * z - 0x1.ae5e5a911c399p-26;
    p = p * z + 0x1.71de3567d2be7p-19;
    p = p * z - 0x1.a01a019bfdee3p-13;
    p = p * z + 0x1.111111110f7d0p-7;
    p = p * z - 0x1.5555555555548p-3;
    DV q = -0x1.8fa4997f7169fp-37 + (DV){0};
    q = q * z + 0x1.1ee9d7b3e0240p-29;
    q = q * z - 0x1.27e4f7eac3451p-22;
    q = q * z + 0x1.a01a019c844d5p-16;
    q = q * z - 0x1.6c16c16c14f91p-10;
    q = q * z + 0x1.555555555554bp-5;
    *sine = high + (high * (z * p) + low * one_less);
    *cosine = one_less + (((1 - one_less) - half) + (z * (z * q) - high * low));
}

/* angle + error - n * pi/2 as high + low, and n mod 2^52 in *quarter */
RP_INLINE void
reduce(DV angle, DV error, DV *high, DV *low, DM *quarter)
{
    const double round = 0x1.8p52; /* adding it rounds to an integer, in the low bits */
    DV shifted = angle * 0x1.45f306dc9c883p-1 + round, n = shifted - round;
    *quarter = (DM)shifted;
    /* pi/2 in 27 + 23 + 53 bits; the first two differences are exact */
    DV head = (angle - n * 0x1.921fb54p+0) - n * 0x1.10b46p-30;
    DV tail = error - n * 0x1.1a62633145c07p-54;
    DV sum = head + tail, part = sum - head; /* Knuth's sum: either may be larger */
    *high = sum;
    *low = (head - (sum - part)) + (tail - part);
}

/* The first `count` of a block, and what fills up their last vector; true when an angle is
 * beyond the reduction (or is not a number). */
static int
sincos_block(double position, angles *block, int count)
{
    DM far = {0};
    const DM magnitude = INT64_MAX + (DM){0}, sign = INT64_MIN + (DM){0};
    for (int i = 0; i < count; i += DL) {
        DV frequency = *(DV *)(block->high + i), high, low, sine, cosine;
        DV angle = position * frequency;
        DV error = product_error(position, frequency, angle);
        error += position * *(DV *)(block->low + i);
        far |= ~((DV)((DM)angle & magnitude) < REDUCIBLE);
        DM quarter;
        reduce(angle, error, &high, &low, &quarter);
        sincos_reduced(high, low, &sine, &cosine);
        DM swap = -(quarter & 1), flip = (DM)sine ^ (DM)cosine;
        flip &= swap;
        *(DM *)(block->sine + i) = ((DM)sine ^ flip) ^ ((quarter << 62) & sign);
        *(DM *)(block->cosine + i) =
            ((DM)cosine ^ flip) ^ (((quarter + 1) << 62) & sign);
    }
    int64_t any = 0;
    for (int i = 0; i < DL; i++)
        any |= far[i];
    return any != 0;
}

/* Turns the angle of (*sine, *cosine) by the exact product a * b. */
static void
turn(double a, double b, double *sine, double *cosine)
{
    double parts[2] = {a * b, fma(a, b, -(a * b))};
    for (int i = 0; i < 2; i++) {
        double s = sin(parts[i]), c = cos(parts[i]), t = *sine * c + *cosine * s;
        *cosine = *cosine * c - *sine * s;
        *sine = t;
    }
}

/* The angles beyond the reduction, one by one through libm, which is exact for any
 * double: the four parts of the product are turned through one after the other. */
static void
sincos_far(double position, angles *block, int count)
{
    for (int i = 0; i < count; i++) {
        if (fabs(position * block->high[i]) < REDUCIBLE)
            continue;
        block->sine[i] = 0;
        block->cosine[i] = 1;
        turn(position, block->high[i], &block->sine[i], &block->cosine[i]);
        turn(position, block->low[i], &block->sine[i], &block->cosine[i]);
    }
}

/* Frequencies past the last one are 0: their angles are computed and dropped. */
RP_INLINE void
load_frequencies(double *to, const char *from, ptrdiff_t step, int count)
{
    for (int i = 0; i < ANGLES; i++)
        to[i] = 0;
    for (int i = 0; i < count; i++)
        to[i] = *(const double *)(from + i * step);
}

/* Sines and cosines to their places; the two layouts in use get loops of their own,
 * which compilers turn into vector stores. */
static void
store_angles(const angles *block, char *sine, ptrdiff_t sine_step, char *cosine,
             ptrdiff_t cosine_step, int count)
{
    const ptrdiff_t size = sizeof(T);
    if (sine_step == size && cosine_step == size) {
        for (int i = 0; i < count; i++)
            ((T *)sine)[i] = (T)block->sine[i];
        for (int i = 0; i < count; i++)
            ((T *)cosine)[i] = (T)block->cosine[i];
        return;
    }
    if (sine_step == 2 * size && cosine_step == 2 * size && cosine == sine + size) {
        T *pairs = (T *)sine;
        for (int i = 0; i < count; i++) {
            pairs[2 * i] = (T)block->sine[i];
            pairs[2 * i + 1] = (T)block->cosine[i];
        }
        return;
    }
    for (int i = 0; i < count; i++) {
        *(T *)(sine + i * sine_step) = (T)block->sine[i];
        *(T *)(cosine + i * cosine_step) = (T)block->cosine[i];
    }
}

static void
sinusoidal_rows(void *context, int64_t unit, int worker)
{
    (void)worker;
    const rp_job *job = context;
    const ptrdiff_t *steps = job->steps;
    int64_t h = job->dims[1], from = unit * job->block;
    int64_t last = RP_MIN(from + job->block, job->rows);
    angles block;
    for (int64_t first = 0; first < h; first += ANGLES) {
        int count = (int)RP_MIN(ANGLES, h - first);
        for (int64_t row = from; row < last; row++) {
            double position = *(const double *)rp_operand(job, 0, row);
            if (row == from || steps[1] || steps[2]) {
                load_frequencies(block.high, rp_operand(job, 1, row) + first * steps[5],
                                 steps[5], count);
                load_frequencies(block.low, rp_operand(job, 2, row) + first * steps[6],
                                 steps[6], count);
            }
            if (sincos_block(position, &block, count))
                sincos_far(position, &block, count);
            store_angles(&block, rp_operand(job, 3, row) + first * steps[7], steps[7],
                         rp_operand(job, 4, row) + first * steps[8], steps[8], count);
        }
    }
}

static void
sinusoidal(char **args, const ptrdiff_t *dims, const ptrdiff_t *steps, void *data)
{
    (void)data;
    rp_job job = {.args = args, .dims = dims, .steps = steps};
    rp_run_rows(&job, dims[0], dims[1], sinusoidal_rows);
}

#endif
