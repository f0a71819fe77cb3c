"""Transformer-XL's attention as a layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from relpos._attention.typed import transformer_xl_attention
from relpos._checks import Array, as_flag, quiet
from relpos.nn._inputs import (
    as_input,
    as_not_negative,
    as_probability,
    as_size,
    check_shape,
    some_rows,
)
from relpos.nn._transformer_xl import (
    SharedBiasGradients,
    TransformerXLGradients,
    own_form,
    read_mask,
    shared_form,
)
from relpos.nn.dropout import Dropout
from relpos.nn.linear import LayerNorm, Linear
from relpos.nn.module import Module
from relpos.nn.parameter import Parameter

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from relpos.nn.module import Seed

__all__ = [
    "RelPartialLearnableMultiHeadAttn",
    "SharedBiasGradients",
    "TransformerXLGradients",
]


class RelPartialLearnableMultiHeadAttn(Module):
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
        Anything but None for both says that the model owns v and u and passes them at
        each call, as in the original; what is given here is not kept. Without them the
        layer owns them as parameters, as in Hugging Face's port.
    layer_norm_epsilon : float, default 1e-5
        Added to the variance by `layer_norm`.
    tgt_len, ext_len, mem_len : optional
        Accepted for the original's sake, not used.
    rng : int, numpy.random.Generator or None, optional
        Source of the initial values and of dropout.
    dtype : {float32, float64}

    Attributes
    ----------
    qkv_net, r_net, o_net : Linear
        Without bias; qkv_net packs queries, keys and values.
    layer_norm : LayerNorm
    r_w_bias, r_r_bias : Parameter, (n_head, d_head)
        u and v, where the layer owns them.

    Raises
    ------
    TypeError
        An argument is of the wrong kind.
    ValueError
        A number is out of its range, or one of `r_r_bias` and `r_w_bias` is given
        without the other.

    See Also
    --------
    update_memory : The memory for the next segment; its example runs three segments.
    relpos.transformer_xl_attention : The attention as a function.
    ConformerRelPositionAttention : The same scores, with the future.

    Notes
    -----
    Masks have the original's polarity: True or 1 = **hidden**, the opposite of
    `relpos.attention`. A query that sees no key gets the residual only (the original
    gives NaN). A mask that hides every future key makes the layer causal; otherwise r
    needs rows for the future, which the original does not have: it reads scores of the
    next query there.

    References
    ----------
    .. [1] Dai et al., "Transformer-XL: Attentive Language Models Beyond a Fixed-Length
       Context", 2019, arXiv:1901.02860.

    Examples
    --------
    >>> import numpy as np
    >>> import relpos
    >>> from relpos import nn
    >>> layer = nn.RelPartialLearnableMultiHeadAttn(2, 16, 8, dropout=0.0, rng=0)
    >>> w, mems = np.random.default_rng(1).standard_normal((2, 5, 3, 16), np.float32)
    >>> r = relpos.sinusoidal(np.arange(10)[::-1], 16, layout="concat")[:, None]
    >>> future = np.triu(np.ones((5, 10), bool), 6)[:, :, None]  # True = hidden
    >>> out = layer(w, r, future, mems)
    >>> out.shape
    (5, 3, 16)
    >>> grads = layer.backward(np.ones_like(out))
    >>> grads.w.shape, grads.r.shape, grads.mems.shape
    ((5, 3, 16), (10, 1, 16), (5, 3, 16))
    """

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
        self.n_head, self.d_head = as_size("n_head", n_head), as_size("d_head", d_head)
        self.d_model = as_size("d_model", d_model)
        self.dropatt = as_probability("dropatt", dropatt)
        self.pre_lnorm = as_flag("pre_lnorm", pre_lnorm)
        if (r_r_bias is None) != (r_w_bias is None):
            name = "r_r_bias" if r_r_bias is None else "r_w_bias"
            raise ValueError(
                f"{name}: got None while the other bias is given; expected both (the "
                "model passes them at each call) or neither (the layer owns them)"
            )
        self.owns_biases = r_r_bias is None
        epsilon = as_not_negative("layer_norm_epsilon", layer_norm_epsilon)
        self._set_up(
            rng,
            dtype,
            n_head=self.n_head,
            d_model=self.d_model,
            d_head=self.d_head,
            dropout=as_probability("dropout", dropout),
            dropatt=self.dropatt,
            pre_lnorm=self.pre_lnorm,
            owns_biases=self.owns_biases,
            layer_norm_epsilon=epsilon,
        )
        self._make_parts(dropout, epsilon)

    def _make_parts(self, dropout: float, epsilon: float) -> None:
        inner = self.n_head * self.d_head
        options: dict[str, Any] = {"rng": self._rng, "dtype": self.dtype}
        self.qkv_net = Linear(self.d_model, 3 * inner, bias=False, **options)
        self.r_net = Linear(self.d_model, inner, bias=False, **options)
        self.o_net = Linear(inner, self.d_model, bias=False, **options)
        self.layer_norm = LayerNorm(self.d_model, eps=epsilon, **options)
        self.drop = Dropout(dropout, **options)
        if self.owns_biases:
            shape = (2, self.n_head, self.d_head)  # small, as Hugging Face starts them
            u, v = self._rng.normal(0.0, 0.02, shape).astype(self.dtype)
            self.r_w_bias, self.r_r_bias = Parameter(u), Parameter(v)

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
            The call has another form, an array is not floating or of a wider dtype than
            the layer, or `attn_mask` is no mask.
        ValueError
            A shape does not fit, `attn_mask` holds something else than 0 and 1, or r
            has too few rows for what the mask leaves visible.
        MemoryError
            Out of memory.

        See Also
        --------
        update_memory : The memory for the next segment.
        """
        return self._forward(w, r, *self._read_call(*args, **keywords))

    def _read_call(self, *args: Any, **keywords: Any) -> tuple[Any, Any, Any, Any]:
        """Return (u, v, attn_mask, mems) from either form of the call."""
        try:
            if not self.owns_biases:
                return shared_form(*args, **keywords)
            mask, mems = own_form(*args, **keywords)
        except TypeError:
            form = "" if self.owns_biases else "r_w_bias, r_r_bias, "
            owner = "layer" if self.owns_biases else "model"
            names = "".join(f", {name}=" for name in keywords)
            raise TypeError(
                f"{type(self).__name__}: got {len(args)} arguments after w and r{names}"
                f"; expected (w, r, {form}attn_mask=None, mems=None), as the {owner} "
                "owns the biases"
            ) from None
        return self.r_w_bias, self.r_r_bias, mask, mems

    def _forward(self, w: Any, r: Any, u: Any, v: Any, mask: Any, mems: Any) -> Array:
        segment = as_input("w", w, self.dtype, ("Lq", "B", self.d_model))
        length, batch, _ = segment.shape
        both = segment
        if mems is not None:
            shape = ("M", batch, self.d_model)
            memory = as_input("mems", mems, self.dtype, shape)
            both = np.concatenate([memory, segment])
        allowed, causal = read_mask(mask, length, len(both), batch)
        rows = self._read_rows(r, length, len(both), causal)
        packed = self.qkv_net(self.layer_norm(both) if self.pre_lnorm else both)
        query, key, value = np.split(packed, 3, axis=-1)
        table = some_rows(self.r_net(rows)).reshape(-1, self.n_head, self.d_head)
        result = transformer_xl_attention(
            self._split(query[len(both) - length :]),
            self._split(key),
            self._split(value),
            table.swapaxes(0, 1),
            self._bias("r_w_bias", u),
            self._bias("r_r_bias", v),
            attn_mask=allowed,
            is_causal=causal,
            min_relative_position=1 - len(both),
            dropout_p=self.dropatt if self.training else 0.0,
            rng=self._rng,
            return_context=True,
        )
        out = segment + self.drop(self.o_net(self._join(result.out)))
        if not self.pre_lnorm:
            out = self.layer_norm(out)
        return self._remember(
            out, result.context, len(both), np.shape(r), mems is not None
        )

    def _read_rows(self, r: Any, length: int, total: int, causal: bool) -> Array:
        """Check r and return it as (R, d_model)."""
        rows = as_input("r", r, self.dtype, ("...", self.d_model))
        if rows.ndim == 3 and rows.shape[1] == 1:
            rows = rows[:, 0]
        check_shape("r", rows, ("R", self.d_model))
        need = total if causal else total + length - 1
        if len(rows) < need:
            why = "" if causal else (
                " (the mask leaves future keys visible; hide them, or give r rows for "
                f"the distances {total - 1} to {1 - length})"
            )  # fmt: skip
            raise ValueError(
                f"r: got {len(rows)} rows for Lq = {length} and Lk = {total}, memory "
                f"included; expected at least {need}{why}"
            )
        return rows

    def _bias(self, name: str, bias: Any) -> Array:
        data = bias.data if isinstance(bias, Parameter) else bias
        return as_input(name, data, self.dtype, (self.n_head, self.d_head))

    def _split(self, x: Array) -> Array:
        """(L, B, H * D) -> (B, H, L, D)"""
        return x.reshape(*x.shape[:2], self.n_head, self.d_head).transpose(1, 2, 0, 3)

    def _join(self, x: Array) -> Array:
        """(B, H, L, D) -> (L, B, H * D)"""
        ordered = x.transpose(2, 0, 1, 3)
        return ordered.reshape(*ordered.shape[:2], self.n_head * self.d_head)

    def _backward(
        self, grad: Array, context: Any, total: Any, r_shape: Any, with_memory: Any
    ) -> TransformerXLGradients | SharedBiasGradients:
        """Add the parameters' gradients and return those of the inputs, in call order.

        Those of the biases are among them where the model owns these.
        """
        if not self.pre_lnorm:
            grad = self.layer_norm.backward(grad)
        length = len(grad)
        grads = context.backward(
            self._split(self.o_net.backward(self.drop.backward(grad)))
        )
        width = len(self.qkv_net.weight.data)
        packed = np.zeros((total, grad.shape[1], width), self.dtype)
        query, key, value = np.split(packed, 3, axis=-1)
        query[total - length :] = self._join(grads.query)
        key[...] = self._join(grads.key)
        value[...] = self._join(grads.value)
        grad_both = self.qkv_net.backward(packed)
        if self.pre_lnorm:
            grad_both = self.layer_norm.backward(grad_both)
        grad_table = grads.rel_key.swapaxes(0, 1).reshape(-1, self.n_head * self.d_head)
        grad_r = self.r_net.backward(grad_table[: r_shape[0]]).reshape(r_shape)
        grad_w = grad + grad_both[total - length :]
        grad_mems = grad_both[: total - length] if with_memory else None
        if not self.owns_biases:
            u, v = grads.pos_bias_u, grads.pos_bias_v
            return SharedBiasGradients(grad_w, grad_r, u, v, grad_mems)
        self.r_w_bias.add_grad(grads.pos_bias_u)
        self.r_r_bias.add_grad(grads.pos_bias_v)
        return TransformerXLGradients(grad_w, grad_r, grad_mems)
