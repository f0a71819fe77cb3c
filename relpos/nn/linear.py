"""The parts that layers are made of: products and normalisation."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._checks import Array, as_flag, check_bytes, quiet
from relpos.nn._inputs import DRAWN, as_input, as_not_negative, as_size, product
from relpos.nn.module import Module
from relpos.nn.parameter import Parameter

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from relpos.nn.module import Seed

__all__ = ["LayerNorm", "Linear"]


def _rows(x: Array) -> Array:
    """(..., E) -> (n, E) without a copy where that is possible."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


#: Rows that are summed in their own dtype before float64 takes over.
_RUN = 64


def _sum_rows(x: Array) -> Array:
    """Sum over all axes but the last: rows can be many thousands.

    In float64 but for runs of few rows, as NumPy casts at a third of the speed.
    """
    rows = _rows(x)
    whole = len(rows) // _RUN * _RUN
    runs = rows[:whole].reshape(-1, _RUN, rows.shape[1]).sum(axis=1)
    total: Array = runs.sum(axis=0, dtype=np.float64)
    total += rows[whole:].sum(axis=0, dtype=np.float64)
    return total.astype(x.dtype)


def _mean_product(x: Array, y: Array) -> Array:
    """Return the mean of x y over the last axis, which stays, without storing x y."""
    total: Array = np.einsum("...i,...i->...", x, y)[..., None]
    total /= x.shape[-1]
    return total


def _sum_outer(grad: Array, x: Array) -> Array:
    """Sum grad[n] x[n]^T over the rows n; those of a zero gradient add nothing.

    A token that is hidden everywhere has such a row. The product takes 0 * nan for nan:
    only where that shows in the sum are the rows selected.
    """
    total = product(grad.T, x)
    if not np.isfinite(total).all():
        live = np.where(grad.any(-1, keepdims=True), x, 0)
        total = product(grad.T, live)
    return total


def affine(x: Array, weight: Array, bias: Array | None) -> Array:
    """Map the last axis: x W^T + b."""
    y = product(_rows(x), weight.T)
    if bias is not None:
        y += bias
    return y.reshape(*x.shape[:-1], len(weight))


def affine_gradients(
    grad: Array, x: Array, weight: Array
) -> tuple[Array, Array, Array]:
    """Return the gradients of x, the weight and the bias of `affine`."""
    rows = _rows(grad)
    grad_x = product(rows, weight).reshape(x.shape)
    return grad_x, _sum_outer(rows, _rows(x)), _sum_rows(rows)


class Linear(Module):
    r"""Affine map of the last axis, as `torch.nn.Linear`.

    .. math:: y = x W^T + b

    `backward` adds the parameters' gradients and returns that of x.

    .. math::

        \bar W = \bar y^T x, \quad \bar b = \sum_n \bar y_n, \quad
        \bar x = \bar y W

    with one row n for each vector that was mapped. A row of zeros in `grad_out`
    adds nothing, even if x is nan there.

    Parameters
    ----------
    in_features, out_features : int
        Lengths of the last axis of x and of the result.
    bias : bool, default True
        Whether b is there.
    rng : int, numpy.random.Generator or None, optional
        Source of the initial values, uniform within 1 / sqrt(in_features).
    dtype : {float32, float64}
        Of the parameters and the results.

    Attributes
    ----------
    weight : Parameter, (out_features, in_features)
    bias : Parameter, (out_features,), or None

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        A size is below 1, or no memory can address the weight.

    See Also
    --------
    LayerNorm, Dropout, Embedding : Other parts of a model.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.Linear(3, 2, rng=0)
    >>> layer.load_state_dict({"weight": [[1, 2, 3], [0, 0, 1]], "bias": [0.5, 0]})
    LoadResult(missing_keys=[], unexpected_keys=[])
    >>> layer(np.ones((1, 3), np.float32))
    array([[6.5, 1. ]], dtype=float32)
    >>> layer.backward(np.array([[1.0, 10.0]], np.float32))
    array([[ 1.,  2., 13.]], dtype=float32)
    >>> layer.weight.grad
    array([[ 1.,  1.,  1.],
           [10., 10., 10.]], dtype=float32)
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        sizes = (
            as_size("out_features", out_features),
            as_size("in_features", in_features),
        )
        check_bytes("in_features", sizes, DRAWN)
        settings = {"in_features": sizes[1], "out_features": sizes[0]}
        self._set_up(rng, dtype, **settings, bias=as_flag("bias", bias))
        bound = 1 / math.sqrt(sizes[1])
        self.weight = Parameter(
            self._rng.uniform(-bound, bound, sizes).astype(self.dtype)
        )
        self.bias: Parameter | None = None
        if bias:
            start = self._rng.uniform(-bound, bound, sizes[0])
            self.bias = Parameter(start.astype(self.dtype))

    @quiet
    def __call__(self, x: ArrayLike) -> Array:
        """Map the last axis.

        Parameters
        ----------
        x : array_like, (..., in_features)
            The rows to map.

        Returns
        -------
        ndarray, (..., out_features)
            The rows mapped, in the layer's dtype.

        Raises
        ------
        TypeError
            `x` is not floating, or of a wider dtype than the layer.
        ValueError
            `x` has another number of features.

        See Also
        --------
        Linear.backward : The gradients.
        """
        weight = self.weight.data
        array = as_input("x", x, self.dtype, ("...", weight.shape[1]))
        bias = None if self.bias is None else self.bias.data
        return self._remember(affine(array, weight, bias), array)

    def _backward(self, grad: Array, x: Any) -> Array:
        grad_x, grad_weight, grad_bias = affine_gradients(grad, x, self.weight.data)
        self.weight.add_grad(grad_weight)
        if self.bias is not None:
            self.bias.add_grad(grad_bias)
        return grad_x


class LayerNorm(Module):
    r"""Normalisation of the last axis, as `torch.nn.LayerNorm`.

    .. math:: y = \frac{x - mean(x)}{\sqrt{var(x) + eps}} \, w + b

    `backward` adds the parameters' gradients and returns that of x.

    .. math::

        \bar w = \sum_n \bar y_n z_n, \quad \bar b = \sum_n \bar y_n, \quad
        \bar x = \frac{g - mean(g) - z \, mean(g z)}{\sqrt{var(x) + eps}}

    with z the normalised row and g = w times its gradient. A row of zeros in
    `grad_out` adds nothing, even if x is nan there.

    Parameters
    ----------
    normalized_shape : int
        Length of the last axis.
    eps : float, default 1e-5
        Added to the variance, at least 0.
    rng : optional
        Not used; every layer takes it.
    dtype : {float32, float64}

    Attributes
    ----------
    weight, bias : Parameter, (normalized_shape,)

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        `normalized_shape` is below 1, or `eps` below 0.

    See Also
    --------
    Linear, Dropout, Embedding : Other parts of a model.

    References
    ----------
    .. [1] Ba, Kiros, Hinton, "Layer Normalization", 2016, arXiv:1607.06450.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> nn.LayerNorm(2, dtype=np.float64)(np.array([[0.0, 10.0], [3.0, 5.0]])).round(3)
    array([[-1.,  1.],
           [-1.,  1.]])
    """

    def __init__(
        self,
        normalized_shape: int,
        eps: float = 1e-5,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        size = as_size("normalized_shape", normalized_shape)
        self.eps = as_not_negative("eps", eps)
        self._set_up(rng, dtype, normalized_shape=size, eps=self.eps)
        self.weight = Parameter(np.ones(size, self.dtype))
        self.bias = Parameter(np.zeros(size, self.dtype))

    @quiet
    def __call__(self, x: ArrayLike) -> Array:
        """Normalise each row.

        Parameters
        ----------
        x : array_like, (..., normalized_shape)
            The rows to normalise.

        Returns
        -------
        ndarray, shape of `x`
            The rows normalised, in the layer's dtype.

        Raises
        ------
        TypeError
            `x` is not floating, or of a wider dtype than the layer.
        ValueError
            The last axis of `x` has another length.

        See Also
        --------
        LayerNorm.backward : The gradients.
        """
        size = self.weight.data.size
        array = as_input("x", x, self.dtype, ("...", size))
        normed = array - array.mean(-1, keepdims=True)
        deviation = np.sqrt(_mean_product(normed, normed) + self.eps)
        normed /= deviation
        out = normed * self.weight.data
        out += self.bias.data
        return self._remember(out, normed, deviation)

    def _backward(self, grad: Array, normed: Any, deviation: Any) -> Array:
        if not ((deviation > 0) & (deviation < np.inf)).all():
            live = grad.any(-1, keepdims=True)  # to select by: 0 * nan would be nan
            normed, deviation = np.where(live, normed, 0), np.where(live, deviation, 1)
        self.weight.add_grad(_sum_rows(grad * normed))
        self.bias.add_grad(_sum_rows(grad))
        result: Array = grad * self.weight.data
        # what would move the mean, and what would move the variance, has no effect on y
        along = normed * _mean_product(result, normed)
        result -= result.mean(-1, keepdims=True)
        result -= along
        result /= deviation
        return result
