"""Inkling: the position query itself, in the place of a dense bias made of it."""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.inkling import modeling_inkling

from relpos.torch._transformers.layers import Asking, Swapped


class InklingRelativeLogits(Swapped, modeling_inkling.InklingRelativeLogits):
    """Hands on the position query, which the temperature then multiplies."""

    asks = True
    attends = False

    def forward(
        self, relative_states: torch.Tensor, query_positions: Any, key_positions: Any
    ) -> torch.Tensor:
        return relative_states.transpose(1, 2)


class InklingAttention(Asking, modeling_inkling.InklingAttention):
    """Inkling's attention by `position_query` and a table by distance."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        conv_mask: torch.Tensor | None = None,
        past_key_values: Any = None,
        **keywords: Any,
    ) -> Any:
        self.check_registry()
        offset = 0
        if past_key_values is not None:
            layer, queries = self.layer_idx, hidden_states.shape[1]
            first_key = past_key_values.get_mask_sizes(queries, layer)[1]
            offset = int(past_key_values.get_query_offset(layer) - first_key)
        return super().forward(
            hidden_states,
            attention_mask,
            conv_mask=conv_mask,
            past_key_values=past_key_values,
            query_offset=offset,
            **keywords,
        )

    def position_terms(self, position_query: torch.Tensor) -> dict[str, Any]:
        """The query (B, H, Lq, d_rel) and the curves (d_rel, extent) by distance."""
        curves = self.rel_logits_proj.proj
        return {
            "position_query": position_query,
            "rel_key": curves.T.flip(0),
            "min_relative_position": 1 - curves.shape[1],
            "beyond": "zero",
        }
