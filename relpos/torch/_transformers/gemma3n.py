"""Gemma 3n's audio encoder: a table by distance in the place of shifted blocks."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import softplus
from transformers.models.gemma3n import modeling_gemma3n

from relpos.torch._transformers.call import attend
from relpos.torch._transformers.layers import Swapped, heads


class Gemma3nAudioAttention(Swapped, modeling_gemma3n.Gemma3nAudioAttention):
    """Attention by `rel_key`, one row a distance, in a window and under a cap."""

    def forward(self, hidden_states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        count, past, future = (
            self.num_heads,
            self.max_past_horizon,
            self.max_future_horizon,
        )
        query = heads(self.q_proj(hidden_states), count)
        out, _ = attend(
            query * (self.q_scale * softplus(self.per_dim_scale)),
            heads(self.k_proj(hidden_states), count),
            heads(self.v_proj(hidden_states), count),
            ~mask[:, None, None, :],
            scale=1.0,
            rel_key=self._rows(query),
            min_relative_position=-past,
            softcap=self.attention_logits_soft_cap,
            window=(past, future),
        )
        return out.transpose(1, 2)

    def _rows(self, query: torch.Tensor) -> Any:
        """The projected encodings of the distances, the farthest key behind first."""
        encoding = self.relative_position_embedding
        distances = torch.arange(
            self.max_past_horizon,
            -self.max_future_horizon - 1,
            -1,
            device=query.device,
        )
        waves = encoding._get_timing_signal_1d_pos(distances[None], dtype=query.dtype)
        return heads(encoding.pos_proj(waves), self.num_heads)[0]
