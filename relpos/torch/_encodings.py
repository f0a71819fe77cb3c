"""Encodings of positions that are added or convolved, on tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

import relpos
from relpos._checks import Array
from relpos._twins import twin
from relpos.torch._functions import TensorFunction, counted


def _float_of(dtype: torch.dtype) -> Any:
    """Return what relpos is to compute a tensor of that dtype in."""
    return np.float64 if dtype == torch.float64 else np.float32


def _sinusoidal(*, dtype: torch.dtype, **values: Any) -> Array:
    return relpos.sinusoidal(**values, dtype=_float_of(dtype))


def _conv_back(
    grad: Array, wanted: list[str], **values: Any
) -> Mapping[str, Array | None]:
    return relpos.conv_encoding_backward(grad, **values)._asdict()


def _learned_back(
    grad: Array, wanted: list[str], table: Array, positions: Array
) -> Mapping[str, Array | None]:
    return {"table": relpos.learned_backward(grad, positions, table.shape[-2])}


_SINUSOIDAL = TensorFunction(
    "sinusoidal",
    "positions inv_freq?",
    "SymInt dim, float base, str layout, ScalarType dtype",
    _sinusoidal,
    lambda values: (*values["positions"].shape, values["dim"]),
    dtype=lambda values: values["dtype"],
    leads={"positions": 0},
)
_LEARNED = TensorFunction(
    "learned",
    "table positions",
    "",
    relpos.learned,
    lambda values: (
        *values["table"].shape[:-2],
        *values["positions"].shape,
        values["table"].shape[-1],
    ),
    _learned_back,
    gradients="table",
    leads={"table": 0},
)
_CONV = TensorFunction(
    "conv_encoding",
    "x weight bias? mask?",
    "SymInt[]? grid, bool is_causal",
    relpos.conv_encoding,
    lambda values: values["x"].shape,
    _conv_back,
    gradients="x weight bias",
    leads={"x": 0, "mask": 1},
    linear="x",
)


@twin(relpos.sinusoidal)
def sinusoidal(
    positions: int | Tensor,
    dim: int,
    *,
    base: float = 10000.0,
    inv_freq: Tensor | None = None,
    layout: str = "interleaved",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Sinusoidal encoding of positions.

    Parameters
    ----------
    positions : int or Tensor of any shape S
        The int n stands for 0, 1, ..., n - 1. Negative and fractional positions are
        legal; integers of less than 2**53 in size, which float64 holds exactly.
    dim : int
        Columns, from 1 to 2**20.
    base : float, default 10000
        Wavelengths run from 2 pi to about 2 pi base positions.
    inv_freq : Tensor of float, optional
        The frequencies themselves in radians per position, instead of those of `base`:
        dim // 2 of them, one more where an odd `dim` ends in a sine.
    layout : {"interleaved", "concat"}
        "interleaved" (the paper): sine and cosine take turns; an odd `dim` ends in a
        sine. "concat" (Transformer-XL): all sines, then all cosines; an odd `dim` ends
        in a column of zeros.
    dtype : torch.dtype, default torch.float32
        Of the result.

    Returns
    -------
    Tensor, S + (dim,)
        One encoding for each position; without a gradient.

    Raises
    ------
    TypeError, ValueError
        As `relpos.sinusoidal`, or if an argument requires a gradient.

    Examples
    --------
    >>> import relpos.torch
    >>> relpos.torch.sinusoidal(3, 4).numpy().round(2)
    array([[ 0.  ,  1.  ,  0.  ,  1.  ],
           [ 0.84,  0.54,  0.01,  1.  ],
           [ 0.91, -0.42,  0.02,  1.  ]], dtype=float32)
    """
    return _SINUSOIDAL(
        positions=counted(positions, inv_freq),
        inv_freq=inv_freq,
        dim=dim,
        base=base,
        layout=layout,
        dtype=dtype,
    )


@twin(relpos.learned)
def learned(table: Tensor, positions: int | Tensor) -> Tensor:
    """Look up rows of a learned table.

    Parameters
    ----------
    table : Tensor of float, (..., R, E)
        One row for each position.
    positions : int or Tensor of int, any shape S
        The int n stands for 0, 1, ..., n - 1.

    Returns
    -------
    Tensor, (..., *S, E)
        Of the table's dtype, with its gradient, rows that come twice summed in float64.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> table = torch.eye(3, requires_grad=True)
    >>> rows = relpos.torch.learned(table, torch.tensor([2, 0, 2]))
    >>> rows.sum().backward()
    >>> table.grad[:, 0]
    tensor([1., 0., 2.])
    """
    return _LEARNED(table=table, positions=counted(positions, table))


@twin(relpos.conv_encoding)
def conv_encoding(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    mask: Tensor | None = None,
    grid: Sequence[int] | None = None,
    is_causal: bool = False,
) -> Tensor:
    """Add a depthwise convolution over the grid of tokens.

    Parameters
    ----------
    x : Tensor, (..., L, E)
        Tokens; of a grid in row-major order.
    weight : Tensor, (E, k), or (E, i, j) with a grid of two axes
        One kernel per channel. PyTorch's shapes (E, 1, k) and (E, 1, i, j) will do.
    bias : Tensor, (E,), optional
        Added to each channel of the convolution.
    mask : Tensor of bool, broadcasts to (..., L), optional
        True: a token. False: padding, which the convolution does not see (whatever it
        holds) and which comes back as it came.
    grid : (L,) or (int, int), optional
        Rows and columns, which multiply to L. None: a sequence.
    is_causal : bool, default False
        Tokens before the own one only, on each axis: ``i - 1`` and ``j - 1`` take the
        place of i // 2 and j // 2, so that no token sees a later one.

    Returns
    -------
    Tensor, shape of `x`
        With gradients of `x`, `weight` and `bias`.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> x = torch.tensor([[1.0], [2.0]])
    >>> relpos.torch.conv_encoding(x, torch.ones(1, 3))
    tensor([[4.],
            [5.]])
    """
    sizes = None if grid is None else list(grid)
    return _CONV(
        x=x, weight=weight, bias=bias, mask=mask, grid=sizes, is_causal=is_causal
    )
