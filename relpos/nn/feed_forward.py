"""The network between attentions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._checks import Array, as_choice, quiet
from relpos.nn._inputs import as_probability, as_size
from relpos.nn.activation import GELU, ReLU
from relpos.nn.dropout import Dropout
from relpos.nn.linear import Linear
from relpos.nn.module import Module

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from relpos.nn.module import Seed

__all__ = ["FeedForward"]

_ACTIVATIONS: dict[str, type[ReLU | GELU]] = {"relu": ReLU, "gelu": GELU}


class FeedForward(Module):
    r"""Two affine maps with a bend between: the network that a block has per token.

    .. math:: y = W_2 \, dropout(f(W_1 x + b_1)) + b_2

    `backward` adds the parameters' gradients and returns that of x.

    .. math:: \bar x = W_1^T \left(f'(W_1 x + b_1) \; W_2^T \bar y\right)

    without dropout.

    Parameters
    ----------
    d_model : int
        Width of x and y.
    dim_feedforward : int, optional
        Width between them; 4 d_model by default.
    dropout : float, default 0
        On what is between.
    activation : {"relu", "gelu"}
        The f: `ReLU` or `GELU`.
    rng : int, numpy.random.Generator or None, optional
        Source of the initial values and of dropout.
    dtype : {float32, float64}

    Attributes
    ----------
    linear1, linear2 : Linear
    activation : ReLU or GELU
    dropout : Dropout

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        An argument is out of its range.

    See Also
    --------
    TransformerLayer : After an attention.
    Sequential : Any layers, one after the other.

    References
    ----------
    .. [1] Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762, section
       3.3.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.FeedForward(4, activation="gelu", rng=0)
    >>> layer.linear1.weight.data.shape
    (16, 4)
    >>> layer.backward(np.ones_like(layer(np.ones((2, 3, 4), np.float32)))).shape
    (2, 3, 4)
    """

    def __init__(
        self,
        d_model: int,
        dim_feedforward: int | None = None,
        dropout: float = 0.0,
        activation: str = "relu",
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        width = as_size("d_model", d_model)
        inner = 4 * width
        if dim_feedforward is not None:
            inner = as_size("dim_feedforward", dim_feedforward)
        rate = as_probability("dropout", dropout)
        bend = as_choice("activation", activation, _ACTIVATIONS)
        sizes = {"d_model": width, "dim_feedforward": inner}
        self._set_up(rng, dtype, **sizes, dropout=rate, activation=bend)
        options: dict[str, Any] = {"rng": self._rng, "dtype": self.dtype}
        self.linear1 = Linear(width, inner, **options)
        self.activation = _ACTIVATIONS[bend](**options)
        self.dropout = Dropout(rate, **options)
        self.linear2 = Linear(inner, width, **options)

    @quiet
    def __call__(self, x: ArrayLike) -> Array:
        """Map each row.

        Parameters
        ----------
        x : array_like, (..., d_model)
            The rows to map.

        Returns
        -------
        ndarray, (..., d_model)
            The rows mapped.

        Raises
        ------
        TypeError
            `x` is not floating, or of a wider dtype than the layer.
        ValueError
            `x` has another number of features.

        See Also
        --------
        FeedForward.backward : The gradients.
        """
        inner = self.dropout(self.activation(self.linear1(x)))
        out = self.linear2(inner)
        return self._remember(out)

    def _backward(self, grad: Array) -> Array:
        inner = self.dropout.backward(self.linear2.backward(grad))
        grad_x: Array = self.linear1.backward(self.activation.backward(inner))
        return grad_x
