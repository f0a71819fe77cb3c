"""Encodings of positions that are added, convolved or rotated, on tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import relpos
from relpos._checks import as_real
from relpos._twins import TENSORS, twin
from relpos.torch._functions import TensorFunction, counted
from relpos.torch._tensors import check_float_dtype, in_tensor_words
from relpos.torch._tracing import constant_result

__all__ = ["RotaryParameters", "apply_rotary", "axial_angles", "conv_encoding"]
__all__ += ["learned", "mrope_angles", "rotary_frequencies", "rotary_from_config"]
__all__ += ["sinusoidal", "sinusoidal_shift_matrix", "xpos_magnitude"]


def _sinusoidal(*, dtype: torch.dtype, **others: Any) -> Any:
    # what is narrower is rounded from float32, as everywhere
    computed = np.float64 if dtype == torch.float64 else np.float32
    return relpos.sinusoidal(**others, dtype=computed)


def _sinusoidal_shape(positions: Tensor, dim: int, **others: Any) -> tuple[int, ...]:
    return *positions.shape, dim


# Positions may have any axes, so that a `vmap` over them is one call.
_SINUSOIDAL = TensorFunction(
    "sinusoidal",
    "Tensor positions, Tensor? inv_freq, SymInt dim, float base, str layout, "
    "ScalarType dtype",
    _sinusoidal,
    _sinusoidal_shape,
    leads={"positions": 0},
    exact="positions",
)


@twin(relpos.sinusoidal, TENSORS)
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
        An int n means 0, 1, ..., n - 1. Integers are less than 2**53 in size.
    dim, base, inv_freq, layout : as in `relpos.sinusoidal`
        Columns, their frequencies, and their order.
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
    check_float_dtype("dtype", dtype)
    return _SINUSOIDAL(
        positions=counted(positions, inv_freq),
        inv_freq=inv_freq,
        dim=dim,
        base=base,
        layout=layout,
        dtype=dtype,
    )


@constant_result
@twin(relpos.sinusoidal_shift_matrix, TENSORS)
@in_tensor_words
def sinusoidal_shift_matrix(
    offset: float, dim: int, *, base: float = 10000.0, layout: str = "interleaved"
) -> Tensor:
    """Matrix that moves every sinusoidal encoding by the same offset.

    Parameters
    ----------
    offset, dim : as in `relpos.sinusoidal_shift_matrix`
        Positions to move by, and columns of the encoding.
    base, layout : as in `sinusoidal`
        Those of the encoding.

    Returns
    -------
    Tensor of float64, (dim, dim)
        The matrix M. A compiled program has it as a constant.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> encoding = relpos.torch.sinusoidal(9, 4, dtype=torch.float64)
    >>> matrix = relpos.torch.sinusoidal_shift_matrix(3, 4)
    >>> torch.allclose(matrix @ encoding[5], encoding[8])
    True
    """
    matrix = relpos.sinusoidal_shift_matrix(offset, dim, base=base, layout=layout)
    return torch.from_numpy(matrix)


def _learned_shape(table: Tensor, positions: Tensor) -> tuple[int, ...]:
    return *table.shape[:-2], *positions.shape, table.shape[-1]


def _learned_backward(grad: Any, names: list[str], table: Any, positions: Any) -> Any:
    return relpos.learned_backward(grad, positions, table.shape[-2])


_LEARNED = TensorFunction(
    "learned",
    "Tensor table, Tensor positions",
    relpos.learned,
    _learned_shape,
    _learned_backward,
    gradients=["table"],
    short="table",
    leads={"table": 2},
)


@twin(relpos.learned, TENSORS)
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


def _shape_of_x(x: Tensor, **others: Any) -> Sequence[int]:
    return x.shape


def _conv_backward(grad: Any, names: list[str], **values: Any) -> Any:
    return relpos.conv_encoding_backward(grad, **values)


# An item of x is (L, E) at least, and its mask has no channels.
_CONV = TensorFunction(
    "conv_encoding",
    "Tensor x, Tensor weight, Tensor? bias, Tensor? mask, SymInt[]? grid, "
    "bool is_causal",
    relpos.conv_encoding,
    _shape_of_x,
    _conv_backward,
    gradients=["x", "weight", "bias"],
    leads={"x": 2, "mask": 1},
    linear="x",
)


@twin(relpos.conv_encoding, TENSORS)
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
    x, weight, bias : as in `relpos.conv_encoding`
        Tokens (..., L, E), and a kernel (E, k) or (E, i, j) and a bias per channel.
    mask, grid, is_causal : as in `relpos.conv_encoding`
        Tokens that are no padding, sides of the grid, and where a kernel begins.

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
    # an operator takes a list; `relpos.conv_encoding` refuses anything else
    if isinstance(grid, Sequence | np.ndarray):
        grid = list(grid)
    return _CONV(
        x=x, weight=weight, bias=bias, mask=mask, grid=grid, is_causal=is_causal
    )


def _rotary_backward(grad: Any, names: list[str], **values: Any) -> Any:
    if names == ["x"]:  # the gradients of angles take more than the inverse rotation
        # The transpose of a rotation is the inverse one, and both have the same
        # magnitude.
        values["x"] = grad
        values["inverse"] = not values["inverse"]
        return relpos.apply_rotary(**values)
    return relpos.apply_rotary_backward(grad, **values)


# An item of x is (L, D) at least. Positions have no columns, and angles and magnitude
# have a column for each pair.
_ROTARY = TensorFunction(
    "apply_rotary",
    "Tensor x, Tensor? positions, Tensor? inv_freq, Tensor? angles, Tensor? magnitude, "
    "float base, bool interleaved, SymInt? rotary_dim, Scalar offset, bool inverse",
    relpos.apply_rotary,
    _shape_of_x,
    _rotary_backward,
    gradients=["x", "inv_freq", "angles"],
    leads={"x": 2, "positions": 1, "angles": 0, "magnitude": 0},
    linear="x",
    short="x",
    exact="positions",
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
    """Rotate pairs of columns by angles that grow with the position.

    Parameters
    ----------
    x, positions : as in `relpos.apply_rotary`
        Queries or keys (..., L, D), and the position of each row.
    base, inv_freq, angles, magnitude : as in `relpos.apply_rotary`
        Frequencies by their base or one by one, or angles, and what multiplies pairs.
    interleaved : as in `relpos.apply_rotary`
        Pairs of columns. False: c and rotary_dim / 2 + c. True: 2c and 2c + 1.
    rotary_dim, offset, inverse : as in `relpos.apply_rotary`
        Columns that are rotated, what is added to positions, and the direction.

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
    # an operator takes a tensor: one of float64 has the number exactly, and does not
    # widen the result, as it has no axes
    if isinstance(magnitude, Real):
        number = as_real("magnitude", magnitude)
        magnitude = torch.tensor(number, dtype=torch.float64, device="cpu")
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


@constant_result
@twin(relpos.rotary_frequencies, TENSORS)
@in_tensor_words
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


class RotaryParameters(NamedTuple):
    """Arguments of `apply_rotary` that a model has, under their names there.

    Attributes
    ----------
    inv_freq : Tensor of float64, (rotary_dim / 2,)
    magnitude : float
    rotary_dim : int
    interleaved : bool
    """

    inv_freq: Tensor
    magnitude: float
    rotary_dim: int
    interleaved: bool


@twin(relpos.rotary_from_config, TENSORS)
@in_tensor_words
def rotary_from_config(
    config: Mapping[str, Any] | object,
    *,
    layer_type: str | None = None,
    seq_len: int | None = None,
) -> RotaryParameters:
    """Rotary encoding of a model, from its Hugging Face configuration.

    Parameters
    ----------
    config : as in `relpos.rotary_from_config`
        The content of config.json, or a configuration of transformers.
    layer_type, seq_len : as in `relpos.rotary_from_config`
        The type of layer, where they differ, and the length of the sequence.

    Returns
    -------
    RotaryParameters
        The named tuple (inv_freq, magnitude, rotary_dim, interleaved), of which
        `inv_freq` is a tensor of float64; otherwise as in `relpos.rotary_from_config`.

    Examples
    --------
    >>> import relpos.torch
    >>> config = {"head_dim": 4, "rope_theta": 1e4}
    >>> rotary = relpos.torch.rotary_from_config(config)
    >>> rotary.inv_freq
    tensor([1.0000, 0.0100], dtype=torch.float64)
    >>> x = relpos.torch.sinusoidal(3, 4)
    >>> relpos.torch.apply_rotary(x, **rotary._asdict()).shape
    torch.Size([3, 4])
    """
    parameters = relpos.rotary_from_config(
        config, layer_type=layer_type, seq_len=seq_len
    )
    return RotaryParameters(
        inv_freq=torch.from_numpy(parameters.inv_freq.copy()),  # it may be cached
        magnitude=parameters.magnitude,
        rotary_dim=parameters.rotary_dim,
        interleaved=parameters.interleaved,
    )


def _xpos_shape(positions: Tensor, dim: int, **others: Any) -> tuple[int, ...]:
    return *positions.shape, dim // 2


_XPOS = TensorFunction(
    "xpos_magnitude",
    "Tensor positions, SymInt dim, float scale_base, bool inverse",
    relpos.xpos_magnitude,
    _xpos_shape,
    dtype=torch.float64,
    leads={"positions": 0},
    exact="positions",
)


@twin(relpos.xpos_magnitude, TENSORS)
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
    positions, dim, scale_base, inverse : as in `relpos.xpos_magnitude`
        Positions S, rotated columns, and True for keys.

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
    return _XPOS(
        positions=counted(positions), dim=dim, scale_base=scale_base, inverse=inverse
    )


def _mrope_shape(positions: Tensor, inv_freq: Tensor, **others: Any) -> tuple[int, ...]:
    return *positions.shape[1:], *inv_freq.shape


# The first axis of positions is that of time, height and width, and so `vmap` makes a
# call for each item.
_MROPE = TensorFunction(
    "mrope_angles",
    "Tensor positions, Tensor inv_freq, SymInt[] sections, bool interleaved",
    relpos.mrope_angles,
    _mrope_shape,
    dtype=torch.float64,
    exact="positions",
)


@twin(relpos.mrope_angles, TENSORS)
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
    positions, inv_freq : as in `relpos.mrope_angles`
        Time, height and width of each token (3, ..., L), and frequencies (D/2,).
    sections, interleaved : as in `relpos.mrope_angles`
        Pairs of each axis, in runs or by turns.

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
    if isinstance(sections, Sequence | np.ndarray):
        sections = list(sections)
    return _MROPE(
        positions=positions,
        inv_freq=inv_freq,
        sections=sections,
        interleaved=interleaved,
    )


def _axial_shape(coordinates: Tensor, inv_freq: Tensor) -> tuple[int, ...]:
    *batch, axes = coordinates.shape
    return *batch, axes * inv_freq.shape[0]


_AXIAL = TensorFunction(
    "axial_angles",
    "Tensor coordinates, Tensor inv_freq",
    relpos.axial_angles,
    _axial_shape,
    dtype=torch.float64,
    leads={"coordinates": 2},
    exact="coordinates",
)


@twin(relpos.axial_angles, TENSORS)
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
    return _AXIAL(coordinates=coordinates, inv_freq=inv_freq)
