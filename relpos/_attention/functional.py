"""Attention as functions of arrays: forward, backward, and the merge of two results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

import numpy as np

from relpos._attention.attention import as_call, draw_seed, run, shape_of
from relpos._attention.gradients import (
    AttentionContext,
    AttentionGradients,
    Saved,
    as_read,
    differentiate,
    gradients_of,
)
from relpos._attention.operands import Call, broadcast_shapes
from relpos._attention.problem import Part, Problem, look_at_mask, prepare
from relpos._attention.schemes import shows_keywords
from relpos._checks import (
    Array,
    as_flag,
    as_floating,
    as_generator,
    as_int,
    check_shape,
    common_dtype,
    kind_of,
    native,
    new_array,
    rounded,
)
from relpos._settings import kernels
from relpos._text import in_short
from relpos._twins import twin

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from relpos._attention.keywords import ScoresKeywords

__all__ = ["AttentionForward", "attention_backward"]
__all__ += ["attention_forward", "merge_attention"]

#: Parameters of `attention` that these two do not have: their results are fixed.
_WITHOUT = ("return_lse", "return_weights", "return_context", "out")


@in_short
class AttentionForward(NamedTuple):
    """Results of `attention_forward`, which `attention_backward` takes.

    All are of the dtype of the computation: float32 where the inputs are float16.

    Attributes
    ----------
    out : ndarray, (..., H, Lq, Dv)
    lse : ndarray, (..., H, Lq)
        Logarithm of the sum of the exponentials of each query's scores.
    row_max, row_sum : ndarray, (..., H, Lq)
        What the kernels keep of each row's softmax: lse in two parts, so that nothing
        of it is rounded away.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> x = np.zeros((1, 2, 4))
    >>> relpos.attention_forward(x, x, x)
    AttentionForward(
        out=float64 (1, 2, 4),
        lse=float64 (1, 2),
        row_max=float64 (1, 2),
        row_sum=float64 (1, 2),
    )
    """

    out: Array
    lse: Array
    row_max: Array
    row_sum: Array


@shows_keywords(_WITHOUT)
def attention_forward(
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    **keywords: Unpack[ScoresKeywords],
) -> AttentionForward:
    r"""Attention that returns, as plain arrays, all that its gradients need.

    What `attention` computes with ``return_context=True``, for a caller who may keep
    arrays only: an operator of another framework, another process.

    .. math::

        lse_i = \log \left(e^{sink} + \sum_j e^{s_{ij}}\right), \quad
        out_i = \sum_j e^{s_{ij} - lse_i} (v_j + W_l)

    Parameters
    ----------
    query, key, value : array_like
        (..., H, Lq, D), (..., Hk, Lk, D) and (..., Hk, Lk, Dv), as in `attention`.
    **keywords
        Keywords of `attention`, except `out` and the ``return_*`` flags. With
        `dropout_p` above 0, `rng` has to be an integer.

    Returns
    -------
    AttentionForward
        Named tuple ``(out, lse, row_max, row_sum)``.

    Raises
    ------
    TypeError
        Something is dropped, and `rng` is no integer.

    References
    ----------
    .. [1] Dao, Fu, Ermon, Rudra, Ré, "FlashAttention: Fast and Memory-Efficient Exact
       Attention with IO-Awareness", 2022, arXiv:2205.14135, appendix B.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> x = np.eye(2)[None]
    >>> result = relpos.attention_forward(x, x, x, rel_bias=[0.0, 0.0, -np.inf])
    >>> result.out.round(2)
    array([[[1.  , 0.  ],
            [0.33, 0.67]]])
    >>> grad_out = np.ones_like(result.out)
    >>> relpos.attention_backward(
    ...     grad_out, None, result, x, x, x, rel_bias=[0.0, 0.0, -np.inf]
    ... ).value.round(2)
    array([[[1.33, 1.33],
            [0.67, 0.67]]])
    """
    results = forward(_as_call(query, key, value, keywords), looks=True)
    return AttentionForward(**results)


@shows_keywords(_WITHOUT)
@twin(AttentionContext.backward)
def attention_backward(
    grad_out: ArrayLike | None,
    grad_lse: ArrayLike | None,
    result: tuple[Array, Array, Array, Array],
    query: ArrayLike,
    key: ArrayLike,
    value: ArrayLike,
    *,
    wrt: Iterable[str] | None = None,
    **keywords: Unpack[ScoresKeywords],
) -> AttentionGradients:
    r"""Gradients of ``sum(grad_out * out) + sum(grad_lse * lse)`` by the inputs.

    Parameters
    ----------
    grad_out : array_like, (..., H, Lq, Dv), or None
        Gradient with respect to `out`. None: zeros.
    grad_lse : array_like, (..., H, Lq), or None
        Gradient with respect to `lse`. None: zeros.
    result : AttentionForward, or a tuple of its four arrays
        What `attention_forward` returned for the inputs and keywords given here. lse
        itself is not read.
    query, key, value : array_like
        (..., H, Lq, D), (..., Hk, Lk, D) and (..., Hk, Lk, Dv), as in the forward.
    wrt : iterable of str, optional
        Names of the inputs to differentiate. Default: every floating one given except
        `attn_mask`.
    **keywords
        The keywords of the forward, `rng` included.

    Returns
    -------
    AttentionGradients
        Each of its input's shape and dtype, or None.

    Raises
    ------
    ValueError
        The arrays of `result` are not of the shapes that these inputs give.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> x = np.zeros((1, 2, 4))
    >>> result = relpos.attention_forward(x, x, x)
    >>> grad_lse = np.ones((1, 2))
    >>> relpos.attention_backward(None, grad_lse, result, x, x, x, wrt=["key"]).key
    array([[[0., 0., 0., 0.],
            [0., 0., 0., 0.]]])
    """
    # A caller without a type checker may pass anything.
    if not isinstance(result, tuple) or len(result) != 4:  # type: ignore[redundant-expr]
        raise TypeError(
            f"result: got {kind_of(result)}; expected what attention_forward returned, "
            "the four arrays (out, lse, row_max, row_sum)"
        )
    out, _, row_max, row_sum = result
    call = _as_call(query, key, value, keywords)
    gradients: AttentionGradients = backward(
        call, grad_out, grad_lse, (out, row_max, row_sum), wrt
    )
    return gradients


def forward(
    call: Call,
    part: Part | None = None,
    *,
    looks: bool = False,
    lse: bool = True,
    kept: bool = True,
    rounds: bool = False,
    autocast: np.dtype[Any] | None = None,
) -> dict[str, Array]:
    """out, lse, row_max and row_sum of a call by name; weights where it asks for them.

    lse is left out unless it is asked for. row_max, row_sum and an out that is rounded
    are `kept` for a backward. With `looks` it warns of a mask of zeros and ones. With
    `rounds`, an out that is computed in float32 has the dtype of the result, or that of
    `autocast`, which may have 16 bits.
    """
    problem = prepare(call, part)
    if looks:
        look_at_mask(problem)
    weights = as_flag("return_weights", call["return_weights"])
    # The output has the dtype of the computation, so that a backward loses nothing. If
    # it is rounded, `run` also returns the exact one for a backward.
    dtype = problem.dtype
    if rounds and dtype.char == "f":
        dtype = problem.out_dtype if autocast is None else autocast
    out = new_array("out", shape_of(problem), dtype)
    seed = _dropout(call, problem, part)
    return run(
        problem,
        out,
        seed,
        call["num_threads"],
        lse=lse,
        weights=weights,
        for_backward=kept,
    )


def backward(
    call: Call,
    grad_out: object,
    grad_lse: object,
    kept: Sequence[object],
    wrt: object,
    part: Part | None = None,
) -> Any:
    """Gradients of a call whose forward gave `kept`: out, row_max and row_sum."""
    problem = prepare(call, part)
    rows = shape_of(problem)[:-1]
    out, row_max, row_sum = kept
    saved = Saved(
        _kept("out", shape_of(problem), out, problem),
        _kept("row_max", rows, row_max, problem),
        _kept("row_sum", rows, row_sum, problem),
        _dropout(call, problem, part),
    )
    return differentiate(problem, saved, grad_out, grad_lse, wrt, call["num_threads"])


def gradients(
    call: Call, results: dict[str, Array], names: list[str]
) -> dict[str, Array]:
    """Return the gradients of a call by the inputs of these names.

    `results` are those that `forward` kept, and `grad_out` and `grad_lse` if given, all
    of the right shapes.
    """
    problem = prepare(call)
    arrays = {name: as_read(name, x, problem.dtype) for name, x in results.items()}
    saved = Saved(
        arrays.pop("out"),
        arrays.pop("row_max"),
        arrays.pop("row_sum"),
        _dropout(call, problem, None),
    )
    # What is left are the gradients that come in.
    return gradients_of(problem, saved, arrays, names, call["num_threads"])


def _as_call(query: object, key: object, value: object, keywords: Any) -> Call:
    for name in _WITHOUT:
        if name in keywords:
            raise TypeError(
                f"{name}: not taken here; expected the keywords of attention that say "
                "what is computed"
            )
    return as_call(query, key, value, keywords)


def _dropout(call: Call, problem: Problem, part: Part | None) -> int:
    """Return the seed of dropout, the same for the same `rng`."""
    dropout_p, rng = problem.operands["dropout_p"], call["rng"]
    if not dropout_p:
        if rng is not None:
            as_generator(rng)
        return 0
    if part is not None:  # drawn once, for all parts of the whole
        return part.seed
    # A draw of a Generator would be another one in the backward.
    if rng is None or isinstance(rng, np.random.Generator):
        raise TypeError(
            f"rng: got {kind_of(rng)} where dropout_p is {dropout_p}; expected an "
            "integer, the same in forward and backward"
        )
    return draw_seed(as_int("rng", rng, 0), dropout_p)


def _kept(name: str, shape: tuple[int, ...], value: object, problem: Problem) -> Array:
    """Check one of the forward's results, and take it to the kernel's dtype."""
    array = as_floating(f"result.{name}", value)
    expected = f"{shape}, as attention_forward returned it for these inputs"
    check_shape(f"result.{name}", array, array.shape == shape, expected)
    return native(array, problem.dtype)


def merge_attention(
    out_a: ArrayLike, lse_a: ArrayLike, out_b: ArrayLike, lse_b: ArrayLike
) -> tuple[Array, Array]:
    r"""Join attention results over two disjoint sets of keys.

    .. math::

        lse = \log(e^{lse_a} + e^{lse_b}), \quad
        out = e^{lse_a - lse} out_a + e^{lse_b - lse} out_b

    A part that saw no key (lse = -inf) joins as nothing. Sinks belong to exactly one of
    the parts, or they would count twice.

    With dout and dlse the gradients of the result and :math:`w_a = e^{lse_a - lse}`,

    .. math::

        dout_a = w_a \, dout, \quad dlse_a = w_a (dlse + dout (out_a - out))

    are those of the parts, for `AttentionContext.backward` of each; inputs that both
    parts share (the query, tables) add up their two gradients.

    Parameters
    ----------
    out_a : array_like, (..., Dv)
        Result of `attention` over one set; leading axes broadcast with `out_b`.
    lse_a : array_like, (...)
        Its log-sum-exps, of its shape without the last axis.
    out_b, lse_b : array_like
        The same over the other set.

    Returns
    -------
    out : ndarray, (..., Dv)
        What one call over both sets returns, to rounding, in the common dtype of
        `out_a` and `out_b`.
    lse : ndarray, (...)
        Its log-sum-exps, in the common dtype of `lse_a` and `lse_b`.

    References
    ----------
    .. [1] Milakov, Gimelshein, "Online normalizer calculation for softmax", 2018,
       arXiv:1805.02867.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> rng = np.random.default_rng(0)
    >>> query, key, value = rng.standard_normal((3, 1, 6, 4))
    >>> whole = relpos.attention(query, key, value)
    >>> left = relpos.attention(query, key[:, :2], value[:, :2], return_lse=True)
    >>> right = relpos.attention(query, key[:, 2:], value[:, 2:], return_lse=True)
    >>> out, lse = relpos.merge_attention(left.out, left.lse, right.out, right.lse)
    >>> bool(np.allclose(out, whole))
    True
    """
    parts = {"out_a": out_a, "lse_a": lse_a, "out_b": out_b, "lse_b": lse_b}
    arrays = {name: as_floating(name, part) for name, part in parts.items()}
    check_parts(arrays)
    common = common_dtype(*arrays.values(), np.dtype(np.float32))
    operands = [array.astype(common, copy=False) for array in arrays.values()]
    out, lse = kernels().merge(*operands)
    out_dtype = common_dtype(arrays["out_a"].dtype, arrays["out_b"].dtype)
    lse_dtype = common_dtype(arrays["lse_a"].dtype, arrays["lse_b"].dtype)
    return rounded(np.asarray(out), out_dtype), np.asarray(lse, lse_dtype)


def check_parts(arrays: Mapping[str, Any]) -> None:
    """Check the shapes of the four parts, of arrays or of tensors."""
    for out_name, lse_name in (("out_a", "lse_a"), ("out_b", "lse_b")):
        out, lse = arrays[out_name], arrays[lse_name]
        if not out.ndim:
            raise ValueError(f"{out_name}: got a single number; expected (..., Dv)")
        if lse.shape != out.shape[:-1]:
            raise ValueError(
                f"{lse_name}: shape {lse.shape} does not match {out_name}'s "
                f"{out.shape}; expected {out.shape[:-1]}"
            )
    a, b = arrays["out_a"].shape, arrays["out_b"].shape
    if a[-1] != b[-1] or broadcast_shapes(a, b) is None:
        raise ValueError(
            f"out_b: shape {b} does not match out_a's {a}; expected the same Dv and "
            "leading axes that broadcast"
        )
