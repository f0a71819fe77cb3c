"""Rows of the schemes whose positions are those of a grid: a sum over its axes."""

from __future__ import annotations

from typing import Any

import numpy as np

import relpos
from relpos import recipes, reference
from relpos._catalogue.numpy_forms import root, softmax, transposed
from relpos._catalogue.row import Array, Inputs, Row, draw, heads_of, of_attention

__all__ = ["ROWS"]


def grid_of(length: int) -> tuple[int, int]:
    """Rows and columns, as equal as they can be."""
    sides = [n for n in range(1, length + 1) if n * n <= length and length % n == 0]
    return sides[-1], length // sides[-1]


def two_axes(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
    """A vector for each distance in rows and in columns, and the labels of pairs."""
    rng = np.random.default_rng(length)
    sides = grid_of(length)
    height, width = (draw(rng, dtype, 2 * side - 1, dim) for side in sides)
    return heads_of()(dtype, heads, length, dim) | recipes.sam(height, width, sides)


def sam(
    query: Array,
    key: Array,
    value: Array,
    rel_key: Array,
    labels: tuple[Array, ...],
) -> Array:
    """Products with all rows of the table, gathered for each pair and axis."""
    s = query @ transposed(key)
    by_row = query @ rel_key.T
    for label in labels:
        s += np.take_along_axis(by_row, label[None].astype(np.intp), axis=-1)
    s *= root(query)
    return softmax(s, is_causal=False) @ value


ROWS = [
    Row(
        "shaw_keys",
        "two axes of a grid (SAM)",
        two_axes,
        relpos.attention,
        sam,
        reference.attention,
        gradients=of_attention(relpos.attention),
    )
]
