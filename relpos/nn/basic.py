"""Plain layers, as those of torch.nn, each with its gradient."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from relpos._checks import (
    Array,
    ArrayLike,
    DTypeLike,
    check_bytes,
    quiet,
)
from relpos._encodings.absolute import gather, int64_positions, learned_backward
from relpos._undo import keep
from relpos.nn._inputs import RANDOM, as_input, product
from relpos.nn.module import Module, Parameter, Seed

__all__ = [
    "GELU",
    "Dropout",
    "Embedding",
    "LayerNorm",
    "Linear",
    "ReLU",
]


class Plain(Module):
    """Base of the layers that map one array."""

    def __init__(self, *, rng: Seed = None, dtype: DTypeLike = np.float32) -> None:
        self._set_up(rng, dtype)

    @quiet
    def __call__(self, x: ArrayLike) -> Array:
        """Compute y of the layer's formula.

        Parameters
        ----------
        x : array_like
            The input, of the shape that the layer's docstring has.

        Returns
        -------
        ndarray
            The output y, in the layer's dtype.
        """
        array = as_input("x", x, self.dtype, *self._shape())
        return self._remember(*self._map(array))

    def _shape(self) -> tuple[int | str, ...]:
        """Return the shape of x, as `as_input` takes it."""
        return ("...",)

    def _map(self, x: Array) -> tuple[Any, ...]:
        """Return y, and what `_backward` needs with its gradient."""
        raise NotImplementedError


def _nothing(grad: Array) -> Array:
    """Return a gradient times 0, which is 0 even if it is infinite."""
    zeros: Array = np.copysign(grad.dtype.type(0), grad, out=np.empty_like(grad))
    return zeros


# ---- products and normalisation -----------------------------------------------------


def _rows(x: Array) -> Array:
    """(..., E) -> (n, E) without a copy where that is possible."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


#: Rows that are summed in their own dtype before float64, to which NumPy casts slowly.
_RUN = 64


def sum_rows(x: Array) -> Array:
    """Sum over all axes but the last, in float64 but for runs of few rows."""
    rows = _rows(x)
    in_runs = len(rows) // _RUN * _RUN
    runs = rows[:in_runs].reshape(-1, _RUN, rows.shape[1]).sum(axis=1)
    total: Array = runs.sum(axis=0, dtype=np.float64)
    total += rows[in_runs:].sum(axis=0, dtype=np.float64)
    return total.astype(x.dtype)


def _mean_product(x: Array, y: Array) -> Array:
    """Return the mean of x y over the last axis, which stays, without storing x y."""
    total: Array = np.einsum("...i,...i->...", x, y)[..., None]
    total /= x.shape[-1]
    return total


def affine(x: Array, weight: Array, bias: Array | None) -> Array:
    """Return x W^T + b."""
    y = product(_rows(x), weight.T)
    if bias is not None:
        y += bias
    return y.reshape(*x.shape[:-1], len(weight))


def affine_gradients(
    grad: Array, x: Array, weight: Array
) -> tuple[Array, Array, Array]:
    """Return the gradients of x, the weight and the bias of `affine`.

    A row of a zero gradient, as a hidden token has, adds nothing to the weight's.
    """
    rows, inputs = _rows(grad), _rows(x)
    grad_weight = product(rows.T, inputs)
    # A product makes nan of 0 * nan. Selecting the rows costs a copy of the inputs, so
    # that is done only if it shows in the sum.
    if not np.isfinite(grad_weight).all():
        live = np.where(rows.any(-1, keepdims=True), inputs, 0)
        grad_weight = product(rows.T, live)
    return product(rows, weight).reshape(x.shape), grad_weight, sum_rows(rows)


class Linear(Plain):
    r"""Affine map of the last axis, as `torch.nn.Linear`.

    .. math:: y = x W^T + b

    x is (..., in_features), y (..., out_features). `backward` returns the gradient of
    x. A row of `grad_out` that is zero adds nothing, also where x is nan.

    Parameters
    ----------
    in_features, out_features : int
        Lengths of the last axis of x and of y.
    bias : bool, default True
        Whether b is there.
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
        Initial values are uniform within 1 / sqrt(in_features).
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Attributes
    ----------
    weight : Parameter, (out_features, in_features)
    bias : Parameter, (out_features,), or None

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
        settings = self._set_up(
            rng, dtype, in_features=in_features, out_features=out_features, bias=bias
        )
        shape = settings.out_features, settings.in_features
        check_bytes("in_features", shape, RANDOM)
        bound = 1 / math.sqrt(settings.in_features)
        self.weight = self._start(self._rng.uniform(-bound, bound, shape))
        self.bias: Parameter | None = None
        if bias:
            self.bias = self._start(self._rng.uniform(-bound, bound, shape[0]))

    def _shape(self) -> tuple[int | str, ...]:
        return "...", self.weight.data.shape[1]

    def _map(self, x: Array) -> tuple[Any, ...]:
        bias = None if self.bias is None else self.bias.data
        return affine(x, self.weight.data, bias), x

    def _backward(self, grad: Array, x: Any) -> Array:
        grad_x, grad_weight, grad_bias = affine_gradients(grad, x, self.weight.data)
        self.weight.add_grad(grad_weight)
        if self.bias is not None:
            self.bias.add_grad(grad_bias)
        return grad_x


class LayerNorm(Plain):
    r"""Normalisation of the last axis, as `torch.nn.LayerNorm`.

    .. math:: y = \frac{x - mean(x)}{\sqrt{var(x) + eps}} \, w + b

    x and y are (..., normalized_shape). `backward` returns the gradient of x. A row of
    `grad_out` that is zero adds nothing, also where x is nan.

    Parameters
    ----------
    normalized_shape : int
        Length of the last axis.
    eps : float, default 1e-5
        Added to the variance, at least 0.
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Attributes
    ----------
    weight, bias : Parameter, (normalized_shape,)

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
        settings = self._set_up(rng, dtype, normalized_shape=normalized_shape, eps=eps)
        self.eps: float = settings.eps
        self.weight = Parameter(np.ones(settings.normalized_shape, self.dtype))
        self.bias = Parameter(np.zeros(settings.normalized_shape, self.dtype))

    def _shape(self) -> tuple[int | str, ...]:
        return "...", self.weight.data.size

    def _map(self, x: Array) -> tuple[Any, ...]:
        normed = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt(_mean_product(normed, normed) + self.eps)
        deviation[deviation == np.inf] = np.nan  # any number over inf is 0
        normed /= deviation
        out = normed * self.weight.data
        out += self.bias.data
        return out, normed, deviation

    def _backward(self, grad: Array, normed: Any, deviation: Any) -> Array:
        if not ((deviation > 0) & (deviation < np.inf)).all():
            # Rows without a gradient are hidden tokens: of them 0 * nan would be nan.
            live = grad.any(-1, keepdims=True)
            normed = np.where(live, normed, 0)
            deviation = np.where(live, deviation, 1)
        self.weight.add_grad(sum_rows(grad * normed))
        self.bias.add_grad(sum_rows(grad))
        result: Array = grad * self.weight.data
        # what would move the mean, and what would move the variance, has no effect on y
        along = normed * _mean_product(result, normed)
        result -= result.mean(-1, keepdims=True)
        result -= along
        result /= deviation
        return result


# ---- activation functions, dropout, vectors of tokens -------------------------------


class ReLU(Plain):
    r"""Rectified linear unit, as `torch.nn.ReLU`.

    .. math:: y = \max(x, 0)

    x is of any shape, which y has, too. `backward` returns the gradient of x, which is
    0 where x is at most 0.

    Parameters
    ----------
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> nn.ReLU()(np.array([-1.0, 2.0], np.float32))
    array([0., 2.], dtype=float32)
    """

    def _map(self, x: Array) -> tuple[Any, ...]:
        out = np.maximum(x, 0, out=np.empty_like(x))
        return out, out > 0

    def _backward(self, grad: Array, positive: Any) -> Any:
        return np.where(positive, grad, _nothing(grad))


class GELU(Plain):
    r"""Gaussian error linear unit, as ``torch.nn.GELU(approximate="tanh")``.

    .. math::

        y = \frac{x}{2} \left(1 +
            \tanh\!\left(\sqrt{2 / \pi} \, (x + 0.044715 \, x^3)\right)\right)

    x is of any shape, which y has, too. `backward` returns the gradient of x.

    Parameters
    ----------
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Notes
    -----
    The form of GPT-2 and T5 1.1. The paper's other one has the error function, from
    which this differs by at most 5e-4.

    References
    ----------
    .. [1] Hendrycks, Gimpel, "Gaussian Error Linear Units (GELUs)", 2016,
       arXiv:1606.08415.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> nn.GELU(dtype=np.float64)(np.array([-1.0, 0.0, 1.0])).round(3)
    array([-0.159,  0.   ,  0.841])
    """

    # Both formulas in place, one operation a line: x may be the largest array of a
    # model, and each temporary array would cost as much again.

    def _map(self, x: Array) -> tuple[Any, ...]:
        inner = np.multiply(x, x, out=np.empty_like(x))
        inner *= 0.044715
        inner += 1
        inner *= x
        inner *= math.sqrt(2 / math.pi)
        step = np.tanh(inner, out=inner)
        out = np.add(step, 1, out=np.empty_like(step))
        out *= x
        out *= 0.5
        return out, x, step

    def _backward(self, grad: Array, x: Any, step: Any) -> Array:
        slope: Array = np.multiply(x, x, out=np.empty_like(x))
        slope *= 3 * 0.044715
        slope += 1
        slope *= x
        slope *= math.sqrt(2 / math.pi)
        slope *= 1 - step * step
        slope += step
        slope += 1
        slope *= 0.5
        if not np.isfinite(slope).all():
            slope[grad == 0] = 0  # of a hidden token: 0 * nan would be nan
        slope *= grad
        return slope


class Dropout(Plain):
    r"""Zeros at random while training, as `torch.nn.Dropout`.

    .. math::

        y = \frac{x \, z}{1 - p} \;\text{ while training, each z 0 with probability p,
        else 1,} \quad y = x \;\text{ after } eval()

    x is of any shape, which y has, too. `backward` returns the gradient of x: zero
    where x was dropped. `Module.train` and `Module.eval` turn dropout on and off.

    Parameters
    ----------
    p : float, default 0.5
        Probability in [0, 1) that an entry becomes 0; the others grow by 1 / (1 - p).
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    References
    ----------
    .. [1] Hinton et al., "Improving Neural Networks by Preventing Co-adaptation of
       Feature Detectors", 2012, arXiv:1207.0580.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.Dropout(0.5, rng=0)
    >>> layer(np.ones(6, np.float32))
    array([2., 0., 0., 0., 2., 2.], dtype=float32)
    >>> layer.eval()(np.ones(6, np.float32))
    array([1., 1., 1., 1., 1., 1.], dtype=float32)
    """

    def __init__(
        self, p: float = 0.5, *, rng: Seed = None, dtype: DTypeLike = np.float32
    ) -> None:
        settings = self._set_up(rng, dtype, p=p)
        self.p: float = settings.p

    def _map(self, x: Array) -> tuple[Any, ...]:
        if not self.training or not self.p:
            return x.copy(), None
        keep(self._rng)  # it is as before if the call raises
        stays = self._rng.random(x.shape) >= self.p
        factor = stays * self.dtype.type(1 / (1 - self.p))
        return x * factor, factor

    def _backward(self, grad: Array, factor: Any) -> Any:
        if factor is None:
            return grad
        # Where x was dropped the gradient is 0, also if that of y is inf or nan.
        return np.multiply(grad, factor, out=_nothing(grad), where=factor != 0)


class Embedding(Module):
    r"""Vector for each number, as `torch.nn.Embedding`.

    .. math:: y_{..., :} = W_{indices_{...}, :}

    `backward` returns None, as numbers have no gradient.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        Rows of the weight, and the length of each.
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
        Initial values are standard normal.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Attributes
    ----------
    weight : Parameter, (num_embeddings, embedding_dim)

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.Embedding(3, 1)
    >>> _ = layer.load_state_dict({"weight": [[0.0], [1.0], [2.0]]})
    >>> layer([[2, 1], [1, 1]])[..., 0]
    array([[2., 1.],
           [1., 1.]], dtype=float32)
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        settings = self._set_up(
            rng, dtype, num_embeddings=num_embeddings, embedding_dim=embedding_dim
        )
        shape = settings.num_embeddings, settings.embedding_dim
        check_bytes("embedding_dim", shape, RANDOM)
        self.weight = self._start(self._rng.standard_normal(shape))

    @quiet
    def __call__(self, indices: ArrayLike) -> Array:
        """Look up rows of the weight.

        Parameters
        ----------
        indices : int or array_like of int, any shape S
            The int n stands for 0, 1, ..., n - 1.

        Returns
        -------
        ndarray, (*S, embedding_dim)
            A copy of the row of each number.

        Raises
        ------
        ValueError
            `indices` is a negative int.
        IndexError
            An index is outside 0 to num_embeddings - 1.
        """
        table = self.weight.data
        index = int64_positions(indices, len(table), "indices")
        return self._remember(gather(table, index, "indices"), index.copy())

    def _backward(self, grad: Array, index: Any) -> None:
        self.weight.add_grad(learned_backward(grad, index, len(self.weight.data)))
