"""Biases by offset, buckets, labels and ranges, on tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

import relpos
from relpos._attention.fire_network import NAMES
from relpos._biases import t5_rows
from relpos._checks import POSITION_LIMIT, Array, as_flag, as_int, check_memory
from relpos._twins import TENSORS, twin
from relpos.torch._functions import TensorFunction
from relpos.torch._tensors import (
    check_float_dtype,
    in_tensor_words,
    is_for_torch,
    under_autocast,
    without_modes,
)
from relpos.torch._tracing import constant_result, requires_grad, unwrapped

__all__ = ["alibi_bias", "alibi_slopes", "deberta_bucket", "fire_bias"]
__all__ += ["grid_labels", "kerple_bias", "relative_positions"]
__all__ += ["segment_ranges", "t5_bias", "t5_bucket"]

# A `TensorFunction` calls its functions with all names of its schema, so that these
# have parameters that they do not read. `names` in a backward has the operands whose
# gradients are needed, but the functions of relpos return all of them at once. Lengths
# are read from the shape of `grad`.
#
# `leads` names the operands that may have a leading axis, so that `torch.vmap` makes
# one call for all items. The number of the first operand is the least number of its
# axes: 1 for slopes (..., H), 0 for positions of any shape. The number of another
# operand is how many axes it lacks compared with the first.


# ---- functions of relative positions, which are kept --------------------------------

# The bias of ALiBi is a product, and that of T5 an indexing. torch's own operators give
# the bits of relpos in a fraction of the time of a `TensorFunction`, and have every
# derivative. Gradients are summed in float64, as those of relpos are. A tensor that is
# not `is_for_torch`, and an argument that is refused, go to the `TensorFunction`. So
# does KERPLE, because torch's logarithms and powers differ from NumPy's in last bits.

#: Nothing is kept for longer biases: one of this length has 1 MB.
LONGEST_KEPT = 2**16
#: Errors of arguments that functions of arrays refuse.
_REFUSALS = TypeError, ValueError, MemoryError


# It outlives the modes of a call: a tensor of inference mode could not be saved for a
# backward.
@lru_cache(maxsize=32)
def _kept(function: Callable[..., Array], length: int, *settings: object) -> Tensor:
    """Return a function of all relative positions of a length."""
    return without_modes(function(np.arange(1 - length, length), *settings))


def _by_offset(
    function: Callable[..., Array], length: int, *settings: object
) -> Tensor:
    """Return what `_kept` does, as a view that nothing may write to."""
    if length > LONGEST_KEPT:
        return _kept.__wrapped__(function, length, *settings)
    # Lengths up to a power of two share a tensor, so that few are made.
    longest = 1 << (length - 1).bit_length()
    kept = _kept(function, longest, *settings)
    return kept.narrow(0, longest - length, 2 * length - 1)


def _checked_length(length: object, heads: Sequence[int]) -> int:
    """Return a length as an integer, for which a bias (*heads, 2 length - 1) fits."""
    number = as_int("length", length, 1, POSITION_LIMIT)
    check_memory("length", (*heads, 2 * number - 1), np.dtype(np.float64))
    return number


@constant_result
@twin(relpos.alibi_slopes, TENSORS)
@in_tensor_words
def alibi_slopes(
    num_heads: int, *, max_exponent: float = 8.0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Slopes of ALiBi for any number of heads.

    Parameters
    ----------
    num_heads : int
        H, at least 1.
    max_exponent : float, default 8
        Positive; the smallest slope is ``2 ** -max_exponent``.
    dtype : torch.dtype, default torch.float32
        Dtype of the result.

    Returns
    -------
    Tensor, (H,)
        All positive. A compiled program has them as constants.

    Examples
    --------
    >>> import relpos.torch
    >>> relpos.torch.alibi_slopes(3).tolist()
    [0.0625, 0.00390625, 0.25]
    """
    check_float_dtype("dtype", dtype)
    slopes = relpos.alibi_slopes(num_heads, max_exponent=max_exponent, dtype=np.float64)
    return torch.from_numpy(slopes).to(dtype)


def _alibi_shape(num_heads_or_slopes: Tensor, length: int) -> tuple[int, ...]:
    return (*num_heads_or_slopes.shape, 2 * length - 1)


def _alibi_backward(
    grad: Any, names: list[str], num_heads_or_slopes: Any, length: int
) -> Any:
    return relpos.alibi_bias_backward(grad)


_ALIBI = TensorFunction(
    name="alibi_bias",
    arguments="Tensor num_heads_or_slopes, SymInt length",
    forward=relpos.alibi_bias,
    shape=_alibi_shape,
    backward=_alibi_backward,
    gradients=["num_heads_or_slopes"],
    leads={"num_heads_or_slopes": 1},
)


def _falls(offsets: Array) -> Array:
    return (-np.abs(offsets)).astype(np.float64)


def _falls_of(slopes: Tensor, length: int) -> Tensor | None:
    """Return the bias of a slope of 1; None where slopes or length are refused."""
    # slopes of all items, where `torch.vmap` takes them apart
    if not slopes.dim() or not unwrapped(slopes.detach()).isfinite().all():
        return None
    try:
        return _by_offset(_falls, _checked_length(length, slopes.shape))
    except _REFUSALS:
        return None


def _alibi(slopes: Tensor, length: int) -> Tensor:
    falls = _falls_of(slopes, length) if is_for_torch(slopes) else None
    if falls is None:
        return _ALIBI(num_heads_or_slopes=slopes, length=length)
    bias = slopes.double().unsqueeze(-1) * falls
    dtype = slopes.dtype
    if dtype is torch.float64:
        return bias
    # Numbers of 16 bits are computed in float32, also by `_ALIBI`.
    return bias.float().to(under_autocast(dtype))


@twin(relpos.alibi_bias, TENSORS)
def alibi_bias(
    num_heads_or_slopes: int | Tensor, length: int, *, dtype: torch.dtype | None = None
) -> Tensor:
    """Bias of ALiBi for every relative position, a `rel_bias` of `attention`.

    Parameters
    ----------
    num_heads_or_slopes, length : as in `relpos.alibi_bias`
        Heads or their slopes (..., H), and the longest call that the bias serves.
    dtype : torch.dtype, optional
        Of the result; default that of the slopes, float32 for a number of heads.

    Returns
    -------
    Tensor, (..., H, 2 length - 1)
        It has derivatives of any order; in a compiled program, the first alone.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> slopes = torch.tensor([0.5], requires_grad=True)
    >>> bias = relpos.torch.alibi_bias(slopes, 3)
    >>> bias.tolist()
    [[-1.0, -0.5, 0.0, -0.5, -1.0]]
    >>> bias.sum().backward()
    >>> slopes.grad
    tensor([-6.])
    """
    if dtype is not None:
        check_float_dtype("dtype", dtype)
    if isinstance(num_heads_or_slopes, Tensor):
        slopes = num_heads_or_slopes
    else:
        heads = as_int("num_heads_or_slopes", num_heads_or_slopes, 1, POSITION_LIMIT)
        slopes = alibi_slopes(heads, dtype=dtype or torch.float32)
    # Slopes of integers stay as they are, since `relpos.alibi_bias` refuses them.
    if dtype is None or not slopes.is_floating_point():
        return _alibi(slopes, length)
    # The wider of both dtypes holds the slopes exactly, so that only the result is
    # rounded.
    wider = torch.promote_types(slopes.dtype, dtype)
    return _alibi(slopes.to(wider), length).to(dtype)


def _kerple_shape(r1: Tensor, r2: Tensor, length: int, kind: str) -> tuple[int, ...]:
    return (*r1.shape, 2 * length - 1)


def _kerple_backward(
    grad: Any, names: list[str], r1: Any, r2: Any, length: int, kind: str
) -> Any:
    return relpos.kerple_bias_backward(grad, r1, r2, kind=kind)


_KERPLE = TensorFunction(
    name="kerple_bias",
    arguments="Tensor r1, Tensor r2, SymInt length, str kind",
    forward=relpos.kerple_bias,
    shape=_kerple_shape,
    backward=_kerple_backward,
    gradients=["r1", "r2"],
    leads={"r1": 1, "r2": 0},
)


@twin(relpos.kerple_bias, TENSORS)
def kerple_bias(r1: Tensor, r2: Tensor, length: int, *, kind: str = "log") -> Tensor:
    """Bias of KERPLE for every relative position, a `rel_bias` of `attention`.

    Parameters
    ----------
    r1, r2, length : as in `relpos.kerple_bias`
        Numbers (..., H) of each head, and the longest call that the bias serves.
    kind : {"log", "power"}
        Form of the bias.

    Returns
    -------
    Tensor, (..., H, 2 length - 1)
        With gradients of `r1` and `r2`.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> r1 = r2 = torch.tensor([1.0])
    >>> relpos.torch.kerple_bias(r1, r2, 2).numpy().round(4)
    array([[-0.6931,  0.    , -0.6931]], dtype=float32)
    """
    return _KERPLE(r1=r1, r2=r2, length=length, kind=kind)


def _fire_backward(
    grad: Any,
    names: list[str],
    query_length: int,
    key_length: int | None,
    **others: Any,
) -> Any:
    return relpos.fire_bias_backward(grad, **others)


def _fire_shape(
    w2: Tensor, query_length: int, key_length: int | None, **others: Any
) -> tuple[int, ...]:
    if key_length is None:
        key_length = query_length
    return w2.shape[0], query_length, key_length


_FIRE = TensorFunction(
    name="fire_bias",
    arguments="Tensor w1, Tensor b1, Tensor w2, Tensor b2, Tensor c, Tensor threshold, "
    "SymInt query_length, SymInt? key_length, SymInt query_offset, bool signed, "
    "float eps",
    forward=relpos.fire_bias,
    shape=_fire_shape,
    backward=_fire_backward,
    gradients=NAMES,
)


@twin(relpos.fire_bias, TENSORS)
def fire_bias(
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
    c: Tensor,
    threshold: Tensor,
    query_length: int,
    key_length: int | None = None,
    *,
    query_offset: int = 0,
    signed: bool = False,
    eps: float = 1e-6,
) -> Tensor:
    """Bias of FIRE for every pair of a query and a key.

    Parameters
    ----------
    w1, b1, w2, b2 : as in `relpos.fire_bias`
        Weights and biases of the two layers, (W,), (W,), (H, W) and (H,).
    c, threshold : Tensor of float, ()
        Factor inside the logarithm, and the position that normalises earlier queries.
    query_length, key_length, query_offset, signed, eps : as in `relpos.fire_bias`
        Lq, Lk, the first query, the sign of the direction, and the normaliser's least.

    Returns
    -------
    Tensor, (H, query_length, key_length)
        With gradients of all six parameters.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> network = torch.ones(2), torch.zeros(2), torch.ones(1, 2), torch.zeros(1)
    >>> bias = relpos.torch.fire_bias(*network, torch.tensor(1.0), torch.tensor(1.0), 3)
    >>> bias.shape
    torch.Size([1, 3, 3])
    """
    return _FIRE(
        w1=w1,
        b1=b1,
        w2=w2,
        b2=b2,
        c=c,
        threshold=threshold,
        query_length=query_length,
        key_length=key_length,
        query_offset=query_offset,
        signed=signed,
        eps=eps,
    )


def _t5_backward(
    grad: Any,
    names: list[str],
    weight: Any,
    length: int,
    num_buckets: int | None,
    bidirectional: bool,
    max_distance: int,
) -> Any:
    # `num_buckets` may be None; the forward checked that the weight has as many rows.
    return relpos.t5_bias_backward(
        grad,
        num_buckets=len(weight),
        bidirectional=bidirectional,
        max_distance=max_distance,
    )


def _t5_shape(weight: Tensor, length: int, **others: Any) -> tuple[int, ...]:
    return weight.shape[1], 2 * length - 1


_T5 = TensorFunction(
    name="t5_bias",
    arguments="Tensor weight, SymInt length, SymInt? num_buckets, bool bidirectional, "
    "SymInt max_distance",
    forward=relpos.t5_bias,
    shape=_t5_shape,
    backward=_t5_backward,
    gradients=["weight"],
)


def _buckets(
    offsets: Array, num_buckets: int, bidirectional: bool, max_distance: int
) -> Array:
    return relpos.t5_bucket(
        offsets,
        bidirectional=bidirectional,
        num_buckets=num_buckets,
        max_distance=max_distance,
    )


def _buckets_of(
    weight: Tensor,
    length: object,
    num_buckets: object,
    bidirectional: object,
    max_distance: object,
) -> Tensor | None:
    """Return the row of each relative position; None where an argument is refused."""
    try:
        rows = t5_rows(weight.shape, num_buckets, bidirectional)
        return _by_offset(
            _buckets,
            _checked_length(length, weight.shape[1:]),
            rows,
            as_flag("bidirectional", bidirectional),
            as_int("max_distance", max_distance),
        )
    except _REFUSALS:
        return None


@twin(relpos.t5_bias, TENSORS)
def t5_bias(
    weight: Tensor,
    length: int,
    *,
    num_buckets: int | None = None,
    bidirectional: bool = True,
    max_distance: int = 128,
) -> Tensor:
    """Bias of T5 for every relative position, a `rel_bias` of `attention`.

    Parameters
    ----------
    weight, length, num_buckets : as in `relpos.t5_bias`
        T5's weight (num_buckets, H), and the longest call that the bias serves.
    bidirectional, max_distance : as in `t5_bucket`
        How positions fall into the buckets.

    Returns
    -------
    Tensor, (H, 2 length - 1)
        Of the weight's dtype. It has derivatives of any order; in a compiled program,
        the first alone.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> weight = torch.arange(4.0)[:, None]
    >>> relpos.torch.t5_bias(weight, 3)
    tensor([[1., 1., 0., 3., 3.]])
    """
    if is_for_torch(weight):
        buckets = _buckets_of(weight, length, num_buckets, bidirectional, max_distance)
        if buckets is not None:
            return _rows_of(weight, buckets)
    return _T5(
        weight=weight,
        length=length,
        num_buckets=num_buckets,
        bidirectional=bidirectional,
        max_distance=max_distance,
    )


def _rows_of(weight: Tensor, buckets: Tensor) -> Tensor:
    """Return the bias (H, 2 length - 1) of T5's weight and the buckets of positions."""
    dtype = under_autocast(weight.dtype)
    if torch.is_grad_enabled() and requires_grad(weight):
        weight = weight.double()
    # The backward of `index_select` would add column by column, which takes longer.
    bias = weight.T.gather(1, buckets.expand(weight.shape[1], -1))
    # `to` takes a microsecond also where there is nothing to do
    return bias if bias.dtype is dtype else bias.to(dtype)


def _bucket_shape(relative_position: Tensor, **others: Any) -> Sequence[int]:
    return relative_position.shape


def _bucket_function(function: Any, settings: str) -> TensorFunction:
    """Return a function from relative positions to buckets as one of tensors.

    `settings` are its other parameters, as in an operator's schema.
    """
    return TensorFunction(
        name=function.__name__,
        arguments=f"Tensor relative_position, {settings}",
        forward=function,
        shape=_bucket_shape,
        dtype=torch.int64,
        leads={"relative_position": 0},
    )


_T5_BUCKET = _bucket_function(
    relpos.t5_bucket, "bool bidirectional, SymInt num_buckets, SymInt max_distance"
)
_DEBERTA_BUCKET = _bucket_function(
    relpos.deberta_bucket, "SymInt bucket_size, SymInt max_position"
)


@twin(relpos.t5_bucket, TENSORS)
def t5_bucket(
    relative_position: Tensor,
    *,
    bidirectional: bool = True,
    num_buckets: int = 32,
    max_distance: int = 128,
) -> Tensor:
    """Bucket of each relative position, as T5 counts them.

    Parameters
    ----------
    relative_position, bidirectional : as in `relpos.t5_bucket`
        Key minus query; True in an encoder, False in a causal decoder.
    num_buckets, max_distance : as in `relpos.t5_bucket`
        Number of the buckets, and the distance from which on they are one.

    Returns
    -------
    Tensor of int64, shape of `relative_position`
        From 0 to num_buckets - 1.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> relpos.torch.t5_bucket(torch.tensor([-200, -3, 0, 3, 200]))
    tensor([15,  3,  0, 19, 31])
    """
    return _T5_BUCKET(
        relative_position=relative_position,
        bidirectional=bidirectional,
        num_buckets=num_buckets,
        max_distance=max_distance,
    )


@twin(relpos.deberta_bucket, TENSORS)
def deberta_bucket(
    relative_position: Tensor, *, bucket_size: int, max_position: int
) -> Tensor:
    """Signed bucket of each relative position, as DeBERTa counts them.

    Parameters
    ----------
    relative_position, bucket_size, max_position : as in `relpos.deberta_bucket`
        Query minus key, the span of the table, and ``max_relative_positions``.

    Returns
    -------
    Tensor of int64, shape of `relative_position`
        Signed, and growing beyond `max_position`.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> relative = torch.tensor([-15, -7, -4, 0, 4, 5, 7, 15])
    >>> relpos.torch.deberta_bucket(relative, bucket_size=8, max_position=16)
    tensor([-7, -6, -4,  0,  4,  5,  6,  7])
    """
    return _DEBERTA_BUCKET(
        relative_position=relative_position,
        bucket_size=bucket_size,
        max_position=max_position,
    )


def _ranges_shape(
    query_segments: Tensor, key_segments: Tensor | None
) -> tuple[int, ...]:
    # The last axis has the first key of a range, and the one after its last.
    queries = query_segments.shape
    if key_segments is None:
        return (*queries, 2)
    batch = torch.broadcast_shapes(queries[:-1], key_segments.shape[:-1])
    return (*batch, queries[-1], 2)


_RANGES = TensorFunction(
    name="segment_ranges",
    arguments="Tensor query_segments, Tensor? key_segments",
    forward=relpos.segment_ranges,
    shape=_ranges_shape,
    dtype=torch.int64,
)


@twin(relpos.segment_ranges, TENSORS)
def segment_ranges(
    query_segments: Tensor, key_segments: Tensor | None = None
) -> Tensor:
    """Key ranges that keep each document of a packed sequence to itself.

    Parameters
    ----------
    query_segments, key_segments : as in `relpos.segment_ranges`
        Number of the segment of each query (..., Lq) and of each key (..., Lk).

    Returns
    -------
    Tensor of int64, (..., Lq, 2)
        For `key_ranges` of `attention`: the first key of the query's segment, and the
        one after its last. A segment without keys has an empty range.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> relpos.torch.segment_ranges(torch.tensor([0, 0, 1])).tolist()
    [[0, 2], [0, 2], [2, 3]]
    """
    return _RANGES(query_segments=query_segments, key_segments=key_segments)


@constant_result
@twin(relpos.grid_labels, TENSORS)
@in_tensor_words
def grid_labels(shape: int | Sequence[int]) -> Tensor:
    """Table row of each pair of cells of a grid, for `labels` of `attention`.

    Parameters
    ----------
    shape : int or sequence of int
        Cells along each axis of the grid; cells are numbered in row-major order.

    Returns
    -------
    Tensor of int64, (N, N)
        N = prod(shape); values from 0 to prod(2n - 1) - 1. A compiled program has them
        as a constant.

    Notes
    -----
    Tables of Swin Transformer count query minus key: reverse their rows
    (``table.flip(0)``) to use them with these labels.

    Examples
    --------
    >>> import relpos.torch
    >>> relpos.torch.grid_labels((1, 2)).tolist()
    [[1, 2], [0, 1]]
    """
    return torch.from_numpy(relpos.grid_labels(shape))


@constant_result
@twin(relpos.relative_positions, TENSORS)
@in_tensor_words
def relative_positions(
    query_length: int,
    key_length: int | None = None,
    *,
    max_relative_position: int | None = None,
    query_offset: int = 0,
) -> Tensor:
    """Matrix of relative positions, key minus query.

    Parameters
    ----------
    query_length, key_length : as in `relpos.relative_positions`
        Lq, and Lk, which is Lq where it is None.
    max_relative_position, query_offset : as in `relpos.relative_positions`
        What both sides are clipped to, and the position of query 0.

    Returns
    -------
    Tensor of int64, (Lq, Lk)
        Row i is query i, column j key j. A compiled program has it as a constant.

    Examples
    --------
    >>> import relpos.torch
    >>> relpos.torch.relative_positions(2, 3, query_offset=1).tolist()
    [[-1, 0, 1], [-2, -1, 0]]
    """
    positions = relpos.relative_positions(
        query_length,
        key_length,
        max_relative_position=max_relative_position,
        query_offset=query_offset,
    )
    return torch.from_numpy(positions)
