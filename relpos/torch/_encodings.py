"""Encodings of positions that are added, convolved or rotated, on tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

import relpos
from relpos._twins import twin
from relpos.torch._functions import TensorFunction, counted, gradients_of
from relpos.torch._tensors import result_dtype
from relpos.torch._tracing import constant_result

__all__ = ["apply_rotary", "axial_angles", "conv_encoding", "learned"]
__all__ += ["mrope_angles", "rotary_frequencies", "sinusoidal", "xpos_magnitude"]


def _sinusoidal(*, dtype: torch.dtype, **values: Any) -> Any:
    exact = np.float64 if dtype == torch.float64 else np.float32
    return relpos.sinusoidal(**values, dtype=exact)


_SINUSOIDAL = TensorFunction(
    "sinusoidal",
    "positions inv_freq?",
    "SymInt dim, float base, str layout, ScalarType dtype",
    _sinusoidal,
    lambda values: (*values["positions"].shape, values["dim"]),
    dtype=lambda values: values["dtype"],
    leads={"positions": 0},
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
        An int n means 0, 1, ..., n - 1. Negative and fractional positions are
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
        Dtype of the result.

    Returns
    -------
    Tensor, S + (dim,)
        One encoding for each position; without a gradient.

    Raises
    ------
    ValueError
        An argument requires a gradient.

    Examples
    --------
    >>> import relpos.torch
    >>> relpos.torch.sinusoidal(3, 4).numpy().round(2)
    array([[ 0.  ,  1.  ,  0.  ,  1.  ],
           [ 0.84,  0.54,  0.01,  1.  ],
           [ 0.91, -0.42,  0.02,  1.  ]], dtype=float32)
    """
    positions = counted(positions, inv_freq)
    return _SINUSOIDAL(**locals())


def _learned_back(
    grad: Any, wanted: list[str], table: Any, positions: Any
) -> dict[str, Any]:
    return {"table": relpos.learned_backward(grad, positions, table.shape[-2])}


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


@twin(relpos.learned)
def learned(table: Tensor, positions: int | Tensor) -> Tensor:
    """Look up rows of a learned table.

    Parameters
    ----------
    table : Tensor of float, (..., R, E)
        One row for each position.
    positions : int or Tensor of int, any shape S
        An int n means 0, 1, ..., n - 1.

    Returns
    -------
    Tensor, (..., *S, E)
        Of the table's dtype, with its gradient, in which a repeated row is summed in
        float64.

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


_CONV = TensorFunction(
    "conv_encoding",
    "x weight bias? mask?",
    "SymInt[]? grid, bool is_causal",
    relpos.conv_encoding,
    lambda values: values["x"].shape,
    gradients_of(relpos.conv_encoding_backward),
    gradients="x weight bias",
    leads={"x": 0, "mask": 1},
    linear="x",
)


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
        One kernel per channel, or PyTorch's shapes (E, 1, k) and (E, 1, i, j).
    bias : Tensor, (E,), optional
        Added to each channel of the convolution.
    mask : Tensor of bool, broadcasts to (..., L), optional
        True: a token. False: padding, which the convolution does not read, and which is
        returned unchanged.
    grid : (L,) or (int, int), optional
        Rows and columns, which multiply to L. None: a sequence.
    is_causal : bool, default False
        Pad by ``i - 1`` and ``j - 1`` before the tokens of each axis, instead of
        i // 2 and j // 2, so that no token sees a later one.

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
    grid = None if grid is None else list(grid)
    return _CONV(**locals())


def _rotate_back(grad: Any, wanted: list[str], **values: Any) -> Any:
    if wanted == ["x"]:  # the gradients of angles take more than the inverse rotation
        values |= {"x": grad, "inverse": not values["inverse"]}
        return {"x": relpos.apply_rotary(**values)}
    return relpos.apply_rotary_backward(grad, **values)._asdict()


_ROTARY = TensorFunction(
    "apply_rotary",
    "x positions? inv_freq? angles? magnitude?",
    "float base, bool interleaved, SymInt? rotary_dim, Scalar offset, bool inverse",
    relpos.apply_rotary,
    lambda values: values["x"].shape,
    _rotate_back,
    gradients="x inv_freq angles",
    dtype=lambda values: result_dtype([values["x"]]),
    leads={"x": 0, "positions": 1, "angles": 0, "magnitude": 0},
    linear="x",
    short="x",
)


@twin(relpos.apply_rotary)
def apply_rotary(
    x: Tensor,
    positions: Tensor | None = None,
    *,
    base: float = 10000.0,
    inv_freq: Tensor | None = None,
    angles: Tensor | None = None,
    magnitude: Tensor | float | None = None,
    interleaved: bool = False,
    rotary_dim: int | None = None,
    offset: float = 0,
    inverse: bool = False,
) -> Tensor:
    """Rotate pairs of columns by angles that grow with the position.

    Parameters
    ----------
    x : Tensor of float, (..., L, D)
        Queries or keys.
    positions : Tensor of int or float, optional
        Broadcasts to (..., L); negative and fractional ones are legal. Default
        0, 1, ..., L - 1.
    base : float, default 10000
        Wavelengths run from 2 pi to about 2 pi base positions.
    inv_freq : Tensor of float, (rotary_dim / 2,), optional
        The frequencies in radians per position, instead of those of `base`:
        `rotary_frequencies`, or learned ones.
    angles : Tensor of float, optional
        The angles in radians, instead of positions times frequencies; broadcasts to
        (..., L, rotary_dim / 2). For several axes: `axial_angles`, `mrope_angles`.
    magnitude : float or Tensor of float, optional
        The m that multiplies rotated pairs; broadcasts to (..., L, rotary_dim / 2):
        `relpos.rotary_magnitude`, or `xpos_magnitude`.
    interleaved : bool, default False
        Pairs of columns. False: c and rotary_dim / 2 + c (GPT-NeoX, and Llama
        as Hugging Face stores it). True: 2c and 2c + 1 (the paper, GPT-J, and Llama as
        Meta stores it). The two differ by a permutation of the columns.
    rotary_dim : int, optional
        Columns that are rotated, the first ones; even. The rest is copied. Default D.
    offset : float, default 0
        Added to the positions: the length of the cache in front of x. Integers stay
        below 2**53 in size, offset included, as float64 holds no others exactly.
    inverse : bool, default False
        Rotate back. The magnitude stays, so this is the adjoint: the gradient of x is
        ``apply_rotary(grad_out, ..., inverse=True)``.

    Returns
    -------
    Tensor, shape and dtype of `x`
        With gradients of `x`, `inv_freq` and `angles`.

    Raises
    ------
    ValueError
        `magnitude` or `positions` requires a gradient.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> x = torch.ones(2, 2, dtype=torch.float64, requires_grad=True)
    >>> y = relpos.torch.apply_rotary(x)
    >>> y[1].detach().numpy().round(4)
    array([-0.3012,  1.3818])
    >>> y[1, 1].backward()
    >>> x.grad[1].numpy().round(4)
    array([0.8415, 0.5403])
    """
    if isinstance(magnitude, Real):
        magnitude = torch.tensor(magnitude, dtype=torch.float64)
    return _ROTARY(**locals())


@constant_result
@twin(relpos.rotary_frequencies)
def rotary_frequencies(
    dim: int,
    *,
    base: float = 10000.0,
    scaling: tuple[str, float | Mapping[str, Any]] | None = None,
) -> Tensor:
    """Frequencies of rotary encodings, those of longer contexts included.

    Parameters
    ----------
    dim : int
        The `rotary_dim` of `apply_rotary`; even.
    base : float, default 10000
        Wavelengths run from 2 pi to about 2 pi base positions.
    scaling : (str, float) or (str, dict), optional
        A name and its values, as `relpos.rotary_frequencies` describes them one by one:
        ``("linear", s)`` [1]_, ``("ntk", s)``, or "dynamic", "yarn" [2]_, "llama3"
        [3]_, "longrope" [4]_ or "proportional" [5]_ with a dict of the keys of Hugging
        Face's ``rope_scaling``.

    Returns
    -------
    Tensor of float64, (dim / 2,)
        For `inv_freq` of `apply_rotary`. A compiled program has it as a constant.

    Examples
    --------
    >>> import relpos.torch
    >>> relpos.torch.rotary_frequencies(4, scaling=("linear", 2.0))
    tensor([0.5000, 0.0050], dtype=torch.float64)
    """
    return torch.from_numpy(relpos.rotary_frequencies(dim, base=base, scaling=scaling))


_XPOS = TensorFunction(
    "xpos_magnitude",
    "positions",
    "SymInt dim, float scale_base, bool inverse",
    relpos.xpos_magnitude,
    lambda values: (*values["positions"].shape, values["dim"] // 2),
    dtype=torch.float64,
    leads={"positions": 0},
)


@twin(relpos.xpos_magnitude)
def xpos_magnitude(
    positions: int | Tensor,
    dim: int,
    *,
    scale_base: float = 512.0,
    inverse: bool = False,
) -> Tensor:
    r"""Magnitudes of xPos: inner products that fall with the distance.

    Parameters
    ----------
    positions : int or Tensor of any shape S
        An int n means 0, 1, ..., n - 1. Public implementations subtract half of
        the length, the same for queries and keys: it cancels in the products and keeps
        the magnitudes near 1.
    dim : int
        The `rotary_dim` of `apply_rotary`; even.
    scale_base : float, default 512
        Positions after which the factor is :math:`\zeta`.
    inverse : bool, default False
        The reciprocals, for keys.

    Returns
    -------
    Tensor of float64, S + (dim / 2,)
        For `magnitude` of `apply_rotary`.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> relpos.torch.xpos_magnitude(torch.tensor([0, 512]), 4).numpy().round(4)
    array([[1.    , 1.    ],
           [0.2857, 0.6429]])
    """
    positions = counted(positions)
    return _XPOS(**locals())


_MROPE = TensorFunction(
    "mrope_angles",
    "positions inv_freq",
    "SymInt[] sections, bool interleaved",
    relpos.mrope_angles,
    lambda values: (*values["positions"].shape[1:], *values["inv_freq"].shape),
    dtype=torch.float64,
)


@twin(relpos.mrope_angles)
def mrope_angles(
    positions: Tensor,
    inv_freq: Tensor,
    sections: Sequence[int],
    *,
    interleaved: bool = False,
) -> Tensor:
    """Angles of tokens with positions in time, height and width.

    Parameters
    ----------
    positions : Tensor of int or float, (3, ..., L)
        Time, height and width of each token.
    inv_freq : Tensor of float, (D/2,)
        The frequencies in radians per position: `rotary_frequencies`.
    sections : sequence of int
        Hugging Face's ``mrope_section``. Runs of so many pairs take time, height,
        width, time and so on; together they are D/2.
    interleaved : bool, default False
        False: runs, as Qwen2-VL and Qwen2.5-VL have them. True: axes take turns pair by
        pair, as in Qwen3-VL: of `sections`, three numbers, pair c has height where
        c % 3 = 1 and c < 3 sections[1], width where c % 3 = 2 and c < 3 sections[2],
        else time; the first number is not read.

    Returns
    -------
    Tensor of float64, (..., L, D/2)
        For `angles` of `apply_rotary`; without a gradient.

    Raises
    ------
    ValueError
        An argument requires a gradient.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> positions = torch.tensor([[5], [6], [7]])
    >>> relpos.torch.mrope_angles(positions, torch.ones(4), (2, 1, 1))
    tensor([[5., 5., 6., 7.]], dtype=torch.float64)
    """
    sections = list(sections)
    return _MROPE(**locals())


_AXIAL = TensorFunction(
    "axial_angles",
    "coordinates inv_freq",
    "",
    relpos.axial_angles,
    lambda values: (
        *values["coordinates"].shape[:-1],
        values["coordinates"].shape[-1] * values["inv_freq"].shape[0],
    ),
    dtype=torch.float64,
    leads={"coordinates": 0},
)


@twin(relpos.axial_angles)
def axial_angles(coordinates: Tensor, inv_freq: Tensor) -> Tensor:
    """Angles of tokens in a space of several axes, each with pairs of its own.

    Parameters
    ----------
    coordinates : Tensor of int or float, (..., L, A)
        Position of each token on each of A axes.
    inv_freq : Tensor of float, (n_f,)
        The frequencies in radians per unit of a coordinate, the same for all axes.

    Returns
    -------
    Tensor of float64, (..., L, A n_f)
        For `angles` of `apply_rotary`; without a gradient.

    Raises
    ------
    ValueError
        An argument requires a gradient.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> relpos.torch.axial_angles(torch.tensor([[2, 3]]), torch.tensor([1.0, 0.5]))
    tensor([[2.0000, 1.0000, 3.0000, 1.5000]], dtype=torch.float64)
    """
    return _AXIAL(**locals())
