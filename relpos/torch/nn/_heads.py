"""Shaw's and the Music Transformer's attention as modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import relpos.torch
from relpos._checks import as_flag
from relpos.nn._inputs import as_probability, as_size, head_dim
from relpos.torch.nn._layer import (
    Layer,
    check_shape,
    drawn,
    join_heads,
    split_heads,
)


class _Table(nn.Module):
    """A table of vectors, so that its name in `state_dict` ends in ``.weight``."""

    def __init__(self, shape: tuple[int, ...], device: Any, dtype: Any) -> None:
        super().__init__()
        self.weight = drawn(shape, device, dtype)


class ShawAttention(Layer):
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
    device, dtype : optional
        As those of any module.

    Attributes
    ----------
    q_proj, k_proj, v_proj, out_proj : torch.nn.Linear
    rel_key, rel_value : with a `weight`, or None
        (2k+1, D), with `per_head` (num_heads, 2k+1, D); row t is position t - k.

    Raises
    ------
    TypeError, ValueError
        As `relpos.nn.ShawAttention`.

    See Also
    --------
    relpos.nn.ShawAttention : The same on arrays.
    relpos.torch.shaw_attention : The attention as a function.

    References
    ----------
    .. [1] Shaw, Uszkoreit, Vaswani, "Self-Attention with Relative Position
       Representations", 2018, arXiv:1803.02155, equations 3 and 4.

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
        self.embed_dim = as_size("embed_dim", embed_dim)
        self.num_heads = as_size("num_heads", num_heads)
        reach = as_size("max_relative_position", max_relative_position, 0)
        self.dropout = as_probability("dropout", dropout)
        width = head_dim(self.embed_dim, self.num_heads, ("embed_dim", "num_heads"))
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.q_proj = nn.Linear(embed_dim, embed_dim, **options)
        self.k_proj = nn.Linear(embed_dim, embed_dim, **options)
        self.v_proj = nn.Linear(embed_dim, embed_dim, **options)
        self.out_proj = nn.Linear(embed_dim, embed_dim, **options)
        heads = (self.num_heads,) if as_flag("per_head", per_head) else ()
        shape = (*heads, 2 * reach + 1, width)
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

        Raises
        ------
        TypeError, ValueError
            As `relpos.nn.ShawAttention`'s call.

        See Also
        --------
        relpos.torch.shaw_attention : The attention inside.
        """
        if key is None and value is not None:
            raise ValueError("key: got None with a value; expected both, or neither")
        check_shape("query", query, ("batch", "Lq", self.embed_dim))
        key = query if key is None else key
        check_shape("key", key, (query.shape[0], "Lk", self.embed_dim))
        value = key if value is None else value
        check_shape("value", value, tuple(key.shape))
        out: Any = relpos.torch.shaw_attention(
            split_heads(self.q_proj(query), self.num_heads),
            split_heads(self.k_proj(key), self.num_heads),
            split_heads(self.v_proj(value), self.num_heads),
            None if self.rel_key is None else self.rel_key.weight,
            None if self.rel_value is None else self.rel_value.weight,
            attn_mask=attn_mask,
            is_causal=is_causal,
            query_offset=query_offset,
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.out_proj(join_heads(out))


class RelativeGlobalAttention(Layer):
    r"""Causal self-attention with relative positions in the keys (Music Transformer).

    .. math::

        out = softmax\left(\frac{Q K^T + S^{rel}}{\sqrt{D}}\right) V, \quad
        S^{rel}_{ij} = q_i \, Er_{max\_len - 1 - (i - j)}

    One table `Er` serves all heads. There is no output projection; dropout acts on the
    output.

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

    Raises
    ------
    TypeError, ValueError
        As `relpos.nn.RelativeGlobalAttention`.

    See Also
    --------
    relpos.nn.RelativeGlobalAttention : The same on arrays.
    relpos.torch.relative_global_attention : The attention as a function.

    Notes
    -----
    The buffer ``mask`` that articles' class has, the lower triangle (1, 1, max_len,
    max_len), is accepted and produced in a state, but not stored.

    References
    ----------
    .. [1] Huang et al., "Music Transformer: Generating Music with Long-Term Structure",
       2018, arXiv:1809.04281.

    Examples
    --------
    >>> import torch
    >>> from relpos.torch import nn
    >>> layer = nn.RelativeGlobalAttention(768, 12, max_len=128).eval()
    >>> layer(torch.ones(2, 100, 768)).shape
    torch.Size([2, 100, 768])
    """

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
        self.d_model = as_size("d_model", d_model)
        self.num_heads = as_size("num_heads", num_heads)
        self.max_len = as_size("max_len", max_len)
        width = head_dim(self.d_model, self.num_heads, ("d_model", "num_heads"))
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.query = nn.Linear(d_model, d_model, **options)
        self.key = nn.Linear(d_model, d_model, **options)
        self.value = nn.Linear(d_model, d_model, **options)
        self.dropout = nn.Dropout(as_probability("dropout", dropout))
        start = torch.empty(self.max_len, width, **options)
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
            x is of another shape, or the sequence longer than max_len.

        See Also
        --------
        relpos.torch.relative_global_attention : The attention inside.
        """
        check_shape("x", x, ("batch", "seq", self.d_model))
        if x.shape[1] > self.max_len:
            raise ValueError(
                f"x: got a sequence of {x.shape[1]}; expected at most max_len = "
                f"{self.max_len}"
            )
        out: Any = relpos.torch.relative_global_attention(
            split_heads(self.query(x), self.num_heads),
            split_heads(self.key(x), self.num_heads),
            split_heads(self.value(x), self.num_heads),
            self.Er,
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
