"""Encodings of positions by a convolution of the tokens with their neighbours.

A depthwise convolution over a grid of tokens with zeros around it is added to the
tokens. Near the edge its sums have zeros, which encode the position.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from relpos._checks import (
    POSITION_LIMIT,
    Array,
    ArrayLike,
    as_array,
    as_flag,
    as_floating,
    as_int,
    at_least_ndim,
    check_bytes,
    check_match,
    check_shape,
    common_dtype,
    kind_of,
    like,
    native,
    quiet,
    rounded,
    wrong_dtype,
)
from relpos._settings import kernels
from relpos._text import amount, in_short
from relpos._twins import twin

__all__ = ["ConvGradients", "conv_encoding", "conv_encoding_backward"]


@in_short
class ConvGradients(NamedTuple):
    """Gradients of `conv_encoding`'s inputs, each of its input's shape and dtype.

    Attributes
    ----------
    x : ndarray, (..., L, E)
    weight : ndarray, (E, k) or (E, i, j)
    bias : ndarray, (E,), or None
        None where there was none.
    """

    x: Array
    weight: Array
    bias: Array | None


class _Call:
    """A checked call: operands of the kernel, as grids of two axes."""

    def __init__(
        self,
        x: ArrayLike,
        weight: ArrayLike,
        bias: ArrayLike | None,
        *,
        mask: ArrayLike | None,
        grid: tuple[int, ...] | None,
        is_causal: bool,
    ) -> None:
        tokens, taps = as_floating("x", x), as_floating("weight", weight)
        #: Arrays as given, by name: the gradients have their shapes and dtypes.
        self.inputs = {"x": tokens, "weight": taps}
        if bias is not None:
            self.inputs["bias"] = as_floating("bias", bias)
        at_least_ndim("x", tokens, 2, "(..., L, E)")
        length, channels = tokens.shape[-2:]
        sizes = _grid(grid, length)
        shape = _kernel_shape(taps, len(sizes), channels)
        causal = as_flag("is_causal", is_causal)
        #: Taps before a token's own, per axis.
        self.pads = tuple(size - 1 if causal else size // 2 for size in shape)
        if len(sizes) == 1:  # a sequence is a grid of one row
            sizes = (1, *sizes)
            shape = (1, *shape)
            self.pads = (0, *self.pads)
        self.dtype = common_dtype(*self.inputs.values(), np.dtype(np.float32))
        self.bias = self.inputs.get("bias", np.zeros(channels, self.dtype))
        fits = self.bias.shape == (channels,)
        check_shape("bias", self.bias, fits, f"({channels},), as x has channels")
        check_bytes("grid", (*tokens.shape[:-2], *sizes, channels), self.dtype)
        self.cells = tokens.reshape(*tokens.shape[:-2], *sizes, channels)
        taps = np.moveaxis(taps.reshape(channels, *shape), 0, -1)
        self.taps = np.ascontiguousarray(taps, self.dtype)  # (i, j, E)
        self.mask = _mask(mask, tokens.shape[:-1], sizes, self.dtype)


def conv_encoding(
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    mask: ArrayLike | None = None,
    grid: tuple[int, ...] | None = None,
    is_causal: bool = False,
) -> Array:
    r"""Add a depthwise convolution over the grid of tokens.

    It is the positional encoding generator (PEG) of conditional positional encodings.

    .. math::

        y_{r,c} = x_{r,c} + b + \sum_{s,t} w_{s,t} \odot
                  x_{r + s - \lfloor i/2 \rfloor,\, c + t - \lfloor j/2 \rfloor}

    for a kernel of (i, j) taps, channel by channel. Tokens outside the grid are zeros,
    and so are those that `mask` marks as padding.

    Parameters
    ----------
    x : array_like, (..., L, E)
        Tokens; of a grid in row-major order.
    weight : array_like, (E, k), or (E, i, j) with a grid of two axes
        One kernel per channel. PyTorch's shapes (E, 1, k) and (E, 1, i, j) are taken.
    bias : array_like, (E,), optional
        Added to each channel of the convolution.
    mask : array_like of bool, broadcasts to (..., L), optional
        True: a token. False: padding, which the convolution reads as zeros and which
        is returned unchanged.
    grid : (L,) or (int, int), optional
        Rows and columns, which multiply to L. None: a sequence.
    is_causal : bool, default False
        Take only tokens before the own one, on each axis: i // 2 and j // 2 become
        ``i - 1`` and ``j - 1``.

    Returns
    -------
    ndarray, (..., L, E)
        Tokens plus convolution.

    Raises
    ------
    ValueError
        A shape does not fit, or `grid` does not multiply to L.

    See Also
    --------
    relpos.nn.ConvPositionEmbedding : The grouped form of wav2vec 2.0 as a layer.

    References
    ----------
    .. [1] Chu et al., "Conditional Positional Encodings for Vision Transformers", 2021,
       arXiv:2102.10882.

    Examples
    --------
    Equal tokens become different near the edge:

    >>> import numpy as np
    >>> import relpos
    >>> relpos.conv_encoding(np.ones((5, 1)), [[1.0, 1.0, 1.0]])[:, 0]
    array([3., 4., 4., 4., 3.])
    >>> relpos.conv_encoding(np.ones((5, 1)), [[1.0, 1.0, 1.0]], is_causal=True)[:, 0]
    array([2., 3., 4., 4., 4.])
    >>> relpos.conv_encoding(np.ones((6, 1)), np.ones((1, 3, 3)), grid=(2, 3))[:, 0]
    array([5., 7., 5., 5., 7., 5.])
    """
    call = _Call(x, weight, bias, mask=mask, grid=grid, is_causal=is_causal)
    y = kernels().conv_encoding(
        call.cells, call.taps, call.bias, call.mask, *call.pads, dtype=call.dtype
    )
    dtype = common_dtype(*call.inputs.values())
    return rounded(y.reshape(call.inputs["x"].shape), dtype)


@twin(conv_encoding)
@quiet
def conv_encoding_backward(
    grad_out: ArrayLike,
    x: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    *,
    mask: ArrayLike | None = None,
    grid: tuple[int, ...] | None = None,
    is_causal: bool = False,
) -> ConvGradients:
    r"""Gradients of `conv_encoding`.

    On one axis, with p = k // 2 taps before the own one (k - 1 if causal) and n over
    the tokens that are no padding,

    .. math::

        dx_n = g_n + \sum_t w_t \odot g_{n - t + p}, \quad
        dw_t = \sum_n g_n \odot x_{n + t - p}, \quad db = \sum_n g_n

    Parameters
    ----------
    grad_out : array_like, (..., L, E)
        Gradient of what `conv_encoding` returned.
    x, weight, bias, mask, grid, is_causal : as in `conv_encoding`
        What the forward was given.

    Returns
    -------
    ConvGradients
        Named tuple ``(x, weight, bias)``, each of its input's shape and dtype; bias is
        None where there was none. Neither depends on the number of threads.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> x, weight = np.array([[1.0], [2.0], [4.0]]), np.array([[0.5, 1.0, 0.0]])
    >>> gradients = relpos.conv_encoding_backward(np.ones((3, 1)), x, weight)
    >>> gradients.weight  # sums of the tokens that each tap met
    array([[3., 7., 6.]])
    >>> gradients.x[:, 0], gradients.bias
    (array([2.5, 2.5, 2. ]), None)
    """
    call = _Call(x, weight, bias, mask=mask, grid=grid, is_causal=is_causal)
    grad = as_floating("grad_out", grad_out)
    check_match("grad_out", grad, "x", call.inputs["x"].shape)
    grad = rounded(grad, call.dtype).reshape(call.cells.shape)
    sizes = call.taps.shape[:2]
    # The gradient of x is a convolution by the reversed kernel: the taps that followed
    # that of the token itself now come before it.
    pads = tuple(size - 1 - pad for size, pad in zip(sizes, call.pads, strict=True))
    flipped, none = call.taps[::-1, ::-1], np.zeros_like(call.bias)
    dx = kernels().conv_encoding(
        grad, flipped, none, call.mask, *pads, dtype=call.dtype
    )
    # The kernel writes the gradients of each batch item. They are summed here, in
    # float64, so that the number of threads does not change the sums.
    batch = grad.shape[:-3]
    of_taps = np.empty((*batch, *call.taps.shape), call.dtype)
    of_bias = np.empty((*batch, *call.bias.shape), call.dtype)
    kernels().conv_encoding_backward(
        grad,
        call.cells,
        call.mask,
        *call.pads,
        out=(of_taps, of_bias),
        dtype=call.dtype,
    )
    axes = tuple(range(len(batch)))
    dw = np.moveaxis(of_taps.sum(axis=axes, dtype=np.float64), -1, 0)
    db = of_bias.sum(axis=axes, dtype=np.float64)
    tokens, taps = call.inputs["x"], call.inputs["weight"]
    return ConvGradients(
        like(dx, tokens).reshape(tokens.shape),
        like(dw, taps).reshape(taps.shape),
        like(db, call.inputs["bias"]) if "bias" in call.inputs else None,
    )


def _grid(grid: object, length: int) -> tuple[int, ...]:
    if grid is None:
        return (length,)
    if not isinstance(grid, tuple | list):
        raise TypeError(f"grid: got {kind_of(grid)}; expected (rows, columns)")
    if len(grid) not in (1, 2):
        raise ValueError(f"grid: got {len(grid)} sizes; expected (rows, columns)")
    sizes = tuple(as_int("grid", size, 0, POSITION_LIMIT) for size in grid)
    if math.prod(sizes) != length:
        raise ValueError(
            f"grid: got {sizes}, which multiplies to {math.prod(sizes)}; expected x's "
            f"length {length}"
        )
    return sizes


def _kernel_shape(weight: Array, axes: int, channels: int) -> tuple[int, ...]:
    """Return the taps per axis of the grid, without PyTorch's axis of length 1."""
    shape = weight.shape
    if len(shape) == axes + 2 and shape[1] == 1:
        shape = (shape[0], *shape[2:])
    taps = "k" if axes == 1 else "i, j"
    expected = (
        f"({channels}, {taps}), one kernel for each channel of x over a grid of "
        f"{amount(axes, 'axis')}"
    )
    fits = len(shape) == axes + 1 and shape[0] == channels
    check_shape("weight", weight, fits, expected)
    check_shape("weight", weight, 0 not in shape[1:], "at least 1 tap")
    return shape[1:]


def _mask(
    mask: ArrayLike | None,
    tokens: tuple[int, ...],
    sizes: tuple[int, ...],
    dtype: np.dtype[Any],
) -> Array:
    if mask is None:
        return np.broadcast_to(np.ones((), dtype), sizes)
    array = as_array("mask", mask)
    if array.dtype.kind != "b":
        raise wrong_dtype("mask", array, "bool (True = a token)")
    try:
        spread = np.broadcast_to(native(array, dtype), tokens)
    except ValueError:
        raise ValueError(
            f"mask: shape {array.shape} does not broadcast to {tokens}, that of x's "
            "tokens"
        ) from None
    return spread.reshape(*tokens[:-1], *sizes)
