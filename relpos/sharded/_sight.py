"""Which blocks have a task: those of which some pair may be visible."""

from __future__ import annotations

from typing import Any, NamedTuple

import dask.array as da
import numpy as np

from relpos._attention.problem import UNBOUNDED, Problem
from relpos._checks import Array
from relpos.sharded._grid import Grid, Index
from relpos.sharded._tasks import PLACED


class Sight(NamedTuple):
    """The blocks that have a task."""

    visible: Array  # (*batch, q, k), a bool for each block
    last: Array  # (q,): the last block of keys that the window leaves

    def has(self, grid: Grid, index: Index) -> bool:
        """Whether a block has one."""
        place = tuple(index[axis] for axis in (*grid.batch, "q", "k"))
        return bool(self.visible[place])


class _View(NamedTuple):
    """What hides keys, with integers of the whole batch's shape, or None."""

    left: int
    right: int
    offset: Array
    lengths: Array  # (...), of at most Lk
    ranges: Array | None  # (..., 1 or Lq, 2)


def sight_of(
    problem: Problem, given: dict[str, Any], grid: Grid, everything: bool
) -> Sight:
    """Find the blocks; one for each block of queries, even if they see nothing.

    That of the last keys which the window leaves has the sinks, for all batch items.
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
    return Sight(visible, last)


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
    """Whether the window leaves a pair of a block for any batch item, (q, k).

    Where it leaves none of some queries', they get the last keys.
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
    """Begin and end of each chunk of an axis."""
    ends = np.cumsum(grid.chunks[axis])
    return ends - grid.chunks[axis], ends


def _seen(view: _View, grid: Grid, place: tuple[int, ...]) -> Array:
    """Whether some item of a chunk of the batch sees each block of keys, (k,).

    What a query sees is one run of keys, and what those of a block see is one for each
    item, unless each query has a range of its own.
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
    return _covered(begin, end, _ends(grid, "k")[1])


def _covered(begin: Array, end: Array, ends: Array) -> Array:
    """Whether any of the runs of keys has a key of each block; `ends` are theirs."""
    some = begin < end
    low = np.searchsorted(ends, begin[some], side="right")
    high = np.searchsorted(ends, end[some] - 1, side="right") + 1
    size = len(ends) + 1
    steps = np.bincount(low, minlength=size) - np.bincount(high, minlength=size)
    return np.cumsum(steps)[:-1] > 0
