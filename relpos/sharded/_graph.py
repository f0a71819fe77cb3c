"""Graphs of dask, by hand: a layer of blocks, and arrays made of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.highlevelgraph import HighLevelGraph

from relpos.sharded._grid import Axis, Chunks, Grid, Index, key_of, number
from relpos.sharded._tasks import add, deliver

Key = tuple[Any, ...]
Layer = dict[Key, Any]


def fold(
    layer: Layer, parts: Sequence[Key | None], last: Key, join: Callable[..., Any]
) -> None:
    """Join parts pairwise, neighbours first, in an order that depends on their number.

    A part that is None is empty and needs no join. `last` becomes the key of the whole.
    """
    home, level = f"{last[0]}-join", 0
    while len(parts) > 1:
        level += 1
        joined: list[Key | None] = []
        for first in range(0, len(parts) - 1, 2):
            pair = parts[first : first + 2]
            found = [part for part in pair if part is not None]
            if len(found) == 2:
                key = (home, *last[1:], level, first)
                layer[key] = (join, *found)
                found = [key]
            joined.append(found[0] if found else None)
        parts = [*joined, *parts[2 * len(joined) :]]
    whole = parts[0]
    layer[last] = layer.pop(whole) if whole and whole[0] == home else (_same, whole)


def _same(value: Any) -> Any:
    return value


class Tasks(NamedTuple):
    """A graph, and its layer that the next one is made of."""

    graph: HighLevelGraph
    home: str

    def then(self, name: str, layer: Layer) -> Tasks:
        """Return the graph with one more layer, made of the last."""
        layers = {**self.graph.layers, name: layer}
        needs = {**self.graph.dependencies, name: {self.home}}
        return Tasks(HighLevelGraph(layers, needs), name)

    def array(
        self, name: str, layer: Layer, chunks: tuple[Chunks, ...], dtype: np.dtype[Any]
    ) -> Any:
        """Return an array whose chunks are the tasks of one more layer."""
        return da.Array(self.then(name, layer).graph, name, chunks, dtype=dtype)


def tasks_of(name: str, layer: Layer, arrays: Sequence[Any]) -> Tasks:
    """Make a first layer from arrays."""
    graph = HighLevelGraph.from_collections(name, layer, dependencies=arrays)
    return Tasks(graph, name)


def total(
    name: str,
    blocks: Tasks,
    parts: Sequence[tuple[Index, Key | None]],
    axes: tuple[Axis | None, ...],
    shape: tuple[int, ...],
    grid: Grid,
    dtype: np.dtype[Any],
) -> Any:
    """Sum the parts of a gradient, each of the chunk that its block has.

    The parts of one chunk are added in the order of their blocks in the grid; a hidden
    block has None.
    """
    chunks = tuple(
        grid.chunks_of(axis, size) for axis, size in zip(axes, shape, strict=True)
    )
    found: dict[tuple[int, ...], list[Key | None]] = {}
    for index, key in parts:
        place = tuple(number(axis, index) for axis in axes)
        found.setdefault(place, []).append(key)
    layer: Layer = {}
    for place in np.ndindex(*(len(cut) for cut in chunks)):
        sizes = tuple(cut[n] for cut, n in zip(chunks, place, strict=True))
        keys = found[place]
        some = [key for key in keys if key is not None]
        if not some:  # no query sees these keys
            layer[(name, *place)] = (np.zeros, sizes, dtype)
            continue
        whole = some[0]
        if len(some) > 1:
            whole = (f"{name}-sum", *place)
            fold(layer, keys, whole, add)
        layer[(name, *place)] = (deliver, whole, dtype)
    return blocks.array(name, layer, chunks, dtype)


def chunk_keys(
    arrays: Sequence[Any], axes: Sequence[tuple[Axis | None, ...]], index: Index
) -> list[Key]:
    """Return the keys of the chunks of several arrays that a block has."""
    pairs = zip(arrays, axes, strict=True)
    return [key_of(array, cut, index) for array, cut in pairs]
