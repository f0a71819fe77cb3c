"""The Conformer's attention as a module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import relpos.torch
from relpos.nn._inputs import as_probability, as_size, head_dim
from relpos.torch.nn._layer import (
    Layer,
    as_zero_one,
    check_shape,
    drawn,
    join_heads,
    some_rows,
    split_heads,
)


class ConformerRelPositionAttention(Layer):
    r"""Multi-head attention of the Conformer, with relative positions on both sides.

    .. math::

        s_{ij} = \frac{(q_i + u) k_j + (q_i + v) W_{pos} P_{i - j}}{\sqrt{D}}

    Parameters
    ----------
    d_model, num_heads : int
        Width of the input, and number of heads, which divides it.
    dropout : float, default 0
        On the attention weights.
    device, dtype : optional
        As those of any module.

    Attributes
    ----------
    linear_q, linear_k, linear_v, linear_out, linear_pos : torch.nn.Linear
        `linear_pos` has no bias.
    pos_bias_u, pos_bias_v : torch.nn.Parameter, (num_heads, d_model // num_heads)

    Raises
    ------
    TypeError, ValueError
        As `relpos.nn.ConformerRelPositionAttention`.

    See Also
    --------
    relpos.nn.ConformerRelPositionAttention : The same on arrays.
    relpos.torch.transformer_xl_attention : The attention as a function.

    Notes
    -----
    In the mask True or 1 = may attend, as in ESPnet; NeMo has the opposite. A query
    that sees no key gets the bias of `linear_out`.

    References
    ----------
    .. [1] Gulati et al., "Conformer: Convolution-augmented Transformer for Speech
       Recognition", 2020, arXiv:2005.08100.

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

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        dropout: float = 0.0,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.d_model = as_size("d_model", d_model)
        self.num_heads = as_size("num_heads", num_heads)
        self.dropout = as_probability("dropout", dropout)
        width = head_dim(self.d_model, self.num_heads, ("d_model", "num_heads"))
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        self.linear_q = nn.Linear(d_model, d_model, **options)
        self.linear_k = nn.Linear(d_model, d_model, **options)
        self.linear_v = nn.Linear(d_model, d_model, **options)
        self.linear_out = nn.Linear(d_model, d_model, **options)
        self.linear_pos = nn.Linear(d_model, d_model, bias=False, **options)
        self.pos_bias_u = drawn((self.num_heads, width), **options)
        self.pos_bias_v = drawn((self.num_heads, width), **options)

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
            Stands at the last Lq of the Lk positions.
        key, value : Tensor, (B, Lk - M, d_model)
            What is attended to, behind the cache.
        pos_emb : Tensor, (2 Lk - 1, d_model) or (1, 2 Lk - 1, d_model)
            Encodings of the distances Lk - 1, ..., -(Lk - 1).
        mask : Tensor of bool, or 0 and 1, (B, 1 or Lq, Lk), optional
            True or 1 = may attend.
        cache : Tensor, (B, M, d_model), optional
            Put before key and value.

        Returns
        -------
        Tensor, (B, Lq, d_model)
            After the output projection.

        Raises
        ------
        TypeError, ValueError
            As `relpos.nn.ConformerRelPositionAttention`'s call.

        See Also
        --------
        relpos.torch.transformer_xl_attention : The attention inside.
        """
        check_shape("query", query, ("B", "Lq", self.d_model))
        check_shape("key", key, (query.shape[0], "Lk - M", self.d_model))
        check_shape("value", value, tuple(key.shape))
        if cache is not None:
            check_shape("cache", cache, (query.shape[0], "M", self.d_model))
            key, value = (torch.cat([cache, x], 1) for x in (key, value))
        lengths = query.shape[1], key.shape[1]
        out: Any = relpos.torch.transformer_xl_attention(
            split_heads(self.linear_q(query), self.num_heads),
            split_heads(self.linear_k(key), self.num_heads),
            split_heads(self.linear_v(value), self.num_heads),
            split_heads(self._project(pos_emb, lengths[1]), self.num_heads),
            self.pos_bias_u,
            self.pos_bias_v,
            attn_mask=_read_mask(mask, query.shape[0], *lengths),
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.linear_out(join_heads(out))

    def _project(self, pos_emb: Tensor, total: int) -> Tensor:
        rows = pos_emb[0] if pos_emb.dim() == 3 and len(pos_emb) == 1 else pos_emb
        # no keys need no rows
        check_shape("pos_emb", rows, (max(2 * total - 1, 0), self.d_model))
        return some_rows(self.linear_pos(rows))


def _read_mask(mask: Tensor | None, batch: int, rows: int, total: int) -> Tensor | None:
    """Return the mask as (B, 1, 1 or Lq, Lk)."""
    if mask is None:
        return None
    if tuple(mask.shape) not in ((batch, 1, total), (batch, rows, total)):
        raise ValueError(
            f"mask: got shape {(*mask.shape,)}; expected (B, 1 or Lq, Lk) = "
            f"({batch}, 1 or {rows}, {total}), cache included"
        )
    return as_zero_one("mask", mask)[:, None]
