"""Wav2Vec2-Conformer: Transformer-XL's terms, whose scores the model shifts densely."""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.wav2vec2_conformer import modeling_wav2vec2_conformer

from relpos.torch._transformers.call import attend
from relpos.torch._transformers.layers import Swapped, heads, joined
from relpos.torch._transformers.registry import wants_weights


class Wav2Vec2ConformerSelfAttention(
    Swapped, modeling_wav2vec2_conformer.Wav2Vec2ConformerSelfAttention
):
    """Attention by `rel_key`, `pos_bias_u` and `pos_bias_v`."""

    asks = True

    @staticmethod
    def fits(module: Any) -> bool:
        """Rotary encodings and none go through the registry as they are."""
        return bool(module.position_embeddings_type == "relative")

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        relative_position_embeddings: torch.Tensor | None = None,
        **keywords: Any,
    ) -> Any:
        if relative_position_embeddings is None:
            raise ValueError(
                "relative_position_embeddings: got None; expected those of relative "
                "positions, (1, 2 * L - 1, hidden_size)"
            )
        count = self.num_heads
        out, weights = attend(
            heads(self.linear_q(hidden_states), count),
            heads(self.linear_k(hidden_states), count),
            heads(self.linear_v(hidden_states), count),
            attention_mask,
            dropout_p=self.dropout.p if self.training else 0.0,
            scale=self.scaling,
            rel_key=heads(self.linear_pos(relative_position_embeddings), count)[0],
            pos_bias_u=self.pos_bias_u,
            pos_bias_v=self.pos_bias_v,
            weighed=wants_weights(keywords),
        )
        return self.linear_out(joined(out)), weights
