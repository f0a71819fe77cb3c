"""How the arrays of one call are cut: a grid of batch, heads, queries and keys."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import dask.array as da
import numpy as np

from relpos._attention.operands import ROWS, Sizes

#: An axis of the grid: a batch axis by its number, or H, q, k as in `Operand`.
Axis = int | str
Chunks = tuple[int, ...]
#: A block of the grid: which chunk of each of its axes.
Index = dict[Axis, int]


#: How FIRE's parameters are cut: their outputs are heads.
FIRE_AXES: dict[str, tuple[Axis | None, ...]] = {
    **{name: (None,) for name in ("w1", "b1")},
    **{name: () for name in ("c", "threshold")},
    "w2": ("H", None),
    "b2": ("H",),
}


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
    """Which axis of the grid cuts each axis of an argument; None: it is whole there."""
    if name in FIRE_AXES:
        return (*FIRE_AXES[name], None)[: len(shape)]
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
    """Which chunk of an array's axis a block has."""
    if axis is None:
        return 0
    return index["H" if axis == "K" else axis]


def key_of(array: Any, axes: tuple[Axis | None, ...], index: Index) -> tuple[Any, ...]:
    """Dask's key of the chunk of an array that a block has."""
    return (array.name, *(number(axis, index) for axis in axes))


def chunk_shape(
    array: Any, axes: tuple[Axis | None, ...], index: Index
) -> tuple[int, ...]:
    """Shape of the chunk of an array that a block has."""
    pairs = zip(array.chunks, axes, strict=True)
    return tuple(int(cut[number(axis, index)]) for cut, axis in pairs)


def grid_of(
    arrays: Mapping[str, Any], batch: tuple[int, ...], sizes: Sizes, edges: bool
) -> Grid:
    """Cut a call as its arrays are cut: by the first that is, query before the others.

    `edges` allow no cut of queries and keys.
    """
    group = sizes.H // sizes.Hk if sizes.Hk else 1
    extents: dict[Axis, int] = dict(enumerate(batch))
    extents |= {"H": sizes.H, "q": sizes.Lq, "k": sizes.Lk}
    chunks: dict[Axis, Chunks] = {axis: (size,) for axis, size in extents.items()}
    for name, array in reversed([*arrays.items()]):
        if not isinstance(array, da.Array):
            continue
        for axis, cut in zip(
            axes_of(name, array.shape, len(batch)), array.chunks, strict=True
        ):
            cut = tuple(size for size in cut if size) or (0,)  # no task of nothing
            if axis == "K":
                chunks["H"] = tuple(heads * group for heads in cut)
            elif axis is not None:
                chunks[axis] = cut
    chunks["H"] = _whole_groups(chunks["H"], group)
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


def _whole_groups(chunks: Chunks, group: int) -> Chunks:
    """Move the cuts between heads to the next end of a group that shares a key head."""
    ends = np.cumsum(chunks)
    ends = np.unique(-(-ends // group) * group)
    return tuple(int(size) for size in np.diff(ends, prepend=0))
