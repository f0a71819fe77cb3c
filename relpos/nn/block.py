"""A block of a Transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._checks import Array, quiet
from relpos.nn._inputs import as_size, head_dim
from relpos.nn._schemes import as_causal
from relpos.nn.compose import Residual
from relpos.nn.feed_forward import FeedForward
from relpos.nn.linear import LayerNorm
from relpos.nn.module import Module
from relpos.nn.multihead import MultiheadAttention
from relpos.nn.position import Position

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from relpos.nn.module import Seed

__all__ = ["TransformerLayer"]


class TransformerLayer(Module):
    r"""A block of a Transformer: attention, then a network, each with a way around.

    .. math::

        x' = x + attention(norm_1(x)), \quad y = x' + feed\_forward(norm_2(x'))

    with `pre_norm`; without, :math:`x' = norm_1(x + attention(x))` and the same for y.
    Dropout acts on the weights, on what comes out of both, and inside the network.

    `backward` adds the parameters' gradients and returns that of x.

    .. math:: \bar x = attention'(feed\_forward'(\bar y))

    each with its way around.

    Parameters
    ----------
    d_model, num_heads : int
        Width, and number of heads, which divides it.
    dim_feedforward : int, optional
        Width inside the network; 4 d_model by default.
    dropout : float, default 0
        Everywhere.
    activation : {"relu", "gelu"}
        Of the network.
    pre_norm : bool, default True
        Normalise what goes into attention and network, not the sums.
    is_causal, window, position : as in `MultiheadAttention`
        Of the attention.
    rng : int, numpy.random.Generator or None, optional
        Source of the initial values and of dropout.
    dtype : {float32, float64}
    **sizes
        Arguments of the layer that a name stands for as `position`.

    Attributes
    ----------
    attention : Residual
        Of a `MultiheadAttention` and a `LayerNorm`.
    feed_forward : Residual
        Of a `FeedForward` and a `LayerNorm`.

    Raises
    ------
    TypeError
        An argument is of the wrong kind, or none of the layer of `position`.
    ValueError
        An argument is out of its range.

    See Also
    --------
    MultiheadAttention : Has the table of positions.
    Residual, FeedForward : What else it is made of.

    Notes
    -----
    With `pre_norm` the last of several blocks is to be followed by a `LayerNorm`.

    References
    ----------
    .. [1] Vaswani et al., "Attention Is All You Need", 2017, arXiv:1706.03762, section
       3.1.
    .. [2] Xiong et al., "On Layer Normalization in the Transformer Architecture", 2020,
       arXiv:2002.04745 (before or after).

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> block = nn.TransformerLayer(16, 2, is_causal=True, position="alibi", rng=0)
    >>> x = np.random.default_rng(1).standard_normal((2, 10, 16), np.float32)
    >>> block.backward(np.ones_like(block(x))).shape
    (2, 10, 16)
    """

    takes = MultiheadAttention.takes

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dim_feedforward: int | None = None,
        dropout: float = 0.0,
        activation: str = "relu",
        pre_norm: bool = True,
        *,
        is_causal: bool | None = None,
        window: tuple[int | None, int | None] | None = None,
        position: str | Position | None = None,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
        **sizes: Any,
    ) -> None:
        names = "d_model", "num_heads"
        head_dim(as_size(names[0], d_model), as_size(names[1], num_heads), names)
        self._set_up(rng, dtype)
        self._settings = None  # the parts say it all
        options: dict[str, Any] = {"rng": self._rng, "dtype": self.dtype}
        attention = MultiheadAttention(
            d_model,
            num_heads,
            dropout,
            is_causal=as_causal(is_causal, position, frames=3),
            window=window,
            position=position,
            **options,
            **sizes,
        )
        network = FeedForward(d_model, dim_feedforward, dropout, activation, **options)
        self.attention, self.feed_forward = (
            Residual(
                layer, LayerNorm(d_model, **options), pre_norm, dropout, rng=self._rng
            )
            for layer in (attention, network)
        )

    @quiet
    def __call__(self, x: ArrayLike, **keywords: Any) -> Array:
        """Attend, then map each row.

        Parameters
        ----------
        x : array_like, (batch, L, d_model)
            The tokens.
        **keywords
            Of `MultiheadAttention`'s call, such as `key_lengths`.

        Returns
        -------
        ndarray, shape of `x`
            The tokens after both.

        Raises
        ------
        TypeError, ValueError
            As `MultiheadAttention`'s call.

        See Also
        --------
        MultiheadAttention : Has the keywords.
        """
        return self._remember(self.feed_forward(self.attention(x, **keywords)))

    def _backward(self, grad: Array) -> Any:
        return self.attention.backward(self.feed_forward.backward(grad))
