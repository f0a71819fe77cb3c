"""SEW-D, whose attention is that of DeBERTa V2."""

from __future__ import annotations

from typing import Any

import torch

from relpos.torch._transformers.adapters.base import Swapped
from relpos.torch._transformers.adapters.deberta_v2 import (
    DebertaV2Encoder,
    DisentangledSelfAttention,
)
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch._transformers.interface.registry import wants_weights


@replaces("sew_d.SEWDTransformerEncoder")
class _SEWDTransformerEncoder(Swapped):
    """Makes no rows of all pairs; its mask is one of keys already."""

    attends = False
    overrides = ("get_rel_pos",)

    get_rel_pos = DebertaV2Encoder.get_rel_pos


@replaces("sew_d.DisentangledSelfAttention", prefix="SEWD")
class _SEWDSelfAttention(DisentangledSelfAttention):
    """DeBERTa V2's, with a dropout of another kind, and weights for those who ask."""

    def forward(  # type: ignore[override]
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor,
        query_states: torch.Tensor | None = None,
        relative_pos: torch.Tensor | None = None,
        rel_embeddings: torch.Tensor | None = None,
        **keywords: Any,
    ) -> Any:
        self.check_keywords(keywords, attention_mask)
        return super().forward(
            hidden_states,
            attention_mask,
            wants_weights(self, keywords),
            query_states,
            relative_pos,
            rel_embeddings,
        )

    def dropout_rate(self) -> float:
        rate: float = self.dropout.drop_prob
        return rate
