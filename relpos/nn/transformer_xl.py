"""Attention of Transformer-XL and of the Conformer, as layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from relpos._attention.schemes import transformer_xl_attention
from relpos._checks import Array, ArrayLike, DTypeLike, quiet
from relpos._text import amount, in_short
from relpos._twins import twin
from relpos.nn._inputs import (
    as_input,
    as_mask,
    as_zero_one,
    check_shape,
    join_heads,
    some_rows,
    split_heads,
    xavier_uniform,
)
from relpos.nn.attention import AttentionLayer
from relpos.nn.basic import Dropout, LayerNorm, Linear
from relpos.nn.module import Parameter, Seed

__all__ = [
    "ConformerGradients",
    "ConformerRelPositionAttention",
    "RelPartialLearnableMultiHeadAttn",
    "SharedBiasGradients",
    "TransformerXLGradients",
]


@in_short
class TransformerXLGradients(NamedTuple):
    """Gradients of the inputs of a layer with biases of its own.

    Attributes
    ----------
    w : ndarray, (Lq, B, d_model)
    r : ndarray, shape of `r`
    mems : ndarray, (M, B, d_model), or None
        None where no memory was given. Transformer-XL stops the gradient at the
        memory: leave it unused for that.
    """

    w: Array
    r: Array
    mems: Array | None


@in_short
class SharedBiasGradients(NamedTuple):
    """Gradients of the inputs of a layer whose biases are given at each call.

    Attributes
    ----------
    w : ndarray, (Lq, B, d_model)
    r : ndarray, shape of `r`
    r_w_bias, r_r_bias : ndarray, (n_head, d_head)
    mems : ndarray, (M, B, d_model), or None
        None where no memory was given. Transformer-XL stops the gradient at the
        memory: leave it unused for that.
    """

    w: Array
    r: Array
    r_w_bias: Array
    r_r_bias: Array
    mems: Array | None


@twin(transformer_xl_attention, titles=("References",))
class RelPartialLearnableMultiHeadAttn(AttentionLayer):
    r"""Attention of Transformer-XL over a memory and a segment, with residual and norm.

    .. math::

        s_{ij} = \frac{(q_i + u) k_j + (q_i + v) W_r R_{i - j}}{\sqrt{D}}, \quad
        out = norm(w + W_o \, softmax(s) V)

    Keys and values come from the memory followed by the segment, queries from the
    segment. Time is the first axis of every array.

    Parameters
    ----------
    n_head, d_model, d_head : int
        Heads, width of the model, width of a head; the product of n_head and d_head
        need not be d_model.
    dropout : float
        On the output of `o_net`.
    dropatt : float, default 0
        On the attention weights.
    pre_lnorm : bool, default False
        Normalise memory and segment before the projections instead of the sum after.
    r_r_bias, r_w_bias : optional
        Pass any value for both if the model owns v and u and passes them at each call,
        as in the original. The values given here are not kept. Without them the layer
        owns v and u as parameters, as in Hugging Face's port.
    layer_norm_epsilon : float, default 1e-5
        Added to the variance by `layer_norm`.
    tgt_len, ext_len, mem_len : optional
        Not used; the original has them.
    rng : int, numpy.random.Generator or None, optional
        Source of random numbers, such as initial values and dropout.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Attributes
    ----------
    qkv_net, r_net, o_net : Linear
        Without bias; qkv_net packs queries, keys and values.
    layer_norm : LayerNorm
    r_w_bias, r_r_bias : Parameter, (n_head, d_head)
        u and v, where the layer owns them.

    Raises
    ------
    ValueError
        One of `r_r_bias` and `r_w_bias` is given without the other.

    Notes
    -----
    Masks have the original's polarity: True or 1 = **hidden**, the opposite of
    `relpos.attention`. A query that sees no key gets the residual only (the original
    gives NaN). A mask that hides every future key makes the layer causal; otherwise r
    needs rows for the future, which the original does not have: it reads scores of the
    next query there.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from relpos import nn
    >>> layer = nn.RelPartialLearnableMultiHeadAttn(2, 16, 8, dropout=0.0, rng=0)
    >>> w, mems = np.random.default_rng(1).standard_normal((2, 5, 3, 16), np.float32)
    >>> r = relpos.sinusoidal(np.arange(10)[::-1], 16, layout="concat")[:, None]
    >>> future = np.triu(np.ones((5, 10), bool), 6)[:, :, None]  # True = hidden
    >>> layer(w, r, future, mems).shape
    (5, 3, 16)
    """

    _output = "o_net"

    def __init__(
        self,
        n_head: int,
        d_model: int,
        d_head: int,
        dropout: float,
        dropatt: float = 0.0,
        pre_lnorm: bool = False,
        r_r_bias: object = None,
        r_w_bias: object = None,
        layer_norm_epsilon: float = 1e-5,
        *,
        tgt_len: object = None,
        ext_len: object = None,
        mem_len: object = None,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        settings = self._set_up(
            rng,
            dtype,
            n_head=n_head,
            d_model=d_model,
            d_head=d_head,
            dropout=dropout,
            dropatt=dropatt,
            pre_lnorm=pre_lnorm,
            owns_biases=layer_owns_biases(r_r_bias, r_w_bias),
            layer_norm_epsilon=layer_norm_epsilon,
        )
        self.n_head, self.d_head = settings.n_head, settings.d_head
        self.d_model, self.dropatt = settings.d_model, settings.dropatt
        self.pre_lnorm, self.owns_biases = settings.pre_lnorm, settings.owns_biases
        inner = self.n_head * self.d_head
        self.qkv_net = Linear(self.d_model, 3 * inner, bias=False, **self._options)
        self.r_net = Linear(self.d_model, inner, bias=False, **self._options)
        self.o_net = Linear(inner, self.d_model, bias=False, **self._options)
        self.layer_norm = LayerNorm(self.d_model, layer_norm_epsilon, **self._options)
        self.drop = Dropout(dropout, **self._options)
        if self.owns_biases:
            shape = (2, self.n_head, self.d_head)  # small, as Hugging Face starts them
            u, v = self._rng.normal(0.0, 0.02, shape)
            self.r_w_bias, self.r_r_bias = self._start(u), self._start(v)

    @quiet
    def __call__(
        self, w: ArrayLike, r: ArrayLike, *args: Any, **keywords: Any
    ) -> Array:
        """Attend from the segment to memory and segment.

        The call is ``(w, r, attn_mask=None, mems=None)``, or, where the model owns the
        biases, ``(w, r, r_w_bias, r_r_bias, attn_mask=None, mems=None)``.

        Parameters
        ----------
        w : array_like, (Lq, B, d_model)
            The segment.
        r : array_like, (R, 1, d_model) or (R, d_model)
            Encodings of the distances Lk-1, Lk-2, ..., 0, with Lk = M + Lq: causal.
            Without a mask that hides the future, on to -(Lq-1): R >= Lk + Lq - 1.
        r_w_bias, r_r_bias : array_like or Parameter, (n_head, d_head)
            Biases u and v.
        attn_mask : array_like of bool, or 0 and 1, optional
            True = **hidden**: (Lk, B) hides keys, (Lq, Lk, B or 1) pairs.
        mems : array_like, (M, B, d_model), optional
            The memory.

        Returns
        -------
        ndarray, (Lq, B, d_model)
            The segment after attention, residual and norm.

        Raises
        ------
        TypeError
            The call has another form.
        ValueError
            `attn_mask` holds something else than 0 and 1, or r has too few rows for
            what the mask leaves visible.
        """
        u, v, mask, mems = read_call(self, args, keywords)
        segment = as_input("w", w, self.dtype, "Lq", "B", self.d_model)
        length, batch, _ = segment.shape
        # Time is the first axis here, and the batch the second; `_split` exchanges them
        # for attention.
        both = segment
        if mems is not None:
            memory = as_input("mems", mems, self.dtype, "M", batch, self.d_model)
            both = np.concatenate([memory, segment])
        total = len(both)
        allowed, causal = read_mask(mask, length, total, batch)
        # The original's R has an axis of one batch item.
        rows = as_input("r", r, self.dtype, "...", self.d_model)
        if rows.ndim == 3 and rows.shape[1] == 1:
            rows = rows[:, 0]
        check_shape("r", rows, ("R", self.d_model))
        check_rows(len(rows), length, total, causal)
        packed = self.qkv_net(self.layer_norm(both) if self.pre_lnorm else both)
        query, key, value = np.split(packed, 3, axis=-1)
        out, context = self._attend(
            transformer_xl_attention,
            [self._split(x) for x in (query[total - length :], key, value)],
            self.dropatt,
            rel_key=split_heads(some_rows(self.r_net(rows)), self.n_head),
            pos_bias_u=self._bias("r_w_bias", u),
            pos_bias_v=self._bias("r_r_bias", v),
            attn_mask=allowed,
            is_causal=causal,
            min_relative_position=1 - total,  # of r's first row, the farthest past
        )
        out = segment + self.drop(out)  # the residual connection
        if not self.pre_lnorm:
            out = self.layer_norm(out)
        return self._remember(out, context, total, np.shape(r), mems is not None)

    def _bias(self, name: str, bias: Any) -> Array:
        data = bias.data if isinstance(bias, Parameter) else bias
        return as_input(name, data, self.dtype, self.n_head, self.d_head)

    def _split(self, x: Array) -> Array:
        """(L, B, H * D) -> (B, H, L, D)"""
        return split_heads(x, self.n_head).swapaxes(0, 2)

    def _join(self, x: Array) -> Array:
        """(B, H, L, D) -> (L, B, H * D)"""
        return super()._join(x.swapaxes(0, 2))

    def _backward(
        self, grad: Array, context: Any, total: Any, r_shape: Any, with_memory: Any
    ) -> TransformerXLGradients | SharedBiasGradients:
        if not self.pre_lnorm:
            grad = self.layer_norm.backward(grad)
        length = len(grad)
        gradients = self._attend_back(self.drop.backward(grad), context)
        # One array for the one product of `qkv_net`. Queries of the memory were not
        # used, so their rows stay zero.
        width = len(self.qkv_net.weight.data)
        packed = np.zeros((total, grad.shape[1], width), self.dtype)
        query, key, value = np.split(packed, 3, axis=-1)  # views
        query[total - length :] = self._join(gradients.query)
        key[...] = self._join(gradients.key)
        value[...] = self._join(gradients.value)
        grad_both = self.qkv_net.backward(packed)
        if self.pre_lnorm:
            grad_both = self.layer_norm.backward(grad_both)
        # `some_rows` may have added a row where r has none.
        grad_rows = join_heads(gradients.rel_key)[: r_shape[0]]
        grad_r = self.r_net.backward(grad_rows).reshape(r_shape)
        grad_w = grad + grad_both[total - length :]
        grad_mems = grad_both[: total - length] if with_memory else None
        if not self.owns_biases:
            u, v = gradients.pos_bias_u, gradients.pos_bias_v
            return SharedBiasGradients(grad_w, grad_r, u, v, grad_mems)
        self.r_w_bias.add_grad(gradients.pos_bias_u)
        self.r_r_bias.add_grad(gradients.pos_bias_v)
        return TransformerXLGradients(grad_w, grad_r, grad_mems)


def layer_owns_biases(r_r_bias: object, r_w_bias: object) -> bool:
    """Return whether the layer owns the biases: neither of them was given to it."""
    if (r_r_bias is None) == (r_w_bias is None):
        return r_r_bias is None
    missing = "r_r_bias" if r_r_bias is None else "r_w_bias"
    raise ValueError(
        f"{missing}: got None while the other bias is given; expected both (the "
        "model passes them at each call) or neither (the layer owns them)"
    )


def check_rows(rows: int, length: int, total: int, causal: bool) -> None:
    """Raise unless r has rows for every distance that may be visible."""
    need = total if causal else total + length - 1
    if rows < need:
        reason = ""
        if not causal:
            reason = (
                " (the mask leaves future keys visible; hide them, or give r rows for "
                f"the distances {total - 1} to {1 - length})"
            )
        raise ValueError(
            f"r: got {amount(rows, 'row')} for Lq = {length} and Lk = {total}, memory "
            f"included; expected at least {need}{reason}"
        )


def read_call(
    layer: Any, args: tuple[Any, ...], keywords: Mapping[str, Any]
) -> tuple[Any, Any, Any, Any]:
    """Return (u, v, attn_mask, mems) from the arguments after w and r."""
    # Where the model owns the biases they are the first of `args`, or keywords.
    biases: tuple[Any, ...] = ()
    owner, form = "model", "r_w_bias, r_r_bias, "
    if layer.owns_biases:
        biases = layer.r_w_bias, layer.r_r_bias
        owner, form = "layer", ""
    try:
        return _form(*biases, *args, **keywords)
    except TypeError:
        names = "".join(f", {name}=" for name in keywords)
        raise TypeError(
            f"{type(layer).__name__}: got {amount(len(args), 'argument')} after w and "
            f"r{names}; expected (w, r, {form}attn_mask=None, mems=None), as the "
            f"{owner} owns the biases"
        ) from None


def _form(
    r_w_bias: Any, r_r_bias: Any, attn_mask: Any = None, mems: Any = None
) -> tuple[Any, Any, Any, Any]:
    return r_w_bias, r_r_bias, attn_mask, mems


def check_mask_shape(
    shape: tuple[int, ...], length: int, total: int, batch: int
) -> None:
    """Refuse a shape of attn_mask that the published layer does not take."""
    if shape not in ((total, batch), (length, total, batch), (length, total, 1)):
        hint = ""
        if shape == (length, total):
            hint = " (a mask of pairs needs a last axis: attn_mask[:, :, None])"
        raise ValueError(
            f"attn_mask: got shape {shape}; expected (Lk, B) = {(total, batch)} or "
            f"(Lq, Lk, B or 1) = {(length, total, batch)}{hint}"
        )


def read_mask(
    mask: Any, length: int, total: int, batch: int
) -> tuple[Array | None, bool]:
    """Return what may attend, (B or 1, 1, Lq or 1, Lk), and whether that is causal."""
    if mask is None:
        return None, length <= 1  # then no key is in the future
    flags = as_mask("attn_mask", mask)
    check_mask_shape(flags.shape, length, total, batch)
    hidden = as_zero_one("attn_mask", flags)
    if hidden.ndim == 2:
        hidden = hidden[None]
    past = np.tri(length, total, total - length, dtype=bool)
    # The batch is the last axis of this mask, and the first axis in attention.
    allowed = ~hidden.transpose(2, 0, 1)[:, None]
    causal = not (allowed & ~past).any()
    if causal and (allowed | ~past).all():
        return None, True  # the mask hides the future and nothing else
    return allowed, causal


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
    """

    query: Array
    key: Array
    value: Array
    pos_emb: Array
    cache: Array | None


class ConformerRelPositionAttention(AttentionLayer):
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
        Source of random numbers, such as initial values and dropout.
    dtype : {float32, float64}
        The dtype of the parameters and of the results.

    Attributes
    ----------
    linear_q, linear_k, linear_v, linear_out, linear_pos : Linear
        `linear_pos` has no bias.
    pos_bias_u, pos_bias_v : Parameter, (num_heads, d_model // num_heads)

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
    >>> layer(x, x, x, pos_emb).shape
    (3, 5, 16)
    """

    _projections, _output = ("linear_q", "linear_k", "linear_v"), "linear_out"

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float = 0.0,
        *,
        rng: Seed = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        settings = self._set_up(
            rng, dtype, d_model=d_model, num_heads=num_heads, dropout=dropout
        )
        self.d_model, self.num_heads = settings.d_model, settings.num_heads
        self.dropout: float = settings.dropout
        self.linear_q, self.linear_k, self.linear_v, self.linear_out = (
            Linear(self.d_model, self.d_model, **self._options) for _ in range(4)
        )
        width = self.d_model
        self.linear_pos = Linear(width, width, bias=False, **self._options)
        shape = self.num_heads, width // self.num_heads
        self.pos_bias_u, self.pos_bias_v = (
            self._start(xavier_uniform(self._rng, shape)) for _ in range(2)
        )

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
            The keys and values of this chunk, which follow those of the cache.
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
        ValueError
            `mask` holds something else than 0 and 1, or Lq is more than Lk.
        """
        width = self.d_model
        queries = as_input("query", query, self.dtype, "B", "Lq", width)
        keys = as_input("key", key, self.dtype, len(queries), "Lk - M", width)
        values = as_input("value", value, self.dtype, *keys.shape)
        new = keys.shape[1]
        if cache is not None:
            before = as_input("cache", cache, self.dtype, len(queries), "M", width)
            keys = np.concatenate([before, keys], axis=1)
            values = np.concatenate([before, values], axis=1)
        total, length = keys.shape[1], queries.shape[1]
        check_queries(length, total)
        allowed = None
        if mask is not None:
            flags = as_mask("mask", mask)
            check_pairs(flags.shape, len(queries), length, total)
            allowed = as_zero_one("mask", flags)[:, None]
        heads = self._project((queries, keys, values))
        out, context = self._attend(
            transformer_xl_attention,
            heads,
            self.dropout,
            rel_key=split_heads(self._rows(pos_emb, total), self.num_heads),
            pos_bias_u=self.pos_bias_u.data,
            pos_bias_v=self.pos_bias_v.data,
            attn_mask=allowed,
        )
        memory = None if cache is None else total - new
        return self._remember(out, context, np.shape(pos_emb), memory)

    def _rows(self, pos_emb: ArrayLike, total: int) -> Array:
        """Check `pos_emb` and return its rows, projected."""
        rows = as_input("pos_emb", pos_emb, self.dtype, "...", self.d_model)
        if rows.ndim == 3 and len(rows) == 1:
            rows = rows[0]
        # 2 Lk - 1, but 0 rows without keys
        check_shape("pos_emb", rows, (max(2 * total - 1, 0), self.d_model))
        return some_rows(self.linear_pos(rows))

    def _backward(
        self, grad: Array, context: Any, pos_shape: Any, memory: Any
    ) -> ConformerGradients:
        gradients = self._attend_back(grad, context)
        self.pos_bias_u.add_grad(gradients.pos_bias_u)
        self.pos_bias_v.add_grad(gradients.pos_bias_v)
        query, key, value = self._project_back(gradients)
        # `some_rows` may have added a row where pos_emb has none.
        grad_rows = join_heads(gradients.rel_key)[: pos_shape[-2]]
        pos_emb = self.linear_pos.backward(grad_rows).reshape(pos_shape)
        if memory is None:
            return ConformerGradients(query, key, value, pos_emb, None)
        # The cache came before both keys and values, and has the gradient of both.
        cache = key[:, :memory] + value[:, :memory]
        return ConformerGradients(
            query, key[:, memory:], value[:, memory:], pos_emb, cache
        )


def check_queries(length: int, total: int) -> None:
    """Raise where the Conformer's queries are not the last of the keys' positions."""
    if 0 < total < length:
        rows = amount(length, "row")
        raise ValueError(f"query: got {rows}; expected at most Lk = {total}")


def check_pairs(shape: tuple[int, ...], batch: int, length: int, total: int) -> None:
    """Raise unless the Conformer's mask has this shape."""
    if shape not in ((batch, 1, total), (batch, length, total)):
        raise ValueError(
            f"mask: got shape {shape}; expected (B, 1 or Lq, Lk) = "
            f"({batch}, 1 or {length}, {total}), cache included"
        )
