"""T5: buckets of relative positions, the bias of each, and its gradient.

Shapes: any for relative positions; weights (num_buckets, H), bias (H, 2 length - 1).
How the edges of buckets stay exact: buckets.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from relpos._attention.placement import fold_rows
from relpos._biases.buckets import MAX_BUCKETS, distance_of, floor_root
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

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Of every published T5.
_T5_BUCKETS = 32


@lru_cache(maxsize=64)
def _edges(exact: int, width: int, last: int) -> Array:
    """Return the smallest distance of each step but the first, steps 1..width - 1."""
    edges = [
        floor_root(last**step * exact ** (width - step) - 1, width) + 1
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
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If `num_buckets` or `max_distance` leave no logarithmic range.

    See Also
    --------
    t5_bias : The bias of the buckets.
    deberta_bucket : Buckets that keep the sign.
    attention : Takes them as `buckets`.

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
    distance = distance_of(relative if both else np.minimum(relative, 0))
    steps = np.searchsorted(_edges(exact, side - exact, last), distance, side="right")
    bucket = np.where(distance < exact, distance, exact + steps)
    return np.asarray(bucket + side * (relative > 0) if both else bucket)


def t5_rows(shape: tuple[int, ...], num_buckets: object) -> int:
    """Return the number of buckets of a weight (num_buckets, H), not (H, num_buckets).

    Whether a weight lies transposed is known where `num_buckets` is, and guessed where
    it has as many columns as every published T5 has buckets.
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
            "(num_buckets, H): pass weight.T if it lies transposed, or "
            f"num_buckets={rows} if it does not"
        )
    return rows


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
        As T5 stores it. -inf hides what falls into a bucket. 32 columns beside another
        number of rows look like T5's 32 buckets transposed and need `num_buckets`.
    length : int
        Serves every call with length >= max(Lq + query_offset, Lk - query_offset); any
        length from max_distance + 1 on serves every call at all.
    num_buckets : int, optional
        Rows that `weight` must have; None takes those that it has.
    bidirectional, max_distance : as in `t5_bucket`
        How positions fall into the buckets.

    Returns
    -------
    ndarray, (H, 2 length - 1)
        One row for each head, from the farthest key of the past on.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If `weight` has other than two axes or lies transposed, `length` is less than 1,
        or the buckets leave no logarithmic range.

    See Also
    --------
    t5_bucket : The same without a copy, as ``attention(buckets=...)``.
    t5_bias_backward : Gradient of the weights.
    relpos.recipes.t5 : T5's weight as arguments of attention.

    References
    ----------
    .. [1] Raffel et al., "Exploring the Limits of Transfer Learning with a Unified
       Text-to-Text Transformer", 2019, arXiv:1910.10683, section 2.1.

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
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If `grad_bias` has fewer than two axes or an even number of columns, or the
        buckets leave no logarithmic range.

    See Also
    --------
    t5_bias : The forward.
    AttentionContext.backward : Where `grad_bias` comes from, as `rel_bias`.

    References
    ----------
    .. [1] Raffel et al., "Exploring the Limits of Transfer Learning with a Unified
       Text-to-Text Transformer", 2019, arXiv:1910.10683, section 2.1.

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
