"""NumPy forms of schemes, as programs without relpos have them, by their names.

Scores of all pairs are stored. The products with tables are done once for each row of a
table, and then skewed, shifted or gathered. All take (H, L, D) and keep the dtype.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relpos._checks import Array


def transposed(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def softmax(s: Array, is_causal: bool) -> Array:
    """Compute the softmax in place, after a causal mask if asked for."""
    if is_causal:
        s[..., np.tri(*s.shape[-2:]) == 0] = -np.inf
    # Without the row's maximum the exponential would overflow.
    s -= s.max(axis=-1, keepdims=True)
    np.exp(s, out=s)
    s /= s.sum(axis=-1, keepdims=True)
    return s


def root(query: Array) -> Array:
    # In the dtype of the query: a float64 factor would widen float32 scores.
    return np.asarray(query.shape[-1] ** -0.5, dtype=query.dtype)


def scores(query: Array, key: Array) -> Array:
    return (query @ transposed(key)) * root(query)


def attention(
    query: Array,
    key: Array,
    value: Array,
    bias: Array | None = None,
    is_causal: bool = False,
) -> Array:
    """Attend with a bias for each pair, or without positions."""
    s = scores(query, key)
    if bias is not None:
        s += bias
    return softmax(s, is_causal) @ value


def sinks(query: Array, key: Array, value: Array, sinks: Array) -> Array:
    s = scores(query, key)
    # A sink is one more logit of each row, without a value.
    column = np.broadcast_to(sinks[:, None, None], (*s.shape[:-1], 1))
    p = softmax(np.concatenate([s, column], axis=-1), is_causal=False)
    # The last column goes: it has a share of the softmax and adds nothing.
    return np.asarray(p[..., :-1] @ value)


def softcap(query: Array, key: Array, value: Array, cap: float = 50.0) -> Array:
    s = scores(query, key)
    s /= s.dtype.type(cap)
    np.tanh(s, out=s)
    s *= s.dtype.type(cap)
    return softmax(s, is_causal=False) @ value


def forgetting(query: Array, key: Array, value: Array, log_decay: Array) -> Array:
    """Take differences of sums over all steps before, in the dtype of the query."""
    # Differences of cumulative sums lose digits as sequences grow; programs compute
    # them so.
    sums = np.cumsum(log_decay, axis=-1)
    bias = sums[..., :, None] - sums[..., None, :]
    return attention(query, key, value, bias, is_causal=True)


def rotated(x: Array) -> Array:
    """Rotate halves of the columns; phases have the dtype of x, as programs do."""
    length, dim = x.shape[-2:]
    frequency = 10000.0 ** (-np.arange(0, dim, 2, dtype=x.dtype) / dim)
    phase = np.arange(length, dtype=x.dtype)[:, None] * frequency.astype(x.dtype)
    # Both columns of a pair have the same phase: columns c and c + dim / 2.
    phase = np.concatenate([phase, phase], axis=-1)
    a, b = np.split(x, 2, axis=-1)
    return np.asarray(x * np.cos(phase) + np.concatenate([-b, a], -1) * np.sin(phase))


def rotary(query: Array, key: Array, value: Array) -> Array:
    return attention(rotated(query), rotated(key), value)


def distances(length: int, k: int) -> Array:
    r = np.arange(length)[None, :] - np.arange(length)[:, None]
    return np.asarray(np.clip(r, -k, k) + k)


def shaw_attention(
    query: Array,
    key: Array,
    value: Array,
    rel_key: Array,
    rel_value: Array | None = None,
) -> Array:
    """Gather scores by row of the table for each pair; sum weights by row."""
    rows, length = rel_key.shape[0], query.shape[-2]
    row = distances(length, rows // 2)
    # q times every row of the table once, and then a choice for each pair.
    s = np.take_along_axis(query @ rel_key.T, row[None], axis=-1)
    s += query @ transposed(key)
    s *= root(query)
    p = softmax(s, is_causal=False)
    out = p @ value
    if rel_value is not None:
        sums = np.empty((*p.shape[:-1], rows), dtype=p.dtype)
        for t in range(rows):
            # Weights of all keys at one distance share a row, so that they are summed
            # first.
            sums[..., t] = np.where(row == t, p, 0).sum(axis=-1)
        out += sums @ rel_value
    return out


shaw_keys = shaw_attention


def relative_global_attention(
    query: Array, key: Array, value: Array, rel_key: Array
) -> Array:
    heads, length, _ = query.shape
    # The skew: a column of zeros, rows one shorter, and the first row cut.
    s = np.pad(query @ rel_key.T, ((0, 0), (0, 0), (1, 0)))
    s = s.reshape(heads, length + 1, length)[:, 1:]
    s = (s + query @ transposed(key)) * root(query)
    return softmax(s, is_causal=True) @ value


def transformer_xl_attention(
    query: Array,
    key: Array,
    value: Array,
    rel_key: Array,
    pos_bias_u: Array,
    pos_bias_v: Array,
) -> Array:
    """Shift, for a table of both directions (2L - 1 rows)."""
    heads, length, _ = query.shape
    s = np.pad((query + pos_bias_v) @ rel_key.T, ((0, 0), (0, 0), (1, 0)))
    # The same for 2L - 1 distances, whose rows are 2L with the column of zeros.
    s = s.reshape(heads, 2 * length, length)[:, 1:].reshape(heads, length, -1)
    s = s[:, :, :length] + (query + pos_bias_u) @ transposed(key)
    s *= root(query)
    return softmax(s, is_causal=False) @ value


def position_query(
    query: Array, key: Array, value: Array, position_query: Array, rel_key: Array
) -> Array:
    """Gather the products of the position query and the table for each pair."""
    row = distances(query.shape[-2], rel_key.shape[0] // 2)
    bias = np.take_along_axis(position_query @ rel_key.T, row[None], axis=-1)
    return attention(query, key, value, bias)


def bert(
    query: Array, key: Array, value: Array, rel_key: Array, rel_query: Array
) -> Array:
    """Multiply one table by the query and one by the key (relative_key_query)."""
    row = distances(query.shape[-2], rel_key.shape[0] // 2)
    s = np.take_along_axis(query @ rel_key.T, row[None], axis=-1)
    # Rows here are keys, so the choice is transposed before and after.
    s += transposed(np.take_along_axis(key @ rel_query.T, row.T[None], axis=-1))
    s += query @ transposed(key)
    s *= root(query)
    return softmax(s, is_causal=False) @ value


def rel_bias(query: Array, key: Array, value: Array, rel_bias: Array) -> Array:
    length = query.shape[-2]
    return attention(query, key, value, rel_bias[:, distances(length, length - 1)])


def steps_apart(query: Array) -> Array:
    i = np.arange(query.shape[-2], dtype=query.dtype)
    return np.asarray(np.abs(i[None, :] - i[:, None]))


def alibi(query: Array, key: Array, value: Array, slopes: Array) -> Array:
    return attention(query, key, value, -slopes[:, None, None] * steps_apart(query))


def kerple(query: Array, key: Array, value: Array, r1: Array, r2: Array) -> Array:
    bias = -r1[:, None, None] * np.log1p(r2[:, None, None] * steps_apart(query))
    return attention(query, key, value, bias)


def fire_attention(
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
    """Evaluate the network unit by unit, on a scalar for each pair."""
    reach = np.maximum(np.arange(query.shape[-2], dtype=query.dtype), threshold)
    # log1p of the distance over that of the query's position, as in FIRE.
    x = np.log1p(c * steps_apart(query)) / (
        np.log1p(c * reach)[:, None] + c.dtype.type(1e-6)
    )
    s = scores(query, key)
    # One unit at a time, so that no array has an axis of units.
    for k in range(w1.size):
        s += w2[:, k, None, None] * np.maximum(w1[k] * x + b1[k], 0)
    s += b2[:, None, None]
    return softmax(s, is_causal=False) @ value


def t5(query: Array, key: Array, value: Array, weight: Array) -> Array:
    """Gather the weight of the bucket of each pair; buckets to distance 128."""
    length, side = query.shape[-2], weight.shape[0] // 2
    r = distances(length, length - 1) - (length - 1)
    n, exact = np.abs(r), side // 2
    # Distances beyond half of a side share logarithmic buckets. The maximum keeps the
    # logarithm from 0.
    steps = np.log(np.maximum(n, exact) / exact) / np.log(128 / exact) * (side - exact)
    far = np.minimum(exact + steps.astype(int), side - 1)
    bucket = np.where(n < exact, n, far) + side * (r > 0)
    return attention(query, key, value, np.moveaxis(weight[bucket], -1, 0))


def deberta(
    query: Array, key: Array, value: Array, pos_key: Array, pos_query: Array
) -> Array:
    """Gather a row of both tables for each pair, without buckets."""
    length, rows = query.shape[-2], pos_key.shape[0]
    # Query minus key, where `distances` has key minus query.
    distance = (length - 1) - distances(length, length - 1)
    row = np.clip(distance + rows // 2, 0, rows - 1)
    s = np.take_along_axis(query @ pos_key.T, row[None], axis=-1)
    s += transposed(np.take_along_axis(key @ pos_query.T, row.T[None], axis=-1))
    s += query @ transposed(key)
    # Three terms count in DeBERTa's scale: content, and one for each table.
    s *= np.asarray((3 * query.shape[-1]) ** -0.5, dtype=query.dtype)
    return softmax(s, is_causal=False) @ value


def pairs(query: Array, key: Array, value: Array, rel_key: Array) -> Array:
    """Attend with Shaw's keys and a vector for each pair: the L x L x d form."""
    row = distances(query.shape[-2], rel_key.shape[0] // 2)
    keys = key[:, None] + rel_key[row]
    s = np.einsum("hid,hijd->hij", query, keys, optimize=True) * root(query)
    return softmax(s, is_causal=False) @ value


def sinusoidal(positions: int, dim: int, dtype: Any, layout: str) -> Array:
    """Compute sines and cosines in `dtype` throughout; dim is even."""
    omega = np.exp(np.arange(0, dim, 2, dtype=dtype) * dtype(-np.log(1e4) / dim))
    phase = np.arange(positions, dtype=dtype)[:, None] * omega
    if layout == "concat":
        return np.concatenate([np.sin(phase), np.cos(phase)], axis=-1)
    encoding = np.empty((positions, dim), dtype=dtype)
    encoding[:, 0::2] = np.sin(phase)
    encoding[:, 1::2] = np.cos(phase)
    return encoding


def index_encoding(length: int, dim: int, dtype: Any) -> Array:
    return np.repeat(np.arange(length, dtype=dtype)[:, None], dim, axis=1)


def normalized_index_encoding(length: int, dim: int, dtype: Any) -> Array:
    return np.asarray(index_encoding(length, dim, dtype) / dtype(max(length - 1, 1)))


def learned(table: Array, positions: Array) -> Array:
    return np.take(table, positions, axis=0)


def two_axes(
    query: Array, key: Array, value: Array, rel_key: Array, labels: tuple[Array, ...]
) -> Array:
    """Gather the products with the rows of a table for each pair and axis."""
    s = query @ transposed(key)
    by_row = query @ rel_key.T
    for label in labels:
        s += np.take_along_axis(by_row, label[None].astype(np.intp), axis=-1)
    s *= root(query)
    return softmax(s, is_causal=False) @ value


def graph_attention(
    query: Array,
    key: Array,
    value: Array,
    indptr: Array,
    indices: Array,
    labels: Array,
    rel_key: Array,
    rel_value: Array,
) -> Array:
    """Gather a key and a value for each edge, then sum over the edges of each query."""
    # The query of each edge, from the bounds of the runs.
    of_edge = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    first = indptr[:-1]
    keys = key[:, indices] + rel_key[labels]
    s = np.einsum("hed,hed->he", query[:, of_edge], keys)
    s *= root(query)
    # reduceat takes the maximum of each run. Each query has an edge, as a run of none
    # would give a wrong one.
    s -= np.maximum.reduceat(s, first, axis=1)[:, of_edge]
    np.exp(s, out=s)
    s /= np.add.reduceat(s, first, axis=1)[:, of_edge]
    values = value[:, indices] + rel_value[labels]
    values *= s[..., None]
    return np.asarray(np.add.reduceat(values, first, axis=1))


def conv_encoding(x: Array, weight: Array, bias: Array, grid: tuple[int, int]) -> Array:
    """Pad the grid, and move it once for each tap."""
    around = weight.shape[-1] // 2
    cells = x.reshape(*grid, -1)
    padded = np.pad(cells, ((around, around), (around, around), (0, 0)))
    y = cells + bias
    for s, t in np.ndindex(weight.shape[1:]):
        y += padded[s : s + grid[0], t : t + grid[1]] * weight[:, s, t]
    return y.reshape(x.shape)
