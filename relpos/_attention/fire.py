"""FIRE: a learned network of the distance, normalised by the query's position."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from relpos._attention import fire_network
from relpos._attention.attention import AttentionOutput, as_call, attend
from relpos._attention.schemes import shows_keywords
from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_floating,
    as_int,
    check_bytes,
    check_shape,
    common_dtype,
    quiet,
    rounded,
)
from relpos._text import in_short
from relpos._twins import twin

if TYPE_CHECKING:
    from typing import Unpack

    from numpy.typing import ArrayLike

    from relpos._attention.keywords import FireKeywords, Off

__all__ = ["FireGradients", "fire_attention", "fire_bias", "fire_bias_backward"]


@in_short
class FireGradients(NamedTuple):
    """Gradients of `fire_bias`'s parameters, each of its parameter's shape and dtype.

    Attributes
    ----------
    w1 : ndarray, (W,) or (W, 1)
    b1 : ndarray, (W,)
    w2 : ndarray, (H, W)
    b2 : ndarray, (H,)
    c, threshold : ndarray, ()

    Examples
    --------
    >>> import relpos
    >>> parameters = [1.0], [0.0], [[-1.0]], [0.0], 1.0, 1.0
    >>> gradients = relpos.fire_bias_backward([[[1.0, 1.0]]], *parameters)
    >>> gradients.b2
    array([2.])
    """

    w1: Array
    b1: Array
    w2: Array
    b2: Array
    c: Array
    threshold: Array


def _positions(lq: int, query_offset: object) -> Array:
    limit = POSITION_LIMIT - 1
    return np.arange(lq) + as_int("query_offset", query_offset, -limit, limit)


@quiet  # parameters that are NaN or too large show in the result
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
) -> Array:
    r"""Bias of FIRE for every pair, a floating `attn_mask` of `attention`.

    With p the position ``i + query_offset`` of query i and r = j - p,

    .. math::

        x_{ij} &= s \, \frac{\psi(|r|)}{\psi(\max(p, |threshold|)) + eps}, \quad
        \psi(d) = \log(|c \, d| + 1) \\
        b_{hij} &= \sum_k w2_{hk} \, \max(w1_k x_{ij} + b1_k, 0) + b2_h

    where s = 1, or where `signed` 1 for keys before the query and -1 for those after
    it. The normaliser depends on the query's own position, so this is no function of r,
    and decoding needs the true `query_offset`. `fire_attention` computes the same
    without storing it.

    Parameters
    ----------
    w1 : array_like of float, (W,) or (W, 1)
        Weights of the first layer.
    b1 : array_like of float, (W,)
        Its biases.
    w2 : array_like of float, (H, W)
        Weights of the second layer, a row for each head.
    b2 : array_like of float, (H,)
        Its biases.
    c, threshold : float or 0-d array
        Factor inside the logarithm, and the position as at which earlier queries are
        normalised. A Python number takes no part in the promotion of dtypes.
    query_length, key_length : int
        Lq and Lk; Lk is Lq by default.
    query_offset : int, default 0
        Position of query 0.
    signed : bool, default False
        Tell keys before the query from keys after it.
    eps : float, default 1e-6
        Added to the normaliser; the paper has none.

    Returns
    -------
    ndarray, (H, Lq, Lk)
        The bias, in the common dtype of the arrays; computed in float64.

    References
    ----------
    .. [1] Li et al., "Functional Interpolation for Relative Positions Improves Long
       Context Transformers", 2023, arXiv:2310.04418.

    Examples
    --------
    One unit that passes x on: distances over the reach of a query, in logarithms.

    >>> import relpos
    >>> relpos.fire_bias([1.0], [0.0], [[-1.0]], [0.0], 1.0, 1.0, 3, eps=0.0).round(2)
    array([[[ 0.  , -1.  , -1.58],
            [-1.  ,  0.  , -1.  ],
            [-1.  , -0.63,  0.  ]]])
    """
    fire = fire_network.as_fire(w1, b1, w2, b2, c, threshold, signed=signed, eps=eps)
    lq = as_int("query_length", query_length, 0)
    lk = lq if key_length is None else as_int("key_length", key_length, 0)
    shape = (len(fire.w2), lq, lk)
    check_bytes("fire_bias", shape, np.dtype(np.float64))
    bias = np.empty(shape)
    positions = _positions(lq if bias.size else 0, query_offset)
    for i, scale in enumerate(fire_network.query_factor(fire, positions)):
        x = scale * fire_network.offset_factor(fire, np.arange(lk) - positions[i])
        hidden = np.maximum(fire.w1[:, None] * x + fire.b1[:, None], 0.0)
        bias[:, i] = fire.w2 @ hidden + fire.b2[:, None]
    # Of dtypes alone: NumPy 1 looks at the number in an array of no axes.
    dtypes = [array.dtype for array in fire.typed.values()]
    return rounded(bias, common_dtype(*dtypes))


@quiet
@twin(fire_bias)
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
) -> FireGradients:
    r"""Gradients of the parameters of `fire_bias`.

    .. math::

        g_{hk} &= \sum_{ij} grad\_bias_{hij} \, [a_{ijk} > 0], \quad
        a_{ijk} = w1_k x_{ij} + b1_k \\
        db2_h &= \sum_{ij} grad\_bias_{hij}, \quad
        dw2_{hk} = \sum_{ij} grad\_bias_{hij} \max(a_{ijk}, 0) \\
        db1_k &= \sum_h w2_{hk} \, g_{hk}, \quad
        dw1_k = \sum_{hij} w2_{hk} \, grad\_bias_{hij} \, [a_{ijk} > 0] \, x_{ij}

    and those of `c` and `threshold` through x. Where a query is exactly at the
    threshold, its maximum has half of the slope on either side.

    Parameters
    ----------
    grad_bias : array_like of float, (H, Lq, Lk)
        Gradient of what `fire_bias` returned, such as that of an `attn_mask`.
    w1, b1, w2, b2, c, threshold, query_offset, signed, eps : as in `fire_bias`
        What the forward was given.

    Returns
    -------
    FireGradients
        Named tuple ``(w1, b1, w2, b2, c, threshold)``, each of its parameter's shape
        and dtype (float64 for a Python number).

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> parameters = [1.0], [0.0], [[-1.0]], [0.0], 1.0, 1.0
    >>> gradients = relpos.fire_bias_backward(np.ones((1, 3, 3)), *parameters, eps=0.0)
    >>> gradients.w2.round(2), gradients.b2
    (array([[6.22]]), array([9.]))
    """
    fire = fire_network.as_fire(w1, b1, w2, b2, c, threshold, signed=signed, eps=eps)
    grad = as_floating("grad_bias", grad_bias)
    heads = len(fire.w2)
    fits = grad.ndim == 3 and grad.shape[0] == heads
    check_shape("grad_bias", grad, fits, f"({heads}, Lq, Lk), w2's heads first")
    positions = _positions(grad.shape[1] if grad.size else 0, query_offset)
    scales = fire_network.query_factor(fire, positions)
    slopes = fire_network.query_slopes(fire, positions)
    sums = {
        "w1": np.zeros(fire.w1.shape),
        "b1": np.zeros(fire.b1.shape),
        "w2": np.zeros(fire.w2.shape),
        "b2": np.zeros(fire.b2.shape),
    }
    through_x = np.zeros(2)  # the gradients of c and of the threshold
    # One query at a time: an array of all pairs and units would be the largest.
    for i, scale in enumerate(scales):
        relative = np.arange(grad.shape[2]) - positions[i]
        factor = fire_network.offset_factor(fire, relative)
        before = fire.w1[:, None] * (scale * factor) + fire.b1[:, None]
        row = grad[:, i].astype(np.float64)
        back = np.where(before > 0, fire.w2.T @ row, 0.0)
        sums["b2"] += row.sum(1)
        sums["w2"] += row @ np.maximum(before, 0.0).T
        sums["b1"] += back.sum(1)
        sums["w1"] += back @ (scale * factor)
        grad_x = fire.w1 @ back
        through_x += (grad_x @ factor) * slopes[i]
        through_x[0] += scale * (grad_x @ fire_network.offset_slope(fire, relative))
    exact = sums | {"c": through_x[0], "threshold": through_x[1]}
    return FireGradients(**fire_network.like_inputs(fire, exact))


@overload
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
    signed: bool = False,
    eps: float = 1e-6,
    **keywords: Unpack[FireKeywords[Off]],
) -> Array: ...
@overload
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
    signed: bool = False,
    eps: float = 1e-6,
    **keywords: Unpack[FireKeywords[bool]],
) -> AttentionOutput: ...
@shows_keywords()
@twin(fire_bias)
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
    signed: bool = False,
    eps: float = 1e-6,
    **keywords: Unpack[FireKeywords[bool]],
) -> Array | AttentionOutput:
    r"""Attention with the bias of `fire_bias`, of which nothing Lq x Lk is stored.

    .. math:: s_{ij} = scale \; q_i k_j + b_{hij}

    and what other terms of `attention` are given. The network is piecewise linear in
    its one scalar x, with the same knots for all heads and queries, so the keys of a
    query fall into a few contiguous ranges on each of which the bias is a line in x.
    Time beyond plain attention is O(H Lq (Lk + W)), memory O(Lq W + Lk).

    Parameters
    ----------
    query, key, value : array_like
        (..., H, Lq, D), (..., Hk, Lk, D) and (..., Hk, Lk, Dv), as in `attention`.
    w1, b1, w2, b2, c, threshold, signed, eps : as in `fire_bias`
        FIRE's network; w2 has a row for each query head.
    **keywords
        Keywords of `attention`.

    Returns
    -------
    ndarray or AttentionOutput
        As `attention`. The `~AttentionContext.backward` of its context gives
        `FireAttentionGradients`: those of w1, b1, w2, b2, c and threshold as well.

    Raises
    ------
    ValueError
        Lq != Lk, and no `query_offset` is given.

    Examples
    --------
    One unit, one head: the farther a key, the less it weighs.

    >>> import numpy as np
    >>> import relpos
    >>> x, value = np.zeros((1, 3, 1)), np.array([[[1.0], [2.0], [3.0]]])
    >>> network = [1.0], [0.0], [[-5.0]], [0.0]
    >>> relpos.fire_attention(x, x, value, *network, 1.0, 1.0, is_causal=True).round(2)
    array([[[1.  ],
            [1.99],
            [2.95]]])
    """
    network = {
        "w1": w1,
        "b1": b1,
        "w2": w2,
        "b2": b2,
        "c": c,
        "threshold": threshold,
        "signed": signed,
        "eps": eps,
    }
    return attend(network | as_call(query, key, value, keywords))
