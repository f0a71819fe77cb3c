"""Shaw's attention as a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from relpos._attention.typed import shaw_attention
from relpos._checks import Array, as_flag, quiet
from relpos._text import in_short
from relpos.nn._inputs import (
    as_input,
    as_probability,
    as_size,
    head_dim,
    join_heads,
    split_heads,
    xavier_uniform,
)
from relpos.nn.linear import Linear
from relpos.nn.module import Module
from relpos.nn.parameter import Parameter

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from relpos.nn.module import Seed

__all__ = ["ShawAttention", "ShawGradients"]


@in_short
class ShawGradients(NamedTuple):
    """Gradients of the inputs of `ShawAttention`, where it was given more than a query.

    Attributes
    ----------
    query : ndarray, (batch, Lq, embed_dim)
    key : ndarray, (batch, Lk, embed_dim)
    value : ndarray, (batch, Lk, embed_dim), or None
        None if no value was given: then `key` has what it got as the value, too.

    See Also
    --------
    ShawAttention.backward : Returns it.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer, x = nn.ShawAttention(4, 1, 2, rng=0), np.ones((1, 3, 4), np.float32)
    >>> grads = layer.backward(np.ones_like(layer(x, x)))
    >>> grads.query.shape, grads.value
    ((1, 3, 4), None)
    """

    query: Array
    key: Array
    value: Array | None


class _Table(Module):
    """A table of vectors, so that its name in `state_dict` ends in ``.weight``."""

    def __init__(self, weight: Array) -> None:
        self.weight = Parameter(weight)


class ShawAttention(Module):
    r"""Multi-head attention with clipped relative positions in keys and values.

    .. math::

        e_{ij} = \frac{q_i (k_j + a^K_r)}{\sqrt{D}}, \quad
        z_i = \sum_j softmax_j(e_i)_j \, (v_j + a^V_r), \quad r = clip(j - i, -k, k)

    Parameters
    ----------
    embed_dim, num_heads : int
        Width of inputs and output, and number of heads, which divides it.
    max_relative_position : int
        The tables have 2k + 1 rows for this k. 0 is legal.
    dropout : float, default 0
        On the attention weights.
    per_head : bool, default False
        One table per head instead of one for all.
    use_keys, use_values : bool, default True
        Whether a^K and a^V are there (Table 3 of the paper).
    rng : int, numpy.random.Generator or None, optional
        Source of the initial values and of dropout.
    dtype : {float32, float64}

    Attributes
    ----------
    q_proj, k_proj, v_proj, out_proj : Linear
    rel_key, rel_value : with a `weight`, or None
        (2k+1, D), with `per_head` (num_heads, 2k+1, D); row t is position t - k.

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        A size is too small, `num_heads` does not divide `embed_dim`, or `dropout` is
        not in [0, 1).

    See Also
    --------
    relpos.shaw_attention : The attention as a function.
    RelativeGlobalAttention : A row for each distance, in the keys alone.

    References
    ----------
    .. [1] Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position
       Representations", 2018, arXiv:1803.02155, equations 3 and 4.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer = nn.ShawAttention(16, 2, max_relative_position=4, rng=0)
    >>> layer.state_dict()["rel_key.weight"].shape
    (9, 8)
    >>> x = np.random.default_rng(1).standard_normal((2, 10, 16), dtype=np.float32)
    >>> out = layer(x)
    >>> layer.backward(np.ones_like(out)).shape
    (2, 10, 16)
    """

    takes = ("key", "value", "attn_mask", "is_causal", "query_offset")

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        max_relative_position: int,
        dropout: float = 0.0,
        per_head: bool = False,
        use_keys: bool = True,
        use_values: bool = True,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.embed_dim = as_size("embed_dim", embed_dim)
        self.num_heads = as_size("num_heads", num_heads)
        reach = as_size("max_relative_position", max_relative_position, 0)
        self.dropout = as_probability("dropout", dropout)
        width = head_dim(self.embed_dim, self.num_heads, ("embed_dim", "num_heads"))
        self._set_up(
            rng,
            dtype,
            embed_dim=self.embed_dim,
            num_heads=self.num_heads,
            max_relative_position=reach,
            dropout=self.dropout,
            per_head=as_flag("per_head", per_head),
            use_keys=as_flag("use_keys", use_keys),
            use_values=as_flag("use_values", use_values),
        )
        options: dict[str, Any] = {"rng": self._rng, "dtype": self.dtype}
        self.q_proj = Linear(self.embed_dim, self.embed_dim, **options)
        self.k_proj = Linear(self.embed_dim, self.embed_dim, **options)
        self.v_proj = Linear(self.embed_dim, self.embed_dim, **options)
        self.out_proj = Linear(self.embed_dim, self.embed_dim, **options)
        shape = ((self.num_heads,) if per_head else ()) + (2 * reach + 1, width)
        tables = [
            _Table(xavier_uniform(self._rng, shape, self.dtype)) if use else None
            for use in (use_keys, use_values)
        ]
        self.rel_key, self.rel_value = tables

    @quiet
    def __call__(
        self,
        query: ArrayLike,
        key: ArrayLike | None = None,
        value: ArrayLike | None = None,
        attn_mask: ArrayLike | None = None,
        *,
        is_causal: bool = False,
        query_offset: int | None = None,
    ) -> Array:
        """Attend from query (batch, Lq, embed_dim) to key and value (batch, Lk, ...).

        Parameters
        ----------
        query : array_like, (batch, Lq, embed_dim)
            The tokens that attend.
        key, value : array_like, (batch, Lk, embed_dim), optional
            Without `value` the key is the value; without `key` the query is both.
        attn_mask : array_like, broadcasts to (batch, num_heads, Lq, Lk), optional
            True = may attend, or scores to add, as in `relpos.attention`.
        is_causal : bool, default False
            Whether the future is hidden.
        query_offset : int, optional
            Position of query 0 minus that of key 0, as in `relpos.attention`.

        Returns
        -------
        ndarray, (batch, Lq, embed_dim)
            What each query found, projected.

        Raises
        ------
        TypeError
            An array is not floating or of a wider dtype than the layer, or an option is
            of the wrong kind.
        ValueError
            A shape does not fit, a value is given without a key, or Lq and Lk differ
            and `query_offset` is not given.
        MemoryError
            Out of memory.

        See Also
        --------
        relpos.shaw_attention : The attention as a function.
        """
        if key is None and value is not None:
            raise ValueError("key: got None with a value; expected both, or neither")
        shape: tuple[int | str, ...] = ("batch", "Lq", self.embed_dim)
        queries = as_input("query", query, self.dtype, shape)
        shape = (len(queries), "Lk", self.embed_dim)
        keys = queries if key is None else as_input("key", key, self.dtype, shape)
        if value is not None:
            shape = keys.shape
        values = keys if value is None else as_input("value", value, self.dtype, shape)
        heads = self.num_heads
        result = shaw_attention(
            split_heads(self.q_proj(queries), heads),
            split_heads(self.k_proj(keys), heads),
            split_heads(self.v_proj(values), heads),
            None if self.rel_key is None else self.rel_key.weight.data,
            None if self.rel_value is None else self.rel_value.weight.data,
            attn_mask=attn_mask,
            is_causal=is_causal,
            query_offset=query_offset,
            dropout_p=self.dropout if self.training else 0.0,
            rng=self._rng,
            return_context=True,
        )
        out = self.out_proj(join_heads(result.out))
        given = key is not None, value is not None
        return self._remember(out, result.context, given)

    def _backward(self, grad: Array, context: Any, given: Any) -> Array | ShawGradients:
        """Add the parameters' gradients and return those of the inputs."""
        key_given, value_given = given
        grad_heads = split_heads(self.out_proj.backward(grad), self.num_heads)
        grads = context.backward(grad_heads)
        if self.rel_key is not None:
            self.rel_key.weight.add_grad(grads.rel_key)
        if self.rel_value is not None:
            self.rel_value.weight.add_grad(grads.rel_value)
        query = self.q_proj.backward(join_heads(grads.query))
        key = self.k_proj.backward(join_heads(grads.key))
        value = self.v_proj.backward(join_heads(grads.value))
        if value_given:
            return ShawGradients(query, key, value)
        key += value
        return ShawGradients(query, key, None) if key_given else query + key
