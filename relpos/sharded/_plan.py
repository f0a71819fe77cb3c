"""A call on dask arrays: checked as a whole, and cut into blocks."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.delayed import Delayed

from relpos._attention.attention import draw_seed
from relpos._attention.call import Call
from relpos._attention.edges import Edges
from relpos._attention.problem import Problem
from relpos._checks import as_flag
from relpos._settings import choose_num_threads
from relpos._undo import whole
from relpos.sharded._grid import (
    Axis,
    Chunks,
    Grid,
    Index,
    axes_of,
    chunk_shape,
    grid_of,
)
from relpos.sharded._sight import Sight, sight_of
from relpos.sharded._tasks import Place, Recipe
from relpos.sharded._values import (
    Values,
    arrays_of,
    check_whole,
    read,
    values_of,
    without_lazy,
)

_OPTIONS = (
    *("is_causal", "scale", "softcap", "enable_gqa", "min_relative_position"),
    *("dropout_p", "beyond", "window", "buckets"),
)


class Plan(NamedTuple):
    """A call that has been checked and cut; nothing of it has been computed."""

    token: str
    problem: Problem  # of stand-ins without memory, of the arrays' shapes and dtypes
    recipe: Recipe  # without what is lazy
    values: Values
    grid: Grid
    arrays: list[Any]  # dask arrays, cut as the grid is
    axes: list[tuple[Axis | None, ...]]  # theirs
    sight: Sight

    @property
    def shared(self) -> Delayed:
        """The recipe, a task of its own that each block needs."""
        return self.values.complete(self.recipe, self.token)

    def sees(self, index: Index) -> bool:
        """Whether a block has a task."""
        return self.sight.has(self.grid, index)

    def has_sinks(self, index: Index) -> bool:
        """Whether it is the one block of its queries that the sinks belong to."""
        return bool(index["k"] == self.sight.last[index["q"]])

    def place(self, index: Index) -> Place:
        """Where a block lies."""
        query, _ = self.grid.span("q", index["q"])
        key, _ = self.grid.span("k", index["k"])
        head, _ = self.grid.span("H", index["H"])
        spans = [range(*self.grid.span(axis, index[axis])) for axis in self.grid.batch]
        numbers = np.arange(math.prod(self.problem.batch)).reshape(self.problem.batch)
        items = numbers[np.ix_(*spans)] if spans else numbers
        pairs = zip(self.arrays, self.axes, strict=True)
        shapes = tuple(chunk_shape(array, axes, index) for array, axes in pairs)
        return Place(head, query, key, self.has_sinks(index), items, shapes)


@whole  # a generator that was drawn from
def make_plan(
    call: Call, fire: dict[str, Any] | None = None, edges: Edges | None = None
) -> Plan:
    """Check a call by what is known of its arrays, and cut them.

    `fire` and `edges` are what `fire_attention` and `graph_attention` have beyond it.
    """
    if call.out is not None:
        raise TypeError(
            "out: not taken here, where results are lazy; expected None (store the "
            "result with dask.array.store)"
        )
    fire = fire or {}
    problem = check_whole(call, arrays_of(call), fire, edges)
    given = read(arrays_of(call))
    grid = grid_of(given, problem.batch, problem.sizes, edges is not None)
    axes = [axes_of(name, x.shape, len(problem.batch)) for name, x in given.items()]
    arrays = [
        _cut(array, cut, grid) for array, cut in zip(given.values(), axes, strict=True)
    ]
    recipe = Recipe(
        tuple(given),
        _options(call),
        problem.dtype,
        problem.sizes,
        len(grid.chunks["k"]) > 1,
        without_lazy(fire),
        edges and Edges(**without_lazy(edges._asdict())),
        draw_seed(call.rng, problem.operands["dropout_p"]),
    )
    values = values_of(call, given, fire, edges)
    sight = sight_of(problem, given, grid, recipe.options["return_weights"])
    token = tokenize(recipe, sight, *arrays, *values.arrays.values())
    return Plan(token, problem, recipe, values, grid, arrays, axes, sight)


def _options(call: Call) -> dict[str, Any]:
    """The arguments that are no arrays, as each block has them; and the buckets."""
    threads = 1 if call.num_threads is None else choose_num_threads(call.num_threads)
    options = {name: getattr(call, name) for name in _OPTIONS}
    options["return_weights"] = as_flag("return_weights", call.return_weights)
    return without_lazy(options) | {"num_threads": threads}


def _cut(array: Any, axes: tuple[Axis | None, ...], grid: Grid) -> Any:
    """An argument in the grid's chunks, an array of dask."""
    pairs = zip(axes, array.shape, strict=True)
    return rechunked(array, tuple(grid.chunks_of(axis, size) for axis, size in pairs))


def rechunked(array: Any, chunks: tuple[Chunks, ...]) -> Any:
    """An array of these chunks; dask's own choice, on the way, fails on some empty."""
    if isinstance(array, da.Array):
        return array.rechunk(chunks)
    return da.from_array(array, chunks=chunks)
