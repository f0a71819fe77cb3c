"""Relative positions, grid labels, and the skewing of score matrices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relpos.reference._xp import ArrayLike, Floats, Ints, as_float64

__all__ = [
    "grid_labels",
    "rel_shift",
    "relative_positions",
    "segment_ranges",
    "skew",
    "unskew",
]


def relative_positions(
    query_length: int,
    key_length: int | None = None,
    *,
    max_relative_position: int | None = None,
    query_offset: int = 0,
) -> Ints:
    """r(i, j) = j - (i + o), clipped to ±max_relative_position if that is given.

    Returns (Lq, Lk) int64.

    Examples
    --------
    >>> relative_positions(3)
    array([[ 0,  1,  2],
           [-1,  0,  1],
           [-2, -1,  0]])
    """
    key_length = query_length if key_length is None else key_length
    i = np.arange(query_length, dtype=np.int64)[:, None]
    j = np.arange(key_length, dtype=np.int64)[None, :]
    relative = j - (i + query_offset)
    if max_relative_position is None:
        return relative
    return np.clip(relative, -max_relative_position, max_relative_position)


def grid_labels(shape: Sequence[int]) -> Ints:
    """Row of a table with prod(2n - 1) rows for each pair of cells of an n-D grid.

    With x_j - x_i the vector from cell i to cell j (cells in row-major order), the
    label is that vector plus (n_1 - 1, n_2 - 1, ...), read as a mixed-radix number
    whose digits run over 2n - 1 values. Returns (N, N) int64 with N = prod(shape).

    Examples
    --------
    >>> grid_labels((1, 3))
    array([[2, 3, 4],
           [1, 2, 3],
           [0, 1, 2]])
    """
    shape = tuple(shape)
    cells = np.indices(shape).reshape(len(shape), -1)
    label = np.zeros((cells.shape[1],) * 2, dtype=np.int64)
    for n, x in zip(shape, cells, strict=True):
        label = label * (2 * n - 1) + (x[None, :] - x[:, None] + n - 1)
    return label


def segment_ranges(
    query_segments: ArrayLike, key_segments: ArrayLike | None = None
) -> Ints:
    """Begin and end of the keys whose segment is query i's: (..., Lq, 2) int64.

    begin_i = |{j : key_j < query_i}| counts the keys of earlier segments, end_i =
    |{j : key_j ≤ query_i}| those and the query's own; query_segments (..., Lq) and
    key_segments (..., Lk) ascend along their last axis.

    Examples
    --------
    >>> segment_ranges([0, 1, 1])
    array([[0, 1],
           [1, 3],
           [1, 3]])
    """
    query = np.asarray(query_segments)[..., :, None]
    key = query_segments if key_segments is None else key_segments
    key = np.asarray(key)[..., None, :]
    begin, end = np.sum(key < query, axis=-1), np.sum(key <= query, axis=-1)
    return np.stack([begin, end], axis=-1)


def rel_shift(x: ArrayLike) -> Floats:
    """Transformer-XL's relative shift: pad a zero column, re-read rows of Lk + 1 as Lq.

    x (..., Lq, Lk) -> the same shape. Element n of the result, counted row by row, is
    element Lq + n of the padded matrix. For Lq <= Lk that is
    y[i, j] = x[i, Lq - 1 - i + j] where j <= i + Lk - Lq, then one 0, and beyond it
    entries of row i + 1 that wrapped around: those mean nothing and are there because
    the shift moves memory. Hide them with a causal mask.

    Examples
    --------
    >>> rel_shift(np.arange(1.0, 10.0).reshape(3, 3))
    array([[3., 0., 4.],
           [5., 6., 0.],
           [7., 8., 9.]])
    """
    xp, x = as_float64(x)
    *batch, query_length, key_length = x.shape
    padded = xp.concatenate([xp.zeros((*batch, query_length, 1)), x], axis=-1)
    flat = padded.reshape(*batch, query_length * (key_length + 1))
    return flat[..., query_length:].reshape(x.shape)


def skew(x: ArrayLike, *, is_causal: bool) -> Floats:
    """Rearrange scores per distance, Q E_rᵀ, into scores per key.

    is_causal=True: the pad-reshape-slice of the Music Transformer, which is the same
    map as `rel_shift`, wrapped upper triangle included: (..., Lq, Lk) -> same shape.
    is_causal=False: x (..., Lq, R) holds all distances and
    y[i, j] = x[i, Lq - 1 - i + j], shape (..., Lq, R - Lq + 1); nothing wraps.

    Examples
    --------
    >>> skew(np.arange(1.0, 7.0).reshape(2, 3), is_causal=False)
    array([[2., 3.],
           [4., 5.]])
    """
    if is_causal:
        return rel_shift(x)
    _, x = as_float64(x)
    query_length, rows = x.shape[-2:]
    i = np.arange(query_length)[:, None]
    j = np.arange(rows - query_length + 1)[None, :]
    return x[..., i, query_length - 1 - i + j]


def unskew(x: ArrayLike, *, is_causal: bool) -> Floats:
    """The adjoint of `skew`: sum(skew(a) * b) = sum(a * unskew(b)) for all a, b.

    is_causal=True undoes the reading of memory: (..., Lq, Lk) -> same shape.
    is_causal=False: z[i, Lq - 1 - i + j] = x[i, j] and 0 elsewhere,
    (..., Lq, Lk) -> (..., Lq, Lk + Lq - 1).

    Examples
    --------
    >>> unskew(np.array([[2.0, 3.0], [4.0, 5.0]]), is_causal=False)
    array([[0., 2., 3.],
           [4., 5., 0.]])
    """
    xp, x = as_float64(x)
    *batch, query_length, key_length = x.shape
    if is_causal:
        flat = x.reshape(*batch, query_length * key_length)
        padded = xp.concatenate([xp.zeros((*batch, query_length)), flat], axis=-1)
        return padded.reshape(*batch, query_length, key_length + 1)[..., 1:]
    rows = max(query_length + key_length - 1, 0)
    i = np.arange(query_length)[:, None]
    j = np.arange(rows)[None, :] - (query_length - 1 - i)
    padded = xp.concatenate([x, xp.zeros((*batch, query_length, 1))], axis=-1)
    return padded[..., i, np.where((j >= 0) & (j < key_length), j, key_length)]
