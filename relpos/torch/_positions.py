"""Labels of grids and key ranges of packed documents, on tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import relpos
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


def segment_ranges(
    query_segments: Tensor, key_segments: Tensor | None = None
) -> Tensor:
    r"""Key ranges that keep each document of a packed sequence to itself.

    .. math:: begin_i = |\{j : key_j < query_i\}|, \quad
              end_i = |\{j : key_j \le query_i\}|

    Parameters
    ----------
    query_segments : Tensor of integers, (..., Lq)
        The document of each query, ascending along the last axis.
    key_segments : Tensor of integers, (..., Lk), optional
        Those of the keys; default those of the queries.

    Returns
    -------
    Tensor of int64, (..., Lq, 2)
        For `key_ranges` of `attention`: the first key of the query's document, and the
        one after its last.

    Raises
    ------
    TypeError, ValueError
        As `relpos.segment_ranges`.

    See Also
    --------
    relpos.segment_ranges : The same on arrays.
    attention : Takes the ranges.

    References
    ----------
    .. [1] Raffel et al., "Exploring the Limits of Transfer Learning with a Unified
       Text-to-Text Transformer", 2019, arXiv:1910.10683, section 3.1 (packing).

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> relpos.torch.segment_ranges(torch.tensor([0, 0, 1])).tolist()
    [[0, 2], [0, 2], [2, 3]]
    """
    return _RANGES(query_segments=query_segments, key_segments=key_segments)


@constant_result
def grid_labels(shape: int | Sequence[int]) -> Tensor:
    r"""Table row of each pair of cells of a grid, for `labels` of `attention`.

    .. math:: l_{ij} = \sum_a (x^a_j - x^a_i + n_a - 1) \prod_{b > a} (2 n_b - 1)

    Parameters
    ----------
    shape : int or sequence of int
        Cells along each axis, n.

    Returns
    -------
    Tensor of int64, (cells, cells)
        Rows of a table of :math:`\prod_a (2 n_a - 1)`. A compiled program has them as
        a constant.

    Raises
    ------
    TypeError, ValueError
        As `relpos.grid_labels`.

    See Also
    --------
    relpos.grid_labels : The same as an array, with all that it says of grids.
    attention : Takes the labels.

    References
    ----------
    .. [1] Liu et al., "Swin Transformer", 2021, arXiv:2103.14030.

    Examples
    --------
    >>> import relpos.torch
    >>> relpos.torch.grid_labels((1, 2)).tolist()
    [[1, 2], [0, 1]]
    """
    return torch.from_numpy(relpos.grid_labels(shape))
