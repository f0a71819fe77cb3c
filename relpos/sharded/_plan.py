"""A call on dask arrays: checked as a whole, and cut into blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from relpos._attention.attention import draw_seed
from relpos._attention.edges import Edges
from relpos._attention.fire_network import NAMES
from relpos._attention.functional import GRAPH, call_of
from relpos._attention.operands import LABELS, OPERANDS, ROWS
from relpos._attention.problem import Part, Problem, look_at_mask, prepare
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

#: All arguments by name, as `call_of` takes them: any may be a dask array, or None.
Arguments: TypeAlias = dict[str, Any]

_GRAPH = tuple(GRAPH.get(name, name) for name in Edges._fields)
#: Arguments that each block has whole; arrays among them may be dask arrays.
_WHOLE = ("buckets", *NAMES, *_GRAPH)
_OPTIONS = (
    *("is_causal", "scale", "softcap", "enable_gqa", "min_relative_position"),
    *("dropout_p", "beyond", "window", "signed", "eps"),
)


class Plan(NamedTuple):
    """A call that has been checked and cut; nothing of it has been computed."""

    token: str
    problem: Problem  # of stand-ins without memory, of the arrays' shapes and dtypes
    recipe: Recipe  # without what is lazy
    seed: int  # of dropout
    lazy: Arguments  # small arguments that are dask arrays, in one chunk
    check: Arguments  # arrays that these are checked with, in memory, or their forms
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
        query, key, head = (self.grid.span(axis, index[axis])[0] for axis in "qkH")
        several = len(self.grid.chunks["k"]) > 1
        key_heads = self.problem.sizes.Hk
        part = Part(self.seed, query, key, head, items.ravel(), key_heads, several)
        return Place(part, items.shape, self.has_sinks(index), shapes)


@whole  # a generator that was drawn from
def make_plan(arguments: Arguments) -> Plan:
    """Check a call by what is known of its arrays, and cut them."""
    if arguments["out"] is not None:
        raise TypeError(
            "out: not taken here, where results are lazy; expected None (store the "
            "result with dask.array.store)"
        )
    labels = arguments["labels"]
    if isinstance(labels, tuple) and 0 < len(labels) <= len(LABELS):
        arguments = arguments | dict(zip(LABELS, labels, strict=False))
        arguments["labels"] = None
    problem = _check_whole(arguments)
    look_at_mask(problem)  # one that is not lazy
    given = {
        name: x if isinstance(x, da.Array) else ROWS[name].read(x)
        for name in ROWS
        if (x := arguments.get(name)) is not None
    }
    grid = grid_of(given, problem.batch, problem.sizes, "edges" in arguments)
    arrays, axes = [], []
    for name, x in given.items():
        own = axes_of(name, x.shape, len(problem.batch))
        cuts = (grid.chunks_of(*pair) for pair in zip(own, x.shape, strict=True))
        arrays.append(rechunked(x, tuple(cuts)))
        axes.append(own)
    values = {n: arguments[n] for n in (*_OPTIONS, *_WHOLE) if n in arguments}
    asked = arguments["num_threads"]
    values["num_threads"] = 1 if asked is None else choose_num_threads(asked)
    weights = as_flag("return_weights", arguments["return_weights"])
    values["return_weights"] = weights
    seed = draw_seed(arguments["rng"], problem.operands["dropout_p"])
    lazy, check = _later_check(values, given)
    values |= dict.fromkeys(_lazy_of(values))
    recipe = Recipe(tuple(given), values, problem.dtype)
    seen = visibility_of(problem, given, grid, weights)
    token = tokenize(recipe, seed, seen, *arrays, *lazy.values())
    return Plan(token, problem, recipe, seed, lazy, check, grid, arrays, axes, *seen)


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
    recipe: Recipe, check: Arguments, names: list[str], arrays: list[Any]
) -> Recipe:
    """Check a call with the arrays that were lazy, and complete the recipe by them."""
    if not names:
        return recipe
    lazy = {name: np.asarray(x) for name, x in zip(names, arrays, strict=True)}
    prepare(*call_of(_in_memory(recipe.values | check | lazy)))
    found = {name: lazy.get(name, x) for name, x in recipe.values.items()}
    return recipe._replace(values=found)


def _later_check(values: Arguments, given: Arguments) -> tuple[Arguments, Arguments]:
    """Return the lazy small arguments of a checked call, and arrays to check them with.

    `given` are its arrays that are cut, `values` its other arguments.
    """
    own = {name: given[name] for name in PLACED if name in given}
    if values["beyond"] != "raise" and "log_decay" not in given:
        own.pop("key_ranges", None)  # any will do
    lazy = {name: x.rechunk(-1) for name, x in _lazy_of(own | values).items()}
    return lazy, {
        name: x
        if name in own and not isinstance(x, da.Array)
        else Form(x.shape, x.dtype)
        for name, x in given.items()
    }


def _check_whole(arguments: Arguments) -> Problem:
    """Check the call as far as it can be before anything is computed."""
    lazy = _lazy_of(arguments)
    for name in lazy:
        if name not in ROWS and name not in _WHOLE:
            raise TypeError(
                f"{name}: got a dask array; expected a plain value (call compute() on "
                "it), as the tasks are made by it"
            )
    arrays = _in_memory(arguments)
    if lazy.keys() & {*PLACED}:
        # without a visible key, nothing is said of pairs that are not known yet
        lengths = arrays["key_lengths"]
        lengths = OPERANDS["key_lengths"].read(0 if lengths is None else lengths)
        arrays["key_lengths"] = np.zeros_like(lengths)
    if "indptr" in lazy and lazy["indptr"].dtype.kind in "iu":
        arrays["indptr"] = np.zeros(lazy["indptr"].shape, np.int64)
        arrays["indptr"][..., -1:] = np.size(arrays["indices"])
    return prepare(*call_of(arrays))


def stand_in(name: str, array: Any) -> Array:
    """Return zeros of the shape and dtype of another array, in the memory of one."""
    refuse_unknown(name, array)
    return np.broadcast_to(np.zeros((), array.dtype), array.shape)


def _in_memory(arrays: dict[str, Any]) -> dict[str, Any]:
    """Replace dask arrays and forms by zeros."""
    return {
        name: stand_in(name.removeprefix("edge_"), x)
        if isinstance(x, da.Array | Form)
        else x
        for name, x in arrays.items()
    }


def _lazy_of(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments that are dask arrays."""
    return {name: x for name, x in arguments.items() if isinstance(x, da.Array)}
