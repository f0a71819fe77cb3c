/* vector.h: the ISA's vector of T and the few operations that C leaves out.
 *
 * V is a vector of VL lanes, VI the signed integers of the same width. Loads and stores
 * take any address aligned to T. Vectors never cross a call that is not inlined. */

typedef T FN(vec) __attribute__((vector_size(RP_VECTOR_BYTES)));
typedef T FN(uvec)
    __attribute__((vector_size(RP_VECTOR_BYTES), aligned(sizeof(T)), may_alias));
#define V FN(vec)
#define VL ((int)(RP_VECTOR_BYTES / sizeof(T)))

#if RP_IS_F32
typedef int32_t FN(ivec) __attribute__((vector_size(RP_VECTOR_BYTES)));
#define TI int32_t
#else
typedef int64_t FN(ivec) __attribute__((vector_size(RP_VECTOR_BYTES)));
#define TI int64_t
#endif
#define VI FN(ivec)

RP_INLINE V
FN(load)(const T *p)
{
    return *(const FN(uvec) *)p;
}

RP_INLINE void
FN(store)(T *p, V x)
{
    *(FN(uvec) *)p = x;
}

RP_INLINE V
FN(splat)(T x)
{
    return x - (V){0}; /* x - 0 keeps the sign of -0 */
}

/* where mask (all ones or zeros a lane): a, elsewhere b */
RP_INLINE V
FN(select)(VI mask, V a, V b)
{
    return (V)((mask & (VI)a) | (~mask & (VI)b));
}

/* Lane-wise larger; a NaN in b is kept, one in a is dropped. One instruction each on
 * gcc and clang, which C vector types have no operator for. */
RP_INLINE V
FN(vmax)(V a, V b)
{
    V r;
    for (int i = 0; i < VL; i++)
        r[i] = a[i] > b[i] ? a[i] : b[i];
    return r;
}

RP_INLINE T
FN(hsum)(V x)
{
    T s = x[0];
    for (int i = 1; i < VL; i++)
        s += x[i];
    return s;
}

RP_INLINE T
FN(hmax)(V x)
{
    T m = x[0];
    for (int i = 1; i < VL; i++)
        m = m > x[i] ? m : x[i];
    return m;
}
