"""FIRE: a network of the distance over the reach of the query's own position."""

from __future__ import annotations

from typing import Any

import numpy as np

from relpos.reference._typing import ArrayLike, Floats
from relpos.reference.formula import attention
from relpos.reference.pairs import Result, float64, offset_of

__all__ = ["fire_attention", "fire_bias", "fire_bias_backward"]


def log_distance(c: Floats, distance: Floats) -> Floats:
    """ψ(d) = log(|c·d| + 1)."""
    psi: Floats = np.log(np.abs(c * distance) + 1)
    return psi


def log_slope(c: Floats, distance: Floats) -> Floats:
    """∂ψ/∂c = sign(c)·d / (|c|·d + 1), d >= 0."""
    slope: Floats = np.sign(c) * distance / (np.abs(c) * distance + 1)
    return slope


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

    See Also
    --------
    relpos.fire_bias : Describes the arguments.
    fire_bias_backward : Its gradients.

    References
    ----------
    Li et al. (2023), arXiv:2310.04418.

    Examples
    --------
    >>> fire_bias([1.0], [0.0], [[-1.0]], [0.0], 1.0, 1.0, 2, eps=0.0)
    array([[[ 0., -1.],
            [-1.,  0.]]])
    """
    a, b, v, d = float64(w1, b1, w2, b2)
    keys = query_length if key_length is None else key_length
    x, _, _ = scalar(c, threshold, query_length, keys, query_offset, signed, eps)
    hidden = np.maximum(a.reshape(-1)[:, None, None] * x + b[:, None, None], 0)
    bias: Floats = np.einsum("hk,kij->hij", v, hidden) + d[:, None, None]
    return bias


def scalar(
    c: ArrayLike,
    threshold: ArrayLike,
    query_length: int,
    key_length: int,
    query_offset: int,
    signed: bool,
    eps: float,
) -> tuple[Floats, Floats, Floats]:
    """x_ij and its derivatives by c and threshold; half of max's at a tie."""
    factor, limit = float64(c, threshold)
    p = np.arange(query_length, dtype=np.float64)[:, None] + query_offset
    r = np.arange(key_length) - p
    m = np.maximum(p, np.abs(limit))
    s = -np.sign(r) if signed else 1.0
    over = log_distance(factor, m) + eps
    x = s * log_distance(factor, r) / over
    by_c = s * log_slope(factor, np.abs(r)) / over - x * log_slope(factor, m) / over
    of_max = np.where(p < np.abs(limit), 1.0, np.where(p == np.abs(limit), 0.5, 0.0))
    by_m = -x / over * np.abs(factor) / (np.abs(factor) * m + 1)
    return x, by_c, by_m * of_max * np.sign(limit)


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

    See Also
    --------
    relpos.fire_bias_backward : Describes the arguments.
    fire_bias : The forward.

    Examples
    --------
    >>> network = [1.0], [0.0], [[3.0]], [0.0], 1.0, 1.0
    >>> grads = fire_bias_backward(np.ones((1, 2, 2)), *network)
    >>> grads["w2"].round(4), grads["b2"]
    (array([[2.]]), array([4.]))
    """
    a, b, v, grad = float64(w1, b1, w2, grad_bias)
    x, by_c, by_threshold = scalar(
        c, threshold, grad.shape[1], grad.shape[2], query_offset, signed, eps
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

    See Also
    --------
    relpos.fire_attention : By the kernels; describes the arguments.
    fire_bias : The bias b.

    Examples
    --------
    >>> x, value = np.zeros((1, 2, 1)), np.array([[[1.0], [2.0]]])
    >>> fire_attention(x, x, value, [1.0], [0.0], [[-9.0]], [0.0], 1.0, 1.0).round(2)
    array([[[1.],
            [2.]]])
    """
    q, k = float64(query, key)
    offset = int(np.asarray(offset_of(query_offset, q, k)))
    bias = fire_bias(
        *(w1, b1, w2, b2, c, threshold),
        q.shape[-2],
        k.shape[-2],
        query_offset=offset,
        signed=signed,
        eps=eps,
    )
    return attention(query, key, value, bias, query_offset=offset, **options)
