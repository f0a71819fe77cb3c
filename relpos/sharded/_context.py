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
    KEPT,
    WRITTEN,
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
    flags = [
        as_flag(name, call[name])
        for name in ("return_lse", "return_weights", "return_context")
    ]
    plan = make_plan(call)
    blocks = _forward_blocks(plan)
    kept = {name: _result(plan, blocks, name) for name in KEPT}
    out, dtype = kept["out"], plan.problem.out_dtype
    if dtype != plan.problem.dtype:
        out = out.map_blocks(
            rounded, dtype, token="deliver", dtype=dtype, meta=np.empty((), dtype)
        )
    if not any(flags):
        return out
    lse = kept["lse"] if flags[0] else None
    weights = _result(plan, blocks, "weights") if flags[1] else None
    context = ShardedContext(plan, kept) if flags[2] else None
    return AttentionOutput(out, lse, weights, context)


def _forward_blocks(plan: Plan) -> Delayed:
    name, grid, shared = f"relpos-attention-{plan.token}", plan.grid, plan.shared
    layer: Layer = {}
    for index in grid.blocks(*grid.rows):
        parts: list[Key | None] = []
        for k in range(len(grid.chunks["k"])):
            block, part = {**index, "k": k}, None
            if plan.sees(block):
                part = (f"{name}-part", *block.values())
                chunks = _chunk_keys(plan.arrays, plan.axes, block)
                layer[part] = (solve, shared.key, plan.place(block), chunks)
            parts.append(part)
        _fold(layer, parts, (name, *index.values()), join)
    return tasks_of(name, layer, [shared, *plan.arrays])


def _result(plan: Plan, blocks: Delayed, what: str) -> Any:
    name, grid, sizes = f"relpos-{what}-{plan.token}", plan.grid, plan.problem.sizes
    columns = {"out": (sizes.Dv,), "weights": (sizes.Lk,)}.get(what, ())
    layer: Layer = {
        (name, *block, *(0 for _ in columns)): (getitem, (blocks.key, *block), what)
        for block in (tuple(index.values()) for index in grid.blocks(*grid.rows))
    }
    chunks = *(grid.chunks[axis] for axis in grid.rows), *((n,) for n in columns)
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

    def __init__(self, plan: Plan, kept: dict[str, Any]) -> None:
        self._plan = plan
        self._kept = kept

    def __repr__(self) -> str:
        names = ", ".join(self._plan.recipe.names)
        return f"<ShardedContext of {names}: out {self._kept['out'].shape}>"

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
        arrays = dask.persist(*self._kept.values())
        return ShardedContext(self._plan, dict(zip(self._kept, arrays, strict=True)))

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
            Of each task, by default 1.

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
        given = [
            None if value is None else with_shape(name, value)
            for name, value in (("grad_out", grad_out), ("grad_lse", grad_lse))
        ]
        self._check(given)
        if num_threads is not None:
            threads = {"num_threads": choose_num_threads(num_threads)}
            values = plan.recipe.values | threads
            plan = plan._replace(recipe=plan.recipe._replace(values=values))
        blocks, parts = self._blocks(plan, given, tuple(names))
        return kind(**{name: self._gradient(name, blocks, parts) for name in names})

    def _check(self, given: list[Any]) -> None:
        """Raise as a call on arrays in memory would."""
        kept = {name: stand_in(name, self._kept[name]) for name in KEPT}
        saved = Saved(kept["out"], kept["row_max"], kept["row_sum"], 0)
        gradients = [
            None if array is None else stand_in(name, array)
            for name, array in zip(("grad_out", "grad_lse"), given, strict=True)
        ]
        check_gradients(self._plan.problem, saved, *gradients)

    def _blocks(
        self, plan: Plan, given: list[Any], names: tuple[str, ...]
    ) -> tuple[Delayed, Parts]:
        """Make one task for each block that has one, and list their keys by block."""
        grid, rows = plan.grid, [self._kept[name] for name in KEPT]
        axes: list[Axes] = [(*grid.rows, None), *[grid.rows] * 3]
        grads = [
            None if array is None else rechunked(array, row.chunks)
            for array, row in zip(given, rows, strict=False)
        ]
        token = tokenize(plan.recipe, names, *rows, *plan.arrays, *grads)
        name = f"relpos-backward-{token}"
        layer: Layer = {}
        shared = plan.shared
        parts: Parts = []
        for index in grid.blocks():
            key = (name, *index.values()) if plan.sees(index) else None
            if key is not None:
                pairs = zip(grads, axes, strict=False)
                layer[key] = (
                    differentiate,
                    shared.key,
                    plan.place(index),
                    _chunk_keys(plan.arrays, plan.axes, index),
                    list(names),
                    *(None if x is None else key_of(x, own, index) for x, own in pairs),
                    _chunk_keys(rows, axes, index),
                )
            parts.append((index, key))
        needs = [shared, *plan.arrays, *rows, *(x for x in grads if x is not None)]
        return tasks_of(name, layer, needs), parts

    def _gradient(self, name: str, blocks: Delayed, parts: Parts) -> Any:
        """Sum the gradients of one input over the blocks."""
        problem, grid = self._plan.problem, self._plan.grid
        given, batch = problem.inputs[name], problem.batch
        shape = given.shape
        repeated: tuple[int, ...] = ()
        if name in WRITTEN:
            shape = (*batch, *given.shape[-3:])
            own = (*(1,) * (len(shape) - given.ndim), *given.shape)
            sizes = zip(own, shape, strict=True)
            repeated = tuple(n for n, (one, full) in enumerate(sizes) if one != full)
        dtype = given.dtype.newbyteorder("=")
        if name == "sinks":
            parts = [part for part in parts if self._plan.has_sinks(part[0])]
        title = f"relpos-grad-{name}-{blocks.key.rpartition('-')[2]}"
        home = f"{title}-parts"
        picks = [(index, key and (home, *key[1:])) for index, key in parts]
        layer = {(home, *key[1:]): (getitem, key, name) for _, key in parts if key}
        below = tasks_of(home, layer, [blocks])
        axes = axes_of(name, shape, len(batch))
        whole = problem.dtype if repeated else dtype
        found = _total(title, below, picks, axes, shape, grid, whole)
        if repeated:
            found = found.rechunk(dict.fromkeys(repeated, -1))
            chunks = tuple(
                (1,) if n in repeated else cut for n, cut in enumerate(found.chunks)
            )
            found = found.map_blocks(
                sum_repeated, repeated, shape, dtype, dtype=dtype, chunks=chunks
            )
        return found.reshape(given.shape) if found.shape != given.shape else found


# ---- graphs of dask, by hand ---------------------------------------------------------


def _fold(
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
            _fold(layer, keys, whole, add)
        layer[(name, *place)] = (rounded_twice, whole, dtype)
    graph = tasks_of(name, layer, [blocks]).dask
    return da.Array(graph, name, chunks, dtype=dtype)


def _chunk_keys(arrays: list[Any], axes: list[Axes], index: Index) -> list[Key]:
    pairs = zip(arrays, axes, strict=True)
    return [key_of(array, cut, index) for array, cut in pairs]
