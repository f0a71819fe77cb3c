"""Relative positions, grid labels, skewing, and the biases of each head."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from relpos.reference._xp import (
    ArrayLike,
    Floats,
    Ints,
    as_float64,
    as_plain,
    constant,
    namespace,
)
from relpos.reference.formula import Result, attention, offset_of

__all__ = ["alibi_bias", "alibi_bias_backward", "alibi_slopes", "deberta_bucket"]
__all__ += ["fire_attention", "fire_bias", "fire_bias_backward", "grid_labels"]
__all__ += ["kerple_bias", "kerple_bias_backward", "rel_shift", "relative_positions"]
__all__ += ["segment_ranges", "skew", "t5_bias", "t5_bias_backward", "t5_bucket"]
__all__ += ["unskew"]


def relative_positions(
    query_length: int,
    key_length: int | None = None,
    *,
    max_relative_position: int | None = None,
    query_offset: int = 0,
) -> Ints:
    """r(i, j) = j - (i + o), clipped to ±max_relative_position if that is given.

    Returns (Lq, Lk) int64.
    """
    key_length = query_length if key_length is None else key_length
    # int64 explicitly, since the default integer of NumPy may have another width.
    i = np.arange(query_length, dtype=np.int64)[:, None]
    j = np.arange(key_length, dtype=np.int64)[None, :]
    relative = j - (i + query_offset)
    if max_relative_position is None:
        return relative
    return np.clip(relative, -max_relative_position, max_relative_position)


def grid_labels(shape: Sequence[int]) -> Ints:
    """Row of a table with prod(2n - 1) rows for each pair of cells of an n-D grid.

    With x_j - x_i the vector from cell i to cell j (cells in row-major order), the
    label is that vector plus (n_1 - 1, n_2 - 1, ...), read as a mixed-radix number
    whose digits run over 2n - 1 values. Returns (N, N) int64 with N = prod(shape).
    """
    shape = tuple(shape)
    cells = np.indices(shape).reshape(len(shape), -1)
    label = np.zeros((cells.shape[1],) * 2, dtype=np.int64)
    # Each axis appends one digit. Its radix is 2n - 1, the count of differences of n
    # cells.
    for n, x in zip(shape, cells, strict=True):
        label = label * (2 * n - 1) + (x[None, :] - x[:, None] + n - 1)
    return label


def segment_ranges(
    query_segments: ArrayLike, key_segments: ArrayLike | None = None
) -> Ints:
    """Begin and end of the keys whose segment is query i's: (..., Lq, 2) int64.

    begin_i = |{j : key_j < query_i}| counts the keys of earlier segments, end_i =
    |{j : key_j ≤ query_i}| those and the query's own; query_segments (..., Lq) and
    key_segments (..., Lk) ascend along their last axis.
    """
    # Each query is compared with each key: (..., Lq, 1) and (..., 1, Lk).
    query = as_plain(query_segments)[..., :, None]
    key = query_segments if key_segments is None else key_segments
    key = as_plain(key)[..., None, :]
    # In ascending order, counts of smaller segments are indices where a segment begins.
    begin, end = np.sum(key < query, axis=-1), np.sum(key <= query, axis=-1)
    return np.stack([begin, end], axis=-1)


def rel_shift(x: ArrayLike) -> Floats:
    """Transformer-XL's relative shift: pad a zero column, re-read rows of Lk + 1 as Lq.

    x (..., Lq, Lk) -> the same shape. Element n of the result, counted row by row, is
    element Lq + n of the padded matrix. For Lq <= Lk that is
    y[i, j] = x[i, Lq - 1 - i + j] where j <= i + Lk - Lq, then one 0, and beyond it
    entries of row i + 1 that wrapped around: those mean nothing and are there because
    the shift moves memory. Hide them with a causal mask.
    """
    xp, x = as_float64(x)
    *batch, query_length, key_length = x.shape
    # Padded rows have Lk + 1 numbers and are read as rows of Lk, so that each later row
    # begins one column earlier.
    padded = xp.concatenate([xp.zeros((*batch, query_length, 1)), x], axis=-1)
    flat = padded.reshape(*batch, query_length * (key_length + 1))
    # Without the first Lq numbers the last query begins at column 0 of x.
    return flat[..., query_length:].reshape(x.shape)


def skew(x: ArrayLike, *, is_causal: bool) -> Floats:
    """Rearrange scores per distance, Q E_rᵀ, into scores per key.

    is_causal=True: the pad-reshape-slice of the Music Transformer, which is the same
    map as `rel_shift`, wrapped upper triangle included: (..., Lq, Lk) -> same shape.
    is_causal=False: x (..., Lq, R) holds all distances and
    y[i, j] = x[i, Lq - 1 - i + j], shape (..., Lq, R - Lq + 1); nothing wraps.
    """
    if is_causal:
        return rel_shift(x)
    _, x = as_float64(x)
    query_length, rows = x.shape[-2:]
    # Each later query begins one column earlier: its farthest key is one step farther
    # away.
    i = np.arange(query_length)[:, None]
    j = np.arange(rows - query_length + 1)[None, :]
    return x[..., i, query_length - 1 - i + j]


def unskew(x: ArrayLike, *, is_causal: bool) -> Floats:
    """The adjoint of `skew`: sum(skew(a) * b) = sum(a * unskew(b)) for all a, b.

    is_causal=True undoes the reading of memory: (..., Lq, Lk) -> same shape.
    is_causal=False: z[i, Lq - 1 - i + j] = x[i, j] and 0 elsewhere,
    (..., Lq, Lk) -> (..., Lq, Lk + Lq - 1).
    """
    xp, x = as_float64(x)
    *batch, query_length, key_length = x.shape
    if is_causal:
        flat = x.reshape(*batch, query_length * key_length)
        # The reverse of the reading in `rel_shift`: the Lq numbers that were cut are
        # zeros again.
        padded = xp.concatenate([xp.zeros((*batch, query_length)), flat], axis=-1)
        return padded.reshape(*batch, query_length, key_length + 1)[..., 1:]
    # A length of 0 for both would give -1 row.
    rows = max(query_length + key_length - 1, 0)
    i = np.arange(query_length)[:, None]
    j = np.arange(rows)[None, :] - (query_length - 1 - i)
    # A column of zeros, which the index key_length reads where a distance has no key.
    padded = xp.concatenate([x, xp.zeros((*batch, query_length, 1))], axis=-1)
    return padded[..., i, np.where((j >= 0) & (j < key_length), j, key_length)]


# ---- biases: offsets -----------------------------------------------------------------


def offsets(length: int) -> Ints:
    """r = -(length - 1), ..., length - 1: the columns of every bias here."""
    return np.arange(1 - length, length)


def offsets_of(grad_bias: ArrayLike) -> Ints:
    """The same, of a gradient (..., H, 2·length - 1)."""
    return offsets((np.shape(grad_bias)[-1] + 1) // 2)


# ---- ALiBi --------------------------------------------------------------------------


def alibi_slopes(num_heads: int, *, max_exponent: float = 8.0) -> Floats:
    """m_k = 2^(-max_exponent·k/n), k = 1..n, for n heads, n a power of two.

    Any other number takes the largest power of two below it, then every second slope of
    twice as many heads. Returns (H,).
    """
    n = 1
    while 2 * n <= num_heads:
        n *= 2

    def series(n: int) -> Floats:
        """Return the slopes of n heads, a power of two."""
        return 2.0 ** (-max_exponent * np.arange(1, n + 1) / n)

    # The slopes of 2n heads with odd k lie between those of n heads, so that none
    # repeats.
    return np.concatenate([series(n), series(2 * n)[0::2][: num_heads - n]])


def alibi_bias(num_heads_or_slopes: int | ArrayLike, length: int) -> Floats:
    """b[h, r] = -m_h·|r|. H or slopes (..., H) -> (..., H, 2·length - 1)."""
    if isinstance(num_heads_or_slopes, int | np.integer):
        num_heads_or_slopes = alibi_slopes(int(num_heads_or_slopes))
    xp, m = as_float64(num_heads_or_slopes)
    return -m[..., None] * xp.asarray(np.abs(offsets(length)))


def alibi_bias_backward(grad_bias: ArrayLike) -> Floats:
    """ḡm_h = -Σ_r ḡb[h, r]·|r|. (..., H, 2·length - 1) -> (..., H)."""
    grad = as_plain(grad_bias, dtype=np.float64)
    return -(grad * np.abs(offsets_of(grad))).sum(axis=-1)


# ---- T5 -----------------------------------------------------------------------------


def t5_bucket(
    relative_position: ArrayLike,
    *,
    bidirectional: bool = True,
    num_buckets: int = 32,
    max_distance: int = 128,
) -> Ints:
    """T5's bucket of each relative position (key - query), in fractions throughout.

    m buckets for each direction (for the past alone if not bidirectional), e = m // 2:
    distance n < e is bucket n, others e + ⌊(m - e)·log(n/e) / log(max_distance/e)⌋, at
    most m - 1. At least s steps means (n/e)^(m - e) >= (max_distance/e)^s.
    """
    # Half of the buckets are for keys ahead of the query, and they follow those behind.
    m = num_buckets // 2 if bidirectional else num_buckets
    e = m // 2

    def bucket(r: int) -> int:
        """Return the bucket of one relative position."""
        # Without the other direction every later key counts as distance 0.
        n = abs(r) if bidirectional else max(-r, 0)
        ahead = m if bidirectional and r > 0 else 0
        if n < e:
            return n + ahead
        # Fractions are exact, so that a distance on a boundary gets the bucket of the
        # formula.
        steps = 0
        if m - 1 - e == 0:  # one bucket is left, and e may be 0
            return e + ahead
        # n reaches the next step where (n/e)^(m-e) >= (max_distance/e)^(steps+1).
        reach, step = Fraction(n, e) ** (m - e), Fraction(max_distance, e)
        while steps < m - 1 - e and reach >= step ** (steps + 1):
            steps += 1
        return e + steps + ahead

    relative = as_plain(relative_position)
    buckets = [bucket(int(r)) for r in relative.ravel()]
    return np.array(buckets, dtype=np.int64).reshape(relative.shape)


def t5_bias(
    weight: ArrayLike,
    length: int,
    *,
    bidirectional: bool = True,
    max_distance: int = 128,
) -> Floats:
    """b[h, r] = weight[bucket(r), h]. (num_buckets, H) -> (H, 2·length - 1)."""
    _, weight = as_float64(weight)
    row = t5_bucket(
        offsets(length),
        bidirectional=bidirectional,
        num_buckets=len(weight),
        max_distance=max_distance,
    )
    # weight has one row for each bucket, as T5's embedding; biases have one for each
    # head.
    return weight[row].T


def t5_bias_backward(
    grad_bias: ArrayLike,
    num_buckets: int,
    *,
    bidirectional: bool = True,
    max_distance: int = 128,
) -> Floats:
    """ḡweight[t, h] = Σ ḡb[h, r] over the r of bucket t -> (..., num_buckets, H)."""
    grad = as_plain(grad_bias, dtype=np.float64)
    row = t5_bucket(
        offsets_of(grad),
        bidirectional=bidirectional,
        num_buckets=num_buckets,
        max_distance=max_distance,
    )
    is_row = row == np.arange(num_buckets)[:, None]
    return is_row.astype(np.float64) @ np.swapaxes(grad, -1, -2)


# ---- DeBERTa ------------------------------------------------------------------------


def deberta_bucket(
    relative_position: ArrayLike, *, bucket_size: int, max_position: int
) -> Ints:
    """DeBERTa's bucket of each relative position, in fractions throughout.

    m = bucket_size // 2: distance n <= m is bucket n, others
    m + ⌈(m - 1)·log(n/m) / log((max_position - 1)/m)⌉; the sign is kept. At most s
    steps means (n/m)^(m - 1) <= ((max_position - 1)/m)^s.
    """
    m = bucket_size // 2

    def bucket(n: int) -> int:
        """Return the bucket of one distance."""
        if n <= m:
            return n
        # A distance beyond m is at least one step, as the ceiling of a positive number.
        steps = 1
        while Fraction(n, m) ** (m - 1) > Fraction(max_position - 1, m) ** steps:
            steps += 1
        return m + steps

    relative = as_plain(relative_position)
    buckets = [bucket(abs(int(r))) for r in relative.ravel()]
    return np.sign(relative) * np.reshape(buckets, relative.shape)


# ---- KERPLE -------------------------------------------------------------------------


def kerple_bias(
    r1: ArrayLike, r2: ArrayLike, length: int, *, kind: str = "log"
) -> Floats:
    """b[h, r] = -r1_h·log(1 + r2_h·|r|), or -r1_h·|r|^r2_h for kind "power".

    r1, r2 (..., H) -> (..., H, 2·length - 1).
    """
    xp, r1, r2, r = as_float64(r1, r2, np.abs(offsets(length)))
    r1, r2 = r1[..., None], r2[..., None]
    if kind == "log":
        return -r1 * xp.log(1 + r2 * r)
    # 0^r2 apart, of whose derivatives log 0 is a factor
    return -r1 * xp.where(r > 0, xp.maximum(r, 1.0) ** r2, constant(r**r2))


def kerple_bias_backward(
    grad_bias: ArrayLike, r1: ArrayLike, r2: ArrayLike, *, kind: str = "log"
) -> tuple[Floats, Floats]:
    """Gradients of r1 and r2: Σ_r ḡb[h, r]·(∂b/∂r1, ∂b/∂r2).

    "log": -log(1 + r2·n) and -r1·n / (1 + r2·n); "power": -n^r2 and -r1·n^r2·log n,
    where 0^r2·log 0 is 0.
    """
    grad = as_plain(grad_bias, dtype=np.float64)
    a, b = (as_plain(x, dtype=np.float64)[..., None] for x in (r1, r2))
    n = np.abs(offsets_of(grad)).astype(np.float64)
    if kind == "log":
        slopes = -np.log(1 + b * n), -a * n / (1 + b * n)
    else:
        # The logarithm of 1 replaces that of 0, whose factor 0^r2 would make NaN of it.
        slopes = -(n**b), -a * n**b * np.log(np.where(n > 0, n, 1))
    of_r1, of_r2 = slopes
    return (grad * of_r1).sum(axis=-1), (grad * of_r2).sum(axis=-1)


# ---- FIRE ---------------------------------------------------------------------------


def log_distance(c: Floats, distance: Floats) -> Floats:
    """ψ(d) = log(|c·d| + 1)."""
    xp = namespace(c)
    return xp.log(xp.abs(c * distance) + 1)


def fire_bias(
    w1: ArrayLike,
    b1: ArrayLike,
    w2: ArrayLike,
    b2: ArrayLike,
    c: ArrayLike,
    threshold: ArrayLike,
    query_length: int,
    key_length: int | None = None,
    *,
    query_offset: int = 0,
    signed: bool = False,
    eps: float = 1e-6,
) -> Floats:
    """b[h, i, j] = Σ_k w2[h, k]·relu(w1_k·x_ij + b1_k) + b2_h.

    x_ij = s·ψ(|r|) / (ψ(max(i + o, |threshold|)) + eps), s = 1 or, signed, -sign(r).
    w1 (W,) or (W, 1), b1 (W,), w2 (H, W), b2 (H,) -> (H, Lq, Lk).
    """
    xp, w1, b1, w2, b2, c, threshold = as_float64(w1, b1, w2, b2, c, threshold)
    shape = query_length, query_length if key_length is None else key_length
    # The derivatives are for the gradient, which calls the same function.
    x, _, _ = scalar(c, threshold, shape, query_offset, signed, eps)
    before = w1.reshape(-1)[:, None, None] * x + b1[:, None, None]
    relu = xp.where(before <= 0, 0.0, before)  # its derivative at 0 is 0
    return xp.einsum("hk,kij->hij", w2, relu) + b2[:, None, None]


def scalar(
    c: Any, threshold: Any, shape: tuple[int, int], o: int, signed: bool, eps: float
) -> tuple[Floats, Floats, Floats]:
    """x_ij and its derivatives by c and threshold; half of max's at a tie."""
    xp, c, threshold, j = as_float64(c, threshold, np.arange(shape[1]))
    p = xp.asarray(np.arange(shape[0]) + float(o))[:, None]
    r, limit = j - p, xp.abs(threshold)
    # Of a query near the start the threshold takes the place of its position.
    m, n = xp.maximum(p, limit), xp.abs(r)
    # With `signed` a key behind the query has a positive scalar.
    s = -xp.sign(r) if signed else 1.0
    # eps keeps a query at position 0 with threshold 0 from a division by 0.
    over = log_distance(c, m) + eps
    x = s * log_distance(c, r) / over
    slope_m = xp.sign(c) * m / (xp.abs(c) * m + 1)  # ∂ψ(m)/∂c
    slope_n = xp.sign(c) * n / (xp.abs(c) * n + 1)
    # At a tie the derivative of a maximum is half for each side.
    of_max = xp.where(p < limit, 1.0, xp.where(p == limit, 0.5, 0.0))
    by_m = -x / over * xp.abs(c) / (xp.abs(c) * m + 1)
    # The quotient rule: c is in the numerator and in the denominator.
    by_c = s * slope_n / over - x * slope_m / over
    return x, by_c, by_m * of_max * xp.sign(threshold)


def fire_bias_backward(
    grad_bias: ArrayLike,
    w1: ArrayLike,
    b1: ArrayLike,
    w2: ArrayLike,
    b2: ArrayLike,
    c: ArrayLike,
    threshold: ArrayLike,
    *,
    query_offset: int = 0,
    signed: bool = False,
    eps: float = 1e-6,
) -> dict[str, Floats]:
    """Gradients of all parameters by name, each of its parameter's shape.

    With a = w1·x + b1 and ā = [a > 0]·w2'·ḡb: ḡw2 = ḡb·relu(a), ḡb1 = Σā, ḡw1 = Σā·x,
    ḡx = Σ_k w1_k·ā_k, ḡc = Σ ḡx·∂x/∂c, and the threshold's likewise.
    """
    _, a, b, v, grad = as_float64(w1, b1, w2, grad_bias)
    x, by_c, by_threshold = scalar(
        c, threshold, grad.shape[1:], query_offset, signed, eps
    )
    before = a.reshape(-1)[:, None, None] * x + b[:, None, None]
    back = np.where(before > 0, np.einsum("hk,hij->kij", v, grad), 0.0)
    grad_x = np.einsum("k,kij->ij", a.reshape(-1), back)
    return {
        "w1": np.sum(back * x, axis=(1, 2)).reshape(a.shape),
        "b1": np.sum(back, axis=(1, 2)),
        "w2": np.einsum("hij,kij->hk", grad, np.maximum(before, 0)),
        "b2": np.sum(grad, axis=(1, 2)),
        "c": np.sum(grad_x * by_c),
        "threshold": np.sum(grad_x * by_threshold),
    }


def fire_attention(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    w1: ArrayLike,
    b1: ArrayLike,
    w2: ArrayLike,
    b2: ArrayLike,
    c: ArrayLike,
    threshold: ArrayLike,
    *,
    query_offset: int | None = None,
    signed: bool = False,
    eps: float = 1e-6,
    **options: Any,
) -> Result:
    """s_ij = scale·q_i·k_j + b_ij: `attention` with `fire_bias` as its mask.

    `options` are those of attention.
    """
    _, q, k = as_float64(query, key)
    # `fire_bias` has no batch axis, so that the offset is one number here.
    offset = int(np.asarray(offset_of(query_offset, q, k)))
    bias = fire_bias(
        w1,
        b1,
        w2,
        b2,
        c,
        threshold,
        q.shape[-2],
        k.shape[-2],
        query_offset=offset,
        signed=signed,
        eps=eps,
    )
    # The bias and the causal mask of the attention need the same offset.
    return attention(query, key, value, bias, query_offset=offset, **options)
