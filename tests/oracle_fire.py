"""FIRE's bias pair by pair, from the formula; complex parameters stay complex.

    x    = s log(|c r| + 1) / (log(|c max(p, |threshold|)| + 1) + eps),  r = j - p
    b_h  = sum_k w2[h, k] relu(w1[k] x + b1[k]) + b2[h]

p = i + query_offset; s = 1, or with `signed` the sign of p - j. Nothing is shared with
relpos.
"""

from __future__ import annotations

import numpy as np

NAMES = ("w1", "b1", "w2", "b2", "c", "threshold")


def size(x):
    """|x| as a function that complex steps can go through."""
    return x if np.real(x) >= 0 else -x


def fire_bias(
    w1,
    b1,
    w2,
    b2,
    c,
    threshold,
    query_length,
    key_length=None,
    *,
    query_offset=0,
    signed=False,
    eps=1e-6,
):
    w1, b1, w2, b2, c, threshold = (
        np.asarray(x) + 0.0 for x in (w1, b1, w2, b2, c, threshold)
    )
    key_length = query_length if key_length is None else key_length
    dtype = np.result_type(w1, b1, w2, b2, c, threshold, np.float64)
    bias = np.zeros((len(b2), query_length, key_length), dtype)
    for i in range(query_length):
        p = i + query_offset
        reach = size(threshold)
        reach = p if p > np.real(reach) else reach
        normaliser = np.log(size(c * reach) + 1) + eps
        for j in range(key_length):
            x = np.log(size(c * (j - p)) + 1) / normaliser
            x = x * np.sign(p - j) if signed else x
            hidden = w1.reshape(-1) * x + b1
            hidden = np.where(np.real(hidden) > 0, hidden, 0.0)
            bias[:, i, j] = w2 @ hidden + b2
    return bias


def by_complex_steps(function, parameters):
    """The gradient of a real function of several arrays, by name."""
    step, found = 1e-100, {}
    for name, array in parameters.items():
        gradient = np.zeros(np.shape(array))
        for index in np.ndindex(*gradient.shape):
            moved = np.array(array, np.complex128)
            moved[index] += step * 1j
            gradient[index] = np.imag(function(**parameters | {name: moved})) / step
        found[name] = gradient
    return found


def fire_bias_backward(grad_bias, w1, b1, w2, b2, c, threshold, **options):
    parameters = dict(zip(NAMES, (w1, b1, w2, b2, c, threshold), strict=True))
    lengths = dict(
        zip(("query_length", "key_length"), grad_bias.shape[1:], strict=True)
    )

    def total(**given):
        return (grad_bias * fire_bias(**given, **lengths, **options)).sum()

    return by_complex_steps(total, parameters)
