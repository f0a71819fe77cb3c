r"""Biases of one value per head and relative position: ALiBi, KERPLE, T5's by buckets.

Such a bias has 2 length - 1 columns, relative positions -(length - 1) to length - 1,
the default of a `rel_bias`. It serves a call of `attention` whole where
length >= max(Lq + query_offset, Lk - query_offset).

T5's and DeBERTa's buckets count exactly up to e and in w logarithmic steps from there
to a last distance d. The step of a distance n is floor or ceil of

.. math:: w \, \frac{\log(n / e)}{\log(d / e)}

and a comparison with a whole number s of steps is one of integers:
:math:`n^w \gtrless d^s e^{w - s}`. It decides the edges here: no logarithm is rounded.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from relpos._attention.problem import fold_rows
from relpos._checks import (
    POSITION_LIMIT,
    Array,
    ArrayLike,
    DTypeLike,
    as_choice,
    as_flag,
    as_float_dtype,
    as_floating,
    as_int,
    as_integers,
    as_positive,
    at_least_ndim,
    check_bytes,
    check_memory,
    check_shape,
    common_dtype,
    like,
    native,
    quiet,
    reject_foreign,
    rounded,
    stored,
)
from relpos._text import amount, in_short
from relpos._twins import twin

__all__ = ["KerpleGradients", "alibi_bias", "alibi_bias_backward", "alibi_slopes"]
__all__ += ["deberta_bucket", "kerple_bias", "kerple_bias_backward", "t5_bias"]
__all__ += ["t5_bias_backward", "t5_bucket"]

_DOUBLE = np.dtype(np.float64)
_KINDS = ("log", "power")


def offsets(length: object, *rows: int, dtype: np.dtype[Any] = _DOUBLE) -> Array:
    """Return -(length - 1)..length - 1, where a bias (*rows, 2 length - 1) fits."""
    reach = as_int("length", length, 1, POSITION_LIMIT) - 1
    check_memory("length", (*rows, 2 * reach + 1), dtype)
    return np.arange(-reach, reach + 1, dtype=np.int64)


def as_parameter(name: str, value: object) -> Array:
    """Return one finite float per head, (..., H)."""
    array = as_floating(name, value)
    at_least_ndim(name, array, 1, "(..., H), one number for each head")
    numbers = stored(array)
    is_finite = np.isfinite(numbers)
    if not is_finite.all():
        raise ValueError(
            f"{name}: got {numbers[~is_finite][0]}; expected finite numbers"
        )
    return array


def exact(parameter: Array) -> Array:
    """Return a parameter as float64, with an axis for the offsets."""
    return native(parameter, _DOUBLE)[..., None]


def as_grad_bias(value: object) -> tuple[Array, Array]:
    """Return the gradient of a bias (..., H, 2 length - 1), and the offsets of it."""
    grad = as_floating("grad_bias", value)
    expected = "(..., H, 2 * length - 1)"
    at_least_ndim("grad_bias", grad, 2, expected)
    columns = grad.shape[-1]
    if columns % 2 == 0:
        raise ValueError(
            f"grad_bias: shape {grad.shape} has {amount(columns, 'column')}; expected "
            f"{expected}, an odd number"
        )
    return grad, np.arange(-(columns // 2), columns // 2 + 1, dtype=np.int64)


def sum_offsets(terms: Array, dtype: np.dtype[np.generic]) -> Array:
    """Sum terms of float64 over the relative positions and round once."""
    return rounded(np.asarray(terms.sum(axis=-1)), dtype)


@quiet
def alibi_slopes(
    num_heads: int, *, max_exponent: float = 8.0, dtype: DTypeLike = np.float32
) -> Array:
    r"""Slopes of ALiBi for any number of heads.

    .. math:: m_k = 2^{-max\_exponent \; k / n}, \quad k = 1..n

    with n the largest power of two that is at most `num_heads`. The other heads take
    every second slope of the series of 2n, from its first on.

    Parameters
    ----------
    num_heads : int
        H, at least 1.
    max_exponent : float, default 8
        Positive; the smallest slope is ``2 ** -max_exponent``.
    dtype : {float32, float64}
        The dtype of the result.

    Returns
    -------
    ndarray, (H,)
        The first is the steepest; those too small for the dtype are 0: no bias.

    Raises
    ------
    ValueError
        If `num_heads` is less than 1, or `max_exponent` not positive.

    References
    ----------
    .. [1] Press, Smith, Lewis, "Train Short, Test Long: Attention with Linear Biases
       Enables Input Length Extrapolation", 2021, arXiv:2108.12409, section 3.

    Examples
    --------
    Two heads, and a third one from the series of four:

    >>> import relpos
    >>> relpos.alibi_slopes(3)
    array([0.0625    , 0.00390625, 0.25      ], dtype=float32)
    """
    heads = as_int("num_heads", num_heads, 1, POSITION_LIMIT)
    largest = as_positive("max_exponent", max_exponent)
    result_dtype = as_float_dtype(dtype)
    check_bytes("num_heads", (heads,), np.dtype(np.float64))
    # The largest power of 2 has a geometric series. The heads beyond it have every
    # second entry of the series of twice as many: its steps 1/2, 3/2, ...
    count = 1 << (heads.bit_length() - 1)
    steps = np.arange(1, heads + 1, dtype=np.float64)
    steps[count:] -= count + 0.5
    return rounded(np.exp2(-largest / count * steps), result_dtype)


@twin(alibi_slopes, titles=("References",))
@quiet
def alibi_bias(
    num_heads_or_slopes: int | ArrayLike, length: int, *, dtype: DTypeLike | None = None
) -> Array:
    r"""Bias of ALiBi for every relative position, a `rel_bias` of `attention`.

    .. math:: b_{h, r} = -m_h |r|, \quad r = -(length - 1) .. length - 1

    With a causal mask, the half for the past is that of the paper.

    Parameters
    ----------
    num_heads_or_slopes : int, or array_like of float, (..., H)
        A number of heads means ``alibi_slopes(num_heads)``. Slopes may be learned:
        a negative one makes a head prefer distant keys.
    length : int
        Serves every call with length >= max(Lq + query_offset, Lk - query_offset).
    dtype : {float32, float64}, optional
        The dtype of the result. Default: that of the slopes, and float32 for a number
        of heads.

    Returns
    -------
    ndarray, (..., H, 2 length - 1)
        One row for each head, from the farthest key of the past on.

    Raises
    ------
    ValueError
        If `length` or the number of heads is less than 1, or a slope not finite.

    Notes
    -----
    A shorter bias may be given to a longer call: with ``beyond="clip"`` the penalty
    then stops growing, and ``beyond="raise"`` makes that an error.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> relpos.alibi_bias([0.5, 0.25], 3)
    array([[-1.  , -0.5 ,  0.  , -0.5 , -1.  ],
           [-0.5 , -0.25,  0.  , -0.25, -0.5 ]])
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 8, 5, 4), np.float32)
    >>> relpos.attention(q, k, v, rel_bias=relpos.alibi_bias(8, 5)).shape
    (8, 5, 4)
    """
    result_dtype = None if dtype is None else as_float_dtype(dtype)
    name, argument = "num_heads_or_slopes", num_heads_or_slopes
    reject_foreign(name, argument)
    if isinstance(argument, int | np.integer) and not isinstance(argument, bool):
        heads = as_int(name, argument, 1, POSITION_LIMIT)
        distance = np.abs(offsets(length, heads))
        slopes = alibi_slopes(heads, dtype=result_dtype or np.float32)
    else:
        slopes = as_parameter(name, argument)
        distance = np.abs(offsets(length, *slopes.shape))
    bias = exact(slopes) * -distance
    return rounded(bias, result_dtype or slopes.dtype.newbyteorder("="))


@twin(alibi_slopes, titles=("References",))
@quiet
def alibi_bias_backward(grad_bias: ArrayLike) -> Array:
    r"""Gradient of the slopes of `alibi_bias`.

    .. math:: \bar m_h = -\sum_r \bar b_{h, r} |r|

    Parameters
    ----------
    grad_bias : array_like of float, (..., H, 2 length - 1)
        For instance ``context.backward(grad_out).rel_bias``.

    Returns
    -------
    ndarray, (..., H)
        Summed in float64.

    Raises
    ------
    ValueError
        If it has an even number of columns.

    Examples
    --------
    >>> import relpos
    >>> relpos.alibi_bias_backward([[1.0, 0.0, 5.0, 2.0, 0.0]])
    array([-4.])
    """
    grad, offset = as_grad_bias(grad_bias)
    # forward: bias = slopes * -|r|
    return like((grad.astype(np.float64) * -np.abs(offset)).sum(axis=-1), grad)


@in_short
class KerpleGradients(NamedTuple):
    """Gradients of the two arguments of `kerple_bias`.

    Attributes
    ----------
    r1, r2 : ndarray, (..., H)
        In the common dtype of the two arguments.
    """

    r1: Array
    r2: Array


def _parameters(
    r1: object, r2: object, kind: object
) -> tuple[Array, Array, np.dtype[Any], str]:
    """Return r1 and r2 by `exact`, the dtype of results, and the kind."""
    first, second = as_parameter("r1", r1), as_parameter("r2", r2)
    fits = first.shape == second.shape
    check_shape("r2", second, fits, f"{first.shape}, that of r1")
    chosen = as_choice("kind", kind, _KINDS)
    numbers = stored(second)
    if chosen == "log":
        outside, expected = numbers[numbers < 0], "0 or more"
    else:
        outside, expected = numbers[numbers <= 0], "more than 0"
    if outside.size:
        raise ValueError(
            f"r2: got {outside[0]} for kind={chosen!r}; expected {expected}"
        )
    dtype = common_dtype(first, second).newbyteorder("=")
    return exact(first), exact(second), dtype, chosen


@quiet
def kerple_bias(
    r1: ArrayLike, r2: ArrayLike, length: int, *, kind: str = "log"
) -> Array:
    r"""Bias of KERPLE for every relative position, a `rel_bias` of `attention`.

    .. math::

        b_{h, r} = -r_{1, h} \log(1 + r_{2, h} |r|) \;\text{ ("log")}, \quad
        -r_{1, h} |r|^{r_{2, h}} \;\text{ ("power")}

    Parameters
    ----------
    r1 : array_like of float, (..., H)
        Positive in the paper; a negative one makes a head prefer distant keys.
    r2 : array_like of float, shape of `r1`
        At least 0 for "log", more than 0 for "power", where the paper has at most 2.
    length : int
        Serves every call with length >= max(Lq + query_offset, Lk - query_offset).
    kind : {"log", "power"}

    Returns
    -------
    ndarray, (..., H, 2 length - 1)
        One row for each head, from the farthest key of the past on.

    Raises
    ------
    ValueError
        If shapes differ, `length` is less than 1, or `r2` is out of its range.

    References
    ----------
    .. [1] Chi, Fan, Ramadge, Rudnicky, "KERPLE: Kernelized Relative Positional
       Embedding for Length Extrapolation", 2022, arXiv:2205.09921, section 4.

    Examples
    --------
    >>> import relpos
    >>> relpos.kerple_bias([2.0], [1.0], 3).round(2)
    array([[-2.2 , -1.39,  0.  , -1.39, -2.2 ]])
    >>> relpos.kerple_bias([1.0], [0.5], 3, kind="power").round(2)
    array([[-1.41, -1.  ,  0.  , -1.  , -1.41]])
    """
    a, b, dtype, chosen = _parameters(r1, r2, kind)
    distance = np.abs(offsets(length, *a.shape[:-1])).astype(np.float64)
    # 0 times an infinite shape is 0 here, not nan.
    fall = np.where(a == 0, 0.0, a * _shape_of(distance, b, chosen))
    return rounded(0.0 - fall, dtype)  # -fall would have a -0.0


def _shape_of(distance: Array, r2: Array, kind: str) -> Array:
    """Return the factor of r1; too large a power is infinite."""
    result: Array = np.log1p(r2 * distance) if kind == "log" else np.power(distance, r2)
    return result


@twin(kerple_bias, titles=("References",))
@quiet
def kerple_bias_backward(
    grad_bias: ArrayLike, r1: ArrayLike, r2: ArrayLike, *, kind: str = "log"
) -> KerpleGradients:
    r"""Gradients of the arguments of `kerple_bias`.

    .. math::

        \bar r_1 &= -\sum_r \bar b_r \log(1 + r_2 |r|), \quad
        \bar r_2 = -\sum_r \bar b_r \frac{r_1 |r|}{1 + r_2 |r|} \;\text{ ("log")} \\
        \bar r_1 &= -\sum_r \bar b_r |r|^{r_2}, \quad
        \bar r_2 = -\sum_r \bar b_r \, r_1 |r|^{r_2} \log|r| \;\text{ ("power")}

    Parameters
    ----------
    grad_bias : array_like of float, (..., H, 2 length - 1)
        For instance ``context.backward(grad_out).rel_bias``.
    r1, r2, kind : as in `kerple_bias`
        What the forward was given.

    Returns
    -------
    KerpleGradients
        The named tuple ``(r1, r2)``, each (..., H), summed in float64.

    Raises
    ------
    ValueError
        If `grad_bias` has an even number of columns, or `r2` is out of its range.

    Examples
    --------
    >>> import relpos
    >>> grads = relpos.kerple_bias_backward(
    ...     [[1.0, 0.0, 1.0]], [1.0], [1.0], kind="power"
    ... )
    >>> grads.r1, grads.r2
    (array([-2.]), array([0.]))
    """
    grad, offset = as_grad_bias(grad_bias)
    a, b, dtype, chosen = _parameters(r1, r2, kind)
    heads = a.shape[:-1]
    if grad.shape[:-1] != heads:
        raise ValueError(
            f"grad_bias: shape {grad.shape} does not match r1 of shape {heads}; "
            f"expected ({', '.join(map(str, heads))}, 2 * length - 1)"
        )
    grad = grad.astype(np.float64)
    distance = np.abs(offset).astype(np.float64)
    # Of the forward bias = -r1 * shape(|r|, r2). The shape may be infinite: without a
    # gradient it counts as 0, since 0 times infinity would be nan.
    shape = np.where(grad == 0, 0.0, _shape_of(distance, b, chosen))
    if chosen == "log":
        slope = distance / (1 + b * distance)
    else:
        slope = shape * np.log(np.maximum(distance, 1))  # 0 at distance 0 and 1
    slope = np.where(a == 0, 0.0, slope)
    return KerpleGradients(
        sum_offsets(-grad * shape, dtype), sum_offsets(-grad * a * slope, dtype)
    )


# ---- buckets, and T5's bias ----------------------------------------------------------

#: Buckets at most: the powers that are compared have as many digits as buckets.
MAX_BUCKETS = 2**12
_T5_BUCKETS = 32  # of every published T5


def _floor_root(x: int, k: int) -> int:
    """Return the largest n with n ** k <= x, for x and k of at least 1."""
    # The root in float64, one step of Newton's method in integers, which squares its
    # relative error, and then single steps to the exact number.
    n: int = int(math.exp(math.log(x) / k))
    n = ((k - 1) * n + x // n ** (k - 1)) // k
    while n**k > x:
        n -= 1
    while (n + 1) ** k <= x:
        n += 1
    return n


@lru_cache(maxsize=64)
def _t5_edges(exact: int, width: int, last: int) -> Array:
    """Return the smallest distance of each step but the first, steps 1..width - 1."""
    edges = []
    for step in range(1, width):
        # The step begins where distance**width >= power. Its root, rounded up, is exact
        # in integers, where a logarithm in floats may be a bucket off.
        power = last**step * exact ** (width - step)
        edges.append(_floor_root(power - 1, width) + 1)
    result = np.array(edges, dtype=np.int64)
    result.flags.writeable = False  # every later call gets the same array
    return result


def t5_bucket(
    relative_position: ArrayLike,
    *,
    bidirectional: bool = True,
    num_buckets: int = 32,
    max_distance: int = 128,
) -> Array:
    r"""Bucket of each relative position, key minus query, as T5 counts them.

    With n the distance and m the buckets of one direction, num_buckets // 2 if
    `bidirectional` and otherwise all num_buckets, for the past:

    .. math::

        bucket = n \;\text{ if } n < e, \quad
        \min\!\left(e + \left\lfloor (m - e) \frac{\log(n / e)}{\log(max\_distance / e)}
        \right\rfloor, m - 1\right) \;\text{ otherwise}, \quad e = \lfloor m / 2 \rfloor

    Keys after the query have m added if `bidirectional`, and bucket 0 if not.

    Parameters
    ----------
    relative_position : array_like of int, any shape
        Key minus query.
    bidirectional : bool, default True
        True in an encoder, False in a causal decoder.
    num_buckets : int, default 32
        At least 4 if `bidirectional`, else 2; at most 4096.
    max_distance : int, default 128
        More than e. Farther positions share the last bucket.

    Returns
    -------
    ndarray of int64, shape of `relative_position`
        0 to num_buckets - 1.

    Raises
    ------
    ValueError
        If `num_buckets` or `max_distance` leave no logarithmic range.

    Notes
    -----
    The buckets are exact: their edges are found by comparing integers.

    References
    ----------
    .. [1] Raffel et al., "Exploring the Limits of Transfer Learning with a Unified
       Text-to-Text Transformer", 2019, arXiv:1910.10683, section 2.1.

    Examples
    --------
    >>> import relpos
    >>> relpos.t5_bucket([-200, -20, -8, -1, 0, 1, 8, 20, 200])
    array([15, 10,  8,  1,  0, 17, 24, 26, 31])
    >>> relpos.t5_bucket([-200, -20, -1, 0, 1], bidirectional=False)
    array([31, 17,  1,  0,  0])
    """
    relative = as_integers("relative_position", relative_position)
    both = as_flag("bidirectional", bidirectional)
    count = as_int("num_buckets", num_buckets, 4 if both else 2, MAX_BUCKETS)
    side = count // 2 if both else count
    exact = side // 2
    last = as_int("max_distance", max_distance, exact + 1, POSITION_LIMIT)
    # A decoder counts keys after the query as distance 0.
    farthest = POSITION_LIMIT if both else 0
    distance = np.abs(np.clip(relative, -POSITION_LIMIT, farthest))
    steps = np.searchsorted(
        _t5_edges(exact, side - exact, last), distance, side="right"
    )
    bucket = np.where(distance < exact, distance, exact + steps)
    if both:  # the second half of the buckets is of keys after the query
        bucket = bucket + side * (relative > 0)
    return np.asarray(bucket)


def t5_rows(shape: tuple[int, ...], num_buckets: object, both: object) -> int:
    """Return the number of buckets of a weight (num_buckets, H), not (H, num_buckets).

    Without `num_buckets`, as many columns as T5 has buckets count as transposed.
    """
    if len(shape) != 2:
        raise ValueError(f"weight: got shape {shape}; expected (num_buckets, H)")
    rows, heads = shape
    least = 4 if as_flag("bidirectional", both) else 2
    if num_buckets is not None:
        if rows != as_int("num_buckets", num_buckets, least, MAX_BUCKETS):
            raise ValueError(
                f"weight: got shape {shape} with num_buckets={num_buckets}; expected "
                f"({num_buckets}, H)"
            )
    elif heads == _T5_BUCKETS != rows:
        raise ValueError(
            f"weight: got shape {shape}, where T5 has {_T5_BUCKETS} buckets; expected "
            "(num_buckets, H): pass weight.T if it is transposed, or "
            f"num_buckets={rows} if it does not"
        )
    elif not least <= rows <= MAX_BUCKETS:
        raise ValueError(
            f"weight: got {amount(rows, 'row')}; expected {least} to {MAX_BUCKETS}"
        )
    return rows


@twin(t5_bucket, titles=("References",))
def t5_bias(
    weight: ArrayLike,
    length: int,
    *,
    num_buckets: int | None = None,
    bidirectional: bool = True,
    max_distance: int = 128,
) -> Array:
    r"""Bias of T5 for every relative position, a `rel_bias` of `attention`.

    .. math:: b_{h, r} = weight_{bucket(r), h}, \quad r = -(length - 1) .. length - 1

    T5 does not scale scores: its layers call ``attention(..., scale=1.0)``.

    Parameters
    ----------
    weight : array_like of float, (num_buckets, H)
        As T5 stores it. -inf hides all pairs of a bucket. 32 columns with another
        number of rows look like T5's 32 buckets transposed and need `num_buckets`.
    length : int
        Serves every call with length >= max(Lq + query_offset, Lk - query_offset); any
        length from max_distance + 1 on serves every call at all.
    num_buckets : int, optional
        Rows that `weight` must have; None takes those that it has.
    bidirectional, max_distance : as in `t5_bucket`
        The buckets of the positions.

    Returns
    -------
    ndarray, (H, 2 length - 1)
        One row for each head, from the farthest key of the past on.

    Raises
    ------
    ValueError
        If `weight` is transposed, `length` is less than 1, or the buckets leave no
        logarithmic range.

    See Also
    --------
    t5_bucket : The same without a copy, as ``attention(buckets=...)``.

    Examples
    --------
    Four buckets, two for each direction:

    >>> import relpos
    >>> relpos.t5_bias([[0.0], [0.1], [0.2], [0.3]], 3)
    array([[0.1, 0.1, 0. , 0.3, 0.3]])
    """
    table = as_floating("weight", weight)
    rows = t5_rows(table.shape, num_buckets, bidirectional)
    buckets = t5_bucket(
        offsets(length, table.shape[1], dtype=table.dtype),
        bidirectional=bidirectional,
        num_buckets=rows,
        max_distance=max_distance,
    )
    return like(np.take(table.T, buckets, axis=1), table)


@twin(t5_bucket, titles=("References",))
def t5_bias_backward(
    grad_bias: ArrayLike,
    num_buckets: int,
    *,
    bidirectional: bool = True,
    max_distance: int = 128,
) -> Array:
    r"""Gradient of the weights of `t5_bias`.

    .. math:: \overline{weight}_{t, h} = \sum_{r:\; bucket(r) = t} \bar b_{h, r}

    Parameters
    ----------
    grad_bias : array_like of float, (..., H, 2 length - 1)
        For instance ``context.backward(grad_out).rel_bias``.
    num_buckets : int
        Rows of the weights.
    bidirectional, max_distance : as in `t5_bucket`
        What the forward was given.

    Returns
    -------
    ndarray, (..., num_buckets, H)
        Summed in float64, in the order of the positions.

    Raises
    ------
    ValueError
        If `grad_bias` has an even number of columns, or the buckets leave no
        logarithmic range.

    Examples
    --------
    >>> import relpos
    >>> relpos.t5_bias_backward([[1.0, 2.0, 3.0, 4.0, 5.0]], 4)
    array([[3.],
           [3.],
           [0.],
           [9.]])
    """
    grad, offset = as_grad_bias(grad_bias)
    # forward: bias = weight.T[:, buckets]
    buckets = t5_bucket(
        offset,
        bidirectional=bidirectional,
        num_buckets=num_buckets,
        max_distance=max_distance,
    )
    folded = fold_rows(np.swapaxes(grad, -1, -2), buckets, num_buckets)
    return like(folded, grad)


@lru_cache(maxsize=64)
def _deberta_edges(middle: int, last: int, farthest: int) -> Array:
    """Return the largest distance of each step, from step 0 to that of `farthest`.

    Step s ends where n ** width <= last ** s * middle ** (width - s); s goes on beyond
    width, and the power of middle is divided by there.
    """
    width = middle - 1
    count = math.log(farthest / middle) / math.log(last / middle) * width
    if count > MAX_BUCKETS:
        raise ValueError(
            f"relative_position: distance {farthest} lies {count:.0f} buckets past "
            f"{middle}, half of bucket_size; expected at most {MAX_BUCKETS} (clip "
            f"distances to max_position = {last + 1}, or make that larger)"
        )
    # Edge n is the root of middle**width * (last / middle)**n, in integers.
    edges = [middle]
    power, above, below = middle**width, 1, 1
    while edges[-1] < farthest:
        above *= last
        below *= middle
        edge = _floor_root(power * above // below, width)
        edges.append(min(edge, np.iinfo(np.uint64).max))
    result = np.array(edges, dtype=np.uint64)
    result.flags.writeable = False  # every later call gets the same array
    return result


@twin(t5_bucket, titles=("Notes",))
def deberta_bucket(
    relative_position: ArrayLike, *, bucket_size: int, max_position: int
) -> Array:
    r"""Signed bucket of each relative position, as DeBERTa counts them.

    With n the distance and m = bucket_size // 2:

    .. math::

        bucket = \pm n \;\text{ if } n \le m, \quad
        \pm \left( m + \left\lceil (m - 1)
        \frac{\log(n / m)}{\log((max\_position - 1) / m)} \right\rceil \right)
        \;\text{ otherwise}

    The sign is that of the relative position, so it may count query minus key as well.

    Parameters
    ----------
    relative_position : array_like of int, any shape
        In DeBERTa query minus key; the sign is kept.
    bucket_size : int
        At least 4, at most 4096. Distances to bucket_size // 2 have their own buckets.
    max_position : int
        More than bucket_size // 2 + 1. Distance max_position - 1 is the last one of
        bucket m + m - 1.

    Returns
    -------
    ndarray of int64, shape of `relative_position`
        Buckets go on growing beyond `max_position`, as in the `transformers` package.
        Microsoft's code clips relative positions to +-(max_position - 1) before.

    Raises
    ------
    ValueError
        If `bucket_size` and `max_position` leave no logarithmic range, or a distance
        would need thousands of buckets.

    See Also
    --------
    relpos.recipes.deberta : Rows of DeBERTa's tables from these buckets.

    References
    ----------
    .. [1] He et al., "DeBERTa: Decoding-enhanced BERT with Disentangled Attention",
       2020, arXiv:2006.03654; the buckets came with its version 2.

    Examples
    --------
    >>> import relpos
    >>> relative = [-15, -7, -4, 0, 4, 5, 7, 15]
    >>> relpos.deberta_bucket(relative, bucket_size=8, max_position=16)
    array([-7, -6, -4,  0,  4,  5,  6,  7])
    """
    relative = as_integers("relative_position", relative_position)
    middle = as_int("bucket_size", bucket_size, 4, MAX_BUCKETS) // 2
    last = as_int("max_position", max_position, middle + 2, POSITION_LIMIT) - 1
    distance = np.abs(relative).view(np.uint64)  # so that -2**63 has one
    farthest = max(int(distance.max(initial=0)), middle)
    steps = np.searchsorted(_deberta_edges(middle, last, farthest), distance)
    bucket = np.minimum(distance, middle).astype(np.int64) + steps
    return np.asarray(np.sign(relative) * bucket)
