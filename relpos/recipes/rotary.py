"""Rotary encodings with parameters that are learned: PoPE and RoPE-ViT."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple, overload

import numpy as np

from relpos._checks import (
    Array,
    as_choice,
    as_floating,
    at_least_ndim,
    check_memory,
    native,
    quiet,
)
from relpos._encodings.absolute import as_positions
from relpos._encodings.rotary import apply_rotary, apply_rotary_backward
from relpos.recipes._recipe import Keywords, Recipe, like

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


class _Polar(NamedTuple):
    """Each number of x as a vector of its own, before its position rotates it."""

    x: Array  # as given
    bias: Array | None  # as given
    size: Array  # softplus(x), of the computation's dtype
    cosine: Array  # of the bias, (H, 1, D) or (D,)
    sine: Array

    @property
    def vectors(self) -> Array:
        """The vectors, (..., L, 2D): the first components, then the second ones."""
        return np.concatenate([self.size * self.cosine, self.size * self.sine], axis=-1)

    def backward(
        self, positions: ArrayLike | None, options: Keywords, grads: dict[str, Array]
    ) -> dict[str, Array]:
        """Return the gradients of x, and of the bias and the frequencies if given."""
        (grad,) = grads.values()
        grad = grad.astype(self.size.dtype)
        rotated = apply_rotary_backward(grad, self.vectors, positions, **options)
        first, second = np.split(rotated.x, 2, axis=-1)
        along = first * self.cosine + second * self.sine
        found = {"x": like(along / (1 + np.exp(-native(self.x, grad.dtype))), self.x)}
        if self.bias is not None:
            across = self.size * (second * self.cosine - first * self.sine)
            heads = (-3,) if self.bias.ndim > 1 else ()
            axes = {*range(-across.ndim, 0)} - {-1, *heads}
            total = across.sum(axis=tuple(axes), dtype=np.float64)
            found["bias"] = like(total, self.bias)
        if rotated.inv_freq is not None:
            found["inv_freq"] = rotated.inv_freq
        return found


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


@overload
def pope(
    x: ArrayLike,
    positions: ArrayLike | None = None,
    *,
    bias: ArrayLike | None = None,
    inv_freq: ArrayLike | None = None,
    base: float = 10000.0,
    offset: float = 0,
    argument: None = None,
) -> Array: ...
@overload
def pope(
    x: ArrayLike,
    positions: ArrayLike | None = None,
    *,
    bias: ArrayLike | None = None,
    inv_freq: ArrayLike | None = None,
    base: float = 10000.0,
    offset: float = 0,
    argument: str,
) -> Recipe: ...
@quiet
def pope(
    x: ArrayLike,
    positions: ArrayLike | None = None,
    *,
    bias: ArrayLike | None = None,
    inv_freq: ArrayLike | None = None,
    base: float = 10000.0,
    offset: float = 0,
    argument: str | None = None,
) -> Array | Recipe:
    r"""PoPE, a polar encoding of queries or keys: size for what, angle for where.

    .. math::

        y_{n,c} = softplus(x_{n,c}) \cos(n \omega_c + b_c), \quad
        y_{n,D+c} = softplus(x_{n,c}) \sin(n \omega_c + b_c), \quad
        \omega_c = base^{-c/D}

    Scores of queries and keys so encoded are sums over D columns of both sizes times
    the cosine of :math:`(j - i) \omega_c + b_c`. Attention is the plain one, over 2D
    columns, with the scale of D:

    ``attention(pope(q), pope(k, bias=b), v, scale=D**-0.5)``

    Backward, with g and h the gradients of columns c and D + c, θ their angle and
    :math:`\sigma` the logistic function,

    .. math::

        \bar x = \sigma(x) (g \cos\theta + h \sin\theta), \quad
        \bar b_c = \sum_n softplus(x) (h \cos\theta - g \sin\theta)

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
    argument : {"query", "key"}, optional
        Argument of `attention` that a recipe is wanted for, with the gradients of x,
        and of `bias` and `inv_freq` where they are given.

    Returns
    -------
    ndarray, (..., L, 2D), of x's dtype, or Recipe
        Queries or keys of `relpos.attention`; with `argument`, a recipe of them.

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
    >>> relpos.attention(recipes.pope(q), recipes.pope(k), v, scale=4**-0.5).shape
    (2, 5, 4)
    >>> query = recipes.pope(q, argument="query")
    >>> key = recipes.pope(k, bias=np.zeros((2, 4)), argument="key")
    >>> encoded = {**query, **key, "value": v, "scale": 4**-0.5}
    >>> result = relpos.attention(**encoded, return_context=True)
    >>> gradients = result.context.backward(np.ones_like(result.out))
    >>> {name: x.shape for name, x in key.backward(gradients).items()}
    {'x': (2, 5, 4), 'bias': (2, 4)}
    """
    polar = _as_polar(x, bias)
    options: Keywords = {"inv_freq": inv_freq, "base": base, "offset": offset}
    rotated = polar.vectors
    apply_rotary(rotated, positions, **options, out=rotated)
    rotated = like(rotated, polar.x)
    if argument is None:
        return rotated
    name = as_choice("argument", argument, ("query", "key"))
    return Recipe({name: rotated}, partial(polar.backward, positions, options))


@quiet
def rope_vit(freqs: ArrayLike, coordinates: ArrayLike) -> Recipe:
    r"""RoPE-ViT's mixed encoding: learned frequencies for each axis, head and pair.

    .. math:: \theta_{h,n,c} = \sum_a x_{n,a} \, \omega_{a,h,c}, \quad
        \bar\omega_{a,h,c} = \sum_{..., n} x_{n,a} \, \bar\theta_{h,n,c}

    so that a pair can rotate along a diagonal. Queries and keys are both rotated:

    ``apply_rotary(q, **rope_vit(freqs, coordinates))``

    Its gradient is ``recipe.backward({"angles": g})["freqs"]``, with g the sum of the
    gradients that `relpos.apply_rotary_backward` returns for the queries and the keys.

    Parameters
    ----------
    freqs : array_like of float, (A, H, D/2)
        ``freqs`` of the model, (2, depth, H D/2), for one of its layers: the first axis
        is x, the column.
    coordinates : array_like of int or float, (..., L, A)
        The position of each token on each axis.

    Returns
    -------
    Recipe
        `angles` (..., H, L, D/2) in float64, and `interleaved`, for
        `relpos.apply_rotary`. A class token in front is not rotated: its coordinates
        are 0.

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
    where = as_positions(coordinates, name="coordinates")
    at_least_ndim("coordinates", where, 2, "(..., L, A)")
    omega = as_floating("freqs", freqs)
    if omega.ndim != 3 or len(omega) != where.shape[-1]:
        raise ValueError(
            f"freqs: got shape {omega.shape}; expected (A, H, D/2), with the "
            f"A = {where.shape[-1]} of coordinates"
        )
    shape = *where.shape[:-2], omega.shape[1], where.shape[-2], omega.shape[2]
    check_memory("coordinates", shape, np.dtype(np.float64))
    angles = np.einsum("...la,ahc->...hlc", where, omega.astype(np.float64))
    keywords = {"angles": angles, "interleaved": True}
    return Recipe(keywords, partial(_rope_vit_backward, omega, where))


def _rope_vit_backward(
    omega: Array, where: Array, grads: dict[str, Array]
) -> dict[str, Array]:
    each = np.einsum("...la,...hlc->...ahc", where, grads["angles"])
    return {"freqs": like(each.sum(axis=tuple(range(each.ndim - 3))), omega)}
