"""WavLM."""

from __future__ import annotations

from typing import Any

import torch

from relpos.torch._transformers.adapters.base import (
    Attributes,
    Swapped,
    attend_projected,
)
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch._transformers.interface.registry import wants_weights
from relpos.torch.nn._layer import split_heads
from relpos.torch.nn._positions import t5_buckets


@replaces("wavlm.WavLMAttention")
class _WavLMAttention(Swapped):
    """Attention by a `position_query`, the gate of one column, and buckets."""

    def prepare(self) -> Attributes:
        return {"buckets": t5_buckets(self.num_buckets, self.max_distance, True)}

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_bias: torch.Tensor | None = None,
        index: int = 0,
        **keywords: Any,
    ) -> Any:
        self.check_keywords(keywords, attention_mask)
        # the first layer has the table, and hands it on to the others
        table = self.rel_attn_embed.weight if position_bias is None else position_bias
        visible = None
        if attention_mask is not None:
            visible = attention_mask.eq(1)[:, None, None, :]
        # The eight outputs for each head are two gates of four summands.
        gates = self.gru_rel_pos_linear(split_heads(hidden_states, self.num_heads))
        a, b = torch.sigmoid(gates.unflatten(-1, (2, 4)).sum(-1)).split(1, dim=-1)
        out, weights = attend_projected(
            self,
            hidden_states,
            visible,
            weighed=wants_weights(self, keywords),
            # A number for each bucket is a vector of one column, (H, buckets, 1), which
            # the gate as a position query multiplies.
            rel_key=table.T[..., None],
            position_query=a * (b * self.gru_rel_pos_const - 1.0) + 2.0,
            buckets=self.buckets,
        )
        if weights is not None:  # the model has their mean for every head
            weights = weights.mean(1, keepdim=True).expand_as(weights)
        return out, weights, table
