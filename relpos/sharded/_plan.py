"""A call on dask arrays: checked as a whole, and cut into blocks."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.base import tokenize

from relpos._attention.attention import draw_seed
from relpos._attention.call import Call
from relpos._attention.edges import Edges
from relpos._attention.fire_network import NAMES, Fire, as_fire
from relpos._attention.operands import LABELS, OPERANDS, ROWS
from relpos._attention.problem import Problem, prepare
from relpos._checks import POSITION_LIMIT, Array, as_flag
from relpos._settings import choose_num_threads
from relpos.sharded._grid import (
    Axis,
    Grid,
    Index,
    axes_of,
    grid_of,
    refuse_unknown,
)
from relpos.sharded._sight import Sight, sight_of
from relpos.sharded._tasks import PLACED, Place, Recipe

_OPTIONS = (
    "is_causal", "scale", "softcap", "enable_gqa", "min_relative_position", "dropout_p"
)  # fmt: skip


class Plan(NamedTuple):
    """A call that has been checked and cut; nothing of it has been computed."""

    token: str
    problem: Problem  # of stand-ins without memory, of the arrays' shapes and dtypes
    recipe: Recipe
    grid: Grid
    arrays: list[Any]  # dask arrays, cut as the grid is
    axes: list[tuple[Axis | None, ...]]  # theirs
    sight: Sight

    def sees(self, index: Index) -> bool:
        """Whether a block has a task."""
        return self.sight.has(self.grid, index)

    def has_sinks(self, index: Index) -> bool:
        """Whether it is the one block of its queries that the sinks belong to.

        None of log_decay lies between it and the queries.
        """
        return bool(index["k"] == self.sight.last[index["q"]])

    def place(self, index: Index) -> Place:
        """Where a block lies."""
        query, _ = self.grid.span("q", index["q"])
        key, _ = self.grid.span("k", index["k"])
        head, _ = self.grid.span("H", index["H"])
        spans = [range(*self.grid.span(axis, index[axis])) for axis in self.grid.batch]
        numbers = np.arange(math.prod(self.problem.batch)).reshape(self.problem.batch)
        items = numbers[np.ix_(*spans)] if spans else numbers
        return Place(head, query, key, self.has_sinks(index), items)


def make_plan(
    call: Call, fire: dict[str, Any] | None = None, edges: Edges | None = None
) -> Plan:
    """Check a call by what is known of its arrays, and cut them.

    `fire` and `edges` are what `fire_attention` and `graph_attention` have beyond it.
    """
    fire = fire or {}
    _refuse(call)
    given = _arrays(call)
    problem = prepare(_as_if_known(call, given), network(fire), edges)
    given = {
        name: given[name] if isinstance(given[name], da.Array) else read
        for name, read in problem.inputs.items()
        if name in ROWS
    }
    grid = grid_of(given, problem.batch, problem.sizes, edges is not None)
    axes = [axes_of(name, x.shape, len(problem.batch)) for name, x in given.items()]
    arrays = [
        _cut(array, cut, grid) for array, cut in zip(given.values(), axes, strict=True)
    ]
    threads = 1 if call.num_threads is None else choose_num_threads(call.num_threads)
    options = {name: getattr(call, name) for name in (*_OPTIONS, "beyond", "window")}
    options |= {"buckets": call.buckets, "num_threads": threads}
    options["return_weights"] = as_flag("return_weights", call.return_weights)
    cut_keys = len(grid.chunks["k"]) > 1
    recipe = Recipe(
        tuple(given),
        tuple(axes),
        options,
        problem.dtype,
        problem.sizes,
        _to_spread(problem, call) if cut_keys else {},
        fire,
        edges,
        draw_seed(call.rng, problem.operands["dropout_p"]),
    )
    sight = sight_of(problem, given, grid, options["return_weights"])
    token = tokenize(recipe, sight, *arrays)
    return Plan(token, problem, recipe, grid, arrays, axes, sight)


def network(fire: dict[str, Any]) -> Fire | None:
    """FIRE's network of all heads, checked."""
    if not fire:
        return None
    parameters = {name: fire[name] for name in NAMES}
    return as_fire(parameters, fire["signed"], fire["eps"])


def _refuse(call: Call) -> None:
    if call.out is not None:
        raise TypeError(
            "out: not taken here, where results are lazy; expected None (store the "
            "result with dask.array.store)"
        )


def _arrays(call: Call) -> dict[str, Any]:
    """The array arguments that were given, by name; several labels one by one."""
    given: dict[str, Any] = {}
    for name in OPERANDS:
        value = getattr(call, name)
        if name == "labels" and isinstance(value, tuple):
            given |= dict(zip(LABELS, value, strict=False))
        elif value is not None or OPERANDS[name].is_required:
            given[name] = value
    return given


def _with_arrays(call: Call, arrays: dict[str, Any]) -> Call:
    several = tuple(value for name, value in arrays.items() if name in LABELS)
    call = call._replace(**{k: v for k, v in arrays.items() if k not in LABELS})
    if isinstance(call.labels, tuple) and len(call.labels) == len(several):
        return call._replace(labels=several)
    return call


def stand_in(name: str, array: Any) -> Array:
    """An array of the shape and dtype of a lazy one, of a single number: 0."""
    refuse_unknown(name, array)
    return np.broadcast_to(np.zeros((), array.dtype), array.shape)


def _as_if_known(call: Call, given: dict[str, Any]) -> Call:
    """The call with an array of zeros for each lazy one.

    What each query sees is not known where one of `PLACED` is lazy: the reach of tables
    is left to the blocks, and so is that of decay, by queries after all keys.
    """
    lazy = {name for name, value in given.items() if isinstance(value, da.Array)}
    arrays = {
        name: stand_in(name, value) if name in lazy else value
        for name, value in given.items()
    }
    if "query_offset" in lazy:
        offset = ROWS["query_offset"].read(arrays["query_offset"])
        arrays["query_offset"] = offset + POSITION_LIMIT // 2
    if call.beyond == "raise" and lazy & {*PLACED}:
        call = call._replace(beyond="clip")
    return _with_arrays(call, arrays)


def _cut(array: Any, axes: tuple[Axis | None, ...], grid: Grid) -> Any:
    """An argument in the grid's chunks, an array of dask."""
    pairs = zip(axes, array.shape, strict=True)
    chunks = tuple(grid.chunks_of(axis, size) for axis, size in pairs)
    if isinstance(array, da.Array):
        return array.rechunk(chunks)
    return da.from_array(array, chunks=chunks)


def _to_spread(problem: Problem, call: Call) -> dict[str, range]:
    """The tables whose ends the kernels would correct, beside those placed alike."""
    spans = problem.placement.spans
    corrected = {"rel_key", "rel_value"} <= {*spans}
    return spans if corrected and call.beyond != "zero" and not call.softcap else {}
