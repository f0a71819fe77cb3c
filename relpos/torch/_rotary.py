"""Rotary encodings, on tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

import relpos
from relpos._checks import Array
from relpos._twins import twin
from relpos.torch._functions import TensorFunction, counted
from relpos.torch._tensors import result_dtype
from relpos.torch._tracing import constant_result


def _turn_back(
    grad: Array, wanted: list[str], **values: Any
) -> Mapping[str, Array | None]:
    if wanted == ["x"]:  # the gradients of angles take more than a turn back
        values |= {"x": grad, "inverse": not values["inverse"]}
        return {"x": relpos.apply_rotary(**values)}
    return relpos.apply_rotary_backward(grad, **values)._asdict()


_ROTARY = TensorFunction(
    "apply_rotary",
    "x positions? inv_freq? angles? magnitude?",
    "float base, bool interleaved, SymInt? rotary_dim, Scalar offset, bool inverse",
    relpos.apply_rotary,
    lambda values: values["x"].shape,
    _turn_back,
    gradients="x inv_freq angles",
    dtype=lambda values: result_dtype([values["x"]]),
    leads={"x": 0, "positions": 1, "angles": 0, "magnitude": 0},
    linear="x",
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
    """Turn pairs of columns by angles that grow with the position.

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
        Which columns are a pair. False: c and rotary_dim / 2 + c (GPT-NeoX, and Llama
        as Hugging Face stores it). True: 2c and 2c + 1 (the paper, GPT-J, and Llama as
        Meta stores it). The two differ by a permutation of the columns.
    rotary_dim : int, optional
        Columns that are rotated, the first ones; even. The rest is copied. Default D.
    offset : float, default 0
        Added to the positions: the length of the cache in front of x. Integers stay
        below 2**53 in size, offset included, as float64 holds no others exactly.
    inverse : bool, default False
        Turn back. The magnitude stays, so this is the adjoint: the gradient of x is
        ``apply_rotary(grad_out, ..., inverse=True)``.

    Returns
    -------
    Tensor, shape and dtype of `x`
        With gradients of `x`, `inv_freq` and `angles`.

    Raises
    ------
    TypeError, ValueError
        As `relpos.apply_rotary`, or if `magnitude` or `positions` requires a gradient.

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
    return _ROTARY(
        x=x,
        positions=positions,
        inv_freq=inv_freq,
        angles=angles,
        magnitude=magnitude,
        base=base,
        interleaved=interleaved,
        rotary_dim=rotary_dim,
        offset=offset,
        inverse=inverse,
    )


_XPOS = TensorFunction(
    "xpos_magnitude",
    "positions",
    "SymInt dim, float scale_base, bool inverse",
    relpos.xpos_magnitude,
    lambda values: (*values["positions"].shape, values["dim"] // 2),
    dtype=torch.float64,
    leads={"positions": 0},
)
_MROPE = TensorFunction(
    "mrope_angles",
    "positions inv_freq",
    "SymInt[] sections, bool interleaved",
    relpos.mrope_angles,
    lambda values: (*values["positions"].shape[1:], *values["inv_freq"].shape),
    dtype=torch.float64,
)
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
        The int n stands for 0, 1, ..., n - 1. Public implementations subtract half of
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
    where = counted(positions)
    return _XPOS(positions=where, dim=dim, scale_base=scale_base, inverse=inverse)


@twin(relpos.mrope_angles)
def mrope_angles(
    positions: Tensor,
    inv_freq: Tensor,
    sections: Sequence[int],
    *,
    interleaved: bool = False,
) -> Tensor:
    """Angles of tokens that stand in time, height and width.

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
    TypeError, ValueError
        As `relpos.mrope_angles`, or if an argument requires a gradient.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> positions = torch.tensor([[5], [6], [7]])
    >>> relpos.torch.mrope_angles(positions, torch.ones(4), (2, 1, 1))
    tensor([[5., 5., 6., 7.]], dtype=torch.float64)
    """
    return _MROPE(
        positions=positions,
        inv_freq=inv_freq,
        sections=list(sections),
        interleaved=interleaved,
    )


@twin(relpos.axial_angles)
def axial_angles(coordinates: Tensor, inv_freq: Tensor) -> Tensor:
    """Angles of tokens in a space of several axes, each with pairs of its own.

    Parameters
    ----------
    coordinates : Tensor of int or float, (..., L, A)
        Where each token stands on each of A axes.
    inv_freq : Tensor of float, (n_f,)
        The frequencies in radians per unit of a coordinate, the same for all axes.

    Returns
    -------
    Tensor of float64, (..., L, A n_f)
        For `angles` of `apply_rotary`; without a gradient.

    Raises
    ------
    TypeError, ValueError
        As `relpos.axial_angles`, or if an argument requires a gradient.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> relpos.torch.axial_angles(torch.tensor([[2, 3]]), torch.tensor([1.0, 0.5]))
    tensor([[2.0000, 1.0000, 3.0000, 1.5000]], dtype=torch.float64)
    """
    return _AXIAL(coordinates=coordinates, inv_freq=inv_freq)
