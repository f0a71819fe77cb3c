r"""T5's and DeBERTa's buckets of relative positions, and the bias of T5's.

Both count exactly up to e and in w logarithmic steps from there to a last distance d.
The step of a distance n is floor or ceil of

.. math:: w \, \frac{\log(n / e)}{\log(d / e)}

and a comparison with a whole number s of steps is one of integers:
:math:`n^w \gtrless d^s e^{w - s}`. It decides the edges here, so that no rounding of a
logarithm moves a distance to another bucket.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from relpos._attention.problem import fold_rows
from relpos._biases.by_offset import as_grad_bias, offsets
from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_flag,
    as_floating,
    as_int,
    as_integers,
    rounded,
)
from relpos._twins import twin

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Buckets at most: the powers that are compared have as many digits as buckets.
MAX_BUCKETS = 2**12
_T5_BUCKETS = 32  # of every published T5


def _floor_root(x: int, k: int) -> int:
    """Return the largest n with n ** k <= x, for x and k of at least 1."""
    n: int = int(math.exp(math.log(x) / k))
    # one step of Newton's squares the relative error: few are left for the loops
    n = ((k - 1) * n + x // n ** (k - 1)) // k
    while n**k > x:
        n -= 1
    while (n + 1) ** k <= x:
        n += 1
    return n


def _distance_of(relative_position: Array) -> Array:
    """Return |r|, at most POSITION_LIMIT."""
    distance = np.abs(np.maximum(relative_position, -POSITION_LIMIT))
    within: Array = np.minimum(distance, POSITION_LIMIT)
    return within


@lru_cache(maxsize=64)
def _t5_edges(exact: int, width: int, last: int) -> Array:
    """Return the smallest distance of each step but the first, steps 1..width - 1."""
    edges = [
        _floor_root(last**step * exact ** (width - step) - 1, width) + 1
        for step in range(1, width)
    ]
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
    Exact for every parameter set: edges are found by comparing integers.

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
    distance = _distance_of(relative if both else np.minimum(relative, 0))
    steps = np.searchsorted(
        _t5_edges(exact, side - exact, last), distance, side="right"
    )
    bucket = np.where(distance < exact, distance, exact + steps)
    return np.asarray(bucket + side * (relative > 0) if both else bucket)


def t5_rows(shape: tuple[int, ...], num_buckets: object) -> int:
    """Return the number of buckets of a weight (num_buckets, H), not (H, num_buckets).

    Without `num_buckets`, as many columns as every published T5 has buckets count as
    transposed.
    """
    if len(shape) != 2:
        raise ValueError(f"weight: got shape {shape}; expected (num_buckets, H)")
    rows, heads = shape
    if num_buckets is not None:
        if rows != as_int("num_buckets", num_buckets):
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
    rows = t5_rows(table.shape, num_buckets)
    buckets = t5_bucket(
        offsets(length, table.shape[1], dtype=table.dtype),
        bidirectional=bidirectional,
        num_buckets=rows,
        max_distance=max_distance,
    )
    return rounded(np.take(table.T, buckets, axis=1), table.dtype.newbyteorder("="))


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
    return rounded(folded, grad.dtype.newbyteorder("="))


@lru_cache(maxsize=64)
def _deberta_edges(middle: int, last: int, farthest: int) -> Array:
    """Return the largest distance of each step, from step 0 to that of `farthest`.

    Step s ends where n ** width <= last ** s * middle ** (width - s); s goes on beyond
    width, and the power of middle is divided by there.
    """
    width = middle - 1
    wanted = math.log(farthest / middle) / math.log(last / middle) * width
    if wanted > MAX_BUCKETS:
        raise ValueError(
            f"relative_position: distance {farthest} lies {wanted:.0f} buckets past "
            f"{middle}, half of bucket_size; expected at most {MAX_BUCKETS} (clip "
            f"distances to max_position = {last + 1}, or make that larger)"
        )
    edges = [middle]
    power, above, below = middle**width, 1, 1
    while edges[-1] < farthest:
        above, below = above * last, below * middle
        edges.append(_floor_root(power * above // below, width))
    result = np.array(edges, dtype=np.int64)
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
    distance = _distance_of(relative)
    farthest = max(int(distance.max(initial=0)), middle)
    steps = np.searchsorted(_deberta_edges(middle, last, farthest), distance)
    bucket = np.where(distance <= middle, distance, middle + steps)
    return np.asarray(np.sign(relative) * bucket)
