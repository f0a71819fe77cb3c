"""A call on dask arrays: checked as a whole, and cut into blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from relpos._attention.attention import draw_seed
from relpos._attention.edges import Edges
from relpos._attention.fire_network import NAMES, Fire, as_fire
from relpos._attention.operands import LABELS, OPERANDS, ROWS
from relpos._attention.problem import Call, Problem, prepare
from relpos._checks import Array, as_flag
from relpos._settings import choose_num_threads
from relpos._undo import whole
from relpos.sharded._grid import (
    Axis,
    Chunks,
    Grid,
    Index,
    axes_of,
    grid_of,
    number,
    refuse_unknown,
    visibility_of,
)
from relpos.sharded._tasks import PLACED, Place, Recipe

_OPTIONS = (
    *("is_causal", "scale", "softcap", "enable_gqa", "min_relative_position"),
    *("dropout_p", "beyond", "window", "buckets"),
)


class Plan(NamedTuple):
    """A call that has been checked and cut; nothing of it has been computed."""

    token: str
    problem: Problem  # of stand-ins without memory, of the arrays' shapes and dtypes
    recipe: Recipe  # without what is lazy
    lazy: dict[str, Any]  # small arguments that are dask arrays, in one chunk
    check: Call  # of what these are checked with: numbers, arrays in memory, or forms
    grid: Grid
    arrays: list[Any]  # dask arrays, cut as the grid is
    axes: list[tuple[Axis | None, ...]]  # theirs
    visible: Array  # (*batch, q, k): the blocks that have a task
    last: Array  # (q,): the block of keys that has the sinks

    @property
    def shared(self) -> Delayed:
        """Make a task of its own that completes the recipe, which each block needs."""
        name = f"relpos-recipe-{tokenize(self.recipe, self.token)}"
        arrays = [*self.lazy.values()]
        keys = [(x.name, *(0 for _ in x.shape)) for x in arrays]
        layer = {name: (_completed, self.recipe, self.check, [*self.lazy], keys)}
        graph = HighLevelGraph.from_collections(name, layer, dependencies=arrays)
        return Delayed(name, graph)

    def sees(self, index: Index) -> bool:
        """Return True for a block that has a task."""
        place = tuple(index[axis] for axis in (*self.grid.batch, "q", "k"))
        return bool(self.visible[place])

    def has_sinks(self, index: Index) -> bool:
        """Return True for the one block of its queries that the sinks belong to."""
        return bool(index["k"] == self.last[index["q"]])

    def place(self, index: Index) -> Place:
        """Return where a block lies."""
        query, _ = self.grid.span("q", index["q"])
        key, _ = self.grid.span("k", index["k"])
        head, _ = self.grid.span("H", index["H"])
        spans = [range(*self.grid.span(axis, index[axis])) for axis in self.grid.batch]
        numbers = np.arange(math.prod(self.problem.batch)).reshape(self.problem.batch)
        items = numbers[np.ix_(*spans)] if spans else numbers
        shapes = tuple(
            tuple(
                int(cut[number(axis, index)])
                for axis, cut in zip(axes, array.chunks, strict=True)
            )
            for array, axes in zip(self.arrays, self.axes, strict=True)
        )
        return Place(head, query, key, self.has_sinks(index), items, shapes)


@whole  # a generator that was drawn from
def make_plan(
    call: Call, fire: dict[str, Any] | None = None, edges: Edges | None = None
) -> Plan:
    """Check a call by what is known of its arrays, and cut them.

    `fire` and `edges` are what `fire_attention` and `graph_attention` have beyond it.
    """
    if call["out"] is not None:
        raise TypeError(
            "out: not taken here, where results are lazy; expected None (store the "
            "result with dask.array.store)"
        )
    fire = fire or {}
    problem = _check_whole(call, fire, edges)
    given = {
        name: x if isinstance(x, da.Array) else ROWS[name].read(x)
        for name, x in _arrays_of(call).items()
    }
    grid = grid_of(given, problem.batch, problem.sizes, edges is not None)
    arrays, axes = [], []
    for name, x in given.items():
        own = axes_of(name, x.shape, len(problem.batch))
        cuts = (grid.chunks_of(*pair) for pair in zip(own, x.shape, strict=True))
        arrays.append(rechunked(x, tuple(cuts)))
        axes.append(own)
    recipe = Recipe(
        tuple(given),
        _options(call),
        problem.dtype,
        problem.sizes,
        len(grid.chunks["k"]) > 1,
        _without_lazy(fire),
        edges and Edges(**_without_lazy(edges._asdict())),
        draw_seed(call["rng"], problem.operands["dropout_p"]),
    )
    lazy, check = _later_check(call, given, fire, edges)
    seen = visibility_of(problem, given, grid, recipe.options["return_weights"])
    token = tokenize(recipe, seen, *arrays, *lazy.values())
    return Plan(token, problem, recipe, lazy, check, grid, arrays, axes, *seen)


def _options(call: Call) -> dict[str, Any]:
    """Return the arguments that are no arrays as each block has them, and buckets."""
    asked = call["num_threads"]
    threads = 1 if asked is None else choose_num_threads(asked)
    options = {name: call[name] for name in _OPTIONS}
    options["return_weights"] = as_flag("return_weights", call["return_weights"])
    return _without_lazy(options) | {"num_threads": threads}


def rechunked(array: Any, chunks: tuple[Chunks, ...]) -> Any:
    """Return a dask array of these chunks, which dask's own choice may not give."""
    if isinstance(array, da.Array):
        return array.rechunk(chunks)
    return da.from_array(array, chunks=chunks)


# ---- small arguments that are dask arrays --------------------------------------------

# Each block needs all of FIRE's parameters, of the buckets and of the edges, and no
# block can check offsets, lengths and ranges for the whole. One task has them all: it
# raises the errors of a call on arrays in memory, and returns what all blocks share.


@dataclass(frozen=True, slots=True)
class Form:
    """Shape and dtype of an array whose numbers nothing reads."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def _completed(
    recipe: Recipe, call: Call, names: list[str], arrays: list[Any]
) -> Recipe:
    """Check a call with the arrays that were lazy, and complete the recipe by them."""
    if not names:
        return recipe
    values = {name: np.asarray(x) for name, x in zip(names, arrays, strict=True)}
    fire = {name: values.get(name, x) for name, x in recipe.fire.items()}
    buckets = {"buckets": values.get("buckets", recipe.options["buckets"])}
    edges = recipe.edges
    if edges is not None:
        own = {name: x for name, x in values.items() if name in Edges._fields}
        edges = edges._replace(**own)
    given = {name: values.get(name, x) for name, x in _arrays_of(call).items()}
    call = _with_arrays(call, _in_memory(given)) | buckets
    prepare(call, _network(fire), edges)
    return recipe._replace(fire=fire, edges=edges, options=recipe.options | buckets)


def _later_check(
    call: Call, given: dict[str, Any], fire: dict[str, Any], edges: Edges | None
) -> tuple[dict[str, Any], Call]:
    """Return the lazy small arguments of a checked call, and the call to check again.

    `given` are its arrays.
    """
    own = {name: given[name] for name in PLACED if name in given}
    if call["beyond"] != "raise" and "log_decay" not in given:
        own.pop("key_ranges", None)  # any will do
    lazy = _lazy_of({**own, "buckets": call["buckets"], **fire})
    lazy |= {} if edges is None else _lazy_of(edges._asdict())
    forms = {
        name: x
        if name in own and not isinstance(x, da.Array)
        else Form(x.shape, x.dtype)
        for name, x in given.items()
    }
    call = _with_arrays(call, forms) | {"rng": None}
    if "buckets" in lazy:
        call["buckets"] = None
    return {name: x.rechunk(-1) for name, x in lazy.items()}, call


def _check_whole(call: Call, fire: dict[str, Any], edges: Edges | None) -> Problem:
    """Check the call as far as it can be before anything is computed."""
    given = _arrays_of(call)
    graph = {} if edges is None else edges._asdict()
    may_be_lazy = {"buckets": call["buckets"], **given, **fire, **graph}
    for name in _lazy_of(call | may_be_lazy):
        if name not in may_be_lazy or name in ("signed", "eps"):
            raise TypeError(
                f"{name}: got a dask array; expected a plain value (call compute() on "
                "it), as the tasks are made by it"
            )
    arrays = _in_memory(given)
    if _lazy_of({name: given.get(name) for name in PLACED}):
        # without a visible key, nothing is said of pairs that are not known yet
        lengths = OPERANDS["key_lengths"].read(arrays.get("key_lengths", 0))
        arrays["key_lengths"] = np.zeros_like(lengths)
    call = _with_arrays(call, arrays)
    if isinstance(call["buckets"], da.Array):
        call["buckets"] = stand_in("buckets", call["buckets"])
    starts = graph.get("indptr")
    graph = _in_memory(graph)
    if isinstance(starts, da.Array) and starts.dtype.kind in "iu":
        graph["indptr"] = np.zeros(starts.shape, np.int64)
        graph["indptr"][..., -1:] = np.size(graph["indices"])
    return prepare(call, _network(_in_memory(fire)), edges and Edges(**graph))


def _network(fire: dict[str, Any]) -> Fire | None:
    """Return FIRE's network of all heads, checked."""
    if not fire:
        return None
    parameters = {name: fire[name] for name in NAMES}
    return as_fire(parameters, fire["signed"], fire["eps"])


def stand_in(name: str, array: Any) -> Array:
    """Return zeros of the shape and dtype of another array, in the memory of one."""
    refuse_unknown(name, array)
    return np.broadcast_to(np.zeros((), array.dtype), array.shape)


def _in_memory(arrays: dict[str, Any]) -> dict[str, Any]:
    """Replace dask arrays and forms by zeros."""
    return {
        name: stand_in(name, x) if isinstance(x, da.Array | Form) else x
        for name, x in arrays.items()
    }


def _lazy_of(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that are dask arrays."""
    return {name: x for name, x in arguments.items() if isinstance(x, da.Array)}


def _without_lazy(arguments: dict[str, Any]) -> dict[str, Any]:
    """Replace dask arrays by None."""
    return arguments | dict.fromkeys(_lazy_of(arguments))


def _arrays_of(call: Call) -> dict[str, Any]:
    """Return the array arguments by name, several labels one by one."""
    given: dict[str, Any] = {}
    for name in OPERANDS:
        value = call[name]
        if name == "labels" and isinstance(value, tuple):
            given |= dict(zip(LABELS, value, strict=False))
        elif value is not None or OPERANDS[name].is_required:
            given[name] = value
    return given


def _with_arrays(call: Call, arrays: dict[str, Any]) -> Call:
    """Return the call with other arrays."""
    several = tuple(value for name, value in arrays.items() if name in LABELS)
    call = call | {k: v for k, v in arrays.items() if k not in LABELS}
    if isinstance(call["labels"], tuple) and len(call["labels"]) == len(several):
        call["labels"] = several
    return call
