"""Matrices of relative positions, and the labels of grids."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from relpos._checks import POSITION_LIMIT, Array, as_int, as_ints

#: Items of the largest int64 array there can be.
_MAX_ITEMS = (2**63 - 1) // 8


def _check_size(name: str, *lengths: int) -> None:
    if math.prod(lengths) > _MAX_ITEMS:
        shape = " x ".join(map(str, lengths))
        raise ValueError(f"{name}: {shape} int64 items are more than memory can hold")


def relative_positions(
    query_length: int,
    key_length: int | None = None,
    *,
    max_relative_position: int | None = None,
    query_offset: int = 0,
) -> Array:
    r"""Matrix of relative positions, key minus query.

    .. math:: r_{ij} = clip(j - (i + query\_offset), -max, max)

    Parameters
    ----------
    query_length : int
        Lq, at least 0.
    key_length : int, optional
        Lk; Lq where it is None.
    max_relative_position : int, optional
        Clip to this on both sides, Shaw's k; None does not clip.
    query_offset : int, default 0
        Position of query 0 minus that of key 0, for instance the length of a memory
        that stands before the queries.

    Returns
    -------
    ndarray of int64, (Lq, Lk)
        Row i is query i, column j key j.

    Raises
    ------
    TypeError
        If an argument is not an integer.
    ValueError
        If a length or `max_relative_position` is negative, or the matrix too large.

    See Also
    --------
    grid_labels : The pairs of cells of a grid.
    t5_bucket, deberta_bucket : Buckets of the positions.
    relpos.plot.relative_position_map : Draws them.

    References
    ----------
    .. [1] Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position
       Representations", 2018, arXiv:1803.02155, section 3.2.

    Examples
    --------
    >>> import relpos
    >>> relpos.relative_positions(3)
    array([[ 0,  1,  2],
           [-1,  0,  1],
           [-2, -1,  0]])
    >>> relpos.relative_positions(2, 5, max_relative_position=2, query_offset=3)
    array([[-2, -2, -1,  0,  1],
           [-2, -2, -2, -1,  0]])
    """
    limit = POSITION_LIMIT
    queries = as_int("query_length", query_length, 0, limit)
    keys = queries
    if key_length is not None:
        keys = as_int("key_length", key_length, 0, limit)
    offset = as_int("query_offset", query_offset, -limit, limit)
    _check_size("query_length", queries, max(keys, 1))
    _check_size("key_length", keys)
    relative = np.empty((queries, keys), np.int64)
    if relative.size:
        query = np.arange(offset, offset + queries, dtype=np.int64)
        np.subtract(np.arange(keys), query[:, None], out=relative)
    if max_relative_position is None:
        return relative
    largest = min(as_int("max_relative_position", max_relative_position, 0), 2**62)
    return np.clip(relative, -largest, largest, out=relative)


def grid_labels(shape: int | Sequence[int]) -> Array:
    r"""Table row of every pair of cells of an n-D grid, for ``attention(labels=)``.

    With :math:`x_j - x_i` the vector from cell i (query) to cell j (key), the label is
    that vector plus :math:`(n_1 - 1, n_2 - 1, ...)`, read as a number whose digits run
    over :math:`2 n - 1` values each: equal vectors have equal labels.

    Parameters
    ----------
    shape : int or sequence of int
        Cells along each axis of the grid; cells are numbered in row-major order.

    Returns
    -------
    ndarray of int64, (N, N)
        N = prod(shape); values from 0 to prod(2n - 1) - 1.

    Raises
    ------
    TypeError
        If `shape` is not an integer or a sequence of integers.
    ValueError
        If a length is negative, or the labels too many.

    See Also
    --------
    attention : Takes them as `labels`.
    relative_positions : The offsets of a sequence.
    relpos.recipes.swin, relpos.recipes.botnet : Models on grids.

    Notes
    -----
    Tables of Swin Transformer count query minus key: reverse their rows
    (``table[::-1]``) to use them with these labels.

    References
    ----------
    .. [1] Liu et al., "Swin Transformer", 2021, arXiv:2103.14030.
    .. [2] Srinivas et al., "Bottleneck Transformers", 2021, arXiv:2101.11605.

    Examples
    --------
    >>> import relpos
    >>> relpos.grid_labels((2, 2))
    array([[4, 5, 7, 8],
           [3, 4, 6, 7],
           [1, 2, 4, 5],
           [0, 1, 3, 4]])
    """
    axes = as_ints("shape", shape, 0, POSITION_LIMIT)
    cells = math.prod(axes)
    _check_size("shape", cells, cells)
    labels = np.zeros((cells, cells), dtype=np.int64)
    if not cells:
        return labels
    rest = np.arange(cells)
    inner = cells
    for n in axes:
        inner //= n
        x, rest = np.divmod(rest, inner)
        labels *= 2 * n - 1
        labels += x - x[:, None]
        labels += n - 1
    return labels
