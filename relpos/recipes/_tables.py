"""What the recipes ask of a table, and tables that positions are projected to."""

from __future__ import annotations

from typing import Any

import numpy as np

from relpos._checks import (
    Array,
    as_floating,
    at_least_ndim,
    check_memory,
    reject_foreign,
    rounded,
)
from relpos.nn._inputs import check_shape, join_heads, product, split_heads

Keywords = dict[str, Any]


def as_table(name: str, value: Any, wanted: str) -> Any:
    """Return floating `value` with two axes or more; `attention` looks at the rest.

    An array of another tool stays what it is, so that gradients of tools that record
    transpositions and sums go through.
    """
    reject_foreign(name, value)
    other = hasattr(value, "ndim") and not isinstance(value, np.ndarray)
    table = value if other else as_floating(name, value)
    at_least_ndim(name, table, 2, wanted)
    return table


def as_shaped(name: str, value: object, *shape: int | str) -> Array:
    """Return a floating array; in `shape` an int is fixed and a word free."""
    array = as_floating(name, value)
    check_shape(name, array, shape)
    return array


def as_grad(name: str, value: object, shape: tuple[int, ...]) -> Array:
    """Return the gradient of what the forward made, in float64."""
    return as_shaped(name, value, *shape).astype(np.float64)


def like(gradient: Array, parameter: Array) -> Array:
    """Return what was summed in float64 as the gradient of a parameter."""
    return rounded(gradient, parameter.dtype.newbyteorder("="))


def check_rows(name: str, rows: int, weight: Array) -> None:
    """Raise where no memory holds `rows` positions, or what a weight makes of them."""
    for width in weight.shape:
        check_memory(name, (rows, width), np.dtype(np.float64))


def projected(weight: Array, positions: Array, heads: int) -> Array:
    """Return positions (R, F), projected by a weight (H * D, F), as (H, R, D)."""
    kind = np.result_type(weight, np.float32)
    rows = product(positions.astype(kind), weight.astype(kind).T)
    return rounded(split_heads(rows, heads), weight.dtype.newbyteorder("="))


def projected_backward(grad: Array, positions: Array, weight: Array) -> Array:
    """Return the gradient of the weight of `projected`, from that of its result."""
    kind = np.result_type(weight, np.float32)
    sums = product(join_heads(grad.astype(kind)).T, positions.astype(kind))
    return rounded(sums, weight.dtype.newbyteorder("="))
