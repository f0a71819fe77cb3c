"""Loops for positions, skewing, dense scores and encodings; see oracle.py."""

from __future__ import annotations

import numpy as np
from oracle import table_row


def relative_positions(
    query_length, key_length=None, *, max_relative_position=None, query_offset=0
):
    key_length = query_length if key_length is None else key_length
    result = np.zeros((query_length, key_length), np.int64)
    for i in range(query_length):
        for j in range(key_length):
            r = j - (i + query_offset)
            if max_relative_position is not None:
                r = max(-max_relative_position, min(max_relative_position, r))
            result[i, j] = r
    return result


def grid_labels(shape):
    """Row of a table with prod(2n - 1) rows: key cell minus query cell, per axis."""
    cells = list(np.ndindex(*shape))
    result = np.zeros((len(cells), len(cells)), np.int64)
    for i, query_cell in enumerate(cells):
        for j, key_cell in enumerate(cells):
            row = 0
            for n, q, k in zip(shape, query_cell, key_cell, strict=True):
                row = row * (2 * n - 1) + (k - q + n - 1)
            result[i, j] = row
    return result


def _shift_source(i, j, lq, lk):
    """Return the (row, column) of x that the causal skew reads for (i, j), or None."""
    row, column = divmod(lq + i * lk + j, lk + 1)
    return None if column == 0 else (row, column - 1)


def skew(x, *, is_causal):
    x = np.asarray(x)
    lq, width = x.shape[-2:]
    lk = width if is_causal else width - lq + 1
    result = np.zeros((*x.shape[:-1], lk), x.dtype)
    for i in range(lq):
        for j in range(lk):
            source = _shift_source(i, j, lq, lk) if is_causal else (i, lq - 1 - i + j)
            if source is not None:
                result[..., i, j] = x[(..., *source)]
    return result


def unskew(x, *, is_causal):
    x = np.asarray(x)
    lq, lk = x.shape[-2:]
    result = np.zeros((*x.shape[:-1], lk if is_causal else lk + lq - 1), x.dtype)
    for i in range(lq):
        for j in range(lk):
            source = _shift_source(i, j, lq, lk) if is_causal else (i, lq - 1 - i + j)
            if source is not None:
                result[(..., *source)] += x[..., i, j]
    return result


def rel_shift(x):
    return skew(x, is_causal=True)


def _scores(query, key, rel_key, u, v, scale, offset, first, beyond):
    """scale * [(q_i + u).k_j + (q_i + v).A[l]], every pair, nothing hidden."""
    query, key, rel_key = (np.asarray(x) for x in (query, key, rel_key))
    kind = np.result_type(np.float64, query, key, rel_key, u, v)
    heads, lq, dim = query.shape[-3:]
    lk, rows = key.shape[-2], rel_key.shape[-2]
    batch = np.broadcast_shapes(query.shape[:-3], key.shape[:-3])
    query = np.broadcast_to(query, (*batch, heads, lq, dim)).astype(kind)
    key = np.broadcast_to(key, (*batch, heads, lk, dim)).astype(kind)
    table = np.broadcast_to(rel_key, (*batch, heads, rows, dim)).astype(kind)
    u, v = (np.broadcast_to(x, (heads, dim)).astype(kind) for x in (u, v))
    scale = 1.0 / np.sqrt(dim) if scale is None else scale
    result = np.zeros((*batch, heads, lq, lk), kind)
    for index in np.ndindex(*result.shape):
        *b, h, i, j = index
        q = query[(*b, h, i)]
        score = np.dot(q + u[h], key[(*b, h, j)])
        row = table_row(j - (i + offset), first, rows, beyond)
        if row is not None:
            score = score + np.dot(q + v[h], table[(*b, h, row)])
        result[index] = scale * score
    return result


def shaw_scores(query, key, rel_key, *, scale=None, query_offset=None):
    first = -((np.shape(rel_key)[-2] - 1) // 2)
    zero = np.zeros(np.shape(query)[-1])
    offset = query_offset or 0
    return _scores(query, key, rel_key, zero, zero, scale, offset, first, "clip")


def skewed_scores(
    query,
    key,
    rel_key,
    *,
    is_causal,
    scale=None,
    query_offset=None,
    min_relative_position=None,
):
    rows = np.shape(rel_key)[-2]
    first = min_relative_position
    if first is None:
        first = -(rows - 1) if is_causal else -((rows - 1) // 2)
    zero = np.zeros(np.shape(query)[-1])
    offset = query_offset or 0
    return _scores(query, key, rel_key, zero, zero, scale, offset, first, "zero")


def transformer_xl_scores(
    query,
    key,
    rel_key,
    pos_bias_u,
    pos_bias_v,
    *,
    scale=None,
    query_offset=None,
    min_relative_position=None,
):
    lq, lk = np.shape(query)[-2], np.shape(key)[-2]
    offset = lk - lq if query_offset is None else query_offset
    first = -(lk - 1) if min_relative_position is None else min_relative_position
    u, v = pos_bias_u, pos_bias_v
    return _scores(query, key, rel_key, u, v, scale, offset, first, "zero")


def sinusoidal(
    positions,
    dim,
    *,
    base=10000.0,
    inv_freq=None,
    layout="interleaved",
    dtype=np.float64,
):
    """Sines and cosines at 200 bits, rounded to float64, then to dtype."""
    import mpmath

    positions = np.arange(positions) if np.ndim(positions) == 0 else positions
    positions = np.asarray(positions, np.float64)
    half = (dim + 1) // 2 if layout == "interleaved" else dim // 2
    result = np.zeros((*positions.shape, dim))
    with mpmath.workprec(200):
        if inv_freq is None:
            step = mpmath.mpf(-2) / dim
            frequencies = [mpmath.power(base, c * step) for c in range(half)]
        else:
            frequencies = [mpmath.mpf(float(f)) for f in inv_freq]
        for index in np.ndindex(*positions.shape):
            for c, frequency in enumerate(frequencies):
                angle = mpmath.mpf(float(positions[index])) * frequency
                sine, cosine = float(mpmath.sin(angle)), float(mpmath.cos(angle))
                if layout == "interleaved":
                    result[(*index, 2 * c)] = sine
                    if 2 * c + 1 < dim:
                        result[(*index, 2 * c + 1)] = cosine
                else:
                    result[(*index, c)], result[(*index, half + c)] = sine, cosine
    return result.astype(dtype)


def learned(table, positions):
    table, positions = np.asarray(table), np.asarray(positions)
    result = np.zeros(
        (*table.shape[:-2], *positions.shape, table.shape[-1]), table.dtype
    )
    lead = (slice(None),) * (table.ndim - 2)
    for index in np.ndindex(*positions.shape):
        result[(*lead, *index)] = table[(*lead, int(positions[index]))]
    return result
