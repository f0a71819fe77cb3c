"""Arguments of `apply_rotary` and its backward, checked and spread over its rows."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relpos._checks import (
    Array,
    as_flag,
    as_floating,
    as_int,
    as_real,
    at_least_ndim,
    native,
    stored,
)
from relpos._core import broadcast_to
from relpos._encodings.positions import as_offset, as_positions, check_exact
from relpos._encodings.sinusoidal import MAX_DIM, frequency_parts
from relpos._settings import get_num_threads, kernels

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_DOUBLE = np.dtype(np.float64)
_ROWS = "x's axes but for the last (those of each batch item: positions[:, None])"


class Rotation(NamedTuple):
    """Checked arguments: angles are positions * (high + low), before `inverse`."""

    x: Array  # as given
    positions: Array  # (..., L) of float64
    high: Array  # (..., L, rotary_dim / 2) of float64, as are the next two
    low: Array
    magnitude: Array
    interleaved: bool
    inverse: bool
    given: dict[str, Array]  # by name, as given

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the computation: float16 is computed in float32."""
        return np.result_type(self.x.dtype, np.float32)

    def run(self, source: Array, target: Array, *, inverse: bool) -> None:
        """Turn `source` into `target`, which may be the same array."""
        where = self.positions
        if inverse:  # what is shared must stay so: its angles are then computed once
            where = broadcast_to(-stored(where), where.shape)
        kernels().apply_rotary(
            source,
            target,
            where[..., np.newaxis],
            self.high,
            self.low,
            self.magnitude,
            self.interleaved,
            get_num_threads(),
        )


def _spread(name: str, array: Array, shape: tuple[int, ...], wanted: str) -> Array:
    try:
        return broadcast_to(array, shape)
    except ValueError:
        raise ValueError(
            f"{name}: shape {array.shape} does not broadcast to {shape}; expected "
            f"{wanted}"
        ) from None


def _as_rotary_dim(rotary_dim: object, columns: int) -> int:
    if rotary_dim is None:
        if columns % 2 or columns > MAX_DIM:
            raise ValueError(
                f"x: got D = {columns}; expected an even number of columns, at most "
                f"{MAX_DIM}, or rotary_dim= to turn the first ones only"
            )
        return columns
    number = as_int("rotary_dim", rotary_dim, 0, MAX_DIM)
    if number > columns or number % 2:
        raise ValueError(
            f"rotary_dim: got {number}; expected an even number, at most x's "
            f"D = {columns}"
        )
    return number


def _as_magnitude(magnitude: object) -> Array:
    if magnitude is None:
        return np.array(1.0)
    if isinstance(magnitude, Real):
        return np.array(as_real("magnitude", magnitude))
    return as_floating("magnitude", magnitude)


def _axis_positions(positions: ArrayLike | None, offset: object, length: int) -> Array:
    start = as_offset(offset)
    if positions is None:
        check_exact("offset", start, start + max(length - 1, 0))
        return np.arange(length, dtype=np.float64) + start
    where = as_positions(positions, start)
    return where + start if start else where


def _angle_parts(
    positions: ArrayLike | None,
    base: object,
    inv_freq: ArrayLike | None,
    angles: ArrayLike | None,
    offset: object,
    length: int,
    columns: int,
) -> tuple[Array, tuple[Array, Array]]:
    """Positions and frequencies, high + low, whose products are the angles."""
    if angles is None:
        where = _axis_positions(positions, offset, length)
        return where, frequency_parts(max(columns, 1), base, inv_freq, columns // 2)
    for name, other in (("positions", positions), ("inv_freq", inv_freq)):
        if other is not None:
            raise ValueError(
                f"{name}: given beside angles, which stand for positions times "
                "frequencies; expected one of the two"
            )
    if as_offset(offset) != 0:
        raise ValueError(f"offset: got {offset} beside angles; expected 0")
    given = native(as_floating("angles", angles), _DOUBLE)
    return np.array(1.0), (given, np.array(0.0))


def as_rotation(
    x: ArrayLike,
    positions: ArrayLike | None,
    *,
    base: object,
    inv_freq: ArrayLike | None,
    angles: ArrayLike | None,
    magnitude: object,
    interleaved: object,
    rotary_dim: object,
    offset: object,
    inverse: object,
) -> Rotation:
    """Check the arguments of `apply_rotary` and spread them over the rows of x."""
    rows = as_floating("x", x)
    at_least_ndim("x", rows, 2, "(..., L, D)")
    columns = _as_rotary_dim(rotary_dim, rows.shape[-1])
    shape = (*rows.shape[:-1], columns // 2)
    where, parts = _angle_parts(
        positions, base, inv_freq, angles, offset, rows.shape[-2], columns
    )
    scale = native(_as_magnitude(magnitude), _DOUBLE)
    wanted = f"(..., L, {columns // 2}), one per pair of the rotated columns"
    arrays = {
        "positions": positions,
        "inv_freq": inv_freq,
        "angles": angles,
        "magnitude": magnitude,
    }
    return Rotation(
        rows,
        _spread("positions", where, shape[:-1], _ROWS),
        _spread("angles", parts[0], shape, wanted),
        broadcast_to(parts[1], shape),
        _spread("magnitude", scale, shape, wanted),
        as_flag("interleaved", interleaved),
        as_flag("inverse", inverse),
        {name: np.asarray(a) for name, a in arrays.items() if a is not None},
    )
