"""A call on dask arrays: checked as a whole, and cut into the blocks of a grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph

from relpos._attention.attention import DEFAULTS, draw_seed
from relpos._attention.edges import GRAPH
from relpos._attention.fire_network import NAMES
from relpos._attention.operands import LABELS, OPERANDS, PICKS, ROWS, Sizes, called
from relpos._attention.problem import Part, Problem, look_at_mask, prepare
from relpos._attention.rules import UNBOUNDED
from relpos._checks import Array, as_flag, as_floating
from relpos._settings import choose_num_threads
from relpos._undo import whole
from relpos.sharded._tasks import PLACED, Place, Recipe

#: A call, of which any argument may be a dask array.
Arguments: TypeAlias = dict[str, Any]
#: An axis of the grid: a batch axis by its number, or H, q, k as in `Operand`.
Axis = int | str
#: Those of an array, None where it is not cut.
Axes = tuple[Axis | None, ...]
Chunks = tuple[int, ...]
#: A block of the grid: the number of its chunk on each axis.
Index = dict[Axis, int]
#: Tasks of a graph, by their keys.
Key = tuple[Any, ...]
Layer = dict[Key, Any]


class Grid(NamedTuple):
    """Chunks of each axis; `group` query heads share a key head."""

    chunks: dict[Axis, Chunks]
    group: int

    def blocks(self, *axes: Axis) -> Iterator[Index]:
        """Every block, or those of some axes, the last axis running fastest."""
        chosen = axes or tuple(self.chunks)
        numbers_of = [range(len(self.chunks[axis])) for axis in chosen]
        for numbers in itertools.product(*numbers_of):
            yield dict(zip(chosen, numbers, strict=True))

    @property
    def batch(self) -> tuple[Axis, ...]:
        return tuple(axis for axis in self.chunks if isinstance(axis, int))

    @property
    def rows(self) -> tuple[Axis, ...]:
        """The axes of a row of the result."""
        return (*self.batch, "H", "q")

    def chunks_of(self, axis: Axis | None, size: int) -> Chunks:
        """Chunks of an array's axis of this size; None: it is whole."""
        if axis is None or (axis == "K" and not any(self.chunks["H"])):
            return (size,)
        if axis == "K":
            return tuple(heads // self.group for heads in self.chunks["H"])
        return self.chunks[axis]

    def span(self, axis: Axis, number: int) -> tuple[int, int]:
        begin = sum(self.chunks[axis][:number])
        return begin, begin + self.chunks[axis][number]


def axes_of(name: str, shape: tuple[int, ...], batch: int) -> Axes:
    """Return the axis of the grid that cuts each axis of an argument, None for none."""
    if name in NAMES:  # FIRE's network: only the outputs, which are heads, are cut
        of_heads: Axis | None = "H" if name in ("w2", "b2") else None
        return (of_heads, None)[: len(shape)]
    # no axis of the grid cuts other letters, such as rows of tables, nor log_decay's: a
    # block needs the numbers of keys after its own, too
    # Letters name the last axes, of which an array may lack some; batch axes are before
    # them, aligned at the last one as NumPy broadcasts.
    core = ROWS[name].letters_of(len(shape))
    leading = len(shape) - len(core)
    axes: list[Axis | None] = [*range(batch - leading, batch)]
    for letter in core:
        axis = "H" if letter == "g" else letter  # a group for each head, or one for all
        axes.append(axis if axis in "HKqk" else None)
    return tuple(
        None if size == 1 else axis for axis, size in zip(axes, shape, strict=True)
    )


def number(axis: Axis | None, index: Index) -> int:
    """Return the number of a block's chunk on an axis; key heads are cut as heads."""
    if axis is None:
        return 0
    return index["H" if axis == "K" else axis]


def key_of(array: Any, axes: Axes, index: Index) -> Key:
    return (array.name, *(number(axis, index) for axis in axes))


def tasks_of(name: str, layer: Mapping[Any, Any], needs: Sequence[Any]) -> Delayed:
    """Return a layer of tasks, which are made of those of other collections."""
    graph = HighLevelGraph.from_collections(name, layer, dependencies=needs)
    return Delayed(name, graph)


def grid_of(
    arrays: Mapping[str, Any], batch: tuple[int, ...], sizes: Sizes, edges: bool
) -> Grid:
    """Cut each axis of a call as the first of its arrays that is cut there.

    A graph (`edges`) allows no cut of queries and keys.
    """
    group = max(1, sizes.H // sizes.Hk) if sizes.Hk else 1
    extents: dict[Axis, int] = dict(enumerate(batch))
    extents |= {"H": sizes.H, "q": sizes.Lq, "k": sizes.Lk}
    chunks: dict[Axis, Chunks] = {axis: (size,) for axis, size in extents.items()}
    # In reverse, so that the first array that is cut on an axis is the last to say how.
    for name, array in reversed(list(arrays.items())):
        if not isinstance(array, da.Array):
            continue
        axes = axes_of(name, array.shape, len(batch))
        for axis, cut in zip(axes, array.chunks, strict=True):
            cut = tuple(size for size in cut if size) or (0,)  # no task of nothing
            if axis == "K" and sizes.H:
                chunks["H"] = tuple(heads * group for heads in cut)
            elif axis is not None and axis != "K":
                chunks[axis] = cut
    # Heads that share a key head are one block, which has this key head whole.
    ends = np.cumsum(chunks["H"])
    ends = np.unique(-(-ends // group) * group)  # a cut within a group goes to its end
    chunks["H"] = tuple(int(size) for size in np.diff(ends, prepend=0))
    for name, axis in (("key", "k"), ("query", "q")):
        if edges and len(chunks[axis]) > 1:
            raise ValueError(
                f"{name}: in {len(chunks[axis])} chunks of its length; expected one "
                f"({name}.rechunk({{-2: -1}})), as edges count queries and keys"
            )
    return Grid(chunks, group)


def refuse_unknown(name: str, array: Any) -> None:
    """Raise where chunks of an array of dask have no known length."""
    if any(np.isnan(size) for size in array.shape):
        raise ValueError(
            f"{name}: shape {array.shape} is not known; expected known chunks (call "
            "compute_chunk_sizes() on it)"
        )


def with_shape(name: str, value: Any) -> Any:
    """Return a dask array of known shape, or a floating-point array."""
    if not isinstance(value, da.Array):
        return as_floating(name, value)
    refuse_unknown(name, value)
    return value


# ---- which blocks have a task --------------------------------------------------------


class _View(NamedTuple):
    """Arguments that hide keys, with integers of the shape of the whole batch."""

    left: int
    right: int
    offset: Array
    lengths: Array  # (...), of at most Lk
    ranges: Array | None  # (..., 1 or Lq, 2)


def visibility_of(
    problem: Problem, operands: Arguments, grid: Grid, everything: bool
) -> tuple[Array, Array]:
    """Find the blocks that have a task, (*batch, q, k), and those that have the sinks.

    A block of queries has at least one, even if they see nothing. The sinks belong to
    the last block of keys that the window leaves to it, (q,), for all batch items.
    """
    view = _view(problem, operands)
    counts = [len(grid.chunks[axis]) for axis in (*grid.batch, "q", "k")]
    reached = _reached(view, grid)
    last = counts[-1] - 1 - reached[:, ::-1].argmax(axis=1)  # the last True of each row
    # The window is for all items together; offsets, lengths and ranges are of each.
    visible = np.broadcast_to(reached | everything, counts).copy()
    if not everything and any(name in operands for name in PLACED):
        for place in np.ndindex(*counts[:-1]):
            visible[place] &= _seen(view, grid, place)
    for query, key in enumerate(last):
        of_query = visible[..., query, :]
        of_query[..., key] |= ~of_query.any(axis=-1) | ("sinks" in operands)
    return visible, last


def _view(problem: Problem, operands: Arguments) -> _View:
    known = {
        name: operands[name]
        for name in PLACED
        if name in operands and not isinstance(operands[name], da.Array)
    }
    left, right = problem.operands["window_left"], problem.operands["window_right"]
    if "query_offset" in operands and "query_offset" not in known:
        # It is lazy: where the window lies is not known before it is computed.
        left = right = UNBOUNDED
    batch, keys = problem.batch, problem.sizes.Lk
    offset = np.broadcast_to(known.get("query_offset", 0), batch)
    lengths = np.broadcast_to(known.get("key_lengths", keys), batch)
    ranges = known.get("key_ranges")
    if ranges is not None:
        ranges = np.broadcast_to(ranges, (*batch, *ranges.shape[-2:]))
    return _View(left, right, offset, lengths, ranges)


def _reached(view: _View, grid: Grid) -> Array:
    """Find the blocks in which the window leaves a pair to any batch item, (q, k).

    Queries to which it leaves none get the last keys.
    """
    low = high = 0
    if view.offset.size:
        low, high = np.min(view.offset), np.max(view.offset)
    first, last = _ends(grid, "q")
    begin, end = _ends(grid, "k")
    reached = np.ones((len(first), len(begin)), bool)
    if view.right != UNBOUNDED:
        reached &= begin <= (last - 1 + high + view.right)[:, None]
    if view.left != UNBOUNDED:
        reached &= end - 1 >= (first + low - view.left)[:, None]
    reached[:, -1] |= ~reached.any(axis=1)
    return reached


def _ends(grid: Grid, axis: str) -> tuple[Array, Array]:
    ends = np.cumsum(grid.chunks[axis])
    return ends - grid.chunks[axis], ends


def _seen(view: _View, grid: Grid, place: tuple[int, ...]) -> Array:
    """Find the blocks of keys that some item of a chunk of the batch sees, (k,).

    A query sees one run of keys. The queries of a block share it in each item, unless
    each query has a range of its own.
    """
    *batch, query = place
    items = tuple(
        slice(*grid.span(axis, n)) for axis, n in zip(grid.batch, batch, strict=True)
    )
    first, last = grid.span("q", query)
    lowest, highest = np.array([first]), np.array([last - 1])
    begin: Any = 0
    end: Any = view.lengths[items][..., None]
    if view.ranges is not None:
        rows = slice(None)
        if view.ranges.shape[-2] > 1:
            rows = slice(first, last)
            lowest = highest = np.arange(first, last)
        ranges = view.ranges[(*items, rows)]
        begin, end = np.maximum(ranges[..., 0], 0), np.minimum(ranges[..., 1], end)
    at = view.offset[items][..., None]
    if view.left != UNBOUNDED:
        begin = np.maximum(begin, at + lowest - view.left)
    if view.right != UNBOUNDED:
        end = np.minimum(end, at + highest + view.right + 1)
    begin, end = np.broadcast_arrays(begin, end)  # of the run of each item and query
    # +1 at the first block of each run and -1 after its last: sums count the runs.
    not_empty, ends = begin < end, _ends(grid, "k")[1]
    low = np.searchsorted(ends, begin[not_empty], side="right")
    high = np.searchsorted(ends, end[not_empty] - 1, side="right") + 1
    size = len(ends) + 1
    steps = np.bincount(low, minlength=size) - np.bincount(high, minlength=size)
    return np.cumsum(steps)[:-1] > 0


# ---- the plan of a call --------------------------------------------------------------

#: Arguments that each block has whole; arrays among them may be dask arrays.
_WHOLE = ("buckets", *NAMES, *GRAPH)
_OPTIONS = (
    "is_causal",
    "scale",
    "softcap",
    "enable_gqa",
    "min_relative_position",
    "dropout_p",
    "beyond",
    "window",
    "signed",
    "eps",
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
    axes: list[Axes]  # theirs
    visible: Array  # (*batch, q, k): the blocks that have a task
    last: Array  # (q,): the block of keys that has the sinks

    @property
    def shared(self) -> Delayed:
        """Make a task of its own that completes the recipe, which each block needs."""
        name = f"relpos-recipe-{tokenize(self.recipe, self.token)}"
        arrays = [*self.lazy.values()]
        keys = [(x.name, *(0 for _ in x.shape)) for x in arrays]
        task = (_completed, self.recipe, self.check, [*self.lazy], keys)
        return tasks_of(name, {name: task}, arrays)

    def sees(self, index: Index) -> bool:
        place = tuple(index[axis] for axis in (*self.grid.batch, "q", "k"))
        return bool(self.visible[place])

    def has_sinks(self, index: Index) -> bool:
        """Return True for the one block of its queries that the sinks belong to."""
        return bool(index["k"] == self.last[index["q"]])

    def place(self, index: Index) -> Place:
        spans = [range(*self.grid.span(axis, index[axis])) for axis in self.grid.batch]
        numbers = np.arange(math.prod(self.problem.batch)).reshape(self.problem.batch)
        items = numbers[np.ix_(*spans)] if spans else numbers
        shapes, begins = [], []
        for array, axes in zip(self.arrays, self.axes, strict=True):
            shape, begin = [], []
            for axis, chunks in zip(axes, array.chunks, strict=True):
                n = number(axis, index)
                shape.append(int(chunks[n]))
                begin.append(int(sum(chunks[:n])))
            shapes.append(tuple(shape))
            begins.append(tuple(begin))
        query, key, head = (self.grid.span(axis, index[axis])[0] for axis in "qkH")
        several = len(self.grid.chunks["k"]) > 1
        key_heads = self.problem.sizes.Hk
        part = Part(self.seed, query, key, head, items.ravel(), key_heads, several)
        return Place(
            part, items.shape, self.has_sinks(index), tuple(shapes), tuple(begins)
        )


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
    look_at_mask(problem)  # which reads no lazy one
    if arguments["key_blocks"] is not None:
        arguments = _with_spread_blocks(arguments, problem)
    if arguments["cu_seqlens"] is not None:
        arguments = _with_ranges(arguments, problem)
    operands = _operands_of(arguments)
    for name in operands.keys() & PICKS.keys():
        operands[name] = _by_head(operands[name], problem.sizes.H)
    grid = grid_of(operands, problem.batch, problem.sizes, "edges" in arguments)
    arrays, axes = [], []
    for name, array in operands.items():
        array_axes = axes_of(name, array.shape, len(problem.batch))
        pairs = zip(array_axes, array.shape, strict=True)
        chunks = tuple(grid.chunks_of(axis, size) for axis, size in pairs)
        arrays.append(rechunked(array, chunks))
        axes.append(array_axes)
    weights = as_flag("return_weights", arguments["return_weights"])
    values = _values_of(arguments, weights)
    seed = draw_seed(arguments["rng"], problem.operands["dropout_p"])
    # What is lazy is left out of the recipe, which the task of `shared` completes.
    lazy, check = _later_check(values, operands)
    values |= dict.fromkeys(_lazy_of(values))
    recipe = Recipe(tuple(operands), values, problem.dtype)
    visible, last = visibility_of(problem, operands, grid, weights)
    # The name of all tasks: calls that are equal in all of these share their tasks.
    token = tokenize(recipe, seed, (visible, last), *arrays, *lazy.values())
    return Plan(
        token=token,
        problem=problem,
        recipe=recipe,
        seed=seed,
        lazy=lazy,
        check=check,
        grid=grid,
        arrays=arrays,
        axes=axes,
        visible=visible,
        last=last,
    )


def _with_spread_blocks(arguments: Arguments, problem: Problem) -> Arguments:
    """Return a call with a lazy mask, of pairs, in the place of its blocks.

    A chunk may begin within a block, so that each has its part of the mask.
    """
    sizes, x = problem.sizes, problem.operands
    mask = arguments["key_blocks"]
    if not isinstance(mask, da.Array):
        mask = da.from_array(ROWS["key_blocks"].read(mask), chunks=-1)
    lengths = sizes.H, sizes.Lq, sizes.Lk
    names = "block_heads", "block_queries", "block_keys"
    for axis, (length, name) in enumerate(zip(lengths, names, strict=True), -3):
        mask = da.take(mask, np.arange(length) // x[name], axis=axis)
    other = arguments["attn_mask"]
    if other is not None:
        if not isinstance(other, da.Array):
            other = da.from_array(ROWS["attn_mask"].read(other), chunks=-1)
        hidden = False if other.dtype == bool else other.dtype.type(-np.inf)
        mask = da.where(mask, other, hidden)
    return arguments | {"attn_mask": mask, "key_blocks": None, "block_size": None}


def _with_ranges(arguments: Arguments, problem: Problem) -> Arguments:
    """Return a call on packed documents, each query with the keys of its own."""
    if problem.fire is not None:
        raise ValueError(
            "cu_seqlens: given to fire_attention, each block of which counts positions "
            "from the first key of the whole; expected None (make documents items of "
            "the batch, with key_lengths)"
        )
    ranges = problem.inputs["key_ranges"]
    return arguments | {"cu_seqlens": None, "key_ranges": ranges}


def _operands_of(arguments: Arguments) -> Arguments:
    """Return the arrays that are cut: those of dask, and others as C reads them."""
    operands: Arguments = {}
    for name, row in ROWS.items():
        value = arguments.get(name)
        if value is not None:
            operands[name] = value if isinstance(value, da.Array) else row.read(value)
    return operands


def _by_head(array: Any, heads: int) -> Any:
    """Repeat the keys of groups of heads, which blocks of heads may cut."""
    groups = array.shape[-3]
    if groups in (1, heads):
        return array
    repeat = da.repeat if isinstance(array, da.Array) else np.repeat
    return repeat(array, heads // groups, axis=-3)


def _values_of(arguments: Arguments, return_weights: bool) -> Arguments:
    """Return the arguments that each block has whole, as they are now."""
    values: Arguments = {}
    for name in (*_OPTIONS, *_WHOLE):
        if name in arguments:
            value = arguments[name]
            # The tasks run later, and a caller may change these before they do.
            may_change = isinstance(value, np.ndarray | list | tuple)
            values[name] = deepcopy(value) if may_change else value
    num_threads = arguments["num_threads"]
    values["num_threads"] = (
        1 if num_threads is None else choose_num_threads(num_threads)
    )
    values["return_weights"] = return_weights
    return values


def rechunked(array: Any, chunks: tuple[Chunks, ...]) -> Any:
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
    prepare(DEFAULTS | _in_memory(recipe.values | check | lazy))
    values = {name: lazy.get(name, x) for name, x in recipe.values.items()}
    return recipe._replace(values=values)


def _later_check(values: Arguments, operands: Arguments) -> tuple[Arguments, Arguments]:
    """Return the lazy small arguments of a checked call, and arrays to check them with.

    `operands` are its arrays that are cut, `values` its other arguments.
    """
    placed = {name: operands[name] for name in PLACED if name in operands}
    if values["beyond"] != "raise" and "log_decay" not in operands:
        placed.pop("key_ranges", None)  # every range is allowed then
    lazy = {name: x.rechunk(-1) for name, x in _lazy_of(placed | values).items()}
    check: Arguments = {}
    for name, array in operands.items():
        is_read = name in placed and not isinstance(array, da.Array)
        check[name] = array if is_read else Form(array.shape, array.dtype)
    return lazy, check


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
        # With lengths of 0 no key is visible, and nothing is checked of pairs that are
        # known only when these arguments are computed.
        lengths = arrays["key_lengths"]
        lengths = OPERANDS["key_lengths"].read(0 if lengths is None else lengths)
        arrays["key_lengths"] = np.zeros_like(lengths)
    if "indptr" in lazy and lazy["indptr"].dtype.kind in "iu":
        # Valid, whatever the lazy ones are: the last query has all edges.
        arrays["indptr"] = np.zeros(lazy["indptr"].shape, np.int64)
        arrays["indptr"][..., -1:] = np.size(arrays["indices"])
    return prepare(arrays)


def stand_in(name: str, array: Any) -> Array:
    """Return zeros of the shape and dtype of another array, in the memory of one."""
    refuse_unknown(name, array)
    return np.broadcast_to(np.zeros((), array.dtype), array.shape)


def _in_memory(arguments: Arguments) -> Arguments:
    """Replace dask arrays and forms by zeros."""
    replaced = dict(arguments)
    for name, x in arguments.items():
        if isinstance(x, da.Array | Form):
            replaced[name] = stand_in(called(name), x)
    return replaced


def _lazy_of(arguments: Arguments) -> Arguments:
    return {name: x for name, x in arguments.items() if isinstance(x, da.Array)}
