"""Attention biases computed from the distance by a small network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._checks import Array, as_flag
from relpos.nn._inputs import as_size
from relpos.nn.linear import Linear
from relpos.nn.position import DistanceBias

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from relpos.nn.module import Seed

__all__ = ["DynamicPositionBias"]


class DynamicPositionBias(DistanceBias):
    r"""One attention bias per head and relative position, from a small network.

    .. math::

        b_{h, r} = MLP(d)_h, \quad d = -r \;\text{ or }\; sign(-r) \log(|r| + 1)

    r is key minus query as everywhere; inside, the network is given query minus key.
    It has `depth` hidden layers of `dim` with x sigmoid(x) after each, then `heads`
    outputs.

    `backward` adds the parameters' gradients; distances have none.

    Through each hidden layer, with z what its matrix gave and
    :math:`\sigma(z) = 1 / (1 + e^{-z})`,

    .. math:: \bar z = \bar y \; \sigma(z) (1 + z (1 - \sigma(z)))

    Parameters
    ----------
    dim, heads, depth : int
        Width of the hidden layers, outputs, and number of hidden layers.
    log_distance : bool, default False
        Whether the logarithm of the distance goes in.
    rng : int, numpy.random.Generator or None, optional
        Source of the initial values.
    dtype : {float32, float64}

    Attributes
    ----------
    mlp : list
        In `state_dict`: ``mlp.{i}.0`` for i < depth, then ``mlp.{depth}``.

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        A size is below 1.

    See Also
    --------
    relpos.attention : Takes the result as `rel_bias`.
    relpos.fire_bias : A network of the distance over the query's position.
    relpos.kerple_bias, relpos.alibi_bias : Biases of a formula instead of a network.

    References
    ----------
    .. [1] Liu et al., "Swin Transformer V2: Scaling Up Capacity and Resolution", 2021,
       arXiv:2111.09883, section 3.3 (log-spaced distances).

    Examples
    --------
    The result is a `rel_bias` for every pair of lengths up to `length`:

    >>> import numpy as np
    >>> import relpos
    >>> from relpos import nn
    >>> layer = nn.DynamicPositionBias(dim=8, heads=2, depth=2, rng=0)
    >>> bias = layer(5)
    >>> bias.shape
    (2, 9)
    >>> q, k, v = np.random.default_rng(1).standard_normal((3, 2, 5, 4), np.float32)
    >>> relpos.attention(q, k, v, rel_bias=bias).shape
    (2, 5, 4)
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        depth: int,
        log_distance: bool = False,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        width, outputs = as_size("dim", dim), as_size("heads", heads)
        self.depth = as_size("depth", depth)
        self.log_distance = as_flag("log_distance", log_distance)
        sizes = {"dim": width, "heads": outputs, "depth": self.depth}
        self._set_up(rng, dtype, **sizes, log_distance=self.log_distance)
        options: dict[str, Any] = {"rng": self._rng, "dtype": self.dtype}
        hidden = [
            [Linear(width if layer else 1, width, **options)]
            for layer in range(self.depth)
        ]
        self.mlp: list[Any] = [*hidden, Linear(width, outputs, **options)]

    def _bias(self, length: int) -> tuple[Any, ...]:
        distance = np.arange(length - 1, -length, -1).astype(self.dtype)
        if self.log_distance:
            distance = np.sign(distance) * np.log(np.abs(distance) + 1)
        x, slopes = distance[:, None], []
        for (layer,) in self.mlp[:-1]:
            z = layer(x)
            gate = _sigmoid(z)
            x = z * gate
            slopes.append(gate + x * (1 - gate))  # of z sigmoid(z)
        return np.ascontiguousarray(self.mlp[-1](x).T), slopes

    def _backward(self, grad: Array, slopes: Any) -> None:
        grad = self.mlp[-1].backward(grad.T)
        for (layer,), slope in zip(self.mlp[-2::-1], slopes[::-1], strict=True):
            grad = layer.backward(grad * slope)


def _sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), without overflow at either end."""
    small = np.exp(-np.abs(x))
    result: Array = np.where(x >= 0, 1, small) / (1 + small)
    return result
