"""A call on dask arrays: its forward, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import getitem
from typing import Any

import dask
import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.delayed import Delayed

import relpos
from relpos._attention.attention import AttentionOutput
from relpos._attention.gradients import (
    AttentionGradients,
    FireAttentionGradients,
    Saved,
    check_gradients,
    names_of,
)
from relpos._checks import ArrayLike, as_flag, rounded, rounded_twice
from relpos._settings import choose_num_threads
from relpos._twins import twin
from relpos.sharded._plan import (
    Arguments,
    Axes,
    Chunks,
    Grid,
    Index,
    Key,
    Layer,
    Plan,
    axes_of,
    key_of,
    make_plan,
    number,
    rechunked,
    stand_in,
    tasks_of,
    with_shape,
)
from relpos.sharded._tasks import (
    WRITTEN,
    Kept,
    add,
    differentiate,
    join,
    solve,
    sum_repeated,
)

__all__ = ["ShardedContext"]

#: Blocks and the keys of their tasks, None for those without.
Parts = list[tuple[Index, Key | None]]

#: Words of types in documentation of functions on arrays, and those on dask arrays.
LAZY = {"array_like": "dask array or array_like", "ndarray": "dask array"}


def attend(call: Arguments) -> Any:
    """Check a call, build its graph, and return the results that it asks for."""
    return_lse = as_flag("return_lse", call["return_lse"])
    return_weights = as_flag("return_weights", call["return_weights"])
    return_context = as_flag("return_context", call["return_context"])
    plan = make_plan(call)
    blocks = _forward_blocks(plan)
    kept = Kept(*(_result(plan, blocks, name) for name in Kept._fields))
    # Blocks are computed and joined in at least float32, and rounded once at the end.
    out, dtype = kept.out, plan.problem.out_dtype
    if dtype != plan.problem.dtype:
        out = out.map_blocks(
            rounded, dtype, token="deliver", dtype=dtype, meta=np.empty((), dtype)
        )
    if not (return_lse or return_weights or return_context):
        return out
    return AttentionOutput(
        out,
        kept.lse if return_lse else None,
        _result(plan, blocks, "weights") if return_weights else None,
        ShardedContext(plan, kept) if return_context else None,
    )


def _forward_blocks(plan: Plan) -> Delayed:
    """Make a task for each chunk of rows, which returns all of its results.

    It joins the tasks of the blocks of keys that the rows see.
    """
    name, grid, shared = f"relpos-attention-{plan.token}", plan.grid, plan.shared
    layer: Layer = {}
    for index in grid.blocks(*grid.rows):
        parts: list[Key | None] = []
        for k in range(len(grid.chunks["k"])):
            block: Index = {**index, "k": k}
            if not plan.sees(block):
                parts.append(None)
                continue
            part = (f"{name}-part", *block.values())
            chunks = _chunk_keys(plan.arrays, plan.axes, block)
            layer[part] = (solve, shared.key, plan.place(block), chunks)
            parts.append(part)
        _fold(layer, parts, (name, *index.values()), join)
    return tasks_of(name, layer, [shared, *plan.arrays])


def _result(plan: Plan, blocks: Delayed, what: str) -> Any:
    """Return one result of all chunks of rows as a dask array."""
    name, grid, sizes = f"relpos-{what}-{plan.token}", plan.grid, plan.problem.sizes
    # Results have the axes of the rows; these two have one more, which is not cut.
    last_chunks: tuple[Chunks, ...] = ()
    if what == "out":
        last_chunks = ((sizes.Dv,),)
    elif what == "weights":
        last_chunks = ((sizes.Lk,),)
    layer: Layer = {}
    for index in grid.blocks(*grid.rows):
        block = tuple(index.values())
        key = (name, *block, 0) if last_chunks else (name, *block)
        layer[key] = (getitem, (blocks.key, *block), what)
    chunks = (*(grid.chunks[axis] for axis in grid.rows), *last_chunks)
    graph = tasks_of(name, layer, [blocks]).dask
    return da.Array(graph, name, chunks, dtype=plan.problem.dtype)


class ShardedContext:
    """Gradients of one call on dask arrays, computed lazily.

    As `relpos.AttentionContext`. Nothing is computed before the gradients are. Computed
    together with `out`, by one ``dask.compute``, they share its tasks; after `persist`
    they start from what is stored.

    Examples
    --------
    >>> import dask.array as da
    >>> import relpos.sharded
    >>> x = da.ones((2, 2, 4), chunks=(1, -1, -1))
    >>> context = relpos.sharded.attention(x, x, x, return_context=True).context
    >>> grads = context.backward(da.ones((2, 2, 4)), wrt=["value"])
    >>> float(grads.value.sum().compute())
    16.0
    """

    __slots__ = ("_kept", "_plan")

    def __init__(self, plan: Plan, kept: Kept) -> None:
        self._plan = plan
        self._kept = kept

    def __repr__(self) -> str:
        names = ", ".join(self._plan.recipe.names)
        return f"<ShardedContext of {names}: out {self._kept.out.shape}>"

    def persist(self) -> ShardedContext:
        """Compute what the gradients start from, and keep it.

        With a client of distributed it is on the workers; without one, in memory.

        Returns
        -------
        ShardedContext
            One whose `backward` computes no forward.

        Examples
        --------
        >>> import dask.array as da
        >>> import relpos.sharded
        >>> x = da.ones((2, 2, 4), chunks=(1, -1, -1))
        >>> result = relpos.sharded.attention(x, x, x, return_context=True)
        >>> result.context.persist()
        <ShardedContext of query, key, value: out (2, 2, 4)>
        """
        return ShardedContext(self._plan, Kept(*dask.persist(*self._kept)))

    @twin(relpos.AttentionContext.backward, LAZY)
    def backward(
        self,
        grad_out: ArrayLike | None,
        *,
        grad_lse: ArrayLike | None = None,
        wrt: Iterable[str] | None = None,
        num_threads: int | None = None,
    ) -> Any:
        """Gradients of ``sum(grad_out * out) + sum(grad_lse * lse)``, lazily.

        Parameters
        ----------
        num_threads : int, optional
            The threads of each task, by default 1.

        Returns
        -------
        AttentionGradients or FireAttentionGradients
            Named tuple of dask arrays, each of its input's shape and dtype, or None.

        Notes
        -----
        A block needs `out`, the maxima and the sums of its rows, and no forward.

        Examples
        --------
        >>> import dask.array as da
        >>> import relpos.sharded
        >>> x = da.zeros((2, 2, 4), chunks=(1, -1, -1))
        >>> result = relpos.sharded.attention(x, x, x, return_context=True)
        >>> gradients = result.context.backward(da.ones((2, 2, 4)))
        >>> gradients.query.shape, gradients.query.chunksize
        ((2, 2, 4), (1, 2, 4))
        """
        plan = self._plan
        fire = plan.problem.fire is not None
        kind: type[Any] = FireAttentionGradients if fire else AttentionGradients
        names = names_of(wrt, plan.problem.inputs, kind._fields)
        if grad_out is not None:
            grad_out = with_shape("grad_out", grad_out)
        if grad_lse is not None:
            grad_lse = with_shape("grad_lse", grad_lse)
        self._check(grad_out, grad_lse)
        if num_threads is not None:
            threads = {"num_threads": choose_num_threads(num_threads)}
            values = plan.recipe.values | threads
            plan = plan._replace(recipe=plan.recipe._replace(values=values))
        blocks, parts = self._blocks(plan, grad_out, grad_lse, tuple(names))
        return kind(**{name: self._gradient(name, blocks, parts) for name in names})

    def _check(self, grad_out: Any, grad_lse: Any) -> None:
        """Raise as a call on arrays in memory would."""
        kept = Kept(*map(stand_in, Kept._fields, self._kept))
        saved = Saved(kept.out, kept.row_max, kept.row_sum, 0)
        if grad_out is not None:
            grad_out = stand_in("grad_out", grad_out)
        if grad_lse is not None:
            grad_lse = stand_in("grad_lse", grad_lse)
        check_gradients(self._plan.problem, saved, grad_out, grad_lse)

    def _blocks(
        self, plan: Plan, grad_out: Any, grad_lse: Any, names: tuple[str, ...]
    ) -> tuple[Delayed, Parts]:
        """Make one task for each block that has one, and list their keys by block."""
        grid, rows = plan.grid, [*self._kept]
        out, lse = self._kept.out, self._kept.lse
        out_axes: Axes = (*grid.rows, None)
        axes: list[Axes] = [out_axes, grid.rows, grid.rows, grid.rows]  # as in `Kept`
        if grad_out is not None:
            grad_out = rechunked(grad_out, out.chunks)
        if grad_lse is not None:
            grad_lse = rechunked(grad_lse, lse.chunks)
        # dask reuses tasks of one name: the name says which gradients are asked for and
        # given.
        token = tokenize(plan.recipe, names, *rows, *plan.arrays, grad_out, grad_lse)
        name = f"relpos-backward-{token}"
        layer: Layer = {}
        shared = plan.shared
        parts: Parts = []
        for index in grid.blocks():
            if not plan.sees(index):
                parts.append((index, None))
                continue
            key = (name, *index.values())
            layer[key] = (
                differentiate,
                shared.key,
                plan.place(index),
                _chunk_keys(plan.arrays, plan.axes, index),
                list(names),
                None if grad_out is None else key_of(grad_out, out_axes, index),
                None if grad_lse is None else key_of(grad_lse, grid.rows, index),
                _chunk_keys(rows, axes, index),
            )
            parts.append((index, key))
        gradients = [x for x in (grad_out, grad_lse) if x is not None]
        needs = [shared, *plan.arrays, *rows, *gradients]
        return tasks_of(name, layer, needs), parts

    def _gradient(self, name: str, blocks: Delayed, parts: Parts) -> Any:
        """Sum the gradients of one input over the blocks."""
        problem, grid = self._plan.problem, self._plan.grid
        operand, batch = problem.inputs[name], problem.batch
        shape = operand.shape
        # An input with an entry for each query or key may lack batch axes, or have one
        # item there for all. Tasks write its gradient for each item, and it is summed
        # over the axes `repeated` afterwards.
        repeated: tuple[int, ...] = ()
        if name in WRITTEN:
            shape = (*batch, *operand.shape[-3:])
            missing = len(shape) - operand.ndim
            padded = (1,) * missing + operand.shape
            repeated = tuple(
                axis for axis, size in enumerate(shape) if padded[axis] != size
            )
        dtype = operand.dtype.newbyteorder("=")
        if name == "sinks":  # one block of each row of blocks has them
            parts = [part for part in parts if self._plan.has_sinks(part[0])]
        title = f"relpos-grad-{name}-{blocks.key.rpartition('-')[2]}"
        picked, picks = _picked(name, f"{title}-parts", blocks, parts)
        axes = axes_of(name, shape, len(batch))
        # What is summed further stays in the dtype of the computation until then.
        sum_dtype = problem.dtype if repeated else dtype
        gradient = _total(title, picked, picks, axes, shape, grid, sum_dtype)
        if repeated:
            gradient = gradient.rechunk(dict.fromkeys(repeated, -1))
            chunks = [*gradient.chunks]
            for axis in repeated:
                chunks[axis] = (1,)
            gradient = gradient.map_blocks(
                sum_repeated, repeated, shape, dtype, dtype=dtype, chunks=tuple(chunks)
            )
        if gradient.shape != operand.shape:
            gradient = gradient.reshape(operand.shape)
        return gradient


# ---- graphs of dask, by hand ---------------------------------------------------------


def _fold(
    layer: Layer, parts: Sequence[Key | None], last: Key, join: Callable[..., Any]
) -> None:
    """Join parts pairwise, neighbours first, in an order that depends on their number.

    A part that is None is empty and needs no join. `last` becomes the key of the whole.
    """
    join_name, level = f"{last[0]}-join", 0
    while len(parts) > 1:
        level += 1
        joined: list[Key | None] = []
        for first in range(0, len(parts) - 1, 2):
            left, right = parts[first], parts[first + 1]
            if left is None or right is None:
                joined.append(right if left is None else left)
                continue
            key = (join_name, *last[1:], level, first)
            layer[key] = (join, left, right)
            joined.append(key)
        if len(parts) % 2:  # the last one has no neighbour on this level
            joined.append(parts[-1])
        parts = joined
    root = parts[0]
    if root is not None and root[0] == join_name:
        layer[last] = layer.pop(root)  # the last join, under the other key
    else:  # a part alone, which was not joined
        layer[last] = (_same, root)


def _same(value: Any) -> Any:
    return value


def _picked(
    name: str, title: str, blocks: Delayed, parts: Parts
) -> tuple[Delayed, Parts]:
    """Make a task for each block, which picks one of the gradients that it returns."""
    layer: Layer = {}
    picks: Parts = []
    for index, key in parts:
        if key is None:
            picks.append((index, None))
            continue
        pick = (title, *key[1:])
        layer[pick] = (getitem, key, name)
        picks.append((index, pick))
    return tasks_of(title, layer, [blocks]), picks


def _total(
    name: str,
    blocks: Delayed,
    parts: Parts,
    axes: Axes,
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
    parts_of: dict[tuple[int, ...], list[Key | None]] = {}
    for index, key in parts:
        place = tuple(number(axis, index) for axis in axes)
        parts_of.setdefault(place, []).append(key)
    layer: Layer = {}
    for place in np.ndindex(*(len(cut) for cut in chunks)):
        sizes = tuple(cut[n] for cut, n in zip(chunks, place, strict=True))
        keys = parts_of[place]
        visible = [key for key in keys if key is not None]
        if not visible:  # no query sees these keys
            layer[(name, *place)] = (np.zeros, sizes, dtype)
            continue
        total = visible[0]
        if len(visible) > 1:
            total = (f"{name}-sum", *place)
            _fold(layer, keys, total, add)
        layer[(name, *place)] = (rounded_twice, total, dtype)
    graph = tasks_of(name, layer, [blocks]).dask
    return da.Array(graph, name, chunks, dtype=dtype)


def _chunk_keys(arrays: list[Any], axes: list[Axes], index: Index) -> list[Key]:
    pairs = zip(arrays, axes, strict=True)
    return [key_of(array, cut, index) for array, cut in pairs]
