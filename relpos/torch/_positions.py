"""Labels of grids and key ranges of packed documents, on tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import relpos
from relpos._twins import twin
from relpos.torch._functions import TensorFunction
from relpos.torch._tracing import constant_result


def _ranges_shape(values: dict[str, Any]) -> tuple[int, ...]:
    queries, keys = values["query_segments"].shape, values["key_segments"]
    if keys is None:
        return *queries, 2
    batch = torch.broadcast_shapes(queries[:-1], keys.shape[:-1])
    return *batch, queries[-1], 2


_RANGES = TensorFunction(
    "segment_ranges",
    "query_segments key_segments?",
    "",
    relpos.segment_ranges,
    _ranges_shape,
    dtype=torch.int64,
)


@twin(relpos.segment_ranges)
def segment_ranges(
    query_segments: Tensor, key_segments: Tensor | None = None
) -> Tensor:
    """Key ranges that keep each document of a packed sequence to itself.

    Parameters
    ----------
    query_segments : Tensor of int, (..., Lq)
        Number of the segment of each query, ascending along the last axis; some may be
        left out.
    key_segments : Tensor of int, (..., Lk), optional
        The same of the keys; None: that of the queries. Batch axes broadcast.

    Returns
    -------
    Tensor of int64, (..., Lq, 2)
        For `key_ranges` of `attention`: the first key of the query's segment, and the
        one after its last. A segment without keys has an empty range.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> relpos.torch.segment_ranges(torch.tensor([0, 0, 1])).tolist()
    [[0, 2], [0, 2], [2, 3]]
    """
    return _RANGES(query_segments=query_segments, key_segments=key_segments)


@constant_result
@twin(relpos.grid_labels)
def grid_labels(shape: int | Sequence[int]) -> Tensor:
    """Table row of each pair of cells of a grid, for `labels` of `attention`.

    Parameters
    ----------
    shape : int or sequence of int
        Cells along each axis of the grid; cells are numbered in row-major order.

    Returns
    -------
    Tensor of int64, (N, N)
        N = prod(shape); values from 0 to prod(2n - 1) - 1. A compiled program has them
        as a constant.

    Notes
    -----
    Tables of Swin Transformer count query minus key: reverse their rows
    (``table.flip(0)``) to use them with these labels.

    Examples
    --------
    >>> import relpos.torch
    >>> relpos.torch.grid_labels((1, 2)).tolist()
    [[1, 2], [0, 1]]
    """
    return torch.from_numpy(relpos.grid_labels(shape))
