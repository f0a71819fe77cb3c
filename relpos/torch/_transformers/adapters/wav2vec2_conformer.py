"""Wav2Vec2-Conformer with relative positions."""

from __future__ import annotations

from typing import Any

import torch

from relpos.torch._kept import project_by
from relpos.torch._transformers.adapters.base import Asking, Keeping, attend_rows
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch._transformers.interface.registry import wants_weights
from relpos.torch.nn._layer import split_heads


@replaces("wav2vec2_conformer.Wav2Vec2ConformerSelfAttention")
class _Wav2Vec2ConformerSelfAttention(Asking, Keeping):
    """Attention by `rel_key`, `pos_bias_u` and `pos_bias_v`: Transformer-XL's terms."""

    @staticmethod
    def fits(module: Any) -> bool:
        """Return True for relative encodings; others go through the registry."""
        return bool(module.position_embeddings_type == "relative")

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        relative_position_embeddings: torch.Tensor | None = None,
        **keywords: Any,
    ) -> Any:
        self.check_registry()
        self.check_keywords(keywords, attention_mask)
        if relative_position_embeddings is None:
            raise ValueError(
                "relative_position_embeddings: got None; expected those of relative "
                "positions, (1, 2 * L - 1, hidden_size)"
            )
        # The embeddings have a batch axis of length 1, which the table below has not.
        kept = project_by(self, relative_position_embeddings, [self.linear_pos])
        if kept is None:
            rows = self.linear_pos(relative_position_embeddings)
        else:
            (rows,) = kept
        out, weights = attend_rows(
            self,
            self.linear_q(hidden_states),
            self.linear_k(hidden_states),
            self.linear_v(hidden_states),
            attention_mask,
            heads=self.num_heads,
            dropout=self.dropout.p,
            weighed=wants_weights(self, keywords),
            scale=self.scaling,
            rel_key=split_heads(rows, self.num_heads)[0],
            pos_bias_u=self.pos_bias_u,
            pos_bias_v=self.pos_bias_v,
        )
        return self.linear_out(out), weights
