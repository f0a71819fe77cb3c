"""Rotary encodings: pairs of columns turned by an angle that grows with the position.

    y_a = m (a cos θ - b sin θ),   y_b = m (b cos θ + a sin θ),   θ = position · ω

x is (..., L, D). Its first rotary_dim columns are rotary_dim / 2 pairs (a, b), each
with its frequency ω and, where there is one, its magnitude m; the rest is copied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from relpos._checks import (
    Array,
    as_floating,
    check_out,
    common_dtype,
    native,
    quiet,
    rounded,
)
from relpos._encodings.rotation import Rotation, as_rotation
from relpos._text import in_short

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


@in_short
class RotaryGradients(NamedTuple):
    """Gradients of `apply_rotary`'s inputs, each of its input's shape and dtype.

    Attributes
    ----------
    x : ndarray, (..., L, D)
    inv_freq : ndarray, (rotary_dim / 2,), or None
    angles : ndarray, or None
        These two are None where they were not given.

    See Also
    --------
    apply_rotary_backward : Returns it, and has the formulas.

    Examples
    --------
    >>> import relpos
    >>> x = [[1.0, 2.0]]
    >>> gradients = relpos.apply_rotary_backward(x, x, angles=[[0.0]])
    >>> gradients.angles, gradients.inv_freq
    (array([[0.]]), None)
    """

    x: Array
    inv_freq: Array | None
    angles: Array | None


def _same_memory(a: Array, b: object) -> bool:
    """Whether two arrays are one: the same items at the same places."""
    if not isinstance(b, np.ndarray):
        return False
    return a is b or (
        a.__array_interface__["data"] == b.__array_interface__["data"]
        and (a.shape, a.strides, a.dtype) == (b.shape, b.strides, b.dtype)
    )


def apply_rotary(
    x: ArrayLike,
    positions: ArrayLike | None = None,
    *,
    base: float = 10000.0,
    inv_freq: ArrayLike | None = None,
    angles: ArrayLike | None = None,
    magnitude: ArrayLike | None = None,
    interleaved: bool = False,
    rotary_dim: int | None = None,
    offset: float = 0,
    inverse: bool = False,
    out: Array | None = None,
) -> Array:
    r"""Rotary encoding: turn pairs of columns by angles that grow with the position.

    .. math::

        y_a = m (a \cos\theta - b \sin\theta), \quad
        y_b = m (b \cos\theta + a \sin\theta), \quad
        \theta_{n,c} = n \, \omega_c, \quad \omega_c = base^{-2c/rotary\_dim}

    Inner products of queries and keys that are both turned depend on the difference of
    their positions alone.

    Parameters
    ----------
    x : array_like of float, (..., L, D)
        Queries or keys.
    positions : array_like of int or float, optional
        Broadcasts to (..., L); negative and fractional ones are legal. Default
        0, 1, ..., L - 1.
    base : float, default 10000
        Wavelengths run from 2 pi to about 2 pi base positions.
    inv_freq : array_like of float, (rotary_dim / 2,), optional
        The frequencies in radians per position, instead of those of `base`:
        `rotary_frequencies`, or learned ones.
    angles : array_like of float, optional
        The angles in radians, instead of positions times frequencies; broadcasts to
        (..., L, rotary_dim / 2). For several axes: `axial_angles`, `mrope_angles`.
    magnitude : float or array_like of float, optional
        The m that multiplies rotated pairs; broadcasts to (..., L, rotary_dim / 2):
        `rotary_magnitude`, or `xpos_magnitude`.
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
    out : ndarray, x's shape, optional
        Where to put the result, of x's dtype; may be x itself, which then needs no
        further memory.

    Returns
    -------
    ndarray, x's shape and dtype
        The columns turned, and the rest as it was.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If a shape, `base` or `rotary_dim` is wrong, `angles` come with positions,
        frequencies or an offset, or `out` overlaps an input without being x.

    See Also
    --------
    rotary_frequencies : Frequencies of models for long sequences.
    rotary_from_config : What a model passes here.
    axial_angles, mrope_angles : Angles of tokens of images and videos.
    xpos_magnitude : The magnitudes of xPos.
    apply_rotary_backward : Gradients of x, learned frequencies and angles.
    sinusoidal : An encoding that is added instead.

    Notes
    -----
    Angles have 106 bits and all arithmetic 53, whatever the dtype: to position 2**24
    float32 results are within 1 ulp of the exact rotation. Sines and cosines are
    computed once for all heads and batch items that share their positions; none are
    kept from one call to the next.

    References
    ----------
    .. [1] Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding",
       2021, arXiv:2104.09864.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> x = np.array([[1.0, 0.0], [1.0, 0.0]])
    >>> relpos.apply_rotary(x).round(4)
    array([[1.    , 0.    ],
           [0.5403, 0.8415]])
    >>> relpos.apply_rotary(x, offset=1, inverse=True).round(4)
    array([[ 0.5403, -0.8415],
           [-0.4161, -0.9093]])

    Cells of a 2 x 3 grid, half of the pairs turned by the row and half by the column:

    >>> cells = np.argwhere(np.ones((2, 3)))
    >>> angles = relpos.axial_angles(cells, relpos.rotary_frequencies(4))
    >>> relpos.apply_rotary(np.ones((6, 8)), angles=angles).shape
    (6, 8)
    """
    rotation = as_rotation(
        x,
        positions,
        base=base,
        inv_freq=inv_freq,
        angles=angles,
        magnitude=magnitude,
        interleaved=interleaved,
        rotary_dim=rotary_dim,
        offset=offset,
        inverse=inverse,
    )
    given = rotation.x
    wanted = given.dtype.newbyteorder("=")
    if out is None:
        result = np.empty(given.shape, wanted)
    else:
        inputs = {} if _same_memory(given, out) else {"x": given}
        result = check_out(out, given.shape, wanted, inputs | rotation.given)
    source = native(given, rotation.dtype)
    if result.dtype == rotation.dtype and result.flags.aligned:
        rotation.run(source, result, inverse=rotation.inverse)
    else:
        target = np.empty(given.shape, rotation.dtype)
        rotation.run(source, target, inverse=rotation.inverse)
        with np.errstate(all="ignore"):  # as in `rounded`
            result[...] = target
    return result


def _pairs(rotation: Rotation, array: Array) -> tuple[Array, Array]:
    """The columns a and b of the pairs of `array`."""
    count = rotation.high.shape[-1]
    if rotation.interleaved:
        return array[..., 0 : 2 * count : 2], array[..., 1 : 2 * count : 2]
    return array[..., :count], array[..., count : 2 * count]


def _sum_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Sum over the axes along which `shape` was broadcast to that of `array`."""
    own = (1,) * (array.ndim - len(shape)) + shape
    repeated = tuple(axis for axis, size in enumerate(own) if size != array.shape[axis])
    total: Array = array.sum(axis=repeated, keepdims=True)
    return total.reshape(shape)


@quiet
def apply_rotary_backward(
    grad_out: ArrayLike,
    x: ArrayLike,
    positions: ArrayLike | None = None,
    *,
    base: float = 10000.0,
    inv_freq: ArrayLike | None = None,
    angles: ArrayLike | None = None,
    magnitude: ArrayLike | None = None,
    interleaved: bool = False,
    rotary_dim: int | None = None,
    offset: float = 0,
    inverse: bool = False,
) -> RotaryGradients:
    r"""Gradients of `apply_rotary`: of x, and of learned frequencies or angles.

    .. math::

        g_x = R^\top g, \quad g_\theta = g_b \, y_a - g_a \, y_b, \quad
        g_{\omega_c} = \sum_{..., n} n \, g_{\theta_{n,c}}

    where R is the rotation, times the magnitude, and y what `apply_rotary` returned.

    Parameters
    ----------
    grad_out : array_like of float, (..., L, D)
        Gradient of what `apply_rotary` returned.
    x, positions, base, inv_freq, angles, magnitude : as in `apply_rotary`
        What the forward was given.
    interleaved, rotary_dim, offset, inverse : as in `apply_rotary`
        What the forward was given.

    Returns
    -------
    RotaryGradients
        `x`; `inv_freq` and `angles` where they were given, None otherwise, summed over
        everything that shares them. Each has the shape and dtype of its argument.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        As `apply_rotary`, and if `grad_out` has not x's shape.

    See Also
    --------
    apply_rotary : The forward; turned back it is the gradient of x alone.
    rotary_frequencies : Frequencies to start learning from.

    References
    ----------
    .. [1] Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding",
       2021, arXiv:2104.09864.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> x, grad_out = np.array([[1.0, 2.0]]), np.array([[1.0, 0.0]])
    >>> grads = relpos.apply_rotary_backward(grad_out, x, [3.0], inv_freq=[0.5])
    >>> grads.x.round(4), grads.inv_freq.round(4), grads.angles
    (array([[ 0.0707, -0.9975]]), array([-3.4169]), None)
    """
    rotation = as_rotation(
        x,
        positions,
        base=base,
        inv_freq=inv_freq,
        angles=angles,
        magnitude=magnitude,
        interleaved=interleaved,
        rotary_dim=rotary_dim,
        offset=offset,
        inverse=inverse,
    )
    grad = as_floating("grad_out", grad_out)
    if grad.shape != rotation.x.shape:
        raise ValueError(
            f"grad_out: shape {grad.shape} does not match x's; expected "
            f"{rotation.x.shape}"
        )
    grad = native(grad, common_dtype(grad.dtype, rotation.dtype))
    grad_x = np.empty(grad.shape, grad.dtype)
    rotation.run(grad, grad_x, inverse=not rotation.inverse)
    wrt = _angle_gradients(rotation, grad)
    return RotaryGradients(
        rounded(grad_x, rotation.x.dtype.newbyteorder("=")),
        wrt.get("inv_freq"),
        wrt.get("angles"),
    )


def _angle_gradients(rotation: Rotation, grad: Array) -> dict[str, Array]:
    """Gradients of frequencies or angles, whichever was given, by name."""
    given = {n: a for n, a in rotation.given.items() if n in ("inv_freq", "angles")}
    if not given:
        return {}
    turned = np.empty(rotation.x.shape, rotation.dtype)
    source = native(rotation.x, rotation.dtype)
    rotation.run(source, turned, inverse=rotation.inverse)
    (y_a, y_b), (g_a, g_b) = _pairs(rotation, turned), _pairs(rotation, grad)
    grad_angles = np.multiply(g_b, y_a, dtype=np.float64)
    grad_angles -= np.multiply(g_a, y_b, dtype=np.float64)
    if rotation.inverse:
        np.negative(grad_angles, out=grad_angles)
    if "inv_freq" in given:
        grad_angles *= rotation.positions[..., np.newaxis]
    return {
        name: rounded(_sum_to(grad_angles, array.shape), array.dtype.newbyteorder("="))
        for name, array in given.items()
    }
