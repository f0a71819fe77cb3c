"""One block on a worker, forward and backward.

Bits of the gradient of a query depend on how many key heads a call has, as the kernels
cut the keys by that, and those of FIRE's lines on how many its network has. So each key
head is a call of its own there, whatever the chunks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relpos._attention.functional import backward, forward
from relpos._attention.operands import ROWS, TABLES
from relpos._attention.placement import fold_rows, gather_rows
from relpos._checks import Array
from relpos.sharded._decay import between, row_sums, shift, whole_gradient
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
    heads = arrays[0].shape[-3]
    step = recipe.group if recipe.fire else heads
    found = [
        _solve(recipe, place, arrays, slice(first, first + step))
        for first in range(0, heads, step)
    ]
    if len(found) == 1:
        return found[0]
    return {
        name: np.concatenate([part[name] for part in found], axis=_HEADS.get(name, -2))
        for name in found[0]
    }


def _solve(
    recipe: Recipe, place: Place, arrays: list[Array], heads: slice
) -> dict[str, Array]:
    """The results of some of the block's heads."""
    own = [
        _heads(array, axes, heads, recipe.group)
        for array, axes in zip(arrays, recipe.axes, strict=True)
    ]
    fire = fire_of(recipe, place, heads)
    given = arguments(recipe, place, own)
    part = part_of(recipe, place, heads)
    found = forward(call_of(given), fire, recipe.edges, part)
    far = between(recipe, place, own, given)
    if far is not None:
        by = far.sums()
        found["lse"] = (found["lse"] + by).astype(found["lse"].dtype)
        found["row_max"] = shift(found["row_max"], by)
    return found


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
    heads = kept[1].shape[-2]
    found: dict[str, list[Array]] = {name: [] for name in names}
    for first in range(0, heads, recipe.group):
        cut = slice(first, first + recipe.group)
        own = [
            _heads(array, axes[name], cut, recipe.group)
            for name, array in zip(recipe.names, arrays, strict=True)
        ]
        rows = [kept[0][..., cut, :, :], *(row[..., cut, :] for row in kept[2:])]
        out = None if grad_out is None else grad_out[..., cut, :, :]
        lse = None if grad_lse is None else grad_lse[..., cut, :]
        at = place._replace(head=place.head + first)
        for name, part in _of_head(recipe, at, own, names, (out, lse), rows).items():
            found[name].append(part)
    return {name: _joined(parts, axes[name]) for name, parts in found.items()}


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


def _of_head(
    recipe: Recipe,
    place: Place,
    arrays: list[Array],
    names: list[str],
    gradients: tuple[Array | None, Array | None],
    rows: list[Array],
) -> dict[str, Array]:
    given = arguments(recipe, place, arrays)
    far = between(recipe, place, arrays, given)
    if far is not None:
        rows = [rows[0], shift(rows[1], -far.sums()), rows[2]]
    spread = _spread(recipe, given) if recipe.spans else {}
    tables = {
        name: gather_rows(given[name], index, TABLES[name].row_axis)
        for name, index in spread.items()
    }
    call = call_of({**given, **tables})
    heads = slice(0, recipe.group)
    fire, share = fire_of(recipe, place, heads), part_of(recipe, place, heads)
    found = backward(call, *gradients, rows, names, fire, recipe.edges, share)
    parts = {name: getattr(found, name) for name in names}
    if "log_decay" in parts:
        sums = np.zeros(rows[2].shape)
        if far is not None:
            sums = row_sums(forward(call, fire, recipe.edges, share), gradients, rows)
        shape = arrays[recipe.names.index("log_decay")].shape
        parts["log_decay"] = whole_gradient(
            parts["log_decay"], shape, place.key, far, sums
        )
    return parts | {
        name: _folded(name, parts[name], given[name], index)
        for name, index in spread.items()
        if name in parts
    }


def _spread(recipe: Recipe, given: dict[str, Any]) -> dict[str, Array]:
    """Row of each table by the relative positions of the block; set what places them.

    The kernels relieve the two end rows of rounding by the sum that dS has over a whole
    row, which a block of keys has not; they do not where nothing lies beyond an end.
    """
    offset = given["query_offset"]
    low = 1 - given["query"].shape[-2] - int(offset.max(initial=0))
    high = given["key"].shape[-2] - 1 - int(offset.min(initial=0))
    positions = np.arange(low, high + 1)
    buckets = given["buckets"]
    given |= {"min_relative_position": low, "buckets": None, "beyond": "zero"}
    rows = {}
    for name, span in recipe.spans.items():
        index = np.clip(positions, span.start, span.stop - 1) - span.start
        rows[name] = index if buckets is None else np.asarray(buckets)[index]
    return rows


def _folded(name: str, part: Array, table: Array, index: Array) -> Array:
    """Add up the gradients of the rows that came from one row of the table."""
    column = TABLES[name].row_axis == -1
    rows = TABLES[name].rows(table)
    folded = fold_rows(part[..., None] if column else part, index, rows)
    return folded[..., 0] if column else folded
