"""What the biases of one value per head and relative position share.

Such a bias has 2 length - 1 columns, relative positions -(length - 1) to length - 1,
the default place of a `rel_bias`. It serves a call of `attention` whole where
length >= max(Lq + query_offset, Lk - query_offset).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_floating,
    as_int,
    at_least_ndim,
    check_memory,
    native,
    rounded,
    stored,
)

_DOUBLE = np.dtype(np.float64)


def offsets(length: object, *rows: int, dtype: np.dtype[Any] = _DOUBLE) -> Array:
    """Return -(length - 1)..length - 1, where a bias (*rows, 2 length - 1) fits."""
    reach = as_int("length", length, 1, POSITION_LIMIT) - 1
    check_memory("length", (*rows, 2 * reach + 1), dtype)
    return np.arange(-reach, reach + 1, dtype=np.int64)


def as_parameter(name: str, value: object) -> Array:
    """Return one finite float per head, (..., H)."""
    array = as_floating(name, value)
    at_least_ndim(name, array, 1, "(..., H), one number for each head")
    kept = stored(array)
    if not np.isfinite(kept).all():
        wrong = kept[~np.isfinite(kept)][0]
        raise ValueError(f"{name}: got {wrong}; expected finite numbers")
    return array


def exact(parameter: Array) -> Array:
    """Return what `as_parameter` returned as float64, with an axis for the offsets."""
    return native(parameter, _DOUBLE)[..., None]


def as_grad_bias(value: object) -> tuple[Array, Array]:
    """Return the gradient of a bias (..., H, 2 length - 1), and the offsets of it."""
    grad = as_floating("grad_bias", value)
    wanted = "(..., H, 2 * length - 1)"
    at_least_ndim("grad_bias", grad, 2, wanted)
    columns = grad.shape[-1]
    if columns % 2 == 0:
        raise ValueError(
            f"grad_bias: shape {grad.shape} has {columns} columns; expected {wanted}, "
            "an odd number"
        )
    return grad, np.arange(-(columns // 2), columns // 2 + 1, dtype=np.int64)


def sum_offsets(terms: Array, dtype: np.dtype[np.generic]) -> Array:
    """Sum terms of float64 over the relative positions and round once."""
    return rounded(np.asarray(terms.sum(axis=-1)), dtype)
