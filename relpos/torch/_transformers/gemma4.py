"""Gemma 4's audio encoder: a table by distance in the place of shifted blocks."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import softplus
from transformers.models.gemma4 import modeling_gemma4

from relpos.torch._transformers.call import attend
from relpos.torch._transformers.layers import Swapped, heads, joined


class Gemma4AudioModel(Swapped, modeling_gemma4.Gemma4AudioModel):
    """Leaves the mask as it is, (B, 1, L, L), where the model cuts it into blocks."""

    attends = False

    def _convert_4d_mask_to_blocked_5d(self, mask_4d: torch.Tensor) -> torch.Tensor:
        return mask_4d == 0


class Gemma4AudioAttention(Swapped, modeling_gemma4.Gemma4AudioAttention):
    """Attention by `rel_key` under a cap; keys are scaled, their positions not."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
    ) -> Any:
        if attention_mask is None or attention_mask.dim() != 4:
            raise ValueError(
                "attention_mask: got "
                + ("None" if attention_mask is None else f"{attention_mask.dim()} axes")
                + "; expected the mask of all pairs, (B, 1, L, L), which the replaced "
                "Gemma4AudioModel makes"
            )
        count = self.num_heads
        query = heads(self.q_proj(hidden_states).float(), count)
        rows = heads(self.relative_k_proj(position_embeddings), count)[0]
        out, _ = attend(
            query * (self.q_scale * softplus(self.per_dim_scale)),
            heads(self.k_proj(hidden_states).float(), count) * self.k_scale,
            heads(self.v_proj(hidden_states).float(), count),
            attention_mask,
            scale=1.0,
            rel_key=rows.to(query.dtype),
            min_relative_position=-self.max_past_horizon,
            beyond="zero",
            softcap=self.attention_logits_soft_cap,
        )
        return self.post(joined(out).to(hidden_states.dtype)), None
