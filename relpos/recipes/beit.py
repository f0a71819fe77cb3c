"""BEiT: a table of biases for patches and their class token, resized to any grid."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from relpos._attention.labels import grid_labels
from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_ints,
    check_memory,
    quiet,
)
from relpos.recipes._resize import resized, resized_backward
from relpos.recipes._tables import Keywords, as_grad, as_shaped, like

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["beit", "beit_backward"]

#: Rows behind the pairs of patches: class to patch, patch to class, class to class.
_CLASS = 3


@quiet
def beit(
    relative_position_bias_table: ArrayLike,
    window: Sequence[int],
    *,
    table_window: Sequence[int] | None = None,
) -> Keywords:
    r"""BEiT's bias between patches, and of the class token that stands before them.

    .. math:: s_{ij} = q_i k_j / \sqrt D + table_{index(x_i - x_j), h}

    Parameters
    ----------
    relative_position_bias_table : array_like, ((2h-1)(2w-1) + 3, H)
        Of query minus key; the last three rows are class to patch, patch to class and
        class to class.
    window : (int, int)
        Rows and columns of patches, (h', w').
    table_window : (int, int), optional
        (h, w) of the table, where another; it is resized linearly.

    Returns
    -------
    dict
        `rel_bias` and `labels`, (N + 1, N + 1), N = h' w', with the class token first.

    Raises
    ------
    TypeError, ValueError
        If the table does not have (2h - 1)(2w - 1) + 3 rows, or a window is no grid.

    See Also
    --------
    relpos.attention : Takes the result as keywords.
    beit_backward : The gradient of the table.
    swin : Without the class token.

    Notes
    -----
    ============================  ======================  ==============
    ``BeitRelativePositionBias``  shape                   here
    ============================  ======================  ==============
    relative_position_bias_table  ((2h-1)(2w-1) + 3, H)   the same name
    ============================  ======================  ==============

    As the model does, a table is read as (2w - 1) x (2h - 1) before it is resized to
    (2h' - 1) x (2w' - 1): one that is not square changes even at its own size.

    References
    ----------
    .. [1] Bao et al., "BEiT: BERT Pre-Training of Image Transformers", 2021,
       arXiv:2106.08254.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.beit(np.zeros((28, 12)), (3, 3))["labels"][:2, :3]
    array([[27, 25, 25],
           [26, 12, 11]])
    """
    table = _Table(relative_position_bias_table, window, table_window)
    pairs = table.given[:-_CLASS].astype(np.float64)
    pairs = pairs.reshape(2 * table.old[1] - 1, 2 * table.old[0] - 1, -1)
    for axis, side in enumerate(table.new):
        pairs = resized(pairs, axis, 2 * side - 1)
    pairs = like(pairs.reshape(-1, pairs.shape[-1]), table.given)
    rows = np.concatenate([pairs, table.given[-_CLASS:]])
    return {"rel_bias": rows.T, "labels": _labels(table.new, len(rows))}


@quiet
def beit_backward(
    grad_rel_bias: ArrayLike,
    relative_position_bias_table: ArrayLike,
    window: Sequence[int],
    *,
    table_window: Sequence[int] | None = None,
) -> Array:
    r"""Gradient of the table of `beit`.

    .. math:: \overline{table} = M^T \bar b^T, \quad b = (M \, table)^T

    with M the linear map that resizes the table.

    Parameters
    ----------
    grad_rel_bias : array_like, (H, R)
        Gradient of rel_bias, R = (2h'-1)(2w'-1) + 3.
    relative_position_bias_table : array_like, ((2h-1)(2w-1) + 3, H)
        As given to `beit`.
    window, table_window : as in `beit`
        The same.

    Returns
    -------
    ndarray
        Of the shape of the table.

    Raises
    ------
    TypeError, ValueError
        As `beit`, or if the gradient is of another shape.

    See Also
    --------
    beit : The forward.
    relpos.AttentionContext.backward : Where `grad_rel_bias` comes from, as `rel_bias`.

    References
    ----------
    .. [1] Bao et al., "BEiT: BERT Pre-Training of Image Transformers", 2021,
       arXiv:2106.08254.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.beit_backward(np.ones((12, 28)), np.zeros((28, 12)), (3, 3)).shape
    (28, 12)
    """
    table = _Table(relative_position_bias_table, window, table_window)
    heads = table.given.shape[1]
    sides = [2 * side - 1 for side in table.new]
    grad = as_grad("grad_rel_bias", grad_rel_bias, (heads, math.prod(sides) + _CLASS)).T
    pairs = grad[:-_CLASS].reshape(*sides, heads)
    for axis, side in enumerate(reversed(table.old)):
        pairs = resized_backward(pairs, axis, 2 * side - 1)
    pairs = pairs.reshape(-1, heads)
    return like(np.concatenate([pairs, grad[-_CLASS:]]), table.given)


class _Table:
    """The table as given, and its windows, checked."""

    def __init__(self, table: object, window: object, table_window: object) -> None:
        self.new = _sides("window", window)
        self.old = self.new
        if table_window is not None:
            self.old = _sides("table_window", table_window)
        self.given = as_shaped("relative_position_bias_table", table, "rows", "H")
        rows = math.prod(2 * side - 1 for side in self.old) + _CLASS
        if len(self.given) != rows:
            raise ValueError(
                f"relative_position_bias_table: {len(self.given)} rows for "
                f"{tuple(self.old)} patches; expected (2h-1)(2w-1) + 3 = {rows}"
            )
        count = math.prod(2 * side - 1 for side in self.new) + _CLASS
        check_memory("window", (count, self.given.shape[1]), np.dtype(np.float64))


def _sides(name: str, value: object) -> list[int]:
    sides = as_ints(name, value, 1, POSITION_LIMIT)
    if len(sides) != 2:
        raise ValueError(f"{name}: got {value}; expected (rows, columns)")
    return sides


def _labels(sides: list[int], rows: int) -> Array:
    """Query minus key of two patches, and the last three rows around them."""
    labels = np.empty((math.prod(sides) + 1,) * 2, np.int64)
    labels[1:, 1:] = rows - _CLASS - 1 - grid_labels(sides)
    labels[0], labels[:, 0] = rows - 3, rows - 2
    labels[0, 0] = rows - 1
    return labels
