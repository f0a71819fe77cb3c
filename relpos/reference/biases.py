"""Biases of one value per head and relative position, and the buckets behind some."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from relpos.reference._typing import ArrayLike, Floats, Ints

__all__ = [
    "alibi_bias",
    "alibi_bias_backward",
    "alibi_slopes",
    "deberta_bucket",
    "kerple_bias",
    "kerple_bias_backward",
    "t5_bias",
    "t5_bias_backward",
    "t5_bucket",
]


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

    See Also
    --------
    relpos.alibi_slopes : Describes the arguments.
    alibi_bias : The bias that they make.

    References
    ----------
    Press, Smith, Lewis (2021), arXiv:2108.12409, and the authors' code.

    Examples
    --------
    >>> alibi_slopes(3)
    array([0.0625    , 0.00390625, 0.25      ])
    """
    n = 1
    while 2 * n <= num_heads:
        n *= 2

    def series(n: int) -> Floats:
        powers: Floats = 2.0 ** (-max_exponent * np.arange(1, n + 1) / n)
        return powers

    return np.concatenate([series(n), series(2 * n)[0::2][: num_heads - n]])


def alibi_bias(num_heads_or_slopes: int | ArrayLike, length: int) -> Floats:
    """b[h, r] = -m_h·|r|. H or slopes (..., H) -> (..., H, 2·length - 1).

    See Also
    --------
    relpos.alibi_bias : By the kernels; describes the arguments.
    alibi_slopes : The slopes m.

    Examples
    --------
    >>> alibi_bias([0.5], 3)
    array([[-1. , -0.5, -0. , -0.5, -1. ]])
    """
    slopes = np.asarray(num_heads_or_slopes, dtype=np.float64)
    if isinstance(num_heads_or_slopes, int | np.integer):
        slopes = alibi_slopes(int(num_heads_or_slopes))
    bias: Floats = -slopes[..., None] * np.abs(offsets(length))
    return bias


def alibi_bias_backward(grad_bias: ArrayLike) -> Floats:
    """ḡm_h = -Σ_r ḡb[h, r]·|r|. (..., H, 2·length - 1) -> (..., H).

    See Also
    --------
    relpos.alibi_bias_backward : Describes the arguments.
    alibi_bias : The forward.

    Examples
    --------
    >>> alibi_bias_backward([[1.0, 0.0, 5.0, 2.0, 0.0]])
    array([-4.])
    """
    grad = np.asarray(grad_bias, dtype=np.float64)
    slopes: Floats = -(grad * np.abs(offsets_of(grad))).sum(axis=-1)
    return slopes


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

    See Also
    --------
    relpos.t5_bucket : Describes the arguments.
    deberta_bucket : Buckets that keep the sign.

    References
    ----------
    Raffel et al. (2019), arXiv:1910.10683.

    Examples
    --------
    >>> t5_bucket([-200, -8, 0, 8, 200])
    array([15,  8,  0, 24, 31])
    """
    m = num_buckets // 2 if bidirectional else num_buckets
    e = m // 2

    def bucket(r: int) -> int:
        n = abs(r) if bidirectional else max(-r, 0)
        ahead = m if bidirectional and r > 0 else 0
        if n < e:
            return n + ahead
        steps = 0
        while steps < m - 1 - e and Fraction(n, e) ** (m - e) >= Fraction(
            max_distance, e
        ) ** (steps + 1):
            steps += 1
        return e + steps + ahead

    relative = np.asarray(relative_position)
    found = [bucket(int(r)) for r in relative.ravel()]
    return np.array(found, dtype=np.int64).reshape(relative.shape)


def t5_bias(
    weight: ArrayLike,
    length: int,
    *,
    bidirectional: bool = True,
    max_distance: int = 128,
) -> Floats:
    """b[h, r] = weight[bucket(r), h]. (num_buckets, H) -> (H, 2·length - 1).

    See Also
    --------
    relpos.t5_bias : Describes the arguments.
    t5_bucket : The buckets.

    Examples
    --------
    >>> t5_bias([[0.0], [0.1], [0.2], [0.3]], 3)
    array([[0.1, 0.1, 0. , 0.3, 0.3]])
    """
    table = np.asarray(weight, dtype=np.float64)
    row = t5_bucket(
        offsets(length),
        bidirectional=bidirectional,
        num_buckets=len(table),
        max_distance=max_distance,
    )
    return table[row].T


def t5_bias_backward(
    grad_bias: ArrayLike,
    num_buckets: int,
    *,
    bidirectional: bool = True,
    max_distance: int = 128,
) -> Floats:
    """ḡweight[t, h] = Σ ḡb[h, r] over the r of bucket t -> (..., num_buckets, H).

    See Also
    --------
    relpos.t5_bias_backward : Describes the arguments.
    t5_bias : The forward.

    Examples
    --------
    >>> t5_bias_backward([[1.0, 2.0, 3.0, 4.0, 5.0]], 4).T
    array([[3., 3., 0., 9.]])
    """
    grad = np.asarray(grad_bias, dtype=np.float64)
    row = t5_bucket(
        offsets_of(grad),
        bidirectional=bidirectional,
        num_buckets=num_buckets,
        max_distance=max_distance,
    )
    is_row = row == np.arange(num_buckets)[:, None]
    weight: Floats = is_row.astype(np.float64) @ np.swapaxes(grad, -1, -2)
    return weight


# ---- DeBERTa ------------------------------------------------------------------------


def deberta_bucket(
    relative_position: ArrayLike, *, bucket_size: int, max_position: int
) -> Ints:
    """DeBERTa's bucket of each relative position, in fractions throughout.

    m = bucket_size // 2: distance n <= m is bucket n, others
    m + ⌈(m - 1)·log(n/m) / log((max_position - 1)/m)⌉; the sign is kept. At most s
    steps means (n/m)^(m - 1) <= ((max_position - 1)/m)^s.

    See Also
    --------
    relpos.deberta_bucket : Describes the arguments.
    t5_bucket : Buckets that do not keep the sign.

    References
    ----------
    He et al. (2020), arXiv:2006.03654, version 2 of the code.

    Examples
    --------
    >>> deberta_bucket([-15, -7, 4, 5], bucket_size=8, max_position=16)
    array([-7, -6,  4,  5])
    """
    m = bucket_size // 2

    def bucket(n: int) -> int:
        if n <= m:
            return n
        steps = 1
        while Fraction(n, m) ** (m - 1) > Fraction(max_position - 1, m) ** steps:
            steps += 1
        return m + steps

    relative = np.asarray(relative_position)
    found = [bucket(abs(int(r))) for r in relative.ravel()]
    signed: Ints = np.sign(relative) * np.reshape(found, relative.shape)
    return signed


# ---- KERPLE -------------------------------------------------------------------------


def kerple_bias(
    r1: ArrayLike, r2: ArrayLike, length: int, *, kind: str = "log"
) -> Floats:
    """b[h, r] = -r1_h·log(1 + r2_h·|r|), or -r1_h·|r|^r2_h for kind "power".

    r1, r2 (..., H) -> (..., H, 2·length - 1).

    See Also
    --------
    relpos.kerple_bias : Describes the arguments.
    kerple_bias_backward : Its gradients.

    References
    ----------
    Chi, Fan, Ramadge, Rudnicky (2022), arXiv:2205.09921.

    Examples
    --------
    >>> kerple_bias([2.0], [1.0], 2).round(2)
    array([[-1.39, -0.  , -1.39]])
    """
    a, b = (np.asarray(x, dtype=np.float64)[..., None] for x in (r1, r2))
    n = np.abs(offsets(length)).astype(np.float64)
    bias: Floats = -a * (np.log(1 + b * n) if kind == "log" else n**b)
    return bias


def kerple_bias_backward(
    grad_bias: ArrayLike, r1: ArrayLike, r2: ArrayLike, *, kind: str = "log"
) -> tuple[Floats, Floats]:
    """Gradients of r1 and r2: Σ_r ḡb[h, r]·(∂b/∂r1, ∂b/∂r2).

    "log": -log(1 + r2·n) and -r1·n / (1 + r2·n); "power": -n^r2 and -r1·n^r2·log n,
    where 0^r2·log 0 is 0.

    See Also
    --------
    relpos.kerple_bias_backward : Describes the arguments.
    kerple_bias : The forward.

    Examples
    --------
    >>> kerple_bias_backward([[1.0, 0.0, 1.0]], [1.0], [1.0], kind="power")[0]
    array([-2.])
    """
    grad = np.asarray(grad_bias, dtype=np.float64)
    a, b = (np.asarray(x, dtype=np.float64)[..., None] for x in (r1, r2))
    n = np.abs(offsets_of(grad)).astype(np.float64)
    if kind == "log":
        slopes = -np.log(1 + b * n), -a * n / (1 + b * n)
    else:
        slopes = -(n**b), -a * n**b * np.log(np.where(n > 0, n, 1))
    first, second = ((grad * slope).sum(axis=-1) for slope in slopes)
    return first, second
