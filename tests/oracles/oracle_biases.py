"""Loops for biases by offset and for logarithmic buckets; see oracle.py.

Buckets by whole numbers alone: with e exact distances and w steps from there to d, a
distance n is s steps along where n^w * e^s >= d^s * e^w.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np


def alibi_slopes(num_heads, *, max_exponent=8.0, dtype=np.float64):
    """The authors' recursion: powers of two as they are, others by two series."""

    def slopes(count):
        if count & (count - 1) == 0:
            ratio = 2.0 ** (-max_exponent / count)
            return [ratio ** (k + 1) for k in range(count)]
        less = 2 ** math.floor(math.log2(count))
        return slopes(less) + slopes(2 * less)[::2][: count - less]

    return np.array(slopes(num_heads)).astype(dtype)


def alibi_bias(slopes, length, *, dtype=np.float64):
    slopes = alibi_slopes(slopes) if isinstance(slopes, int) else slopes
    result = np.zeros((len(slopes), 2 * length - 1))
    for h, slope in enumerate(slopes):
        for r in range(1 - length, length):
            result[h, r + length - 1] = -slope * abs(r)
    return result.astype(dtype)


def kerple_bias(r1, r2, length, *, kind):
    result = np.zeros((len(r1), 2 * length - 1), np.result_type(r1, r2, np.float64))
    for h in range(len(r1)):
        for r in range(1 - length, length):
            n = abs(r)
            if kind == "log":
                result[h, r + length - 1] = -r1[h] * np.log(1 + r2[h] * n)
            elif n:
                result[h, r + length - 1] = -r1[h] * np.exp(r2[h] * np.log(n))
    return result


def t5_bias(weight, length, **settings):
    result = np.zeros((weight.shape[1], 2 * length - 1), weight.dtype)
    for r in range(1 - length, length):
        row = t5_bucket([r], num_buckets=weight.shape[0], **settings)[0]
        result[:, r + length - 1] = weight[row]
    return result


@cache
def t5_steps(distance, exact, width, last):
    steps = 0
    # The products distance^width exact^(steps + 1) and last^(steps + 1) exact^width.
    left, right = distance**width * exact, last * exact**width
    while left >= right:
        left, right, steps = left * exact, right * last, steps + 1
    return steps


def t5_bucket(
    relative_position, *, bidirectional=True, num_buckets=32, max_distance=128
):
    relative = np.asarray(relative_position)
    side = num_buckets // 2 if bidirectional else num_buckets
    exact = side // 2
    result = np.zeros(relative.shape, np.int64)
    for index in np.ndindex(*relative.shape):
        r = int(relative[index])
        bucket = 0
        if bidirectional and r > 0:
            bucket, r = side, -r
        distance = max(-r, 0)
        if distance >= exact:
            steps = t5_steps(
                min(distance, max_distance), exact, side - exact, max_distance
            )
            distance = min(exact + steps, side - 1)
        result[index] = bucket + distance
    return result


@cache
def deberta_steps(distance, middle, last):
    width = middle - 1
    steps = 0
    # The products distance^width middle^steps and last^steps middle^width.
    left, right = distance**width, middle**width
    while left > right:
        left, right, steps = left * middle, right * last, steps + 1
    return steps


def deberta_bucket(relative_position, *, bucket_size, max_position):
    relative = np.asarray(relative_position)
    middle = bucket_size // 2
    result = np.zeros(relative.shape, np.int64)
    for index in np.ndindex(*relative.shape):
        r = int(relative[index])
        bucket = abs(r)
        if bucket > middle:
            bucket = middle + deberta_steps(bucket, middle, max_position - 1)
        result[index] = -bucket if r < 0 else bucket
    return result
