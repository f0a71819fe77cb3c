"""Base of the layers that attend, and those of Shaw and the Music Transformer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from relpos._attention.schemes import relative_global_attention, shaw_attention
from relpos._checks import Array, ArrayLike, DTypeLike, quiet
from relpos._text import in_short
from relpos._twins import twin
from relpos.nn._inputs import (
    as_input,
    check_length,
    join_heads,
    split_heads,
    xavier_uniform,
)
from relpos.nn.basic import Dropout, Linear
from relpos.nn.module import Module, Parameter, Seed

__all__ = [
    "MultiheadGradients",
    "RelativeGlobalAttention",
    "ShawAttention",
    "ShawGradients",
]

#: Arguments of a call that have batch axes, and how many axes they have after those.
#: Attention broadcasts them, so a wrong batch shows only in the shape of its result.
_AXES_AFTER_BATCH = {"attn_mask": 3, "key_lengths": 0, "query_offset": 0}


def check_batch(query: Array, out: Array, keywords: dict[str, Any]) -> None:
    """Raise where an argument gave the result other batch axes than those of query."""
    batch = query.shape[:1]
    if out.shape[:-3] == batch:
        return
    for name, others in _AXES_AFTER_BATCH.items():
        shape = np.shape(keywords.get(name, 0))
        axes = shape[: max(len(shape) - others, 0)]
        if axes not in ((), (1,), batch):
            raise ValueError(
                f"{name}: got batch axes {axes}; expected {batch}, as those of query"
            )


class AttentionLayer(Module):
    """Base of the layers that attend.

    A layer reads its inputs, projects them to heads, calls a function of relpos with
    these and the tables of its scheme, and joins the heads.
    """

    num_heads: int
    _mixes_tokens = True
    #: Names of the layers that project query, key and value, and of the one after them.
    _projections: ClassVar[tuple[str, ...]] = ("q_proj", "k_proj", "v_proj")
    _output: ClassVar[str] = "out_proj"

    def _read(
        self, query: Any, key: Any, value: Any, width: int
    ) -> tuple[Array, Array, Array]:
        """Check the inputs: without `value` the key is it, without `key` the query."""
        if key is None and value is not None:
            raise ValueError("key: got None with a value; expected both, or neither")
        queries = keys = as_input("query", query, self.dtype, "batch", "Lq", width)
        if key is not None:
            keys = as_input("key", key, self.dtype, len(queries), "Lk", width)
        if value is None:
            return queries, keys, keys
        return queries, keys, as_input("value", value, self.dtype, *keys.shape)

    def _project(self, inputs: Any) -> list[Array]:
        """Return query, key and value in heads."""
        layers = [getattr(self, name) for name in self._projections]
        pairs = zip(layers, inputs, strict=True)
        return [self._split(layer(x)) for layer, x in pairs]

    def _project_back(self, gradients: Any) -> list[Array]:
        """Return the gradients of the inputs, given those of attention."""
        layers = [getattr(self, name) for name in self._projections]
        in_heads = gradients.query, gradients.key, gradients.value
        pairs = zip(layers, in_heads, strict=True)
        return [layer.backward(self._join(grad)) for layer, grad in pairs]

    def _attend(
        self,
        function: Callable[..., Any],
        heads: Sequence[Array],
        dropout: float = 0.0,
        **keywords: Any,
    ) -> tuple[Array, Any]:
        """Return the output for query, key and value in heads, and the context."""
        settings = {
            "dropout_p": dropout if self.training else 0.0,
            "rng": self._rng,
            **keywords,  # last, as a position may have its own dropout
        }
        result = function(*heads, **settings, return_context=True)
        check_batch(heads[0], result.out, keywords)
        # The output layer's name is that of the published class: `out_proj`, `o_net`.
        last = getattr(self, self._output)
        return last(self._join(result.out)), result.context

    def _attend_back(self, grad: Array, context: Any) -> Any:
        """Return the gradients of attention, given that of the output."""
        last = getattr(self, self._output)
        return context.backward(self._split(last.backward(grad)))

    def _split(self, x: Array) -> Array:
        return split_heads(x, self.num_heads)

    def _join(self, x: Array) -> Array:
        return join_heads(x)


@in_short
class MultiheadGradients(NamedTuple):
    """Gradients of the inputs of `MultiheadAttention`, given more than a query.

    Attributes
    ----------
    query : ndarray, (batch, Lq, embed_dim)
    key : ndarray, (batch, Lk, embed_dim)
    value : ndarray, (batch, Lk, embed_dim), or None
        None if no value was given: then `key` has what it got as the value, too.

    Examples
    --------
    >>> import numpy as np
    >>> from relpos import nn
    >>> layer, x = nn.MultiheadAttention(4, 1, rng=0), np.ones((1, 3, 4), np.float32)
    >>> grads = layer.backward(np.ones_like(layer(x, x)))
    >>> grads.query.shape, grads.value
    ((1, 3, 4), None)
    """

    query: Array
    key: Array
    value: Array | None


@twin(MultiheadGradients)
class ShawGradients(MultiheadGradients):
    """Gradients of the inputs of `ShawAttention`, given more than a query."""

    __slots__ = ()


class _Table(Module):
    """Table of vectors, so that its name in `state_dict` ends in ``.weight``."""

    def __init__(self, weight: Parameter) -> None:
        self.weight = weight


@twin(shaw_attention, titles=("References",))
class ShawAttention(AttentionLayer):
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
        Source of random numbers, such as initial values and dropout.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Attributes
    ----------
    q_proj, k_proj, v_proj, out_proj : Linear
    rel_key, rel_value : with a `weight`, or None
        (2k+1, D), with `per_head` (num_heads, 2k+1, D); row t is position t - k.

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
        settings = self._set_up(
            rng,
            dtype,
            embed_dim=embed_dim,
            num_heads=num_heads,
            max_relative_position=max_relative_position,
            dropout=dropout,
            per_head=per_head,
            use_keys=use_keys,
            use_values=use_values,
        )
        heads: int = settings.num_heads
        width: int = settings.embed_dim
        self.embed_dim, self.num_heads = width, heads
        self.dropout: float = settings.dropout
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            Linear(width, width, **self._options) for _ in range(4)
        )
        shape: tuple[int, ...] = 2 * settings.max_relative_position + 1, width // heads
        if per_head:
            shape = heads, *shape
        self.rel_key = self._table(shape) if use_keys else None
        self.rel_value = self._table(shape) if use_values else None

    def _table(self, shape: tuple[int, ...]) -> _Table:
        return _Table(self._start(xavier_uniform(self._rng, shape)))

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
        ValueError
            A value is given without a key, or Lq and Lk differ and `query_offset` is
            not given.
        """
        inputs = self._read(query, key, value, self.embed_dim)
        out, context = self._attend(
            shaw_attention,
            self._project(inputs),
            self.dropout,
            rel_key=None if self.rel_key is None else self.rel_key.weight.data,
            rel_value=None if self.rel_value is None else self.rel_value.weight.data,
            attn_mask=attn_mask,
            is_causal=is_causal,
            query_offset=query_offset,
        )
        return self._remember(out, context, (key is not None, value is not None))

    def _backward(
        self, grad: Array, context: Any, which_given: Any
    ) -> Array | ShawGradients:
        key_given, value_given = which_given
        gradients = self._attend_back(grad, context)
        if self.rel_key is not None:
            self.rel_key.weight.add_grad(gradients.rel_key)
        if self.rel_value is not None:
            self.rel_value.weight.add_grad(gradients.rel_value)
        query, key, value = self._project_back(gradients)
        if value_given:
            return ShawGradients(query, key, value)
        key += value  # one array served as both
        if key_given:
            return ShawGradients(query, key, None)
        return query + key


@twin(relative_global_attention, titles=("References",))
class RelativeGlobalAttention(AttentionLayer):
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
        Source of random numbers, such as initial values and dropout.
        `Er` starts standard normal.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Attributes
    ----------
    query, key, value : Linear
    Er : Parameter, (max_len, d_model // num_heads)
        The last row is distance 0, the first distance max_len - 1.

    Notes
    -----
    The names in `state_dict` are those of the PyTorch class. Its buffer ``mask``, the
    lower triangle (1, 1, max_len, max_len), is accepted and produced, but not stored.

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

    _projections, _output = ("query", "key", "value"), "dropout"

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
        settings = self._set_up(
            rng,
            dtype,
            d_model=d_model,
            num_heads=num_heads,
            max_len=max_len,
            dropout=dropout,
        )
        self.d_model, self.num_heads = settings.d_model, settings.num_heads
        self.max_len: int = settings.max_len
        self.query, self.key, self.value = (
            Linear(self.d_model, self.d_model, **self._options) for _ in range(3)
        )
        self.dropout = Dropout(dropout, **self._options)
        shape = self.max_len, self.d_model // self.num_heads
        self.Er = self._start(self._rng.standard_normal(shape))

    def _computed(self) -> dict[str, Array]:
        # made anew each time: max_len squared numbers that nothing here reads
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
        ValueError
            The sequence is longer than `max_len`.
        """
        array = as_input("x", x, self.dtype, "batch", "seq", self.d_model)
        check_length(array.shape[1], self.max_len)
        heads = self._project((array, array, array))
        out, context = self._attend(
            relative_global_attention, heads, rel_key=self.Er.data
        )
        return self._remember(out, context)

    def _backward(self, grad: Array, context: Any) -> Array:
        gradients = self._attend_back(grad, context)
        self.Er.add_grad(gradients.rel_key)
        query, key, value = self._project_back(gradients)
        query += key  # the gradient of x, which is all three
        query += value
        return query
