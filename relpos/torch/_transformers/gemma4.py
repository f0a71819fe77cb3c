"""Gemma 4's audio encoder: a table by distance in the place of shifted blocks."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import softplus
from transformers.models.gemma4 import modeling_gemma4

from relpos.torch._transformers.call import attend
from relpos.torch._transformers.layers import Swapped, heads, joined


class Gemma4AudioAttention(Swapped, modeling_gemma4.Gemma4AudioAttention):
    """Attention by `rel_key` under a cap; keys are scaled, their positions not."""

    @staticmethod
    def fits(module: Any) -> bool:
        """Whether a query sees itself; where it sees nothing, the model means all."""
        return bool(module.max_past_horizon > 0)

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
    ) -> Any:
        if attention_mask is None:
            raise ValueError(
                "attention_mask: got None; expected the mask of blocks and their "
                "context that Gemma4AudioModel makes"
            )
        count, past, future = (
            self.num_heads,
            self.max_past_horizon,
            self.max_future_horizon,
        )
        query = heads(self.q_proj(hidden_states).float(), count)
        rows = heads(self.relative_k_proj(position_embeddings), count)[0]
        # a query's own key is never out of its window: it is hidden if it is padding
        own = attention_mask.diagonal(past, dim1=-2, dim2=-1).flatten(-2)
        out, _ = attend(
            query * (self.q_scale * softplus(self.per_dim_scale)),
            heads(self.k_proj(hidden_states).float(), count) * self.k_scale,
            heads(self.v_proj(hidden_states).float(), count),
            (own == 0)[..., None, : query.shape[-2]],
            scale=1.0,
            rel_key=rows.to(query.dtype),
            min_relative_position=-past,
            beyond="zero",
            softcap=self.attention_logits_soft_cap,
            window=(past - 1, max(future - 1, 0)),
        )
        return self.post(joined(out).to(hidden_states.dtype)), None
