"""Relative positions: matrices of them, labels, key ranges, and scores by them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from relpos._attention.operands import broadcast_shapes
from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_flag,
    as_floating,
    as_int,
    as_integers,
    as_ints,
    at_least_ndim,
    check_bytes,
)
from relpos._settings import kernels
from relpos._text import amount

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["grid_labels", "rel_shift", "relative_positions"]
__all__ += ["segment_ranges", "skew", "unskew"]

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
        before the queries.

    Returns
    -------
    ndarray of int64, (Lq, Lk)
        Row i is query i, column j key j.

    Raises
    ------
    ValueError
        The matrix is too large.

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
    ValueError
        The labels are too many.

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
    # Axis by axis from the outermost one: the coordinate of each cell along it, and the
    # number of the cell within what is left.
    number = np.arange(cells)
    inner = cells
    for n in axes:
        inner //= n
        x, number = np.divmod(number, inner)
        labels *= 2 * n - 1
        labels += x - x[:, None]
        labels += n - 1
    return labels


# ---- key ranges of packed documents -------------------------------------------------


def segment_ranges(
    query_segments: ArrayLike, key_segments: ArrayLike | None = None
) -> Array:
    r"""Give the keys of each query's own segment, for ``attention(key_ranges=)``.

    .. math:: begin_i = |\{j : key_j < query_i\}|, \quad
              end_i = |\{j : key_j \le query_i\}|

    Several documents packed into one sequence do not see each other then, and pairs of
    different documents cost nothing.

    Parameters
    ----------
    query_segments : array_like of int, (..., Lq)
        Number of the segment of each query, ascending along the last axis; some may be
        left out.
    key_segments : array_like of int, (..., Lk), optional
        The same of the keys; None: that of the queries. Batch axes broadcast.

    Returns
    -------
    ndarray of int64, (..., Lq, 2)
        Begin and end; a segment without keys has an empty range.

    Raises
    ------
    ValueError
        The numbers are not ascending.

    References
    ----------
    .. [1] Raffel et al., "Exploring the Limits of Transfer Learning with a Unified
       Text-to-Text Transformer", 2019, arXiv:1910.10683, section 3.1 (packing).

    Examples
    --------
    Documents of two and of three tokens:

    >>> import relpos
    >>> relpos.segment_ranges([0, 0, 1, 1, 1]).tolist()
    [[0, 2], [0, 2], [2, 5], [2, 5], [2, 5]]
    """
    queries = _read("query_segments", query_segments)
    keys = queries
    if key_segments is not None:
        keys = _read("key_segments", key_segments)
    batch = broadcast_shapes(queries.shape[:-1], keys.shape[:-1])
    if batch is None:
        raise ValueError(
            f"key_segments: batch axes of shape {keys.shape} do not broadcast with "
            f"query_segments {queries.shape}; expected (..., Lk)"
        )
    shape = (*batch, queries.shape[-1], 2)
    check_bytes("query_segments", shape, np.dtype(np.int64))
    ranges = np.empty(shape, np.int64)
    queries = np.broadcast_to(queries, (*batch, queries.shape[-1]))
    keys = np.broadcast_to(keys, (*batch, keys.shape[-1]))
    for item in np.ndindex(batch):  # searchsorted takes one sequence at a time
        ranges[item][:, 0] = np.searchsorted(keys[item], queries[item], side="left")
        ranges[item][:, 1] = np.searchsorted(keys[item], queries[item], side="right")
    return ranges


def _read(name: str, value: object) -> Array:
    segments = as_integers(name, value)
    at_least_ndim(name, segments, 1, "(..., L)")
    falls = np.argwhere(segments[..., 1:] < segments[..., :-1])
    if len(falls):
        *item, column = map(int, falls[0])
        index = (*item, column)
        after = (*item, column + 1)
        raise ValueError(
            f"{name}: {segments[after]} comes after {segments[index]} at "
            f"{name}{list(after)}; expected ascending numbers along the last axis"
        )
    return segments


# ---- scores by relative position to scores by key, and back -------------------------


def _rearrange(kernel: str, x: Array, columns: int) -> Array:
    """Run one of the row maps; float16 goes through float32, which holds it exactly."""
    dtype = np.result_type(x.dtype, np.float32)
    out = np.empty((*x.shape[:-1], columns), dtype)
    getattr(kernels(), kernel)(x, out=out, dtype=dtype)
    return out.astype(x.dtype.newbyteorder("="), copy=False)


def _matrices(x: ArrayLike, expected: str) -> Array:
    array = as_floating("x", x)
    at_least_ndim("x", array, 2, expected)
    return array


def skew(x: ArrayLike, *, is_causal: bool) -> Array:
    r"""Turn scores per relative position into scores per key.

    For ``is_causal=False``, with one column per relative position from -(Lq - 1) on:

    .. math:: y_{ij} = x_{i,\; L_q - 1 - i + j}

    For ``is_causal=True`` the shape stays: this is the pad, reshape and slice of the
    Music Transformer bit for bit, and the same map as `rel_shift`. What lies more than
    one column right of the diagonal is then the wrapped remainder of the next row and
    means nothing; a causal mask has to hide it.

    Parameters
    ----------
    x : array_like of float, (..., Lq, Lk) if `is_causal`, else (..., Lq, R)
        For instance query @ rel_key.T.
    is_causal : bool
        If True, `x` has the causal form of the Music Transformer. If False, it has a
        column for each relative position of both directions.

    Returns
    -------
    ndarray, (..., Lq, Lk) if `is_causal`, else (..., Lq, R - Lq + 1)
        Column j belongs to key j.

    Raises
    ------
    ValueError
        `x` has fewer than Lq - 1 columns where `is_causal` is False.

    References
    ----------
    .. [1] Huang et al., "Music Transformer", 2018, arXiv:1809.04281, section 3.4.1.

    Examples
    --------
    Each row of `x` names its relative positions:

    >>> import numpy as np
    >>> import relpos
    >>> x = np.array([[-2.0, -1.0, 0.0, 1.0, 2.0]] * 3)
    >>> relpos.skew(x, is_causal=False)
    array([[ 0.,  1.,  2.],
           [-1.,  0.,  1.],
           [-2., -1.,  0.]])
    >>> relpos.skew(x[:, :3], is_causal=True)
    array([[ 0.,  0., -2.],
           [-1.,  0.,  0.],
           [-2., -1.,  0.]])
    """
    if as_flag("is_causal", is_causal):
        return rel_shift(x)
    array = _matrices(x, "(..., Lq, R)")
    queries, rows = array.shape[-2:]
    if rows < queries - 1:
        raise ValueError(
            f"x: shape {array.shape} has {amount(rows, 'column')} for "
            f"{amount(queries, 'query')}; expected (..., Lq, R), R = Lq + Lk - 1: one "
            f"per relative position from -(Lq - 1) = {1 - queries} on"
        )
    return _rearrange("skew", array, rows - queries + 1)


def unskew(x: ArrayLike, *, is_causal: bool) -> Array:
    r"""Adjoint of `skew`: sums over keys become sums over relative positions.

    For all a and b of fitting shapes, sum(skew(a) * b) = sum(a * unskew(b)). With
    ``is_causal=False``, and 0 where there is no such key,

    .. math:: y_{it} = x_{i,\; t - (L_q - 1) + i}

    With ``is_causal=True``, `x` behind Lq zeros is read as Lq rows of Lk + 1, and the
    first of these columns dropped.

    Parameters
    ----------
    x : array_like of float, (..., Lq, Lk)
        For instance the gradient of what `skew` returned.
    is_causal : bool
        As in `skew`. With True it is the adjoint of `rel_shift` too.

    Returns
    -------
    ndarray, (..., Lq, Lk) if `is_causal`, else (..., Lq, Lq + Lk - 1)
        Entries that `skew` did not read are 0.

    References
    ----------
    .. [1] Huang et al., "Music Transformer", 2018, arXiv:1809.04281, section 3.4.1.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> relpos.unskew(np.array([[1.0, 2.0], [3.0, 4.0]]), is_causal=False)
    array([[0., 1., 2.],
           [3., 4., 0.]])
    """
    causal = as_flag("is_causal", is_causal)
    array = _matrices(x, "(..., Lq, Lk)")
    queries, keys = array.shape[-2:]
    if causal:
        return _rearrange("rel_unshift", array, keys)
    return _rearrange("unskew", array, max(queries + keys - 1, 0))


def rel_shift(x: ArrayLike) -> Array:
    r"""Relative shift of Transformer-XL, for any Lq and Lk, bit for bit.

    Pad a column of zeros on the left, read the padded matrix as one of Lk + 1 rows,
    drop the first, read the rest as Lq rows again. For Lq <= Lk that is

    .. math:: y_{ij} = x_{i,\; L_q - 1 - i + j} \quad (j \le i + L_k - L_q),

    then one 0, and after it entries of row i + 1 that wrapped around. Those mean
    nothing; a causal mask has to hide them.

    Parameters
    ----------
    x : array_like of float, (..., Lq, Lk)
        Column t belongs to relative position t - (Lk - 1) of the last query.

    Returns
    -------
    ndarray, (..., Lq, Lk)
        Column j belongs to key j.

    References
    ----------
    .. [1] Dai et al., "Transformer-XL", 2019, arXiv:1901.02860, appendix B.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> relpos.rel_shift(np.arange(1.0, 9.0).reshape(2, 4))
    array([[2., 3., 4., 0.],
           [5., 6., 7., 8.]])
    """
    array = _matrices(x, "(..., Lq, Lk)")
    return _rearrange("rel_shift", array, array.shape[-1])
