"""Conformer's attention as a layer: Transformer-XL's terms, both directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relpos._attention.typed import transformer_xl_attention
from relpos._checks import Array, quiet
from relpos._text import in_short
from relpos.nn._inputs import (
    as_input,
    as_mask,
    as_probability,
    as_size,
    as_zero_one,
    check_shape,
    head_dim,
    join_heads,
    some_rows,
    split_heads,
    xavier_uniform,
)
from relpos.nn.linear import Linear
from relpos.nn.module import Module
from relpos.nn.parameter import Parameter

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from relpos.nn.module import Seed

__all__ = ["ConformerGradients", "ConformerRelPositionAttention"]


@in_short
class ConformerGradients(NamedTuple):
    """Gradients of the inputs of `ConformerRelPositionAttention`.

    Where the same array served as query, key and value, its gradient is their sum.

    Attributes
    ----------
    query : ndarray, (B, Lq, d_model)
    key, value : ndarray, (B, Lk - M, d_model)
    pos_emb : ndarray, shape of `pos_emb`
    cache : ndarray, (B, M, d_model), or None
        None where no cache was given.

    See Also
    --------
    ConformerRelPositionAttention.backward : Returns it.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from relpos import nn
    >>> layer = nn.ConformerRelPositionAttention(4, 1, rng=0)
    >>> x, pos_emb = np.ones((1, 3, 4), np.float32), np.ones((5, 4), np.float32)
    >>> grads = layer.backward(np.ones_like(layer(x, x, x, pos_emb)))
    >>> grads.pos_emb.shape, grads.cache
    ((5, 4), None)
    """

    query: Array
    key: Array
    value: Array
    pos_emb: Array
    cache: Array | None


class ConformerRelPositionAttention(Module):
    r"""Multi-head attention of the Conformer, with relative positions on both sides.

    .. math::

        s_{ij} = \frac{(q_i + u) k_j + (q_i + v) W_{pos} P_{i - j}}{\sqrt{D}}

    The twin of ``RelPositionMultiHeadedAttention`` (ESPnet) and
    ``RelPositionMultiHeadAttention`` (NeMo).

    Parameters
    ----------
    d_model, num_heads : int
        Width of the input, and number of heads, which divides it.
    dropout : float, default 0
        On the attention weights.
    rng : int, numpy.random.Generator or None, optional
        Source of the initial values and of dropout.
    dtype : {float32, float64}

    Attributes
    ----------
    linear_q, linear_k, linear_v, linear_out, linear_pos : Linear
        `linear_pos` has no bias.
    pos_bias_u, pos_bias_v : Parameter, (num_heads, d_model // num_heads)

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        A size is below 1, `num_heads` does not divide `d_model`, or `dropout` is not in
        [0, 1).

    See Also
    --------
    relpos.transformer_xl_attention : The attention as a function.
    relpos.sinusoidal : The encodings that the layer takes.
    RelPartialLearnableMultiHeadAttn : The layer of Transformer-XL, causal.

    Notes
    -----
    In the mask True or 1 = may attend, as in ESPnet and everywhere in relpos; NeMo has
    the opposite. A query that sees no key gets the bias of `linear_out`.

    References
    ----------
    .. [1] Gulati et al., "Conformer: Convolution-augmented Transformer for Speech
       Recognition", 2020, arXiv:2005.08100.
    .. [2] Dai et al., "Transformer-XL: Attentive Language Models Beyond a Fixed-Length
       Context", 2019, arXiv:1901.02860.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from relpos import nn
    >>> layer = nn.ConformerRelPositionAttention(16, 2, rng=0)
    >>> x = np.random.default_rng(1).standard_normal((3, 5, 16), dtype=np.float32)
    >>> pos_emb = relpos.sinusoidal(np.arange(4, -5, -1), 16)[None]  # past first
    >>> out = layer(x, x, x, pos_emb)
    >>> out.shape
    (3, 5, 16)
    >>> grads = layer.backward(np.ones_like(out))
    >>> (grads.query + grads.key + grads.value).shape, grads.pos_emb.shape
    ((3, 5, 16), (1, 9, 16))
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float = 0.0,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.d_model = as_size("d_model", d_model)
        self.num_heads = as_size("num_heads", num_heads)
        self.dropout = as_probability("dropout", dropout)
        width = head_dim(self.d_model, self.num_heads, ("d_model", "num_heads"))
        sizes = {"d_model": self.d_model, "num_heads": self.num_heads}
        self._set_up(rng, dtype, **sizes, dropout=self.dropout)
        options: dict[str, Any] = {"rng": self._rng, "dtype": self.dtype}
        self.linear_q = Linear(self.d_model, self.d_model, **options)
        self.linear_k = Linear(self.d_model, self.d_model, **options)
        self.linear_v = Linear(self.d_model, self.d_model, **options)
        self.linear_out = Linear(self.d_model, self.d_model, **options)
        self.linear_pos = Linear(self.d_model, self.d_model, bias=False, **options)
        shape = self.num_heads, width
        self.pos_bias_u = Parameter(xavier_uniform(self._rng, shape, self.dtype))
        self.pos_bias_v = Parameter(xavier_uniform(self._rng, shape, self.dtype))

    @quiet
    def __call__(
        self,
        query: ArrayLike,
        key: ArrayLike,
        value: ArrayLike,
        pos_emb: ArrayLike,
        mask: ArrayLike | None = None,
        cache: ArrayLike | None = None,
    ) -> Array:
        """Attend from query to cache and key; Lk counts both.

        Parameters
        ----------
        query : array_like, (B, Lq, d_model)
            The last Lq of the Lk positions.
        key, value : array_like, (B, Lk - M, d_model)
            Those of this chunk, behind the cache.
        pos_emb : array_like, (1, 2 Lk - 1, d_model) or (2 Lk - 1, d_model)
            Encodings of the distances Lk-1, ..., 0, ..., -(Lk-1): the past first.
        mask : array_like of bool, or 0 and 1, (B, 1 or Lq, Lk), optional
            True = may attend.
        cache : array_like, (B, M, d_model), optional
            What precedes both key and value.

        Returns
        -------
        ndarray, (B, Lq, d_model)
            What each query found, projected.

        Raises
        ------
        TypeError
            An array is not floating or of a wider dtype than the layer, or `mask` is no
            mask.
        ValueError
            A shape does not fit, or `mask` holds something else than 0 and 1.
        MemoryError
            Out of memory.

        See Also
        --------
        relpos.transformer_xl_attention : The attention as a function.
        """
        shape: tuple[int | str, ...] = ("B", "Lq", self.d_model)
        queries = as_input("query", query, self.dtype, shape)
        shape = (len(queries), "Lk - M", self.d_model)
        keys = as_input("key", key, self.dtype, shape)
        values = as_input("value", value, self.dtype, keys.shape)
        if cache is not None:
            shape = (len(queries), "M", self.d_model)
            before = as_input("cache", cache, self.dtype, shape)
            keys, values = (np.concatenate([before, x], axis=1) for x in (keys, values))
        lengths = queries.shape[1], keys.shape[1]
        result = transformer_xl_attention(
            split_heads(self.linear_q(queries), self.num_heads),
            split_heads(self.linear_k(keys), self.num_heads),
            split_heads(self.linear_v(values), self.num_heads),
            split_heads(self._project(pos_emb, lengths[1]), self.num_heads),
            self.pos_bias_u.data,
            self.pos_bias_v.data,
            attn_mask=_read_mask(mask, len(queries), *lengths),
            dropout_p=self.dropout if self.training else 0.0,
            rng=self._rng,
            return_context=True,
        )
        out = self.linear_out(join_heads(result.out))
        memory = None if cache is None else keys.shape[1] - np.shape(key)[1]
        return self._remember(out, result.context, np.shape(pos_emb), memory)

    def _project(self, pos_emb: ArrayLike, total: int) -> Array:
        rows = as_input("pos_emb", pos_emb, self.dtype, ("...", self.d_model))
        if rows.ndim == 3 and len(rows) == 1:
            rows = rows[0]
        # no keys need no rows
        check_shape("pos_emb", rows, (max(2 * total - 1, 0), self.d_model))
        return some_rows(self.linear_pos(rows))

    def _backward(
        self, grad: Array, context: Any, pos_shape: Any, memory: Any
    ) -> ConformerGradients:
        """Add the parameters' gradients and return those of the inputs."""
        grads = context.backward(
            split_heads(self.linear_out.backward(grad), self.num_heads)
        )
        self.pos_bias_u.add_grad(grads.pos_bias_u)
        self.pos_bias_v.add_grad(grads.pos_bias_v)
        query = self.linear_q.backward(join_heads(grads.query))
        key = self.linear_k.backward(join_heads(grads.key))
        value = self.linear_v.backward(join_heads(grads.value))
        grad_rows = join_heads(grads.rel_key)[: pos_shape[-2]]
        pos_emb = self.linear_pos.backward(grad_rows).reshape(pos_shape)
        if memory is None:
            return ConformerGradients(query, key, value, pos_emb, None)
        cache = key[:, :memory] + value[:, :memory]
        return ConformerGradients(
            query, key[:, memory:], value[:, memory:], pos_emb, cache
        )


def _read_mask(
    mask: ArrayLike | None, batch: int, rows: int, total: int
) -> Array | None:
    """Return the mask as (B, 1, 1 or Lq, Lk)."""
    if mask is None:
        return None
    given = as_mask("mask", mask)
    if given.shape not in ((batch, 1, total), (batch, rows, total)):
        raise ValueError(
            f"mask: got shape {given.shape}; expected (B, 1 or Lq, Lk) = "
            f"({batch}, 1 or {rows}, {total}), cache included"
        )
    return as_zero_one("mask", given)[:, None]
