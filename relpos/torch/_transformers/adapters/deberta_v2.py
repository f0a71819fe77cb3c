"""DeBERTa V2 and V3."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from relpos.torch._kept import project_by
from relpos.torch._transformers.adapters.base import (
    Attributes,
    Keeping,
    Swapped,
    attend_rows,
)
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch._transformers.interface.registry import Terms
from relpos.torch.nn._layer import split_heads
from relpos.torch.nn._positions import deberta_buckets, used_by_deberta


@replaces("deberta_v2.DebertaV2Encoder")
class DebertaV2Encoder(Swapped):
    """Makes neither the rows of all pairs nor a mask of all pairs."""

    attends = False
    overrides = ("get_rel_pos", "get_attention_mask")

    def get_rel_pos(
        self, hidden_states: Any, query_states: Any = None, relative_pos: Any = None
    ) -> Any:
        # None, for which attention reads its own buckets, unless a caller gives rows
        return relative_pos

    def get_attention_mask(self, attention_mask: torch.Tensor) -> torch.Tensor:
        if attention_mask.dim() <= 2:
            # A mask of keys (B, L) broadcasts over heads and queries.
            return attention_mask[:, None, None, :].bool()
        original: Any = super()
        return original.get_attention_mask(attention_mask).bool()


def scale_of(columns: int) -> float:
    """Return 1 / sqrt(columns) of a root in float32, as models of any dtype have it."""
    return 1.0 / float(np.float32(math.sqrt(columns)))


def bucket_sizes(module: Any) -> tuple[int | None, int]:
    """Return the arguments of `deberta_buckets` for an attention of DeBERTa."""
    # without buckets each distance has a row of its own
    farthest = module.max_relative_positions if module.position_buckets > 0 else None
    return farthest, module.pos_ebd_size


@replaces("deberta_v2.DisentangledSelfAttention")
class DisentangledSelfAttention(Keeping):
    """Attention by `rel_key` and `rel_query`, two tables of projected embeddings."""

    def prepare(self) -> Attributes:
        if not self.relative_attention:
            return {}
        return {"buckets": deberta_buckets(*bucket_sizes(self))}

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
        # content to content is always there, the other two as the model has them
        products = 1
        for kind in ("c2p", "p2c"):
            if kind in self.pos_att_type:
                products += 1
        length = hidden_states.shape[-2]
        terms = self._terms(rel_embeddings, relative_pos, length)
        return attend_rows(
            self,
            self.query_proj(query_states),
            self.key_proj(hidden_states),
            self.value_proj(hidden_states),
            attention_mask.bool(),
            heads=self.num_attention_heads,
            dropout=self.dropout_rate(),
            weighed=output_attentions,
            scale=scale_of(products * self.attention_head_size),
            **terms,
        )

    def dropout_rate(self) -> float:
        """Return the probability with which weights are dropped in training."""
        rate: float = self.dropout.p
        return rate

    def _terms(
        self, rel_embeddings: Any, relative_pos: torch.Tensor | None, length: int
    ) -> Terms:
        """Return the tables of positions, (H, rows, D), and the row of each pair."""
        if not self.relative_attention:
            return {}
        # Dropout draws a number for every row, whatever the length.
        rows = self.pos_dropout(rel_embeddings)[: 2 * self.pos_ebd_size]
        layers = self._layers()
        if not layers:
            return {}
        terms = self._rows(relative_pos, length)
        used = None
        if relative_pos is None and not torch.compiler.is_compiling():
            farthest = max(length, 1) - 1  # an empty input has a table, too
            used = used_by_deberta(*bucket_sizes(self), -farthest, farthest)
        # The same rows are projected to keys of positions and to queries of positions.
        used_rows = None if used is None else used.rows
        tables = project_by(self, rows, [*layers.values()], used_rows)
        if tables is None:
            tables = tuple(layer(rows) for layer in layers.values())
        elif used is not None:
            terms = {**terms, **used.terms(self.buckets)}
        for name, table in zip(layers, tables, strict=True):
            terms[name] = split_heads(table, self.num_attention_heads)  # type: ignore[literal-required]
        return terms

    def _layers(self) -> dict[str, Any]:
        """Return the layer that makes each table of positions."""
        layers: dict[str, Any] = {}
        if not self.relative_attention:
            return layers
        if "c2p" in self.pos_att_type:
            name = "key_proj" if self.share_att_key else "pos_key_proj"
            layers["rel_key"] = getattr(self, name)
        if "p2c" in self.pos_att_type:
            name = "query_proj" if self.share_att_key else "pos_query_proj"
            layers["rel_query"] = getattr(self, name)
        return layers

    def _reach(self, length: int) -> int:
        """Return from where on positions share a row."""
        reach: int = self.pos_ebd_size
        return reach

    def _rows(self, relative_pos: torch.Tensor | None, length: int) -> Terms:
        """Return the row of each pair: by bucket, or by `relative_pos` of a caller."""
        if not (self.relative_attention and self.pos_att_type):
            return {}
        if relative_pos is None:
            return {"buckets": self.buckets}
        reach = self._reach(length)
        relative_pos = relative_pos.long()
        if "p2c" in self.pos_att_type and not relative_pos.equal(-relative_pos.mT):
            raise ValueError(
                "relative_pos: got [i, j] and [j, i] that are not opposite; expected "
                "opposite ones, as the model reads the p2c term transposed"
            )
        rows = relative_pos.clamp(-reach, reach - 1) + self.pos_ebd_size
        if rows.dim() == 4:  # (B, 1, Lq, Lk), without heads
            rows = rows[:, 0]
        return {"labels": rows}
