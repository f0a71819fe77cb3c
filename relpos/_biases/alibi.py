r"""ALiBi: each step of distance costs a score, at a slope of its own in every head.

.. math::

    b_{h, r} = -m_h |r|, \qquad
    m_k = 2^{-8 k / H}, \; k = 1..H \quad \text{where H is a power of two}

Shapes: slopes m (H,), bias b (H, 2 length - 1) for r = -(length - 1)..length - 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relpos._biases.by_offset import (
    as_grad_bias,
    as_parameter,
    exact,
    offsets,
    sum_offsets,
)
from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_float_dtype,
    as_int,
    as_real,
    check_bytes,
    quiet,
    reject_foreign,
    rounded,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike


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
        Of the result.

    Returns
    -------
    ndarray, (H,)
        All positive, the first of them the steepest.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If `num_heads` is less than 1, or `max_exponent` not positive.

    See Also
    --------
    alibi_bias : The bias that they make.

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
    largest = as_real("max_exponent", max_exponent)
    if largest <= 0:
        raise ValueError(f"max_exponent: got {largest}; expected a positive number")
    wanted = as_float_dtype(dtype)
    check_bytes("num_heads", (heads,), np.dtype(np.float64))
    count = 1 << (heads.bit_length() - 1)
    steps = np.arange(1, heads + 1, dtype=np.float64)
    steps[count:] -= count + 0.5  # 1/2, 3/2, ...: of the series of 2 count
    return rounded(np.exp2(-largest / count * steps), wanted)


@quiet
def alibi_bias(
    num_heads_or_slopes: int | ArrayLike, length: int, *, dtype: DTypeLike | None = None
) -> Array:
    r"""Bias of ALiBi for every relative position, a `rel_bias` of `attention`.

    .. math:: b_{h, r} = -m_h |r|, \quad r = -(length - 1) .. length - 1

    A causal mask leaves the half that the paper has.

    Parameters
    ----------
    num_heads_or_slopes : int, or array_like of float, (..., H)
        A number of heads stands for ``alibi_slopes(num_heads)``. Slopes may be learned:
        a negative one makes a head prefer what is far away.
    length : int
        Serves every call with length >= max(Lq + query_offset, Lk - query_offset).
    dtype : {float32, float64}, optional
        Of the result; default that of the slopes, float32 for a number of heads.

    Returns
    -------
    ndarray, (..., H, 2 length - 1)
        One row for each head, from the farthest key of the past on.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If `length` or the number of heads is less than 1, or a slope not finite.

    See Also
    --------
    alibi_bias_backward : Gradient of the slopes.
    alibi_slopes : The slopes of a number of heads.
    kerple_bias, t5_bias, fire_bias : Biases with more to learn.

    Notes
    -----
    A shorter bias still serves a longer call, but ``beyond="clip"`` then stops the
    penalty from growing; ``beyond="raise"`` makes that an error.

    References
    ----------
    .. [1] Press, Smith, Lewis, "Train Short, Test Long", 2021, arXiv:2108.12409.

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
    wanted = None if dtype is None else as_float_dtype(dtype)
    heads = _heads_or_slopes(num_heads_or_slopes)
    shape = (heads,) if isinstance(heads, int) else heads.shape
    distance = np.abs(offsets(length, *shape))
    if isinstance(heads, int):
        slopes = alibi_slopes(heads, dtype=wanted or np.float32)
    else:
        slopes = heads
    bias = exact(slopes) * -distance
    return rounded(bias, wanted or slopes.dtype.newbyteorder("="))


def _heads_or_slopes(given: object) -> int | Array:
    reject_foreign("num_heads_or_slopes", given)
    if isinstance(given, int | np.integer) and not isinstance(given, bool):
        return as_int("num_heads_or_slopes", given, 1, POSITION_LIMIT)
    return as_parameter("num_heads_or_slopes", given)


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
    TypeError
        If `grad_bias` is not floating.
    ValueError
        If it has fewer than two axes or an even number of columns.

    See Also
    --------
    alibi_bias : The forward.
    AttentionContext.backward : Where `grad_bias` comes from, as `rel_bias`.

    References
    ----------
    .. [1] Press, Smith, Lewis, "Train Short, Test Long", 2021, arXiv:2108.12409.

    Examples
    --------
    >>> import relpos
    >>> relpos.alibi_bias_backward([[1.0, 0.0, 5.0, 2.0, 0.0]])
    array([-4.])
    """
    grad, offset = as_grad_bias(grad_bias)
    # forward: bias = slopes * -|r|
    return sum_offsets(
        grad.astype(np.float64) * -np.abs(offset), grad.dtype.newbyteorder("=")
    )
