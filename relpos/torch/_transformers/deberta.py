"""DeBERTa V2 and V3: tables by bucket, and a mask of keys alone."""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.deberta_v2 import modeling_deberta_v2

from relpos.torch._transformers.call import attend
from relpos.torch._transformers.layers import Swapped, heads, joined
from relpos.torch.nn._positions import deberta_buckets


class DebertaV2Encoder(Swapped, modeling_deberta_v2.DebertaV2Encoder):
    """Makes neither the rows of all pairs nor a mask of all pairs."""

    attends = False

    def get_rel_pos(
        self, hidden_states: Any, query_states: Any = None, relative_pos: Any = None
    ) -> Any:
        return relative_pos

    def get_attention_mask(self, attention_mask: torch.Tensor) -> torch.Tensor:
        if attention_mask.dim() <= 2:
            return attention_mask[:, None, None, :].bool()
        return super().get_attention_mask(attention_mask).bool()


class DisentangledSelfAttention(Swapped, modeling_deberta_v2.DisentangledSelfAttention):
    """Attention by `rel_key` and `rel_query`, two tables of projected embeddings."""

    def prepare(self) -> None:
        if self.relative_attention:
            bucketed = self.position_buckets > 0
            farthest = self.max_relative_positions if bucketed else None
            self.buckets = deberta_buckets(farthest, self.pos_ebd_size)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor,
        output_attentions: bool = False,
        query_states: torch.Tensor | None = None,
        relative_pos: torch.Tensor | None = None,
        rel_embeddings: torch.Tensor | None = None,
    ) -> Any:
        if query_states is None:
            query_states = hidden_states
        count = self.num_attention_heads
        types = ("c2p" in self.pos_att_type) + ("p2c" in self.pos_att_type)
        out, weights = attend(
            heads(self.query_proj(query_states), count),
            heads(self.key_proj(hidden_states), count),
            heads(self.value_proj(hidden_states), count),
            attention_mask.bool(),
            dropout_p=self.dropout.p if self.training else 0.0,
            scale=((1 + types) * self.attention_head_size) ** -0.5,
            weighed=output_attentions,
            **self._tables(rel_embeddings),
            **self._rows(relative_pos),
        )
        return joined(out), weights

    def _tables(self, rel_embeddings: torch.Tensor | None) -> dict[str, Any]:
        """The embeddings as keys and queries of positions, (H, 2 span, D)."""
        if not self.relative_attention:
            return {}
        rows = self.pos_dropout(rel_embeddings)[: 2 * self.pos_ebd_size]
        shared = self.share_att_key
        tables = {}
        if "c2p" in self.pos_att_type:
            layer = self.key_proj if shared else self.pos_key_proj
            tables["rel_key"] = heads(layer(rows), self.num_attention_heads)
        if "p2c" in self.pos_att_type:
            layer = self.query_proj if shared else self.pos_query_proj
            tables["rel_query"] = heads(layer(rows), self.num_attention_heads)
        return tables

    def _rows(self, relative_pos: torch.Tensor | None) -> dict[str, Any]:
        """Which row a pair has: by bucket, or as a caller's `relative_pos` says."""
        if not (self.relative_attention and self.pos_att_type):
            return {}
        if relative_pos is None:
            return {"buckets": self.buckets}
        span = self.pos_ebd_size
        rows = (relative_pos.long() + span).clamp(0, 2 * span - 1)
        return {"labels": rows[:, 0] if rows.dim() == 4 else rows}
