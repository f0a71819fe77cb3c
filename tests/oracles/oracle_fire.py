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

    def total(**moved):
        return (grad_bias * fire_bias(**moved, **lengths, **options)).sum()

    return by_complex_steps(total, parameters)


# ---- whole matrices, for sizes at which loops take too long -------------------------


def scalar(c, threshold, lq, lk, query_offset, signed, eps):
    """x of every pair, and its derivatives by c and threshold.

    c acts on the distance and on the normaliser: two parts, which cancel far away.
    """
    p = np.arange(lq)[:, None] + float(query_offset)
    apart = np.arange(lk) - p
    sign = -np.sign(apart) if signed else 1.0
    limit = abs(threshold)
    reach, chosen = np.maximum(p, limit), np.where(p < limit, np.sign(threshold), 0.0)
    top, base = np.log(abs(c * apart) + 1), np.log(abs(c) * reach + 1) + eps
    by_reach = -sign * top / base**2 / (abs(c) * reach + 1)
    by_c = sign * abs(apart) / (abs(c * apart) + 1) / base, by_reach * reach
    slopes = [np.sign(c) * part for part in by_c], [by_reach * abs(c) * chosen]
    return sign * top / base, *slopes


def dense_bias(w1, b1, w2, b2, c, threshold, lq, lk, query_offset, signed, eps):
    x, _, _ = scalar(c, threshold, lq, lk, query_offset, signed, eps)
    bias = b2[:, None, None] + np.zeros((1, lq, lk))
    for k in range(len(b1)):
        bias = bias + w2[:, k, None, None] * np.maximum(w1[k] * x + b1[k], 0.0)
    return bias


def dense_gradients(
    ds, w1, b1, w2, b2, c, threshold, query_offset, signed, eps, magnitude=False
):
    """Gradients for ds (H, Lq, Lk); magnitude: sums of absolute values instead."""
    size = np.abs if magnitude else np.asarray
    x, by_c, by_threshold = scalar(
        c, threshold, *ds.shape[1:], query_offset, signed, eps
    )
    gradients = {"w1": np.zeros(len(b1)), "b1": np.zeros(len(b1))}
    gradients["w2"], slope = np.zeros(np.shape(w2)), np.zeros((len(b2), *x.shape))
    for k in range(len(b1)):
        before = w1[k] * x + b1[k]
        back = w2[:, k, None, None] * (before > 0)
        gradients["w1"][k] = size(ds * back * x).sum()
        gradients["b1"][k] = size(ds * back).sum()
        gradients["w2"][:, k] = size(ds * np.maximum(before, 0.0)).sum((1, 2))
        slope = slope + back * w1[k]
    gradients["b2"] = size(ds).sum((1, 2))
    gradients["c"] = sum(size(ds * slope * part).sum() for part in by_c)
    gradients["threshold"] = sum(size(ds * slope * part).sum() for part in by_threshold)
    return gradients
