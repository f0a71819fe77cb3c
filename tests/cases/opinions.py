"""Attention as others write it: what mistakes.py and conventions.py are made of.

Written anew after the reports named beside each, with nothing of relpos but what a call
needs. A case is a function of a Generator that returns (mine, arguments of diagnose).
"""

from __future__ import annotations

import math

import numpy as np

import relpos

B, H, L, D = 2, 5, 9, 8


def case(room, *names, of):
    """Puts a case among the mistakes or the conventions, by what it is and whose."""

    def add(function):
        room[f"{'+'.join(names)}: {of}"] = (names, function)
        return function

    return add


def qkv(rng, lq=L, lk=L, heads=H):
    shapes = ((B, H, lq, D), (B, heads, lk, D), (B, heads, lk, D))
    return [rng.standard_normal(shape) for shape in shapes]


def distance(lq=L, lk=L, before=0):
    return np.arange(lk) - (np.arange(lq)[:, None] + before)


def transposed(x):
    return np.swapaxes(x, -1, -2)


def softmax(s, axis=-1):
    e = np.exp(s - s.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def position(q, rows_of_pairs):
    """q_i . T[pair], of T[rows] (Lq, Lk, D)."""
    return np.einsum("...id,ijd->...ij", q, rows_of_pairs)


def hide(s, see):
    return np.where(see, s, -1e9)


def shift(x):
    """Transformer-XL's: a column of zeros in front, and the rows read anew."""
    *batch, lq, lk = x.shape
    padded = np.concatenate([np.zeros((*batch, lq, 1)), x], axis=-1)
    return padded.reshape(*batch, lk + 1, lq)[..., 1:, :].reshape(*batch, lq, lk)


def xl(rng, rows=2 * L - 1, lq=L, lk=L, **settings):
    """Inputs of Transformer-XL: q, k, v, table, u, v and the arguments of diagnose."""
    q, k, v = qkv(rng, lq, lk)
    table = rng.standard_normal((rows, D))
    u, w = rng.standard_normal((2, H, D))
    arguments = {"query": q, "key": k, "value": v, "rel_key": table}
    arguments |= {"pos_bias_u": u, "pos_bias_v": w}
    arguments |= {"scheme": "transformer_xl_attention", **settings}
    return q, k, v, table, u[:, None], w[:, None], arguments


def shaw(rng, k=3, lq=L, lk=L, **settings):
    q, key, v = qkv(rng, lq, lk)
    table = rng.standard_normal((2 * k + 1, D))
    arguments = {"query": q, "key": key, "value": v, "rel_key": table}
    return q, key, v, table, arguments | {"scheme": "shaw_attention", **settings}


def biased(rng, bias, lq=L, lk=L, **settings):
    q, k, v = qkv(rng, lq, lk)
    return q, k, v, {"query": q, "key": k, "value": v, "rel_bias": bias, **settings}


def turn(x, at, *, base=1e4, width=D, pairs=False, frequencies=None):
    """Rotary, a pair at a time."""
    out = x.copy()
    if frequencies is None:
        frequencies = [base ** (-2 * c / width) for c in range(width // 2)]
    for c, frequency in enumerate(frequencies):
        a, b = (2 * c, 2 * c + 1) if pairs else (c, len(frequencies) + c)
        cos, sin = np.cos(at * frequency), np.sin(at * frequency)
        out[..., a] = x[..., a] * cos - x[..., b] * sin
        out[..., b] = x[..., b] * cos + x[..., a] * sin
    return out


def rotary(rng, lq=L, lk=L, **settings):
    q, k, v = qkv(rng, lq, lk)
    arguments = {"query": q, "key": k, "value": v, "scheme": "rotary", **settings}
    return q, k, v, arguments


def plain(q, k, v, scale=None):
    scale = 1 / math.sqrt(D) if scale is None else scale
    return softmax(q @ transposed(k) * scale) @ v


def t5(rng, lq=L, lk=L, reach=9, sides=True, **settings):
    """T5 with 12 buckets up to a distance of 9; its weight and the arguments."""
    weight = rng.standard_normal((H, 12))
    r = np.arange(1 - lk, lk)
    options = {"num_buckets": 12, "max_distance": reach, "bidirectional": sides}
    buckets = relpos.t5_bucket(r, **options)
    arguments = biased(rng, weight, lq, lk, buckets=buckets, scale=1.0, **settings)
    return weight, *arguments
