"""Segment Anything: a vector for each distance in rows, and one for each in columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from relpos._checks import POSITION_LIMIT, Array, as_ints, check_memory, quiet
from relpos.recipes._resize import resized, resized_backward
from relpos.recipes._tables import Keywords, as_grad, as_shaped, like
from relpos.recipes.results import SamGradients

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["sam", "sam_backward"]


@quiet
def sam(rel_pos_h: ArrayLike, rel_pos_w: ArrayLike, grid: Sequence[int]) -> Keywords:
    r"""Segment Anything's (ViTDet's, MViTv2's) positions, decomposed into two axes.

    .. math:: s_{ij} = \frac{q_i k_j}{\sqrt D} + q_i h_{y_i - y_j} + q_i w_{x_i - x_j}

    Positions meet the query unscaled, so that tables are given times sqrt(D).

    Parameters
    ----------
    rel_pos_h : array_like, (R, D)
        Table h: a vector for each distance in rows, query minus key.
    rel_pos_w : array_like, (S, D)
        Table w: the same in columns.
    grid : (int, int)
        Rows and columns, of the whole map or of a window. A table of other than 2 n - 1
        rows is resized linearly.

    Returns
    -------
    dict
        `rel_key`, the rows of h and then of w, and `labels`, a tuple of two (N, N).

    Raises
    ------
    TypeError, ValueError
        If a table is empty or of another shape, or `grid` no two sides.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    sam_backward : The gradients of the tables.
    botnet : A table of all pairs of distances.

    Notes
    -----
    ======================  ========  ===========
    ``SamVisionAttention``  shape     here
    ======================  ========  ===========
    rel_pos_h               (R, D)    `rel_pos_h`
    rel_pos_w               (S, D)    `rel_pos_w`
    ======================  ========  ===========

    References
    ----------
    .. [1] Kirillov et al., "Segment Anything", 2023, arXiv:2304.02643.
    .. [2] Li et al., "MViTv2: Improved Multiscale Vision Transformers for
       Classification and Detection", 2021, arXiv:2112.01526.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> keywords = recipes.sam(np.zeros((5, 64)), np.zeros((7, 64)), (3, 4))
    >>> keywords["rel_key"].shape, [x.shape for x in keywords["labels"]]
    ((12, 64), [(12, 12), (12, 12)])
    """
    tables, sides = _checked(rel_pos_h, rel_pos_w, grid)
    root = math.sqrt(tables[0].shape[1])
    parts = [
        root * resized(table.astype(np.float64), 0, 2 * side - 1)
        for table, side in zip(tables, sides, strict=True)
    ]
    table = like(np.concatenate(parts), tables[0])
    return {"rel_key": table, "labels": _labels(*sides)}


@quiet
def sam_backward(
    grad_rel_key: ArrayLike,
    rel_pos_h: ArrayLike,
    rel_pos_w: ArrayLike,
    grid: Sequence[int],
) -> SamGradients:
    r"""Gradients of the tables of `sam`.

    .. math:: \bar h = \sqrt D \, M^T \bar A, \quad A = \sqrt D \, M h

    with M the linear map that resizes a table.

    Parameters
    ----------
    grad_rel_key : array_like, (2 h - 1 + 2 w - 1, D)
        Gradient of rel_key, for a grid (h, w).
    rel_pos_h, rel_pos_w, grid : as in `sam`
        The same.

    Returns
    -------
    SamGradients
        The named tuple (rel_pos_h, rel_pos_w), of their shapes.

    Raises
    ------
    TypeError, ValueError
        As `sam`, or if the gradient is of another shape.

    See Also
    --------
    sam : The forward.
    relpos.AttentionContext.backward : Where `grad_rel_key` comes from, as `rel_key`.

    References
    ----------
    .. [1] Kirillov et al., "Segment Anything", 2023, arXiv:2304.02643.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> given = np.zeros((5, 64)), np.zeros((7, 64)), (3, 4)
    >>> recipes.sam_backward(np.ones((12, 64)), *given).rel_pos_w.shape
    (7, 64)
    """
    tables, sides = _checked(rel_pos_h, rel_pos_w, grid)
    dim, first = tables[0].shape[1], 2 * sides[0] - 1
    shape = (first + 2 * sides[1] - 1, dim)
    grad = math.sqrt(dim) * as_grad("grad_rel_key", grad_rel_key, shape)
    height, width = tables
    return SamGradients(
        like(resized_backward(grad[:first], 0, len(height)), height),
        like(resized_backward(grad[first:], 0, len(width)), width),
    )


def _checked(
    rel_pos_h: object, rel_pos_w: object, grid: object
) -> tuple[tuple[Array, Array], list[int]]:
    height = as_shaped("rel_pos_h", rel_pos_h, "R", "D")
    width = as_shaped("rel_pos_w", rel_pos_w, "S", height.shape[1])
    for name, table in (("rel_pos_h", height), ("rel_pos_w", width)):
        if not len(table):
            raise ValueError(f"{name}: got shape {table.shape}; expected a row or more")
    sides = as_ints("grid", grid, 1, POSITION_LIMIT)
    if len(sides) != 2:
        raise ValueError(f"grid: got {grid}; expected (rows, columns)")
    rows = 2 * sum(sides) - 2
    check_memory("grid", (rows, max(height.shape[1], 1)), np.dtype(np.float64))
    check_memory("grid", (math.prod(sides),) * 2, np.dtype(np.int64))
    return (height, width), sides


def _labels(height: int, width: int) -> tuple[Array, Array]:
    """Rows of the joined table for each pair of cells, in the fewest bytes."""
    kind = np.min_scalar_type(-2 * (height + width))
    y, x = np.divmod(np.arange(height * width), width)
    down, right = (z[:, None] - z for z in (y.astype(kind), x.astype(kind)))
    return down + kind.type(height - 1), right + kind.type(2 * height + width - 2)
