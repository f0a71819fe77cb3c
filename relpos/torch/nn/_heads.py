"""Shaw's and the Music Transformer's attention as modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import relpos.nn
import relpos.torch
from relpos._checks import as_flag
from relpos._twins import twin
from relpos.nn._inputs import as_heads, as_probability, as_size
from relpos.torch.nn._layer import (
    AttentionLayer,
    check_shape,
    drawn,
    join_heads,
)


class _Table(nn.Module):
    """Table of vectors, so that its name in `state_dict` ends in ``.weight``."""

    def __init__(self, shape: tuple[int, ...], device: Any, dtype: Any) -> None:
        super().__init__()
        self.weight = drawn(shape, device, dtype)


@twin(relpos.nn.ShawAttention)
class ShawAttention(AttentionLayer):
    """Multi-head attention with clipped relative positions in keys and values.

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
    device, dtype : optional
        As those of any module.

    Attributes
    ----------
    q_proj, k_proj, v_proj, out_proj : torch.nn.Linear
    rel_key, rel_value : with a `weight`, or None
        (2k+1, D), with `per_head` (num_heads, 2k+1, D); row t is position t - k.

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
        super().__init__()
        sizes = {"embed_dim": embed_dim, "num_heads": num_heads}
        self.embed_dim, self.num_heads, columns = as_heads(**sizes)
        reach = as_size("max_relative_position", max_relative_position, 0)
        self.dropout = as_probability("dropout", dropout)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim, **options) for _ in range(4)
        )
        heads = (self.num_heads,) if as_flag("per_head", per_head) else ()
        shape = (*heads, 2 * reach + 1, columns)
        use_keys = as_flag("use_keys", use_keys)
        use_values = as_flag("use_values", use_values)
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
        key = query if key is None else key
        check_shape("key", key, (query.shape[0], "Lk", self.embed_dim))
        value = key if value is None else value
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


@twin(relpos.nn.RelativeGlobalAttention)
class RelativeGlobalAttention(AttentionLayer):
    """Causal self-attention with relative positions in the keys (Music Transformer).

    Parameters
    ----------
    d_model, num_heads : int
        Width of the input, and number of heads, which divides it.
    max_len : int, default 1024
        Rows of `Er`, and longest sequence.
    dropout : float, default 0.1
        On the output.
    device, dtype : optional
        As those of any module.

    Attributes
    ----------
    query, key, value : torch.nn.Linear
    Er : torch.nn.Parameter, (max_len, d_model // num_heads)
        The last row is distance 0, the first distance max_len - 1.

    Examples
    --------
    >>> import torch
    >>> from relpos.torch import nn
    >>> layer = nn.RelativeGlobalAttention(768, 12, max_len=128).eval()
    >>> layer(torch.ones(2, 100, 768)).shape
    torch.Size([2, 100, 768])
    """

    _names = "query", "key", "value"

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
        super().__init__()
        sizes = {"d_model": d_model, "num_heads": num_heads}
        self.d_model, self.num_heads, columns = as_heads(**sizes)
        self.max_len = as_size("max_len", max_len)
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.query, self.key, self.value = (
            nn.Linear(d_model, d_model, **options) for _ in range(3)
        )
        self.dropout = nn.Dropout(as_probability("dropout", dropout))
        start = torch.empty(self.max_len, columns, **options)
        self.Er = nn.Parameter(start.normal_())

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

        Raises
        ------
        ValueError
            The sequence is longer than max_len.
        """
        check_shape("x", x, ("batch", "seq", self.d_model))
        if x.shape[1] > self.max_len:
            raise ValueError(
                f"x: got a sequence of {x.shape[1]}; expected at most max_len = "
                f"{self.max_len}"
            )
        out: Any = relpos.torch.relative_global_attention(
            *self._project(x, x, x), self.Er
        )
        return self.dropout(join_heads(out))

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        ones = self.Er.new_ones(self.max_len, self.max_len)
        destination[prefix + "mask"] = ones.tril()[None, None]

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        mask = torch.as_tensor(state_dict.pop(prefix + "mask", 0))
        lower = torch.ones(self.max_len, self.max_len).tril()[None, None]
        if (
            mask.dim()
            and not mask.is_meta
            and not torch.equal(mask.cpu().to(lower), lower)
        ):
            raise ValueError(
                f"{prefix}mask: the values differ from those the layer computes."
            )
        super()._load_from_state_dict(state_dict, prefix, *args)
