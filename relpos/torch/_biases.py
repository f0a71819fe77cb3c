"""Biases by offset, on tensors: ALiBi, KERPLE and FIRE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

import relpos
from relpos._attention.fire_network import NAMES
from relpos._checks import Array
from relpos._twins import twin
from relpos.torch._functions import TensorFunction
from relpos.torch._tensors import in_tensor_words
from relpos.torch._tracing import constant_result

Gradients = Mapping[str, Array | None]


def _alibi_back(grad: Array, wanted: list[str], **values: Any) -> Gradients:
    return {"slopes": relpos.alibi_bias_backward(grad)}


def _kerple_back(
    grad: Array, wanted: list[str], length: int, **values: Any
) -> Gradients:
    return relpos.kerple_bias_backward(grad, **values)._asdict()


def _fire_back(
    grad: Array,
    wanted: list[str],
    query_length: int,
    key_length: int | None,
    **values: Any,
) -> Gradients:
    return relpos.fire_bias_backward(grad, **values)._asdict()


def _by_offset(name: str) -> Any:
    """Return the shape (..., H, 2 length - 1) where the operand `name` is (..., H)."""
    return lambda values: (*values[name].shape, 2 * values["length"] - 1)


def _fire_shape(values: dict[str, Any]) -> tuple[int, ...]:
    lq, lk = values["query_length"], values["key_length"]
    return values["w2"].shape[0], lq, lq if lk is None else lk


_ALIBI = TensorFunction(
    "alibi_bias",
    "slopes",
    "SymInt length",
    lambda slopes, length: relpos.alibi_bias(slopes, length),
    _by_offset("slopes"),
    _alibi_back,
    gradients="slopes",
    leads={"slopes": 0},
)
_KERPLE = TensorFunction(
    "kerple_bias",
    "r1 r2",
    "SymInt length, str kind",
    relpos.kerple_bias,
    _by_offset("r1"),
    _kerple_back,
    gradients="r1 r2",
    leads={"r1": 0, "r2": 0},
)
_FIRE = TensorFunction(
    "fire_bias",
    " ".join(NAMES),
    "SymInt query_length, SymInt? key_length, SymInt query_offset, bool signed, "
    "float eps",
    relpos.fire_bias,
    _fire_shape,
    _fire_back,
    gradients=" ".join(NAMES),
)


@constant_result
@twin(relpos.alibi_slopes)
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
        Of the result.

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
    slopes = relpos.alibi_slopes(num_heads, max_exponent=max_exponent, dtype=np.float64)
    return torch.from_numpy(slopes).to(dtype)


@twin(relpos.alibi_bias)
def alibi_bias(num_heads_or_slopes: int | Tensor, length: int) -> Tensor:
    """Bias of ALiBi for every relative position, a `rel_bias` of `attention`.

    Parameters
    ----------
    num_heads_or_slopes : int, or Tensor of float, (..., H)
        A number of heads stands for ``alibi_slopes(num_heads)``. Slopes may be learned:
        a negative one makes a head prefer what is far away.
    length : int
        Serves every call with length >= max(Lq + query_offset, Lk - query_offset).

    Returns
    -------
    Tensor, (..., H, 2 length - 1)
        Of the slopes' dtype, with their gradient.

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
    slopes = num_heads_or_slopes
    if not isinstance(slopes, Tensor):
        slopes = alibi_slopes(slopes)
    return _ALIBI(slopes=slopes, length=length)


@twin(relpos.kerple_bias)
def kerple_bias(r1: Tensor, r2: Tensor, length: int, *, kind: str = "log") -> Tensor:
    """Bias of KERPLE for every relative position, a `rel_bias` of `attention`.

    Parameters
    ----------
    r1 : Tensor of float, (..., H)
        Positive in the paper; a negative one makes a head prefer what is far away.
    r2 : Tensor of float, shape of `r1`
        At least 0 for "log", more than 0 for "power", where the paper has at most 2.
    length : int
        Serves every call with length >= max(Lq + query_offset, Lk - query_offset).
    kind : {"log", "power"}
        Which of the two.

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


@twin(relpos.fire_bias)
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
    w1 : Tensor of float, (W,) or (W, 1)
        Weights of the first layer.
    b1 : Tensor of float, (W,)
        Its biases.
    w2 : Tensor of float, (H, W)
        Weights of the second layer, a row for each head.
    b2 : Tensor of float, (H,)
        Its biases.
    c : Tensor of float, ()
        Factor inside the logarithm.
    threshold : Tensor of float, ()
        Queries before this position are normalised as if they stood there.
    query_length, key_length : int
        Lq and Lk; Lk is Lq by default.
    query_offset : int, default 0
        Position of query 0.
    signed : bool, default False
        Tell keys before the query from keys after it.
    eps : float, default 1e-6
        Added to the normaliser; the paper has none.

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
    parameters = dict(zip(NAMES, (w1, b1, w2, b2, c, threshold), strict=True))
    return _FIRE(
        **parameters,
        query_length=query_length,
        key_length=key_length,
        query_offset=query_offset,
        signed=signed,
        eps=eps,
    )
