"""What one writes in NumPy without relpos: scores for all pairs, then a softmax.

These are the table forms: the products with the tables are done once per row of the
table, and then skewed, shifted or gathered. All take (H, L, D) and keep the dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "alibi",
    "attention",
    "deberta",
    "fire",
    "forgetting",
    "index",
    "kerple",
    "keys_and_queries",
    "learned",
    "music",
    "normalized_index",
    "pairs",
    "position_query",
    "relative_bias",
    "rotary",
    "shaw",
    "sinks",
    "sinusoidal",
    "softcap",
    "t5",
    "transformer_xl",
]

Array = npt.NDArray[Any]


def transposed(x: Array) -> Array:
    """The last two axes exchanged."""
    return np.swapaxes(x, -1, -2)


def softmax(s: Array, is_causal: bool) -> Array:
    """In place; a causal mask first if asked for."""
    if is_causal:
        s[..., np.tri(*s.shape[-2:]) == 0] = -np.inf
    s -= s.max(axis=-1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(axis=-1, keepdims=True)
    return s


def root(query: Array) -> Array:
    """1/sqrt(D) in the query's own dtype."""
    return np.asarray(query.shape[-1] ** -0.5, dtype=query.dtype)


def attention(query: Array, key: Array, value: Array, is_causal: bool = False) -> Array:
    """No positions."""
    s = (query @ transposed(key)) * root(query)
    return softmax(s, is_causal) @ value


def sinks(query: Array, key: Array, value: Array, sinks: Array) -> Array:
    """One more column of scores, left out after the softmax."""
    s = (query @ transposed(key)) * root(query)
    column = np.broadcast_to(sinks[:, None, None], (*s.shape[:-1], 1))
    p = softmax(np.concatenate([s, column], axis=-1), is_causal=False)
    out: Array = p[..., :-1] @ value
    return out


def softcap(query: Array, key: Array, value: Array, cap: float = 50.0) -> Array:
    """A tanh of every score."""
    s = (query @ transposed(key)) * root(query)
    s /= s.dtype.type(cap)
    np.tanh(s, out=s)
    s *= s.dtype.type(cap)
    return softmax(s, is_causal=False) @ value


def forgetting(query: Array, key: Array, value: Array, log_decay: Array) -> Array:
    """Differences of sums over all steps before, in the query's own precision."""
    sums = np.cumsum(log_decay, axis=-1)
    s = (query @ transposed(key)) * root(query)
    s += sums[..., :, None] - sums[..., None, :]
    return softmax(s, is_causal=True) @ value


def rotary(x: Array) -> Array:
    """Halves of the columns as pairs; phases of x's own precision, as programs do."""
    length, dim = x.shape[-2:]
    frequency = 10000.0 ** (-np.arange(0, dim, 2, dtype=x.dtype) / dim)
    phase = np.arange(length, dtype=x.dtype)[:, None] * frequency.astype(x.dtype)
    phase = np.concatenate([phase, phase], axis=-1)
    a, b = np.split(x, 2, axis=-1)
    turned: Array = x * np.cos(phase) + np.concatenate([-b, a], axis=-1) * np.sin(phase)
    return turned


def distances(length: int, k: int) -> Array:
    """Row of a table of 2k + 1 rows for each pair."""
    r = np.arange(length)[None, :] - np.arange(length)[:, None]
    row: Array = np.clip(r, -k, k) + k
    return row


def shaw(
    query: Array,
    key: Array,
    value: Array,
    rel_key: Array,
    rel_value: Array | None = None,
) -> Array:
    """Scores per row of the table gathered per pair; weights summed per row."""
    rows, length = rel_key.shape[0], query.shape[-2]
    row = distances(length, rows // 2)
    s = np.take_along_axis(query @ rel_key.T, row[None], axis=-1)
    s += query @ transposed(key)
    s *= root(query)
    p = softmax(s, is_causal=False)
    out = p @ value
    if rel_value is not None:
        sums = np.empty((*p.shape[:-1], rows), dtype=p.dtype)
        for t in range(rows):
            sums[..., t] = np.where(row == t, p, 0).sum(axis=-1)
        out += sums @ rel_value
    return out


def music(query: Array, key: Array, value: Array, rel_key: Array) -> Array:
    """The skew: pad, reshape, slice."""
    heads, length, _ = query.shape
    s = np.pad(query @ rel_key.T, ((0, 0), (0, 0), (1, 0)))
    s = s.reshape(heads, length + 1, length)[:, 1:]
    s = (s + query @ transposed(key)) * root(query)
    return softmax(s, is_causal=True) @ value


def transformer_xl(
    query: Array,
    key: Array,
    value: Array,
    rel_key: Array,
    pos_bias_u: Array,
    pos_bias_v: Array,
) -> Array:
    """The shift, for a table of both directions (2L - 1 rows)."""
    heads, length, _ = query.shape
    s = np.pad((query + pos_bias_v) @ rel_key.T, ((0, 0), (0, 0), (1, 0)))
    s = s.reshape(heads, 2 * length, length)[:, 1:].reshape(heads, length, -1)
    s = s[:, :, :length] + (query + pos_bias_u) @ transposed(key)
    s *= root(query)
    return softmax(s, is_causal=False) @ value


def position_query(
    query: Array, key: Array, value: Array, position_query: Array, rel_key: Array
) -> Array:
    """A query of its own for the table, its products gathered for each pair."""
    row = distances(query.shape[-2], rel_key.shape[0] // 2)
    s = (query @ transposed(key)) * root(query)
    s += np.take_along_axis(position_query @ rel_key.T, row[None], axis=-1)
    return softmax(s, is_causal=False) @ value


def keys_and_queries(
    query: Array, key: Array, value: Array, rel_key: Array, rel_query: Array
) -> Array:
    """BERT's relative_key_query: one table met by the query, one by the key."""
    row = distances(query.shape[-2], rel_key.shape[0] // 2)
    s = np.take_along_axis(query @ rel_key.T, row[None], axis=-1)
    s += transposed(np.take_along_axis(key @ rel_query.T, row.T[None], axis=-1))
    s += query @ transposed(key)
    s *= root(query)
    return softmax(s, is_causal=False) @ value


def relative_bias(query: Array, key: Array, value: Array, rel_bias: Array) -> Array:
    """One number per head and relative position, gathered per pair."""
    length = query.shape[-2]
    s = (query @ transposed(key)) * root(query)
    s += rel_bias[:, distances(length, length - 1)]
    return softmax(s, is_causal=False) @ value


def steps_apart(query: Array) -> Array:
    """|j - i| for each pair, in the query's dtype."""
    i = np.arange(query.shape[-2], dtype=query.dtype)
    apart: Array = np.abs(i[None, :] - i[:, None])
    return apart


def alibi(query: Array, key: Array, value: Array, slopes: Array) -> Array:
    """A slope per head times the distance of each pair."""
    s = (query @ transposed(key)) * root(query)
    s -= slopes[:, None, None] * steps_apart(query)
    return softmax(s, is_causal=False) @ value


def kerple(query: Array, key: Array, value: Array, r1: Array, r2: Array) -> Array:
    """A logarithm of the distance of each pair."""
    s = (query @ transposed(key)) * root(query)
    s -= r1[:, None, None] * np.log1p(r2[:, None, None] * steps_apart(query))
    return softmax(s, is_causal=False) @ value


def fire(
    query: Array,
    key: Array,
    value: Array,
    w1: Array,
    b1: Array,
    w2: Array,
    b2: Array,
    c: Array,
    threshold: Array,
) -> Array:
    """The network unit by unit, on a scalar for each pair."""
    reach = np.maximum(np.arange(query.shape[-2], dtype=query.dtype), threshold)
    x = np.log1p(c * steps_apart(query)) / (
        np.log1p(c * reach)[:, None] + c.dtype.type(1e-6)
    )
    s = (query @ transposed(key)) * root(query)
    for k in range(w1.size):
        s += w2[:, k, None, None] * np.maximum(w1[k] * x + b1[k], 0)
    s += b2[:, None, None]
    return softmax(s, is_causal=False) @ value


def t5(query: Array, key: Array, value: Array, weight: Array) -> Array:
    """A bucket for each pair, its weight gathered; buckets to distance 128."""
    length, side = query.shape[-2], weight.shape[0] // 2
    r = distances(length, length - 1) - (length - 1)
    n, exact = np.abs(r), side // 2
    steps = np.log(np.maximum(n, exact) / exact) / np.log(128 / exact) * (side - exact)
    far = np.minimum(exact + steps.astype(int), side - 1)
    bucket = np.where(n < exact, n, far) + side * (r > 0)
    s = (query @ transposed(key)) * root(query)
    s += np.moveaxis(weight[bucket], -1, 0)
    return softmax(s, is_causal=False) @ value


def deberta(
    query: Array, key: Array, value: Array, pos_key: Array, pos_query: Array
) -> Array:
    """One row of both tables for each pair of query and key, without buckets."""
    length, rows = query.shape[-2], pos_key.shape[0]
    distance = (length - 1) - distances(length, length - 1)
    row = np.clip(distance + rows // 2, 0, rows - 1)
    s = np.take_along_axis(query @ pos_key.T, row[None], axis=-1)
    s += transposed(np.take_along_axis(key @ pos_query.T, row.T[None], axis=-1))
    s += query @ transposed(key)
    s *= np.asarray((3 * query.shape[-1]) ** -0.5, dtype=query.dtype)
    return softmax(s, is_causal=False) @ value


def pairs(query: Array, key: Array, value: Array, rel_key: Array) -> Array:
    """Shaw's keys with a vector for each pair: the L x L x d form."""
    row = distances(query.shape[-2], rel_key.shape[0] // 2)
    keys = key[:, None] + rel_key[row]
    s = np.einsum("hid,hijd->hij", query, keys, optimize=True) * root(query)
    return softmax(s, is_causal=False) @ value


def sinusoidal(positions: int, dim: int, dtype: Any, layout: str) -> Array:
    """Sines and cosines as usually written, in `dtype` throughout; dim even."""
    omega = np.exp(np.arange(0, dim, 2, dtype=dtype) * dtype(-np.log(1e4) / dim))
    phase = np.arange(positions, dtype=dtype)[:, None] * omega
    if layout == "concat":
        return np.concatenate([np.sin(phase), np.cos(phase)], axis=-1)
    encoding = np.empty((positions, dim), dtype=dtype)
    encoding[:, 0::2] = np.sin(phase)
    encoding[:, 1::2] = np.cos(phase)
    return encoding


def index(length: int, dim: int, dtype: Any) -> Array:
    """The position in every dimension."""
    return np.repeat(np.arange(length, dtype=dtype)[:, None], dim, axis=1)


def normalized_index(length: int, dim: int, dtype: Any) -> Array:
    """The position over the last one."""
    row: Array = index(length, dim, dtype) / dtype(max(length - 1, 1))
    return row


def learned(table: Array, positions: Array) -> Array:
    """Rows of a table."""
    return np.take(table, positions, axis=0)
