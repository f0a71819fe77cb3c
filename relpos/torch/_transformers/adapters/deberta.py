"""DeBERTa, the first version."""

from __future__ import annotations

from typing import Any

import torch

from relpos.torch._transformers.adapters.base import Attributes, attend_heads
from relpos.torch._transformers.adapters.deberta_v2 import (
    DebertaV2Encoder,
    DisentangledSelfAttention,
    scale_of,
)
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch.nn._layer import split_heads
from relpos.torch.nn._positions import deberta_buckets


@replaces("deberta.DebertaEncoder")
class _DebertaEncoder(DebertaV2Encoder):
    """Makes neither the rows of all pairs nor a mask of all pairs."""


@replaces("deberta.DisentangledSelfAttention", prefix="Deberta")
class _DebertaSelfAttention(DisentangledSelfAttention):
    """Attention by `rel_key` and `rel_query`, with heads side by side in `in_proj`."""

    def prepare(self) -> Attributes:
        if self.talking_head:
            raise ValueError(
                "model: got DeBERTa with talking_head=True, which mixes the weights of "
                "all heads; expected one without"
            )
        if not self.relative_attention:
            return {}
        span = self.max_relative_positions
        return {
            "buckets": deberta_buckets(None, span),
            "pos_ebd_size": span,
            "position_buckets": -1,
        }

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor,
        output_attentions: bool = False,
        query_states: torch.Tensor | None = None,
        relative_pos: torch.Tensor | None = None,
        rel_embeddings: torch.Tensor | None = None,
    ) -> Any:
        if query_states is not None:
            raise ValueError(
                "query_states: got a Tensor; expected None, as this version projects "
                "query, key and value together"
            )
        heads = self.num_attention_heads
        rows = split_heads(self.in_proj(hidden_states), heads)
        query, key, value = rows.chunk(3, dim=-1)
        query_bias, value_bias = (
            split_heads(bias[None], heads) for bias in (self.q_bias, self.v_bias)
        )
        terms = self._terms(rel_embeddings, relative_pos, hidden_states.shape[-2])
        products = 1 + len(self.pos_att_type)
        return attend_heads(
            self,
            query + query_bias,
            key,
            value + value_bias,
            attention_mask.bool(),
            dropout=self.dropout.p,
            weighed=output_attentions,
            scale=scale_of(products * self.attention_head_size),
            **terms,
        )

    def _layers(self) -> dict[str, Any]:
        """Return the layer that makes each table of positions."""
        layers = {}
        if self.relative_attention:
            if "c2p" in self.pos_att_type:
                layers["rel_key"] = self.pos_proj
            if "p2c" in self.pos_att_type:
                layers["rel_query"] = self.pos_q_proj
        return layers

    def _reach(self, length: int) -> int:
        """Return from where on positions share a row: not beyond the length."""
        return min(length, self.pos_ebd_size)
