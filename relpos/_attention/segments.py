"""Key ranges of packed documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from relpos._attention.shapes import broadcast_shapes
from relpos._checks import Array, as_integers, at_least_ndim, check_bytes

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


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
    TypeError
        If the numbers are not integers.
    ValueError
        If they are not ascending, have no axis, or batch axes do not fit.

    See Also
    --------
    attention : Takes them as `key_ranges`.

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
    for item in np.ndindex(batch):
        ranges[item][:, 0] = np.searchsorted(keys[item], queries[item], side="left")
        ranges[item][:, 1] = np.searchsorted(keys[item], queries[item], side="right")
    return ranges


def _read(name: str, value: object) -> Array:
    segments = as_integers(name, value)
    at_least_ndim(name, segments, 1, "(..., L)")
    falls = np.argwhere(segments[..., 1:] < segments[..., :-1])
    if len(falls):
        *item, at = map(int, falls[0])
        index = (*item, at)
        after = (*item, at + 1)
        raise ValueError(
            f"{name}: {segments[after]} comes after {segments[index]} at "
            f"{name}{list(after)}; expected ascending numbers along the last axis"
        )
    return segments
