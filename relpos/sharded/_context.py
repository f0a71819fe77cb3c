"""Gradients of a call on dask arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import dask
import dask.array as da
from dask.base import tokenize

from relpos._attention.gradients import Saved, check_gradients, names_of
from relpos._attention.results import AttentionGradients, FireAttentionGradients
from relpos._checks import as_floating
from relpos._settings import choose_num_threads
from relpos.sharded._blocks import WRITTEN, differentiate
from relpos.sharded._graph import Key, Layer, Tasks, chunk_keys, tasks_of, total
from relpos.sharded._grid import Axis, Index, axes_of, key_of
from relpos.sharded._plan import Plan, rechunked
from relpos.sharded._tasks import KEPT, pick, sum_repeated
from relpos.sharded._values import stand_in

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class ShardedContext:
    """What the gradients of one call on dask arrays need, lazily.

    As `relpos.AttentionContext`. Nothing is computed before the gradients are: computed
    together with `out`, by one ``dask.compute``, they share its tasks; after `persist`
    they start from what is stored.

    See Also
    --------
    attention : Returns it, as `AttentionOutput.context`.
    relpos.AttentionContext : That of arrays in memory.

    Examples
    --------
    >>> import dask.array as da
    >>> import relpos.sharded
    >>> x = da.ones((2, 2, 4), chunks=(1, -1, -1))
    >>> context = relpos.sharded.attention(x, x, x, return_context=True).context
    >>> context.backward(da.ones((2, 2, 4)), wrt=["value"]).value.sum().compute()
    np.float64(16.0)
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

        With a client of distributed it lies on the workers; without one, in memory.

        Returns
        -------
        ShardedContext
            One whose `backward` computes no forward.

        See Also
        --------
        ShardedContext.backward : Starts from it.

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

    def backward(
        self,
        grad_out: ArrayLike | None,
        *,
        grad_lse: ArrayLike | None = None,
        wrt: Iterable[str] | None = None,
        num_threads: int | None = None,
    ) -> Any:
        r"""Gradients of ``sum(grad_out * out) + sum(grad_lse * lse)``, lazily.

        Those of `relpos.AttentionContext.backward`, which has the formulas, such as

        .. math:: dS_{ij} = p_{ij} (dP_{ij} - dout_i \, out_i + dlse_i)

        Each block needs the out, the maxima and the sums of its rows, and no forward.

        Parameters
        ----------
        grad_out : dask array or array_like, (..., H, Lq, Dv), or None
            Gradient with respect to `out`. None: zeros.
        grad_lse : dask array or array_like, (..., H, Lq), optional
            Gradient with respect to `lse`.
        wrt : iterable of str, optional
            Names of the inputs to differentiate. Default: every floating input given
            except `attn_mask`.
        num_threads : int, optional
            Of each task, by default 1.

        Returns
        -------
        AttentionGradients or FireAttentionGradients
            Named tuple of dask arrays, each of its input's shape and dtype, or None.

        Raises
        ------
        TypeError, ValueError
            As `relpos.AttentionContext.backward`.

        See Also
        --------
        ShardedContext.persist : Keeps the forward's results.
        relpos.AttentionContext.backward : The same on arrays in memory.

        References
        ----------
        .. [1] Dao, Fu, Ermon, Rudra, Ré, "FlashAttention: Fast and Memory-Efficient
           Exact Attention with IO-Awareness", 2022, arXiv:2205.14135, appendix B.

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
        problem = self._plan.problem
        fire = problem.fire is not None
        kind: type[Any] = FireAttentionGradients if fire else AttentionGradients
        names = names_of(wrt, problem.inputs, kind._fields)
        given = {
            name: value if isinstance(value, da.Array) else as_floating(name, value)
            for name, value in (("grad_out", grad_out), ("grad_lse", grad_lse))
            if value is not None
        }
        self._check(given)
        plan = self._plan
        if num_threads is not None:
            options = {**plan.recipe.options}
            options["num_threads"] = choose_num_threads(num_threads)
            plan = plan._replace(recipe=plan.recipe._replace(options=options))
        blocks, parts = self._blocks(plan, given, tuple(names))
        found = {name: self._gradient(name, blocks, parts) for name in names}
        return kind(**found)

    def _check(self, given: dict[str, Any]) -> None:
        """Raise as a call on arrays in memory would."""
        kept = {name: stand_in(name, self._kept[name]) for name in KEPT}
        saved = Saved(kept["out"], kept["row_max"][..., None], kept["row_sum"], 0)
        stand_ins = {name: stand_in(name, array) for name, array in given.items()}
        gradients = (stand_ins.get(name) for name in ("grad_out", "grad_lse"))
        check_gradients(self._plan.problem, saved, *gradients)

    def _blocks(
        self, plan: Plan, given: dict[str, Any], names: tuple[str, ...]
    ) -> tuple[Tasks, list[tuple[Index, Key | None]]]:
        """One task a block; the tasks, or None, with the blocks that they are of."""
        grid, rows = plan.grid, [self._kept[name] for name in KEPT]
        axes: list[tuple[Axis | None, ...]] = [(*grid.rows, None), *[grid.rows] * 3]
        cut = {
            name: rechunked(value, rows[name == "grad_lse"].chunks)
            for name, value in given.items()
        }
        token = tokenize(plan.recipe, names, *rows, *plan.arrays, *cut.values())
        name = f"relpos-backward-{token}"
        layer: Layer = {}
        shared = plan.shared
        parts: list[tuple[Index, Key | None]] = []
        for index in grid.blocks():
            if not plan.sees(index):
                parts.append((index, None))
                continue
            key = (name, *index.values())
            layer[key] = (
                differentiate,
                shared.key,
                plan.place(index),
                chunk_keys(plan.arrays, plan.axes, index),
                list(names),
                _gradient_key(cut.get("grad_out"), axes[0], index),
                _gradient_key(cut.get("grad_lse"), axes[1], index),
                chunk_keys(rows, axes, index),
            )
            parts.append((index, key))
        needs = [shared, *plan.arrays, *rows, *cut.values()]
        return tasks_of(name, layer, needs), parts

    def _gradient(
        self, name: str, blocks: Tasks, parts: list[tuple[Index, Key | None]]
    ) -> Any:
        """Sum the blocks' gradients of one input."""
        problem, grid = self._plan.problem, self._plan.grid
        given, batch = problem.inputs[name], problem.batch
        shape = given.shape
        repeated: tuple[int, ...] = ()
        if name in WRITTEN:
            shape = (*batch, *given.shape[-3:])
            own = (*(1,) * (len(shape) - given.ndim), *given.shape)
            pairs = zip(own, shape, strict=True)
            repeated = tuple(n for n, (one, full) in enumerate(pairs) if one != full)
        dtype = given.dtype.newbyteorder("=")
        if name == "sinks":
            parts = [part for part in parts if self._plan.has_sinks(part[0])]
        title = f"relpos-grad-{name}-{blocks.home.rpartition('-')[2]}"
        below, picks = _picked(name, title, blocks, parts)
        axes = axes_of(name, shape, len(batch))
        whole = problem.dtype if repeated else dtype
        found = total(title, below, picks, axes, shape, grid, whole)
        if repeated:
            found = found.rechunk(dict.fromkeys(repeated, -1))
            chunks = tuple(
                (1,) if n in repeated else cut for n, cut in enumerate(found.chunks)
            )
            found = found.map_blocks(
                sum_repeated, repeated, dtype, dtype=dtype, chunks=chunks
            )
        return found.reshape(given.shape) if found.shape != given.shape else found


def _gradient_key(array: Any, axes: tuple[Axis | None, ...], index: Index) -> Any:
    return None if array is None else key_of(array, axes, index)


def _picked(
    name: str,
    title: str,
    blocks: Tasks,
    parts: list[tuple[Index, Key | None]],
) -> tuple[Tasks, list[tuple[Index, Key | None]]]:
    """A layer of the blocks' gradients of one input."""
    home = f"{title}-parts"
    layer: Layer = {}
    picks: list[tuple[Index, Key | None]] = []
    for index, key in parts:
        own = None if key is None else (home, *key[1:])
        if own is not None:
            layer[own] = (pick, key, name)
        picks.append((index, own))
    return blocks.then(home, layer), picks
