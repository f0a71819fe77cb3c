"""Attention over the cells of a grid: Swin Transformer and BoTNet, by labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from relpos._attention.labels import grid_labels
from relpos._checks import POSITION_LIMIT, as_ints, quiet
from relpos.recipes._tables import Keywords, as_table

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["botnet", "swin"]


def swin(table: ArrayLike, window: int | Sequence[int]) -> Keywords:
    r"""Swin Transformer's bias within a window, square or not.

    .. math:: s_{ij} = q_i k_j / \sqrt D + table_{index(x_i - x_j), h}

    Parameters
    ----------
    table : array_like, (prod(2n-1), H)
        ``relative_position_bias_table``, which counts query minus key; its gradient is
        that of rel_bias, transposed.
    window : int or sequence of int
        (rows, columns) of the window, or cells of a grid of any dimension.

    Returns
    -------
    dict
        `rel_bias` and `labels`, for windows as batch items (B, H, N, D), N = prod(n).

    Raises
    ------
    TypeError, ValueError
        If the table does not have prod(2n - 1) rows, or `window` is no grid.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    relpos.grid_labels : The labels.
    botnet : Vectors for rows and columns instead of biases.

    References
    ----------
    .. [1] Liu et al., "Swin Transformer: Hierarchical Vision Transformer using Shifted
       Windows", 2021, arXiv:2103.14030, section 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.swin(np.zeros((3 * 5, 4)), (2, 3))["labels"].shape
    (6, 6)
    """
    sides = as_ints("window", window, 1, POSITION_LIMIT)
    biases = as_table("table", table, "(prod(2n-1), H)")
    rows = math.prod(2 * n - 1 for n in sides)
    if biases.shape[0] != rows:
        raise ValueError(
            f"table: {biases.shape[0]} rows for a window of {window}; expected {rows}, "
            "the product of 2n - 1"
        )
    return {"rel_bias": biases.T, "labels": rows - 1 - grid_labels(sides)}


@quiet
def botnet(
    rel_height: ArrayLike, rel_width: ArrayLike, grid: tuple[int, int]
) -> Keywords:
    r"""Bottleneck Transformer's position scores, a vector per row and one per column.

    .. math:: s_{ij} = q_i (k_j + height_{y_j - y_i} + width_{x_j - x_i}) / \sqrt D

    Parameters
    ----------
    rel_height : array_like, (2h-1, D)
        A vector for each distance in rows, from -(h-1) on.
    rel_width : array_like, (2w-1, D)
        The same in columns.
    grid : (int, int)
        (h, w), rows and columns of the feature map.

    Returns
    -------
    dict
        `rel_key`, a table of (2h-1)(2w-1) sums, and `labels`. With g its gradient as
        (2h-1, 2w-1, D), that of rel_height is ``g.sum(1)``, of rel_width ``g.sum(0)``.

    Raises
    ------
    TypeError, ValueError
        If a table does not have the rows of its side, or `grid` no two sides.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    relpos.grid_labels : The labels.
    swin : A bias for each pair of cells instead of vectors.

    References
    ----------
    .. [1] Srinivas et al., "Bottleneck Transformers for Visual Recognition", 2021,
       arXiv:2101.11605, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.botnet(np.zeros((3, 8)), np.zeros((5, 8)), (2, 3))["rel_key"].shape
    (15, 8)
    """
    sides = as_ints("grid", grid, 1, POSITION_LIMIT)
    if len(sides) != 2:
        raise ValueError(f"grid: got {grid}; expected (h, w)")
    height = as_table("rel_height", rel_height, "(2h-1, D)")
    width = as_table("rel_width", rel_width, "(2w-1, D)")
    tables = ("rel_height", height, sides[0]), ("rel_width", width, sides[1])
    for name, table, n in tables:
        wanted = 2 * n - 1, height.shape[-1]
        if table.shape != wanted:
            raise ValueError(
                f"{name}: got shape {table.shape} for {n} cells; expected {wanted}"
            )
    both = (height[:, None] + width[None]).reshape(-1, height.shape[-1])
    return {"rel_key": both, "labels": grid_labels(sides)}
