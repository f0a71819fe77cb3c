"""Tables resized linearly, as models do for grids that they were not trained with."""

from __future__ import annotations

import numpy as np

from relpos._checks import Array


def resized(table: Array, axis: int, count: int) -> Array:
    """Return a float64 table with `count` rows along an axis.

    Row i of the new ones lies at (i + 1/2) old / new - 1/2 of the old ones, and takes a
    share of the two beside it; outside the first and the last, it takes these. Of
    torch: ``interpolate(align_corners=False)``.
    """
    return _apply(_shares(table.shape[axis], count), table, axis)


def resized_backward(grad: Array, axis: int, count: int) -> Array:
    """Return the gradient of the `count` rows that there were before."""
    return _apply(_shares(count, grad.shape[axis]).T, grad, axis)


def _shares(old: int, new: int) -> Array:
    """The rows (old) that each new row is made of: (new, old), rows of sum 1."""
    place = np.clip((np.arange(new) + 0.5) * (old / new) - 0.5, 0, old - 1)
    left = place.astype(np.int64)
    matrix = np.zeros((new, old))
    matrix[np.arange(new), left] = 1 - (place - left)
    matrix[np.arange(new), np.minimum(left + 1, old - 1)] += place - left
    return matrix


def _apply(matrix: Array, table: Array, axis: int) -> Array:
    if matrix.shape[0] == matrix.shape[1]:  # nothing to do, for infinities too
        return table
    return np.moveaxis(np.tensordot(matrix, table, (1, axis)), 0, axis)
