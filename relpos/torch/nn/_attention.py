"""Attention by one scheme each, as modules, and the memory of Transformer-XL."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import relpos.nn
import relpos.torch
from relpos._twins import TENSORS, twin
from relpos.nn._inputs import check_length
from relpos.nn.transformer_xl import (
    check_mask_shape,
    check_pairs,
    check_queries,
    check_rows,
    layer_owns_biases,
    read_call,
)
from relpos.torch._causal import visible_pairs
from relpos.torch._functions import check_tensors
from relpos.torch.nn._layer import (
    AttentionLayer,
    Layer,
    as_int,
    as_zero_one,
    check_shape,
    has_values,
    join_heads,
    layer_twin,
    normal_parameter,
    some_rows,
    split_heads,
    xavier_parameter,
)

__all__ = ["ConformerRelPositionAttention", "RelativeGlobalAttention"]
__all__ += ["RelPartialLearnableMultiHeadAttn", "ShawAttention", "update_memory"]


class _Table(nn.Module):
    """Table of vectors, so that its name in `state_dict` ends in ``.weight``."""

    def __init__(self, shape: tuple[int, ...], device: Any, dtype: Any) -> None:
        super().__init__()
        self.weight = xavier_parameter(shape, device, dtype)


@layer_twin(relpos.nn.ShawAttention)
class ShawAttention(AttentionLayer):
    """Multi-head attention with clipped relative positions in keys and values.

    Parameters
    ----------
    embed_dim, num_heads, max_relative_position : as in `relpos.nn.ShawAttention`
        Width, heads, and the distance to which the tables reach.
    dropout, per_head, use_keys, use_values : as in `relpos.nn.ShawAttention`
        Dropout of the weights, and the tables that there are.
    device, dtype : optional
        As those of any module.

    Examples
    --------
    >>> import torch
    >>> from relpos.torch import nn
    >>> layer = nn.ShawAttention(16, 2, max_relative_position=4)
    >>> layer(torch.ones(2, 10, 16)).sum().backward()
    >>> layer.rel_key.weight.grad.shape
    torch.Size([9, 8])
    """

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
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        settings, options = self._set_up(
            device,
            dtype,
            embed_dim=embed_dim,
            num_heads=num_heads,
            max_relative_position=max_relative_position,
            dropout=dropout,
            per_head=per_head,
            use_keys=use_keys,
            use_values=use_values,
        )
        self.embed_dim, self.num_heads = settings.embed_dim, settings.num_heads
        self.dropout: float = settings.dropout
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim, **options) for _ in range(4)
        )
        # A row for each distance on either side, and one for distance 0.
        rows = 2 * settings.max_relative_position + 1
        shape: tuple[int, ...] = (rows, embed_dim // num_heads)
        if per_head:
            shape = (num_heads, *shape)
        self.rel_key = _Table(shape, **options) if use_keys else None
        self.rel_value = _Table(shape, **options) if use_values else None

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        attn_mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        query_offset: int | None = None,
    ) -> Tensor:
        """Attend from a query to keys and their values.

        Parameters
        ----------
        query : Tensor, (batch, Lq, embed_dim)
            Also key and value, where these are not given.
        key, value : Tensor, (batch, Lk, embed_dim), optional
            What is attended to; without a value the key is it.
        attn_mask, is_causal, query_offset : optional
            As in `relpos.attention`: True = may attend.

        Returns
        -------
        Tensor, (batch, Lq, embed_dim)
            After the output projection.
        """
        if key is None and value is not None:
            raise ValueError("key: got None with a value; expected both, or neither")
        check_shape("query", query, ("batch", "Lq", self.embed_dim))
        if key is None:
            key = query
        check_shape("key", key, (query.shape[0], "Lk", self.embed_dim))
        if value is None:
            value = key
        check_shape("value", value, tuple(key.shape))
        out: Any = relpos.torch.shaw_attention(
            *self._project(query, key, value),
            None if self.rel_key is None else self.rel_key.weight,
            None if self.rel_value is None else self.rel_value.weight,
            attn_mask=attn_mask,
            is_causal=is_causal,
            query_offset=query_offset,
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.out_proj(join_heads(out))


@layer_twin(relpos.nn.RelativeGlobalAttention)
class RelativeGlobalAttention(AttentionLayer):
    """Causal self-attention with relative positions in the keys (Music Transformer).

    Parameters
    ----------
    d_model, num_heads, max_len, dropout : as in `relpos.nn.RelativeGlobalAttention`
        Width, heads, rows of `Er`, and dropout of the output.
    device, dtype : optional
        As those of any module.

    Examples
    --------
    >>> import torch
    >>> from relpos.torch import nn
    >>> layer = nn.RelativeGlobalAttention(768, 12, max_len=128).eval()
    >>> layer(torch.ones(2, 100, 768)).shape
    torch.Size([2, 100, 768])
    """

    _projections = "query", "key", "value"

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        max_len: int = 1024,
        dropout: float = 0.1,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        settings, options = self._set_up(
            device,
            dtype,
            d_model=d_model,
            num_heads=num_heads,
            max_len=max_len,
            dropout=dropout,
        )
        self.d_model, self.num_heads = settings.d_model, settings.num_heads
        self.max_len: int = settings.max_len
        self.query, self.key, self.value = (
            nn.Linear(d_model, d_model, **options) for _ in range(3)
        )
        self.dropout = nn.Dropout(dropout)
        self.Er = normal_parameter((max_len, d_model // num_heads), 1.0, **options)

    @twin(relpos.nn.RelativeGlobalAttention.__call__, titles=("Raises",))
    def forward(self, x: Tensor) -> Tensor:
        """Attend from each position to those before it.

        Parameters
        ----------
        x : Tensor, (batch, seq, d_model)
            The sequence.

        Returns
        -------
        Tensor, (batch, seq, d_model)
            The heads' outputs, without a projection.
        """
        check_shape("x", x, ("batch", "seq", self.d_model))
        check_length(x.shape[1], self.max_len)
        out: Any = relpos.torch.relative_global_attention(
            *self._project(x, x, x), self.Er
        )
        return self.dropout(join_heads(out))

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        # the original has the mask as a buffer
        ones = self.Er.new_ones(self.max_len, self.max_len)
        destination[prefix + "mask"] = ones.tril()[None, None]

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        # a state without the mask, or with a number in its place, is taken as well
        mask = torch.as_tensor(state_dict.pop(prefix + "mask", 0))
        if mask.dim():
            self._check_mask(mask, prefix, error_messages=args[-1])
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _check_mask(self, mask: Tensor, prefix: str, error_messages: list[str]) -> None:
        """Check the mask of a state, which is not kept."""
        lower = torch.ones(self.max_len, self.max_len).tril()[None, None]
        if mask.shape != lower.shape:  # that of another max_len
            error_messages.append(
                f"size mismatch for {prefix}mask: got shape {(*mask.shape,)}; the "
                f"layer has {(*lower.shape,)}."
            )
        elif not mask.is_meta and (mask.cpu().to(lower) != lower).any():
            raise ValueError(
                f"{prefix}mask: the values differ from those the layer computes."
            )


@layer_twin(relpos.nn.RelPartialLearnableMultiHeadAttn)
class RelPartialLearnableMultiHeadAttn(Layer):
    """Attention of Transformer-XL over a memory and a segment, with residual and norm.

    Parameters
    ----------
    n_head, d_model, d_head : as in `relpos.nn.RelPartialLearnableMultiHeadAttn`
        Heads, width of the model, width of a head.
    dropout, dropatt, pre_lnorm : as in `relpos.nn.RelPartialLearnableMultiHeadAttn`
        Dropout of output and weights, and True for the norm before the projections.
    r_r_bias, r_w_bias : optional
        Pass any value for both if the model owns v and u and passes them at each call,
        as in the original. The values given here are not kept.
    layer_norm_epsilon : float, default 1e-5
        Added to the variance by `layer_norm`.
    tgt_len, ext_len, mem_len : optional
        Not used; the original has them.
    device, dtype : optional
        As those of any module.

    Notes
    -----
    Masks have the original's polarity: True or 1 = **hidden**, the opposite of
    `relpos.torch.attention`. A mask that hides every future key makes the module
    causal; otherwise r needs rows for the future. A compiled program may not ask for a
    mask's values, and on the meta device there are none: there r without such rows says
    that the module is causal.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> layer = relpos.torch.nn.RelPartialLearnableMultiHeadAttn(2, 16, 8, dropout=0.0)
    >>> w = mems = torch.ones(5, 3, 16)
    >>> r = relpos.torch.sinusoidal(torch.arange(9, -1, -1), 16, layout="concat")
    >>> future = torch.ones(5, 10, dtype=torch.bool).triu(6)[:, :, None]
    >>> layer(w, r, future, mems).shape  # True = hidden
    torch.Size([5, 3, 16])
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
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        owns_biases = layer_owns_biases(r_r_bias, r_w_bias)
        settings, options = self._set_up(
            device,
            dtype,
            n_head=n_head,
            d_model=d_model,
            d_head=d_head,
            dropout=dropout,
            dropatt=dropatt,
            pre_lnorm=pre_lnorm,
            owns_biases=owns_biases,
            layer_norm_epsilon=layer_norm_epsilon,
        )
        self.n_head, self.d_head = settings.n_head, settings.d_head
        self.d_model, self.dropatt = settings.d_model, settings.dropatt
        self.pre_lnorm, self.owns_biases = settings.pre_lnorm, settings.owns_biases
        inner = self.n_head * self.d_head
        self.qkv_net = nn.Linear(d_model, 3 * inner, bias=False, **options)
        self.r_net = nn.Linear(d_model, inner, bias=False, **options)
        self.o_net = nn.Linear(inner, d_model, bias=False, **options)
        self.layer_norm = nn.LayerNorm(d_model, layer_norm_epsilon, **options)
        self.drop = nn.Dropout(dropout)
        if self.owns_biases:
            shape = self.n_head, self.d_head  # small, as Hugging Face starts them
            self.r_w_bias = normal_parameter(shape, 0.02, **options)
            self.r_r_bias = normal_parameter(shape, 0.02, **options)

    def forward(self, w: Tensor, r: Tensor, *args: Any, **keywords: Any) -> Tensor:
        """Attend from the segment to memory and segment.

        The call is ``(w, r, attn_mask=None, mems=None)``, or, where the model owns the
        biases, ``(w, r, r_w_bias, r_r_bias, attn_mask=None, mems=None)``.

        Parameters
        ----------
        w : Tensor, (Lq, B, d_model)
            The segment.
        r : Tensor, (R, 1, d_model) or (R, d_model)
            Encodings of the distances Lk-1, Lk-2, ..., 0, with Lk = M + Lq: causal.
            Without a mask that hides the future, on to -(Lq-1): R >= Lk + Lq - 1.
        r_w_bias, r_r_bias : Tensor, (n_head, d_head)
            Biases u and v.
        attn_mask : Tensor of bool, or 0 and 1, optional
            True = **hidden**: (Lk, B) hides keys, (Lq, Lk, B or 1) pairs. A
            `CausalBias` of ``torch.nn.attention.bias``, of Lq and Lk, hides what it
            says.
        mems : Tensor, (M, B, d_model), optional
            The memory.

        Returns
        -------
        Tensor, (Lq, B, d_model)
            The segment after attention, residual and norm.
        """
        # The biases are the layer's own, or are the first arguments behind r.
        u, v, mask, mems = read_call(self, args, keywords)
        check_shape("w", w, ("Lq", "B", self.d_model))
        check_shape("r_w_bias", u, (self.n_head, self.d_head))
        check_shape("r_r_bias", v, (self.n_head, self.d_head))
        tokens = w
        if mems is not None:
            check_shape("mems", mems, ("M", w.shape[1], self.d_model))
            tokens = torch.cat([mems, w])
        # not len(), which a traced program has as a constant
        length, total = w.shape[0], tokens.shape[0]
        check_tensors({"r": r})
        # Encodings of distances are the same for all items: their batch axis has length
        # 1.
        rows = r[:, 0] if r.dim() == 3 and r.shape[1] == 1 else r
        check_shape("r", rows, ("R", self.d_model))
        visible = visible_pairs(mask, length, total, w.device)
        if visible is not None:
            mask = ~visible[..., None]  # here True = hidden
        hidden = _read_hidden(mask, length, total, w.shape[1])
        causal = _is_causal(hidden, length, total, rows.shape[0])
        if self.pre_lnorm:
            tokens = self.layer_norm(tokens)
        # One product has the keys and values of memory and segment. The queries are
        # those of the segment, at the end.
        query, key, value = self.qkv_net(tokens).chunk(3, dim=-1)
        out: Any = relpos.torch.transformer_xl_attention(
            self._split(query[total - length :]),
            self._split(key),
            self._split(value),
            split_heads(some_rows(self.r_net(rows)), self.n_head),
            u,
            v,
            attn_mask=None if hidden is None else ~hidden,
            is_causal=causal,
            # Row 0 of r has the distance Lk - 1, to the first key from the last query.
            min_relative_position=1 - total,
            dropout_p=self.dropatt if self.training else 0.0,
        )
        # (B, H, L, D) becomes (L, H, B, D), of which `join_heads` makes (L, B, H * D).
        out = w + self.drop(self.o_net(join_heads(out.transpose(0, 2))))
        return out if self.pre_lnorm else self.layer_norm(out)

    def _split(self, x: Tensor) -> Tensor:
        """(L, B, H * D) -> (B, H, L, D)"""
        return split_heads(x, self.n_head).transpose(0, 2)


def _read_hidden(mask: Any, length: int, total: int, batch: int) -> Tensor | None:
    """Return what is hidden, (B or 1, 1, Lq or 1, Lk)."""
    if mask is None:
        return None
    check_tensors({"attn_mask": mask})
    check_mask_shape((*mask.shape,), length, total, batch)
    hidden = as_zero_one("attn_mask", mask)
    if hidden.dim() == 2:  # (Lk, B), the same for all queries
        hidden = hidden[None]
    # (Lq, Lk, B) becomes (B, 1, Lq, Lk), with an axis for heads.
    return hidden.permute(2, 0, 1)[:, None]


def _is_causal(hidden: Tensor | None, length: int, total: int, rows: int) -> bool:
    """Tell whether every future key is hidden; r has to have rows for the others."""
    if hidden is None:
        causal = length <= 1  # then no key is in the future
    elif not has_values(hidden):
        # The values are not known, and r tells whether the future has rows.
        causal = rows < total + length - 1
    else:
        pairs = torch.ones(length, total, dtype=torch.bool, device=hidden.device)
        # The last query is at the last key, so that the future begins above this
        # diagonal.
        future = pairs.triu(total - length + 1)
        causal = not bool((~hidden & future).any())
    check_rows(rows, length, total, causal)
    return causal


@twin(relpos.nn.update_memory, TENSORS)
def update_memory(memory: Tensor | None, hidden: Tensor, mem_len: int) -> Tensor:
    """Memory for the next segment: the last positions of the old one and of this.

    Parameters
    ----------
    memory, hidden, mem_len : as in `relpos.nn.update_memory`
        The memory so far, the input of the layer, and the positions to keep.

    Returns
    -------
    Tensor, (min(M + L, mem_len), B, d_model)
        A copy without a gradient, as Transformer-XL stops it there.

    Examples
    --------
    >>> import torch
    >>> from relpos.torch import nn
    >>> segments = torch.arange(8.0).reshape(2, 4, 1, 1)
    >>> memory = nn.update_memory(None, segments[0], mem_len=6)
    >>> nn.update_memory(memory, segments[1], mem_len=6).flatten()
    tensor([2., 3., 4., 5., 6., 7.])
    """
    check_shape("hidden", hidden, ("L", "B", "d_model"))
    keep = as_int("mem_len", mem_len, 0)
    # An empty memory has the axes of the others, so that both are checked alike.
    before = hidden[:0] if memory is None else memory
    check_shape("memory", before, ("M", *hidden.shape[1:]))
    positions = torch.cat([before, hidden]).detach()
    return positions[max(positions.shape[0] - keep, 0) :].clone()


@layer_twin(relpos.nn.ConformerRelPositionAttention)
class ConformerRelPositionAttention(AttentionLayer):
    """Multi-head attention of the Conformer, with relative positions on both sides.

    Parameters
    ----------
    d_model, num_heads, dropout : as in `relpos.nn.ConformerRelPositionAttention`
        Width, heads, and dropout of the weights.
    device, dtype : optional
        As those of any module.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> layer = relpos.torch.nn.ConformerRelPositionAttention(16, 2)
    >>> x = torch.ones(2, 5, 16)
    >>> pos_emb = relpos.torch.sinusoidal(torch.arange(4, -5, -1), 16)
    >>> layer(x, x, x, pos_emb).shape
    torch.Size([2, 5, 16])
    """

    _projections = "linear_q", "linear_k", "linear_v"

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float = 0.0,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        settings, options = self._set_up(
            device, dtype, d_model=d_model, num_heads=num_heads, dropout=dropout
        )
        self.d_model, self.num_heads = settings.d_model, settings.num_heads
        self.dropout: float = settings.dropout
        self.linear_q, self.linear_k, self.linear_v, self.linear_out = (
            nn.Linear(d_model, d_model, **options) for _ in range(4)
        )
        self.linear_pos = nn.Linear(d_model, d_model, bias=False, **options)
        shape = num_heads, d_model // num_heads
        self.pos_bias_u = xavier_parameter(shape, **options)
        self.pos_bias_v = xavier_parameter(shape, **options)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        pos_emb: Tensor,
        mask: Tensor | None = None,
        cache: Tensor | None = None,
    ) -> Tensor:
        """Attend from a query to keys and their values.

        Parameters
        ----------
        query : Tensor, (B, Lq, d_model)
            The last Lq of the Lk positions.
        key, value : Tensor, (B, Lk - M, d_model)
            What is attended to, behind the cache.
        pos_emb : Tensor, (2 Lk - 1, d_model) or (1, 2 Lk - 1, d_model)
            Encodings of the distances Lk - 1, ..., -(Lk - 1).
        mask : Tensor of bool, or 0 and 1, (B, 1 or Lq, Lk), optional
            True or 1 = may attend. A `CausalBias` of ``torch.nn.attention.bias``, of Lq
            and Lk, hides what it says.
        cache : Tensor, (B, M, d_model), optional
            Put before key and value.

        Returns
        -------
        Tensor, (B, Lq, d_model)
            After the output projection.
        """
        check_shape("query", query, ("B", "Lq", self.d_model))
        check_shape("key", key, (query.shape[0], "Lk - M", self.d_model))
        check_shape("value", value, tuple(key.shape))
        if cache is not None:
            check_shape("cache", cache, (query.shape[0], "M", self.d_model))
            # The cached tokens come first, as positions are counted from the first key.
            key = torch.cat([cache, key], 1)
            value = torch.cat([cache, value], 1)
        batch, length, _ = query.shape
        total = key.shape[1]
        check_queries(length, total)
        visible = visible_pairs(mask, length, total, query.device)
        if visible is not None:
            mask = visible.expand(batch, length, total)
        if mask is not None:
            check_tensors({"mask": mask})
            check_pairs(tuple(mask.shape), batch, length, total)
            # All heads have one mask.
            mask = as_zero_one("mask", mask)[:, None]
        out: Any = relpos.torch.transformer_xl_attention(
            *self._project(query, key, value),
            split_heads(self._rows(pos_emb, total), self.num_heads),
            self.pos_bias_u,
            self.pos_bias_v,
            attn_mask=mask,
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.linear_out(join_heads(out))

    def _rows(self, pos_emb: Tensor, total: int) -> Tensor:
        """Check `pos_emb` and return its rows, projected."""
        check_tensors({"pos_emb": pos_emb})
        rows = pos_emb[0] if pos_emb.dim() == 3 and pos_emb.shape[0] == 1 else pos_emb
        # no keys need no rows
        check_shape("pos_emb", rows, (max(2 * total - 1, 0), self.d_model))
        return some_rows(self.linear_pos(rows))
