"""Rotary encodings with parameters that are learned: PoPE and RoPE-ViT."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from relpos._checks import (
    Array,
    as_floating,
    at_least_ndim,
    check_memory,
    native,
    quiet,
    rounded,
)
from relpos._encodings.absolute import as_positions
from relpos._encodings.rotary import apply_rotary, apply_rotary_backward
from relpos._text import in_short
from relpos.recipes._tables import Keywords

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["PopeGradients", "pope", "pope_backward", "rope_vit", "rope_vit_backward"]


@in_short
class PopeGradients(NamedTuple):
    """Gradients of the floating arguments of `pope`.

    Attributes
    ----------
    x : ndarray, (..., L, D)
    bias : ndarray, (D,) or (H, D), or None
    inv_freq : ndarray, (D,), or None
        These two are None where they were not given.

    See Also
    --------
    pope_backward : Returns it.
    """

    x: Array
    bias: Array | None
    inv_freq: Array | None


class _Polar(NamedTuple):
    """Each number of x as a vector of its own, before it is turned by its position."""

    x: Array  # as given
    bias: Array | None  # as given
    size: Array  # softplus(x), of the computation's dtype
    cosine: Array  # of the bias, (H, 1, D) or (D,)
    sine: Array

    @property
    def vectors(self) -> Array:
        """(..., L, 2D): the first components, then the second ones."""
        return np.concatenate([self.size * self.cosine, self.size * self.sine], axis=-1)


def _as_polar(x: ArrayLike, bias: ArrayLike | None) -> _Polar:
    rows = as_floating("x", x)
    at_least_ndim("x", rows, 2, "(..., L, D)")
    computed = np.result_type(rows.dtype, np.float32)
    check_memory("x", (*rows.shape[:-1], 2 * rows.shape[-1]), computed)
    size = np.logaddexp(0, native(rows, computed))
    if bias is None:
        return _Polar(rows, None, size, *np.array([1.0, 0.0], computed))
    given = as_floating("bias", bias)
    wanted = rows.shape[-1:], (*rows.shape[-3:-2], rows.shape[-1])
    if given.shape not in wanted:
        raise ValueError(
            f"bias: got shape {given.shape}; expected (D,) or (H, D), for x "
            f"{' or '.join(str(shape) for shape in dict.fromkeys(wanted))}"
        )
    angles = given.astype(np.float64)
    if angles.ndim > 1:
        angles = angles[:, np.newaxis]
    parts = np.cos(angles).astype(computed), np.sin(angles).astype(computed)
    return _Polar(rows, given, size, *parts)


@quiet
def pope(
    x: ArrayLike,
    positions: ArrayLike | None = None,
    *,
    bias: ArrayLike | None = None,
    inv_freq: ArrayLike | None = None,
    base: float = 10000.0,
    offset: float = 0,
) -> Array:
    r"""PoPE, a polar encoding of queries or keys: what is size, where is angle.

    .. math::

        y_{n,c} = softplus(x_{n,c}) \cos(n \omega_c + b_c), \quad
        y_{n,D+c} = softplus(x_{n,c}) \sin(n \omega_c + b_c), \quad
        \omega_c = base^{-c/D}

    Scores of queries and keys so encoded are sums over D columns of both sizes times
    the cosine of :math:`(j - i) \omega_c + b_c`. Attention is the plain one, over 2D
    columns, with the scale of D:

    ``attention(pope(q), pope(k, bias=b), v, scale=D**-0.5)``

    Parameters
    ----------
    x : array_like of float, (..., L, D)
        Queries or keys.
    positions : array_like of int or float, optional
        As in `relpos.apply_rotary`, default 0, 1, ..., L - 1.
    bias : array_like of float, (D,) or (H, D), optional
        The learned angles of the keys, δ in the paper, which holds them to [-2π, 0].
        Default 0, as queries have it.
    inv_freq : array_like of float, (D,), optional
        The frequencies, instead of those of `base`: one for each column.
    base : float, default 10000
        Of the frequencies.
    offset : float, default 0
        Added to the positions.

    Returns
    -------
    ndarray, (..., L, 2D), of x's dtype
        Queries or keys of `relpos.attention`.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        As `relpos.apply_rotary`, and for a `bias` of another shape.

    See Also
    --------
    pope_backward : Its gradients.
    relpos.apply_rotary : RoPE, which turns pairs of columns.
    rope_vit : Learned frequencies.

    References
    ----------
    .. [1] Gopalakrishnan et al., "Decoupling the 'What' and 'Where' With Polar
       Coordinate Positional Embeddings", 2025, arXiv:2509.10534.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from relpos import recipes
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 2, 5, 4))
    >>> bias = np.zeros((2, 4))
    >>> turned = recipes.pope(q), recipes.pope(k, bias=bias)
    >>> turned[0].shape, relpos.attention(*turned, v, scale=4**-0.5).shape
    ((2, 5, 8), (2, 5, 4))
    """
    polar = _as_polar(x, bias)
    options: Keywords = {"inv_freq": inv_freq, "base": base, "offset": offset}
    turned = polar.vectors
    apply_rotary(turned, positions, **options, out=turned)
    return rounded(turned, polar.x.dtype.newbyteorder("="))


@quiet
def pope_backward(
    grad_out: ArrayLike,
    x: ArrayLike,
    positions: ArrayLike | None = None,
    *,
    bias: ArrayLike | None = None,
    inv_freq: ArrayLike | None = None,
    base: float = 10000.0,
    offset: float = 0,
) -> PopeGradients:
    r"""Gradients of `pope`: of x, and of learned biases and frequencies.

    .. math::

        g_x = s(x) (g_a \cos\theta + g_b \sin\theta), \quad
        g_{b_c} = \sum_n softplus(x) (g_b \cos\theta - g_a \sin\theta)

    where a and b are columns c and D + c, θ their angle and s the logistic function.

    Parameters
    ----------
    grad_out : array_like of float, (..., L, 2D)
        Gradient of what `pope` returned.
    x, positions, bias, inv_freq, base, offset : as in `pope`
        What the forward was given.

    Returns
    -------
    PopeGradients
        `x`; `bias` and `inv_freq` where they were given, None otherwise. Each has the
        shape and dtype of its argument.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        As `pope`, and if `grad_out` has not the shape of its result.

    See Also
    --------
    pope : The forward.
    relpos.apply_rotary_backward : The gradients of RoPE.

    References
    ----------
    .. [1] Gopalakrishnan et al., "Decoupling the 'What' and 'Where' With Polar
       Coordinate Positional Embeddings", 2025, arXiv:2509.10534.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> recipes.pope_backward(np.ones((3, 8)), np.zeros((3, 4)), bias=np.zeros(4))
    PopeGradients(x=float64 (3, 4), bias=float64 (4,), inv_freq=None)
    """
    polar = _as_polar(x, bias)
    grad = as_floating("grad_out", grad_out)
    wanted = (*polar.x.shape[:-1], 2 * polar.x.shape[-1])
    if grad.shape != wanted:
        raise ValueError(
            f"grad_out: shape {grad.shape} does not match pope's result; expected "
            f"{wanted}"
        )
    options: Keywords = {"inv_freq": inv_freq, "base": base, "offset": offset}
    turned = apply_rotary_backward(grad, polar.vectors, positions, **options)
    first, second = np.split(turned.x, 2, axis=-1)
    along = first * polar.cosine + second * polar.sine
    grad_x = along / (1 + np.exp(-native(polar.x, polar.size.dtype)))
    grad_bias = None
    if polar.bias is not None:
        across = polar.size * (second * polar.cosine - first * polar.sine)
        heads = (-3,) if polar.bias.ndim > 1 else ()
        axes = {*range(-across.ndim, 0)} - {-1, *heads}
        total = across.sum(axis=tuple(axes), dtype=np.float64)
        grad_bias = rounded(total, polar.bias.dtype.newbyteorder("="))
    grad_x = rounded(grad_x, polar.x.dtype.newbyteorder("="))
    return PopeGradients(grad_x, grad_bias, turned.inv_freq)


def _as_coordinates(coordinates: ArrayLike) -> Array:
    where = as_positions(coordinates, name="coordinates")
    at_least_ndim("coordinates", where, 2, "(..., L, A)")
    return where


@quiet
def rope_vit(freqs: ArrayLike, coordinates: ArrayLike) -> Keywords:
    r"""RoPE-ViT's mixed encoding: learned frequencies for each axis, head and pair.

    .. math:: \theta_{h,n,c} = \sum_a x_{n,a} \, \omega_{a,h,c}

    so that a pair can turn along a diagonal. Queries and keys are both turned:

    ``apply_rotary(q, **rope_vit(freqs, coordinates))``

    Parameters
    ----------
    freqs : array_like of float, (A, H, D/2)
        ``freqs`` of the model, (2, depth, H D/2), for one of its layers: the first axis
        is x, the column.
    coordinates : array_like of int or float, (..., L, A)
        Where each token stands on each axis.

    Returns
    -------
    dict
        `angles` (..., H, L, D/2) in float64, and `interleaved`, for
        `relpos.apply_rotary`. A class token in front is not turned: its coordinates
        are 0.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If `freqs` has not three axes, or not as many rows as `coordinates` has columns.

    See Also
    --------
    rope_vit_backward : From the gradients of the angles to that of the frequencies.
    relpos.axial_angles : Frequencies that are not learned, an axis for each pair.
    relpos.apply_rotary_backward : The gradients of the angles.

    References
    ----------
    .. [1] Heo et al., "Rotary Position Embedding for Vision Transformer", 2024,
       arXiv:2403.13298, section 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from relpos import recipes
    >>> freqs = np.random.default_rng(0).standard_normal((2, 3, 4))
    >>> cells = np.argwhere(np.ones((2, 5)))[:, ::-1]  # column, then row
    >>> keywords = recipes.rope_vit(freqs, cells)
    >>> relpos.apply_rotary(np.ones((3, 10, 8)), **keywords).shape
    (3, 10, 8)
    """
    where = _as_coordinates(coordinates)
    omega = as_floating("freqs", freqs)
    if omega.ndim != 3 or len(omega) != where.shape[-1]:
        raise ValueError(
            f"freqs: got shape {omega.shape}; expected (A, H, D/2), with the "
            f"A = {where.shape[-1]} of coordinates"
        )
    shape = *where.shape[:-2], omega.shape[1], where.shape[-2], omega.shape[2]
    check_memory("coordinates", shape, np.dtype(np.float64))
    angles = np.einsum("...la,ahc->...hlc", where, omega.astype(np.float64))
    return {"angles": angles, "interleaved": True}


@quiet
def rope_vit_backward(grad_angles: ArrayLike, coordinates: ArrayLike) -> Array:
    r"""Gradient of the frequencies of `rope_vit`.

    .. math:: g_{\omega_{a,h,c}} = \sum_{..., n} x_{n,a} \, g_{\theta_{h,n,c}}

    Parameters
    ----------
    grad_angles : array_like of float, (..., H, L, D/2)
        Gradient of `angles`: the sum of those that `relpos.apply_rotary_backward` gives
        for the queries and for the keys.
    coordinates : array_like of int or float, (..., L, A)
        What the forward was given.

    Returns
    -------
    ndarray, (A, H, D/2), of `grad_angles`'s dtype
        Summed over everything that shares the frequencies.

    Raises
    ------
    TypeError
        If an argument is of the wrong kind.
    ValueError
        If the shapes do not fit each other.

    See Also
    --------
    rope_vit : The forward.
    relpos.apply_rotary_backward : The gradients of the angles.

    References
    ----------
    .. [1] Heo et al., "Rotary Position Embedding for Vision Transformer", 2024,
       arXiv:2403.13298, section 3.2.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import recipes
    >>> cells = np.argwhere(np.ones((2, 5)))[:, ::-1]
    >>> recipes.rope_vit_backward(np.ones((3, 10, 4)), cells).shape
    (2, 3, 4)
    """
    where = _as_coordinates(coordinates)
    grad = as_floating("grad_angles", grad_angles)
    wanted = (*where.shape[:-2], *grad.shape[-3:-2], where.shape[-2], *grad.shape[-1:])
    if grad.ndim < 3 or grad.shape != wanted:
        raise ValueError(
            f"grad_angles: got shape {grad.shape} with coordinates {where.shape}; "
            "expected (..., H, L, D/2) with their axes"
        )
    each = np.einsum("...la,...hlc->...ahc", where, grad.astype(np.float64))
    total = each.sum(axis=tuple(range(each.ndim - 3)))
    return rounded(total, grad.dtype.newbyteorder("="))
