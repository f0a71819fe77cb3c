"""The audio encoder of Gemma 3n."""

from __future__ import annotations

import torch
from torch.nn.functional import softplus

from relpos.torch._transformers.adapters.base import Swapped
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch._transformers.interface.registry import attend
from relpos.torch.nn._layer import split_heads


@replaces("gemma3n.Gemma3nAudioAttention")
class _Gemma3nAudioAttention(Swapped):
    """Attention by `rel_key`, one row a distance, in a window and under a cap."""

    def forward(self, hidden_states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        count = self.num_heads
        past, future = self.max_past_horizon, self.max_future_horizon
        query = split_heads(self.q_proj(hidden_states), count)
        encoding = self.relative_position_embedding  # the farthest key behind first
        distances = torch.arange(past, -future - 1, -1, device=query.device)
        waves = encoding._get_timing_signal_1d_pos(distances[None], dtype=query.dtype)
        out, _ = attend(
            query * (self.q_scale * softplus(self.per_dim_scale)),
            split_heads(self.k_proj(hidden_states), count),
            split_heads(self.v_proj(hidden_states), count),
            # The model's mask is True where a frame is padding.
            ~mask[:, None, None, :],
            scale=1.0,
            rel_key=split_heads(encoding.pos_proj(waves), count)[0],
            min_relative_position=-past,
            softcap=self.attention_logits_soft_cap,
            window=(past, future),
        )
        return out.transpose(1, 2)
