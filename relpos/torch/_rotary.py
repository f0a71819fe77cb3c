"""Rotary encodings, on tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

import relpos
from relpos._checks import Array
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
    r"""Turn pairs of columns by angles that grow with the position.

    .. math::

        y_a &= m (\cos(n \omega_c) \, x_a - \sin(n \omega_c) \, x_b) \\
        y_b &= m (\sin(n \omega_c) \, x_a + \cos(n \omega_c) \, x_b)

    with a and b the two columns of pair c, and m the magnitude.

    Parameters
    ----------
    x : Tensor, (..., L, D)
        Queries or keys.
    positions, base, inv_freq, angles, magnitude : optional
        As in `relpos.apply_rotary`, arrays as tensors.
    interleaved, rotary_dim, offset, inverse : optional
        As in `relpos.apply_rotary`.

    Returns
    -------
    Tensor, shape and dtype of `x`
        With gradients of `x`, `inv_freq` and `angles`.

    Raises
    ------
    TypeError, ValueError
        As `relpos.apply_rotary`, or if `magnitude` or `positions` requires a gradient.

    See Also
    --------
    relpos.apply_rotary : The same on arrays, with all that it says of its arguments.

    References
    ----------
    .. [1] Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding",
       2021, arXiv:2104.09864.

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
def rotary_frequencies(
    dim: int,
    *,
    base: float = 10000.0,
    scaling: tuple[str, float | Mapping[str, Any]] | None = None,
) -> Tensor:
    r"""Frequencies of rotary encodings, those of longer contexts included.

    Parameters
    ----------
    dim, base, scaling : as in `relpos.rotary_frequencies`
        Columns, base, and one of the published scalings.

    Returns
    -------
    Tensor of float64, (dim / 2,)
        For `inv_freq` of `apply_rotary`. A compiled program has it as a constant.

    Raises
    ------
    TypeError, ValueError
        As `relpos.rotary_frequencies`.

    See Also
    --------
    relpos.rotary_frequencies : The same as an array, with the formulas.
    apply_rotary : Takes the frequencies.

    References
    ----------
    .. [1] Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding",
       2021, arXiv:2104.09864.

    Examples
    --------
    >>> import relpos.torch
    >>> relpos.torch.rotary_frequencies(4, scaling=("linear", 2.0))
    tensor([0.5000, 0.0050], dtype=torch.float64)
    """
    return torch.from_numpy(relpos.rotary_frequencies(dim, base=base, scaling=scaling))


def xpos_magnitude(
    positions: int | Tensor,
    dim: int,
    *,
    scale_base: float = 512.0,
    inverse: bool = False,
) -> Tensor:
    r"""Magnitudes of xPos: inner products that fall with the distance.

    .. math::

        m_{n,c} = \zeta_c^{\,n / scale\_base}, \quad
        \zeta_c = \frac{2c + 0.4 \, dim}{1.4 \, dim}

    Parameters
    ----------
    positions : int or Tensor of any shape S
        The int n stands for 0, 1, ..., n - 1.
    dim, scale_base, inverse : as in `relpos.xpos_magnitude`
        Columns that are turned, the scale, and whether these are for keys.

    Returns
    -------
    Tensor of float64, S + (dim / 2,)
        For `magnitude` of `apply_rotary`.

    Raises
    ------
    TypeError, ValueError
        As `relpos.xpos_magnitude`.

    See Also
    --------
    relpos.xpos_magnitude : The same on arrays.
    apply_rotary : Takes the magnitudes.

    References
    ----------
    .. [1] Sun et al., "A Length-Extrapolatable Transformer", 2022, arXiv:2212.10554.

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


def mrope_angles(
    positions: Tensor,
    inv_freq: Tensor,
    sections: Sequence[int],
    *,
    interleaved: bool = False,
) -> Tensor:
    r"""Angles of tokens that stand in time, height and width.

    .. math:: \theta_{n,c} = p_{a(c), n} \, \omega_c

    Parameters
    ----------
    positions : Tensor, (3, ..., L)
        Position of each token on each axis.
    inv_freq : Tensor, (pairs,)
        The frequencies.
    sections, interleaved : as in `relpos.mrope_angles`
        Which axis a pair takes.

    Returns
    -------
    Tensor of float64, (..., L, pairs)
        For `angles` of `apply_rotary`; without a gradient.

    Raises
    ------
    TypeError, ValueError
        As `relpos.mrope_angles`, or if an argument requires a gradient.

    See Also
    --------
    relpos.mrope_angles : The same on arrays.
    apply_rotary : Takes the angles, and has their gradient.

    References
    ----------
    .. [1] Wang et al., "Qwen2-VL: Enhancing Vision-Language Model's Perception of the
       World at Any Resolution", 2024, arXiv:2409.12191.

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


def axial_angles(coordinates: Tensor, inv_freq: Tensor) -> Tensor:
    r"""Angles of tokens in a space of several axes, each with pairs of its own.

    .. math:: \theta_{n, a F + f} = x_{n,a} \, \omega_f

    Parameters
    ----------
    coordinates : Tensor, (..., L, A)
        Place of each token on each axis.
    inv_freq : Tensor, (F,)
        The frequencies, the same for all axes.

    Returns
    -------
    Tensor of float64, (..., L, A F)
        For `angles` of `apply_rotary`; without a gradient.

    Raises
    ------
    TypeError, ValueError
        As `relpos.axial_angles`, or if an argument requires a gradient.

    See Also
    --------
    relpos.axial_angles : The same on arrays.
    apply_rotary : Takes the angles, and has their gradient.

    References
    ----------
    .. [1] Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding",
       2021, arXiv:2104.09864.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> relpos.torch.axial_angles(torch.tensor([[2, 3]]), torch.tensor([1.0, 0.5]))
    tensor([[2.0000, 1.0000, 3.0000, 1.5000]], dtype=torch.float64)
    """
    return _AXIAL(coordinates=coordinates, inv_freq=inv_freq)
