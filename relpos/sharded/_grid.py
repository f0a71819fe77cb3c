"""The grid that cuts one call into blocks, and the blocks that have a task."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import dask.array as da
import numpy as np

from relpos._attention.fire_network import NAMES
from relpos._attention.operands import ROWS, Sizes
from relpos._attention.problem import UNBOUNDED, Problem
from relpos._checks import Array
from relpos.sharded._tasks import PLACED

#: An axis of the grid: a batch axis by its number, or H, q, k as in `Operand`.
Axis = int | str
Chunks = tuple[int, ...]
#: A block of the grid: the number of its chunk on each axis.
Index = dict[Axis, int]


class Grid(NamedTuple):
    """Chunks of each axis; `group` query heads share a key head."""

    chunks: dict[Axis, Chunks]
    group: int

    def blocks(self, *axes: Axis) -> Iterator[Index]:
        """Every block, or those of some axes, the last axis running fastest."""
        names = axes or tuple(self.chunks)
        counts = (range(len(self.chunks[axis])) for axis in names)
        for numbers in itertools.product(*counts):
            yield dict(zip(names, numbers, strict=True))

    @property
    def batch(self) -> tuple[Axis, ...]:
        """The batch axes."""
        return tuple(axis for axis in self.chunks if isinstance(axis, int))

    @property
    def rows(self) -> tuple[Axis, ...]:
        """The axes of a row of the result."""
        return (*self.batch, "H", "q")

    def chunks_of(self, axis: Axis | None, size: int) -> Chunks:
        """Chunks of an array's axis of this size; None: it is whole."""
        if axis is None:
            return (size,)
        if axis == "K":
            return tuple(heads // self.group for heads in self.chunks["H"])
        return self.chunks[axis]

    def span(self, axis: Axis, number: int) -> tuple[int, int]:
        """Begin and end of a chunk."""
        begin = sum(self.chunks[axis][:number])
        return begin, begin + self.chunks[axis][number]


def axes_of(name: str, shape: tuple[int, ...], batch: int) -> tuple[Axis | None, ...]:
    """Return the axis of the grid that cuts each axis of an argument, None for none."""
    if name in NAMES:  # outputs of FIRE's network are heads
        return ("H" if name in ("w2", "b2") else None, None)[: len(shape)]
    letters = ROWS[name].letters.replace("1", "")
    if name == "log_decay":  # a block needs the numbers of keys after its own, too
        letters = letters.replace("k", "L")
    core = letters[max(0, len(letters) - len(shape)) :]
    leading = len(shape) - len(core)
    axes = [*range(batch - leading, batch), *(x if x in "HKqk" else None for x in core)]
    return tuple(
        None if size == 1 else axis for axis, size in zip(axes, shape, strict=True)
    )


def number(axis: Axis | None, index: Index) -> int:
    """Return the number of the chunk that a block has of an axis of an array."""
    if axis is None:
        return 0
    return index["H" if axis == "K" else axis]


def key_of(array: Any, axes: tuple[Axis | None, ...], index: Index) -> tuple[Any, ...]:
    """Return dask's key of the chunk of an array that a block has."""
    return (array.name, *(number(axis, index) for axis in axes))


def grid_of(
    arrays: Mapping[str, Any], batch: tuple[int, ...], sizes: Sizes, edges: bool
) -> Grid:
    """Cut each axis of a call as the first of its arrays that is cut there.

    A graph (`edges`) allows no cut of queries and keys.
    """
    group = sizes.H // sizes.Hk if sizes.Hk else 1
    extents: dict[Axis, int] = dict(enumerate(batch))
    extents |= {"H": sizes.H, "q": sizes.Lq, "k": sizes.Lk}
    chunks: dict[Axis, Chunks] = {axis: (size,) for axis, size in extents.items()}
    for name, array in reversed([*arrays.items()]):
        if not isinstance(array, da.Array):
            continue
        axes = axes_of(name, array.shape, len(batch))
        for axis, cut in zip(axes, array.chunks, strict=True):
            cut = tuple(size for size in cut if size) or (0,)  # no task of nothing
            if axis == "K":
                chunks["H"] = tuple(heads * group for heads in cut)
            elif axis is not None:
                chunks[axis] = cut
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


# ---- which blocks have a task --------------------------------------------------------


class _View(NamedTuple):
    """Arguments that hide keys, with integers of the shape of the whole batch."""

    left: int
    right: int
    offset: Array
    lengths: Array  # (...), of at most Lk
    ranges: Array | None  # (..., 1 or Lq, 2)


def visibility_of(
    problem: Problem, given: dict[str, Any], grid: Grid, everything: bool
) -> tuple[Array, Array]:
    """Find the blocks that have a task, (*batch, q, k), and those that have the sinks.

    A block of queries has at least one, even if they see nothing. The sinks belong to
    the last block of keys that the window leaves to it, (q,), for all batch items.
    """
    view = _view(problem, given)
    counts = [len(grid.chunks[axis]) for axis in (*grid.batch, "q", "k")]
    reached = _reached(view, grid)
    last = counts[-1] - 1 - reached[:, ::-1].argmax(axis=1)
    visible = np.broadcast_to(reached | everything, counts).copy()
    if not everything and any(name in given for name in PLACED):
        for place in np.ndindex(*counts[:-1]):
            visible[place] &= _seen(view, grid, place)
    for query, key in enumerate(last):
        one = visible[..., query, :]
        one[..., key] |= ~one.any(axis=-1) | ("sinks" in given)
    return visible, last


def _view(problem: Problem, given: dict[str, Any]) -> _View:
    known = {
        name: given[name]
        for name in PLACED
        if name in given and not isinstance(given[name], da.Array)
    }
    sides = problem.operands["window_left"], problem.operands["window_right"]
    if "query_offset" in given and "query_offset" not in known:
        sides = UNBOUNDED, UNBOUNDED
    batch, keys = problem.batch, problem.sizes.Lk
    offset = np.broadcast_to(known.get("query_offset", 0), batch)
    lengths = np.broadcast_to(known.get("key_lengths", keys), batch)
    ranges = known.get("key_ranges")
    if ranges is not None:
        ranges = np.broadcast_to(ranges, (*batch, *ranges.shape[-2:]))
    return _View(*sides, offset, lengths, ranges)


def _reached(view: _View, grid: Grid) -> Array:
    """Find the blocks in which the window leaves a pair to any batch item, (q, k).

    Queries to which it leaves none get the last keys.
    """
    low, high = (f(view.offset) if view.offset.size else 0 for f in (np.min, np.max))
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
    """Return begin and end of each chunk of an axis."""
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
    begin, end = np.broadcast_arrays(begin, end)
    # +1 at the first block of each run and -1 after its last: sums count the runs
    some, ends = begin < end, _ends(grid, "k")[1]
    low = np.searchsorted(ends, begin[some], side="right")
    high = np.searchsorted(ends, end[some] - 1, side="right") + 1
    size = len(ends) + 1
    steps = np.bincount(low, minlength=size) - np.bincount(high, minlength=size)
    return np.cumsum(steps)[:-1] > 0
