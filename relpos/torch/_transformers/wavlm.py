"""WavLM: a table by bucket, times the gate of each query, from layer to layer."""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.wavlm import modeling_wavlm

from relpos.torch._transformers.call import attend
from relpos.torch._transformers.layers import Swapped, heads, joined
from relpos.torch.nn._positions import t5_buckets


class WavLMAttention(Swapped, modeling_wavlm.WavLMAttention):
    """Attention by a `position_query` of one column, the gate, and its table."""

    def prepare(self) -> None:
        self.buckets = t5_buckets(self.num_buckets, self.max_distance, True)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_bias: torch.Tensor | None = None,
        index: int = 0,
        output_attentions: bool = False,
        **keywords: Any,
    ) -> Any:
        table = self.rel_attn_embed.weight if position_bias is None else position_bias
        count = self.num_heads
        visible = None if attention_mask is None else attention_mask.eq(1)
        out, weights = attend(
            heads(self.q_proj(hidden_states), count),
            heads(self.k_proj(hidden_states), count),
            heads(self.v_proj(hidden_states), count),
            None if visible is None else visible[:, None, None, :],
            dropout_p=self.dropout if self.training else 0.0,
            rel_key=table.T[..., None],
            position_query=self._gate(hidden_states),
            buckets=self.buckets,
            weighed=output_attentions,
        )
        if weights is not None:  # the model has their mean for every head
            weights = weights.mean(1, keepdim=True).expand_as(weights)
        return self.out_proj(joined(out)), weights, table

    def _gate(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """The factor of the bias of each query and head, (B, H, L, 1)."""
        rows = self.gru_rel_pos_linear(heads(hidden_states, self.num_heads))
        a, b = torch.sigmoid(rows.unflatten(-1, (2, 4)).sum(-1)).split(1, dim=-1)
        return a * (b * self.gru_rel_pos_const - 1.0) + 2.0
