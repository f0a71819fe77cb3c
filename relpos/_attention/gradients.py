"""Gradients of `attention`: their tuples, the context of a call, and the backward."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Iterable
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias

import numpy as np

from relpos._attention import fire_network
from relpos._attention.operands import LABELLED, OPERANDS, READ_SHORT, TABLES
from relpos._attention.problem import Problem, fold_rows, offsets_of
from relpos._checks import (
    Array,
    as_floating,
    check_match,
    is_floating,
    kind_of,
    native,
    new_array,
    rounded_twice,
    singles,
)
from relpos._core import memory_of
from relpos._memory import empty, zeros
from relpos._settings import choose_num_threads, kernels
from relpos._text import Kind, in_short

__all__ = ["AttentionContext", "AttentionGradients", "FireAttentionGradients"]

#: The operands that have a gradient.
WITH_GRADIENT = {name: row for name, row in OPERANDS.items() if row.has_gradient}

if TYPE_CHECKING:
    from typing import Self

    from numpy.typing import ArrayLike
    from typing_extensions import TypeVar

    Either: TypeAlias = "AttentionGradients | FireAttentionGradients"
    Gradients = TypeVar("Gradients", default=Either, covariant=True)

    class _Fields(tuple[Array | None, ...]):
        """A named tuple of gradients, whose names checkers do not know."""

        __slots__ = ()
        _fields: tuple[str, ...]

        def __new__(cls, **gradients: Array | None) -> Self: ...
        def __getattr__(self, name: str) -> Array | None: ...
        def _asdict(self) -> dict[str, Array | None]: ...

    _AttentionFields: TypeAlias = _Fields
    _FireFields: TypeAlias = _Fields
else:
    from typing import TypeVar

    Gradients = TypeVar("Gradients")  # typing's has a default from Python 3.13 on

    def _fields(kind: str, names: list[str]) -> type:
        # A class statement cannot take its fields from a list.
        fields = namedtuple(kind, names, defaults=[None] * len(names))  # noqa: PYI024
        # For `help` and for tools that read annotations: namedtuple makes none.
        fields.__new__.__annotations__ = dict.fromkeys(names, Array | None)
        return fields

    _AttentionFields = _fields("AttentionGradients", [*WITH_GRADIENT])
    _FireFields = _fields(
        "FireAttentionGradients", [*WITH_GRADIENT, *fire_network.NAMES]
    )


def _described(*more: str) -> Callable[[Kind], Kind]:
    """Add a line for each operand to the docstring of its gradients' class."""
    lines = [
        f"{name} : ndarray, {row.shown.removeprefix('something that ')}"
        for name, row in WITH_GRADIENT.items()
    ]
    section = "\n".join(["Attributes", "----------", *lines, *more])

    def describe(kind: Kind) -> Kind:
        if kind.__doc__ is not None:  # python -OO
            above, title, example = cleandoc(kind.__doc__).partition("Examples\n")
            kind.__doc__ = f"{above}{section}\n\n{title}{example}\n"
        return in_short(kind)

    return describe


@_described()
class AttentionGradients(_AttentionFields):
    """Gradients of `attention`'s inputs; None where absent or not asked for.

    Each is of its input's shape and dtype, summed over the axes on which the input was
    broadcast.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> x = np.zeros((1, 2, 4))
    >>> context = relpos.attention(x, x, x, return_context=True).context
    >>> gradients = context.backward(np.zeros((1, 2, 4)))
    >>> gradients.query.shape, gradients.rel_key
    ((1, 2, 4), None)
    """

    __slots__ = ()


@_described(f"{', '.join(fire_network.NAMES)} : ndarray", "    As in `FireGradients`.")
class FireAttentionGradients(_FireFields):
    """Gradients of `fire_attention`'s inputs: those of `attention`, then FIRE's own.

    None where absent or not asked for.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> x, network = np.zeros((1, 2, 4)), ([1.0], [0.0], [[1.0]], [0.0], 1.0, 1.0)
    >>> context = relpos.fire_attention(x, x, x, *network, return_context=True).context
    >>> gradients = context.backward(np.zeros((1, 2, 4)))
    >>> gradients.query.shape, gradients.w2.shape, gradients.rel_key
    ((1, 2, 4), (1, 1), None)
    """

    __slots__ = ()


class Saved(NamedTuple):
    """Results of the forward for the backward, in the dtype of the computation.

    The maximum and the sum of each row's softmax are its lse in two parts, so that
    nothing of it is rounded away.
    """

    out: Array  # (..., H, Lq, Dv)
    row_max: Array  # (..., H, Lq)
    row_sum: Array  # (..., H, Lq)
    seed: int  # of dropout


class AttentionContext(Generic[Gradients]):
    """Inputs and results of one call for its gradients, by ``return_context=True``.

    It holds references to the inputs and the result, the maximum and the sum of each
    row's softmax (its lse in two parts, so that nothing of it is rounded away), the
    options and the dropout seed, and can be used more than once. Changing the numbers
    in an input or in the result makes later gradients wrong; resizing one makes
    `backward` raise.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> x = np.ones((1, 2, 4))
    >>> context = relpos.attention(x, x, x, return_context=True).context
    >>> context.backward(np.ones((1, 2, 4)), wrt=["value"]).value
    array([[[1., 1., 1., 1.],
            [1., 1., 1., 1.]]])
    """

    __slots__ = ("_layouts", "_problem", "_saved")

    def __init__(self, problem: Problem, saved: Saved) -> None:
        self._problem = problem
        self._saved = saved
        self._layouts = {name: _layout(array) for name, array in self._arrays()}

    def __reduce__(self) -> tuple[Any, ...]:
        # Without `_layouts`: the arrays of a copy are elsewhere in memory.
        return AttentionContext, (self._problem, self._saved)

    def __repr__(self) -> str:
        names = ", ".join(self._problem.inputs)
        return f"<AttentionContext of {names}: out {self._saved.out.shape}>"

    def backward(
        self,
        grad_out: ArrayLike | None,
        *,
        grad_lse: ArrayLike | None = None,
        wrt: Iterable[str] | None = None,
        num_threads: int | None = None,
    ) -> Gradients:
        r"""Gradients of ``sum(grad_out * out) + sum(grad_lse * lse)``.

        In the notation of `relpos.attention`, with z the factor of dropout (1 without)
        and l the table row of the pair (i, j),

        .. math::

            dP_{ij} &= z_{ij} \, dout_i (v_j + W_l) \\
            dS_{ij} &= p_{ij} (dP_{ij} - dout_i \, out_i + dlse_i) \\
            dq_i &= scale \sum_j dS_{ij} (k_j + A_l), \quad
            dk_j = scale \sum_i dS_{ij} (q_i + u + C_l) \\
            dv_j &= \sum_i z_{ij} p_{ij} \, dout_i \\
            dA_l &= scale \sum dS_{ij} (q_i + v), \quad
            dC_l = scale \sum dS_{ij} k_j, \quad
            dW_l = \sum z_{ij} p_{ij} \, dout_i \\
            du &= scale \sum dS_{ij} k_j, \quad dv = scale \sum dS_{ij} A_l, \quad
            db_l = \sum dS_{ij}, \quad dmask_{ij} = dS_{ij} \\
            dg_t &= \sum_{j < t \le i + query\_offset} dS_{ij}, \quad
            dsink = \sum_i e^{sink - lse_i} (dlse_i - dout_i \, out_i)

        with dS times the slope of `softcap` in the gradients of q, k, A, C, u and v,
        where a table row sums over all pairs that use it, and g is `log_decay`. A
        position query e that was given gets :math:`de_i = \sum_j dS_{ij} A_l`, which
        :math:`dq_i` then lacks, and :math:`dA_l = \sum dS_{ij} (e_i + v)`,
        :math:`dv = \sum dS_{ij} A_l`. FIRE's parameters get what `fire_bias_backward`
        makes of dS. Only the gradient of a mask takes O(Lq Lk) memory. A query that
        sees no key adds nothing to any gradient but that of its sink; nor does one
        whose logits are nan where its `grad_out` and `grad_lse` are zero.

        Parameters
        ----------
        grad_out : array_like, (..., H, Lq, Dv), or None
            Gradient with respect to `out`, of its shape and of any floating dtype; it
            is rounded to the dtype of the computation. None: zeros.
        grad_lse : array_like, (..., H, Lq), optional
            Gradient with respect to `lse`.
        wrt : iterable of str, optional
            Names of the inputs to differentiate; what it leaves out is not computed.
            Default: every floating input given except `attn_mask`, whose gradient has
            an entry per pair.
        num_threads : int, optional
            Default `get_num_threads()`. The gradients do not depend on it, bit for bit.

        Returns
        -------
        AttentionGradients or FireAttentionGradients
            Named tuple, with the names of the inputs: each of its input's shape and
            dtype (summed over the axes on which the input was broadcast), or None.

        Raises
        ------
        ValueError
            `grad_out` and `grad_lse` are both None, `wrt` names what the call did not
            have or cannot be differentiated, or an input has been resized since then.

        References
        ----------
        .. [1] Dao, Fu, Ermon, Rudra, Ré, "FlashAttention: Fast and Memory-Efficient
           Exact Attention with IO-Awareness", 2022, arXiv:2205.14135, appendix B.

        Examples
        --------
        The gradient of a sum of outputs by the values is what each key's weights add
        up to:

        >>> import numpy as np
        >>> import relpos
        >>> x = np.zeros((1, 2, 4))
        >>> result = relpos.attention(x, x, x, is_causal=True, return_context=True)
        >>> gradients = result.context.backward(np.ones_like(result.out), wrt=["value"])
        >>> gradients.value
        array([[[1.5, 1.5, 1.5, 1.5],
                [0.5, 0.5, 0.5, 0.5]]])
        >>> gradients.key is None
        True
        """
        # The operands of the problem are views of these arrays, which the kernel reads
        # at the addresses of the forward.
        for name, array in self._arrays():
            before = self._layouts[name]
            if _layout(array) != before:
                raise ValueError(
                    f"{name}: resized or reshaped since the call of attention that "
                    f"made this context (shape {before[0]} then, {array.shape} now); "
                    "expected an array left as it was: pass a copy, or call again"
                )
        gradients: Gradients = differentiate(
            self._problem, self._saved, grad_out, grad_lse, wrt, num_threads
        )
        return gradients

    def _arrays(self) -> list[tuple[str, Array]]:
        """Every array that a caller may hold as well."""
        return [*self._problem.inputs.items(), ("out", self._saved.out)]


def _layout(array: Array) -> tuple[Any, ...]:
    """Tell where an array and the memory it is a view of lie."""
    return array.shape, array.strides, array.dtype, memory_of(array)


def differentiate(
    problem: Problem,
    saved: Saved,
    grad_out: object,
    grad_lse: object,
    wrt: object,
    num_threads: object,
) -> Any:
    """Gradients of the inputs `wrt`, as the result's tuple of `AttentionContext`."""
    kind: Any = AttentionGradients
    if problem.fire is not None:
        kind = FireAttentionGradients
    names = names_of(wrt, problem.inputs, kind._fields)
    incoming = check_gradients(problem, saved, grad_out, grad_lse)
    return kind(**gradients_of(problem, saved, incoming, names, num_threads))


def gradients_of(
    problem: Problem,
    saved: Saved,
    incoming: dict[str, Array],
    names: list[str],
    num_threads: object,
) -> dict[str, Array]:
    """Gradients of the inputs of these names; `incoming` are those of out and lse."""
    threads = choose_num_threads(num_threads)
    operand_names = [name for name in names if name not in fire_network.NAMES]
    sums = {name: _buffer(name, problem) for name in operand_names}
    # FIRE's parameters are no operands of the kernel: it sums the gradient of the bias
    # by the ranges of the network, and the parameters get theirs from these sums.
    fire, fire_operands = problem.fire, None
    if fire is not None and len(operand_names) < len(names):
        offsets = offsets_of(problem.inputs)
        fire_operands = fire_network.slope_operands(fire, offsets, problem.sizes)
    if names:
        operands = problem.operands | incoming | saved._asdict()
        if fire_operands is not None:
            operands.update(fire_operands)
        operands["row_sum"] = _live_sums(saved.row_sum, incoming)
        operands["num_threads"] = threads
        for name, total in sums.items():
            operands[f"grad_{name}"] = total
        kernels().attention_backward(operands)
        del operands  # so that each sum is freed as soon as it is rounded
    gradients = {}
    for name in operand_names:
        gradients[name] = _deliver(name, sums.pop(name), problem)
    if fire is not None and fire_operands is not None:
        of_fire = fire_network.gradients(fire, fire_operands["grad_fire"])
        for name in names:
            if name in of_fire:
                gradients[name] = of_fire[name]
    return gradients


def check_gradients(
    problem: Problem, saved: Saved, grad_out: object, grad_lse: object
) -> dict[str, Array]:
    """Check the gradients that come in; absent ones drop out."""
    if grad_out is None and grad_lse is None:
        raise ValueError(
            "grad_out: None, and so is grad_lse; expected at least one of the two"
        )
    incoming: dict[str, Array] = {}
    if grad_out is not None:
        gradient = as_floating("grad_out", grad_out)
        check_match("grad_out", gradient, "out", saved.out.shape)
        incoming["grad_out"] = as_read("grad_out", gradient, problem.dtype)
    if grad_lse is not None:
        gradient = as_floating("grad_lse", grad_lse)
        # row_max is of the shape of lse, which is not kept.
        check_match("grad_lse", gradient, "lse", saved.row_max.shape)
        incoming["grad_lse"] = as_read("grad_lse", gradient, problem.dtype)
    return incoming


def _live_sums(row_sum: Array, incoming: dict[str, Array]) -> Array:
    """Return the sums of the rows' softmax, 0 where a row of nan gets no gradient.

    The kernels skip a row of sum 0; times a gradient of 0, nan would still be nan.
    """
    is_skipped = np.isnan(row_sum)
    if not is_skipped.any():
        return row_sum
    if "grad_out" in incoming:
        is_skipped &= ~singles(incoming["grad_out"]).any(-1)
    if "grad_lse" in incoming:
        is_skipped &= singles(incoming["grad_lse"]) == 0
    return np.where(is_skipped, 0, row_sum)


def names_of(
    wrt: object, inputs: dict[str, Array], fields: tuple[str, ...]
) -> list[str]:
    """Check `wrt`: the names of the gradients to compute, some of `fields`."""
    if wrt is None:
        return [name for name in fields if name in inputs and name != "attn_mask"]
    # A str would be taken as its letters, and NumPy's error for an array of no axes
    # does not name wrt.
    is_single = isinstance(wrt, str) or (isinstance(wrt, np.ndarray) and not wrt.ndim)
    if is_single or not isinstance(wrt, Iterable):
        raise TypeError(
            f"wrt: got {kind_of(wrt)}; expected a list of names, such as ['query']"
        )
    names: dict[str, None] = {}  # each once, in the order of `wrt`
    for name in wrt:
        if not isinstance(name, str):
            raise TypeError(
                f"wrt: got {kind_of(name)} among the names; expected strings"
            )
        if name not in fields:
            raise ValueError(
                f"wrt: {name!r} is no input with a gradient; expected some of "
                f"{', '.join(fields)}"
            )
        if name not in inputs:
            raise ValueError(
                f"wrt: {name!r} was not given to attention; expected some of "
                f"{', '.join(n for n in fields if n in inputs)}"
            )
        if not is_floating(inputs[name].dtype):
            raise ValueError(
                f"wrt: {name!r} is of dtype {inputs[name].dtype} and has no gradient; "
                "expected names of floating inputs"
            )
        names[name] = None
    return list(names)


def as_read(name: str, array: Array, dtype: np.dtype[Any]) -> Array:
    """Return what a backward is given as the kernels read it, some of it in 16 bits."""
    if array.itemsize == 2 and name in READ_SHORT and dtype.char == "f":
        dtype = array.dtype.newbyteorder("=")
    return native(array, dtype)


def _buffer(name: str, problem: Problem) -> Array:
    """Return memory for a gradient, zeros if it is summed.

    The kernel sums along the axes that it lacks or has once: over heads, and over all
    batch axes at once. Sums over some of the batch axes follow later.
    """
    row, array, dtype = OPERANDS[name], problem.inputs[name], problem.dtype
    batch, sizes = problem.batch, problem.sizes
    shape = array.shape
    if row.is_shared:
        shape = _aligned_shape(name, problem)
        if math.prod(shape[: -row.axes]) != 1:
            # It has batch axes, of which some may be repeated: one gradient an item.
            shape = (*batch, *shape[-row.axes :])
    elif not row.is_written or shape[: -row.axes] != batch:
        shape = (*batch, *map(sizes.length, row.letters))
    # Gradients of a graph are summed edge by edge. Without a pair nothing is written.
    is_graph = not problem.operands.keys().isdisjoint(("indptr", "key_indices"))
    is_written = row.is_written and not is_graph
    has_pairs = sizes.H and sizes.Lq and sizes.Lk
    make = empty if is_written and has_pairs else zeros
    if is_written and array.itemsize == 2 and dtype.char == "f":
        # The kernel rounds what it writes to 16 bits. A gradient that is summed later,
        # by labels or over axes on which its input was broadcast, is rounded then.
        has_labels = any(label in problem.operands for label in LABELLED)
        if not has_labels and math.prod(shape) == array.size:
            dtype = array.dtype.newbyteorder("=")
    return new_array(f"gradient of {name}", shape, dtype, make)


def _aligned_shape(name: str, problem: Problem) -> tuple[int, ...]:
    """Return the shape of an operand with all axes: 1 on those that are repeated."""
    row = OPERANDS[name]
    shape = row.whole(problem.inputs[name].shape)
    absent = len(problem.batch) + row.axes - len(shape)
    aligned = [1] * absent + list(shape)
    if name in problem.rows:  # the operand has other rows than the table
        aligned[row.row_axis] = len(problem.rows[name])
    return tuple(aligned)


def _deliver(name: str, total: Array, problem: Problem) -> Array:
    """Give a gradient the shape and dtype of its input.

    It is summed over axes on which the input was broadcast, and over relative positions
    that have one row.
    """
    array, gathered = problem.inputs[name], problem.rows.get(name)
    dtype = array.dtype.newbyteorder("=")
    if gathered is None and (total.size, total.dtype) == (array.size, dtype):
        return total.reshape(array.shape)  # the usual case
    pairs = zip(_aligned_shape(name, problem), total.shape, strict=True)
    repeated = tuple(axis for axis, (size, full) in enumerate(pairs) if size != full)
    with np.errstate(all="ignore"):
        if repeated:
            total = total.sum(axis=repeated, dtype=np.float64, keepdims=True)
        if gathered is not None:
            table = TABLES[name]
            # fold_rows takes rows of columns; rel_bias has one number a row.
            columns = total if table.axes == 3 else total[..., None]
            total = fold_rows(columns, gathered, table.rows(array))
        return rounded_twice(total, dtype).reshape(array.shape)
