"""Brute-force relative attention: N passes, one per reference word."""

from __future__ import annotations

import numpy as np

from relpos.reference._typing import ArrayLike, Floats
from relpos.reference.pairs import softmax

__all__ = ["brute_force_attention"]


def brute_force_attention(
    x: ArrayLike,
    encodings: ArrayLike,
    w_query: ArrayLike | None = None,
    w_key: ArrayLike | None = None,
    w_value: ArrayLike | None = None,
) -> Floats:
    """Pass i adds the encodings relative to i to all words and keeps output i.

    X⁽ⁱ⁾_j = x_j + P_(j-i);  out_i = row i of softmax(Q·Kᵀ/√D)·V with Q, K, V = X⁽ⁱ⁾
    times w_query, w_key, w_value (E, D; None: the identity). x (N, E); encodings
    (2N - 1, E), row t for relative position t - (N - 1). Returns (N, D).

    Here the position enters queries and values as well: Transformer-XL's attention
    replaces this by something N times cheaper, it does not compute the same numbers.

    See Also
    --------
    transformer_xl_attention : What Transformer-XL computes instead.

    Examples
    --------
    >>> brute_force_attention(np.zeros((2, 1)), [[-1.0], [0.0], [1.0]])
    array([[ 0.5],
           [-0.5]])
    """
    x = np.asarray(x, dtype=np.float64)
    encodings = np.asarray(encodings, dtype=np.float64)
    n, embed = x.shape
    weights = [np.eye(embed) if w is None else w for w in (w_query, w_key, w_value)]
    outputs = []
    for i in range(n):
        from_i = encodings[n - 1 - i : 2 * n - 1 - i]
        q, k, v = ((x + from_i) @ np.asarray(w, dtype=np.float64) for w in weights)
        p, _ = softmax(q @ k.T / np.sqrt(q.shape[-1]))
        outputs.append((p @ v)[i])
    return np.array(outputs)
