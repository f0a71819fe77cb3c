"""Positions as arguments: a count, or numbers that float64 holds exactly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._checks import (
    POSITION_LIMIT,
    Array,
    as_array,
    as_int,
    as_real,
    check_memory,
    native,
    short,
    stored,
)

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: float64 holds every integer below, and rounds none beyond to one below.
_EXACT = 2**53
_INTEGERS = (int, np.integer)


def count_of(positions: object, name: str = "positions") -> int | None:
    """Return n where `positions` is the int n, short for 0..n-1; None for an array."""
    if isinstance(positions, _INTEGERS) and not isinstance(positions, bool):
        return as_int(name, positions, 0, POSITION_LIMIT)
    return None


def check_exact(name: str, lowest: float, highest: float) -> None:
    """Raise for integers that float64 may have rounded, or will."""
    for number in (lowest, highest):
        if abs(number) >= _EXACT:
            raise ValueError(
                f"{name}: leads to position {short(int(number))}; expected integers of "
                "less than 2**53 in size, past which float64 rounds them (or an array "
                "of floats, if that is meant)"
            )


def as_positions(
    positions: ArrayLike, offset: float = 0, name: str = "positions"
) -> Array:
    """Return an array of positions, a number being one of them, as float64.

    What `offset` will move is checked there.
    """
    array = as_array(name, positions)
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise TypeError(f"{name}: got dtype {array.dtype}; expected integers or floats")
    if array.dtype.kind in "iu" and array.size:
        kept = stored(array)
        lowest, highest = int(kept.min()), int(kept.max())
        check_exact(name, lowest, highest)
        check_exact("offset", lowest + offset, highest + offset)
    return native(array, np.dtype(np.float64))


def as_offset(offset: object) -> float:
    """Return what is added to positions."""
    number = as_real("offset", offset)
    if np.asarray(offset).dtype.kind != "f":
        check_exact("offset", number, number)
    return number


def real_positions(positions: ArrayLike, columns: int, dtype: np.dtype[Any]) -> Array:
    """Return positions S as float64, where a result S + (columns,) fits memory.

    The int n stands for 0..n-1.
    """
    count = count_of(positions)
    if count is not None:
        check_memory("positions", (count, columns), dtype)
        return np.arange(count, dtype=np.float64)
    where = as_positions(positions)
    check_memory("positions", (*where.shape, columns), dtype)
    return where
