"""One block on a worker, forward and backward: a call of the kernels as a part.

Bits of FIRE's lines depend on how many heads its network has, so there each key head is
a call of its own, whatever the chunks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relpos._attention.functional import backward, forward
from relpos._attention.operands import ROWS
from relpos._checks import Array
from relpos.sharded._grid import FIRE_AXES, Axis
from relpos.sharded._tasks import (
    Place,
    Recipe,
    add,
    arguments,
    call_of,
    fire_of,
    part_of,
)

#: Operands that have an entry for each query or key: their gradient is written, so
#: that of a batch axis they lack is summed afterwards, in one order.
WRITTEN = tuple(name for name, row in ROWS.items() if row.is_written)
#: Where results have heads, from their end; -2 in those of rows.
_HEADS = {"out": -3, "weights": -3}


def solve(recipe: Recipe, place: Place, arrays: list[Array]) -> dict[str, Array]:
    """The results of one block, by name."""
    found = [
        _solve(recipe, place, arrays, heads)
        for heads in _calls(recipe, arrays[0].shape[-3])
    ]
    if len(found) == 1:
        return found[0]
    return {
        name: np.concatenate([part[name] for part in found], axis=_HEADS.get(name, -2))
        for name in found[0]
    }


def _calls(recipe: Recipe, heads: int) -> list[slice]:
    """The heads of each call that a block is."""
    if not recipe.fire:
        return [slice(0, heads)]
    firsts = range(0, heads, recipe.group)
    return [slice(first, first + recipe.group) for first in firsts]


def _solve(
    recipe: Recipe, place: Place, arrays: list[Array], heads: slice
) -> dict[str, Array]:
    """The results of some of the block's heads."""
    own = [
        _heads(array, axes, heads, recipe.group)
        for array, axes in zip(arrays, recipe.axes, strict=True)
    ]
    fire, part = fire_of(recipe, place, heads), part_of(recipe, place, heads)
    return forward(call_of(arguments(recipe, place, own)), fire, recipe.edges, part)


def differentiate(
    recipe: Recipe,
    place: Place,
    arrays: list[Array],
    wrt: list[str],
    grad_out: Array | None,
    grad_lse: Array | None,
    kept: list[Array],
) -> dict[str, Array]:
    """The block's part of the gradients, from the whole rows' `kept`."""
    arrays = [
        np.broadcast_to(array, (*place.items.shape, *array.shape[-3:]))
        if name in WRITTEN
        else array
        for name, array in zip(recipe.names, arrays, strict=True)
    ]
    names = [name for name in wrt if name != "sinks" or place.with_sinks]
    axes = FIRE_AXES | dict(zip(recipe.names, recipe.axes, strict=True))
    found: dict[str, list[Array]] = {name: [] for name in names}
    for heads in _calls(recipe, kept[1].shape[-2]):
        own = [
            _heads(array, axes[name], heads, recipe.group)
            for name, array in zip(recipe.names, arrays, strict=True)
        ]
        rows = [kept[0][..., heads, :, :], *(row[..., heads, :] for row in kept[2:])]
        out = None if grad_out is None else grad_out[..., heads, :, :]
        lse = None if grad_lse is None else grad_lse[..., heads, :]
        call = call_of(arguments(recipe, place, own))
        fire, part = fire_of(recipe, place, heads), part_of(recipe, place, heads)
        got = backward(call, out, lse, rows, names, fire, recipe.edges, part)
        for name in names:
            found[name].append(getattr(got, name))
    parts = {name: _joined(parts, axes[name]) for name, parts in found.items()}
    if "log_decay" in parts:  # that of the numbers before its first key is 0
        before = [(0, 0)] * (parts["log_decay"].ndim - 1) + [(place.key, 0)]
        parts["log_decay"] = np.pad(parts["log_decay"], before)
    return parts


def _axis(axes: tuple[Axis | None, ...]) -> int | None:
    """Where an array has heads, from its end."""
    places = (n - len(axes) for n, axis in enumerate(axes) if axis in ("H", "K"))
    return next(places, None)


def _heads(
    array: Array, axes: tuple[Axis | None, ...], heads: slice, group: int
) -> Array:
    """The part of an array that belongs to some query heads, of whole groups."""
    axis = _axis(axes)
    if axis is None:
        return array
    cut = heads
    if axes[axis] == "K":
        cut = slice(heads.start // group, heads.stop // group)
    place: tuple[Any, ...] = (..., cut, *(slice(None),) * (-axis - 1))
    part: Array = array[place]
    return part


def _joined(parts: list[Array], axes: tuple[Axis | None, ...]) -> Array:
    """Gradients of the heads beside each other, or their sum where heads share."""
    axis = _axis(axes)
    if axis is not None:
        return np.concatenate(parts, axis=axis)
    total = parts[0]
    for part in parts[1:]:
        total = add(total, part)
    return total
