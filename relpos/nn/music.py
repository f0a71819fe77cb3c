"""The Music Transformer's attention as a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._attention.typed import relative_global_attention
from relpos._checks import Array, quiet
from relpos.nn._inputs import (
    as_input,
    as_probability,
    as_size,
    head_dim,
    join_heads,
    split_heads,
)
from relpos.nn.dropout import Dropout
from relpos.nn.linear import Linear
from relpos.nn.module import Module
from relpos.nn.parameter import Parameter

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from relpos.nn.module import Seed

__all__ = ["RelativeGlobalAttention"]


class RelativeGlobalAttention(Module):
    r"""Causal self-attention with relative positions in the keys (Music Transformer).

    .. math::

        out = softmax\left(\frac{Q K^T + S^{rel}}{\sqrt{D}}\right) V, \quad
        S^{rel}_{ij} = q_i \, Er_{max\_len - 1 - (i - j)}

    One table `Er` serves all heads. There is no output projection; dropout acts on the
    output. The twin of the PyTorch class of this name that articles on relative
    positional encoding print.

    Parameters
    ----------
    d_model, num_heads : int
        Width of the input, and number of heads, which divides it.
    max_len : int, default 1024
        Rows of `Er`, and longest sequence.
    dropout : float, default 0.1
        On the output.
    rng : int, numpy.random.Generator or None, optional
        Source of the initial values (`Er` standard normal) and of dropout.
    dtype : {float32, float64}

    Attributes
    ----------
    query, key, value : Linear
    Er : Parameter, (max_len, d_model // num_heads)
        The last row is distance 0, the first distance max_len - 1.

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        A size is below 1, `num_heads` does not divide `d_model`, or `dropout` is not in
        [0, 1).

    See Also
    --------
    relpos.relative_global_attention : The attention as a function.
    ShawAttention : Clipped positions, in the values too.

    Notes
    -----
    The names in `state_dict` are those of the PyTorch class. Its buffer ``mask``, the
    lower triangle (1, 1, max_len, max_len), is accepted and produced, but not stored.

    References
    ----------
    .. [1] Huang et al., "Music Transformer: Generating Music with Long-Term Structure",
       2018, arXiv:1809.04281.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.RelativeGlobalAttention(768, 12, max_len=128, rng=0).eval()
    >>> x = np.random.default_rng(1).standard_normal((8, 100, 768), dtype=np.float32)
    >>> out = layer(x)
    >>> out.shape
    (8, 100, 768)
    >>> layer.backward(np.ones_like(out)).shape  # the gradient of x
    (8, 100, 768)
    >>> layer.Er.grad.shape
    (128, 64)
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        max_len: int = 1024,
        dropout: float = 0.1,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.d_model = as_size("d_model", d_model)
        self.num_heads = as_size("num_heads", num_heads)
        self.max_len = as_size("max_len", max_len)
        width = head_dim(self.d_model, self.num_heads, ("d_model", "num_heads"))
        sizes = {"d_model": self.d_model, "num_heads": self.num_heads}
        rate = as_probability("dropout", dropout)
        self._set_up(rng, dtype, **sizes, max_len=self.max_len, dropout=rate)
        options: dict[str, Any] = {"rng": self._rng, "dtype": self.dtype}
        self.query = Linear(self.d_model, self.d_model, **options)
        self.key = Linear(self.d_model, self.d_model, **options)
        self.value = Linear(self.d_model, self.d_model, **options)
        self.dropout = Dropout(rate, **options)
        start = self._rng.standard_normal((self.max_len, width))
        self.Er = Parameter(start.astype(self.dtype))

    def _computed(self) -> dict[str, Array]:
        return {"mask": np.tri(self.max_len, dtype=self.dtype)[None, None]}

    @quiet
    def __call__(self, x: ArrayLike) -> Array:
        """Attend within each sequence.

        Parameters
        ----------
        x : array_like, (batch, seq, d_model)
            The tokens, queries, keys and values at once.

        Returns
        -------
        ndarray, shape of `x`
            What the heads give, side by side, without a projection.

        Raises
        ------
        TypeError
            `x` is not floating, or of a wider dtype than the layer.
        ValueError
            `x` is of another shape, or longer than `max_len`.
        MemoryError
            Out of memory.

        See Also
        --------
        relpos.relative_global_attention : The attention as a function.
        """
        array = as_input("x", x, self.dtype, ("batch", "seq", self.d_model))
        if array.shape[1] > self.max_len:
            raise ValueError(
                f"x: got a sequence of {array.shape[1]}; expected at most max_len = "
                f"{self.max_len}"
            )
        result = relative_global_attention(
            split_heads(self.query(array), self.num_heads),
            split_heads(self.key(array), self.num_heads),
            split_heads(self.value(array), self.num_heads),
            self.Er.data,
            return_context=True,
        )
        return self._remember(self.dropout(join_heads(result.out)), result.context)

    def _backward(self, grad: Array, context: Any) -> Array:
        """Add the parameters' gradients and return that of x."""
        grads = context.backward(
            split_heads(self.dropout.backward(grad), self.num_heads)
        )
        self.Er.add_grad(grads.rel_key)
        grad_x: Array = self.query.backward(join_heads(grads.query))
        grad_x += self.key.backward(join_heads(grads.key))
        grad_x += self.value.backward(join_heads(grads.value))
        return grad_x
