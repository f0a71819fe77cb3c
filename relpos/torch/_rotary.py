"""Rotary encodings, on tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

import relpos
from relpos._checks import Array
from relpos._twins import TENSORS, twin
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


@twin(relpos.apply_rotary, TENSORS)
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
@twin(relpos.rotary_frequencies, TENSORS)
def rotary_frequencies(
    dim: int,
    *,
    base: float = 10000.0,
    scaling: tuple[str, float | Mapping[str, Any]] | None = None,
) -> Tensor:
    """Frequencies of rotary encodings, those of longer contexts included.

    Examples
    --------
    >>> import relpos.torch
    >>> relpos.torch.rotary_frequencies(4, scaling=("linear", 2.0))
    tensor([0.5000, 0.0050], dtype=torch.float64)
    """
    return torch.from_numpy(relpos.rotary_frequencies(dim, base=base, scaling=scaling))


@twin(relpos.xpos_magnitude, TENSORS)
def xpos_magnitude(
    positions: int | Tensor,
    dim: int,
    *,
    scale_base: float = 512.0,
    inverse: bool = False,
) -> Tensor:
    """Magnitudes of xPos: inner products that fall with the distance.

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


@twin(relpos.mrope_angles, TENSORS)
def mrope_angles(
    positions: Tensor,
    inv_freq: Tensor,
    sections: Sequence[int],
    *,
    interleaved: bool = False,
) -> Tensor:
    """Angles of tokens that stand in time, height and width.

    Returns
    -------
    Tensor of float64, (..., L, pairs)
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


@twin(relpos.axial_angles, TENSORS)
def axial_angles(coordinates: Tensor, inv_freq: Tensor) -> Tensor:
    """Angles of tokens in a space of several axes, each with pairs of its own.

    Returns
    -------
    Tensor of float64, (..., L, A F)
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
