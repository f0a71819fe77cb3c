"""MPNet, the encoder of sentence embeddings."""

from __future__ import annotations

from typing import Any

import torch

from relpos.torch._transformers.adapters.base import (
    Attributes,
    Masked,
    Swapped,
    attend_rows,
)
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch._transformers.interface.registry import Terms
from relpos.torch.nn._positions import t5_buckets

#: The model counts buckets by a default argument, whatever its configuration says.
BUCKETS = 32


@replaces("mpnet.MPNetEncoder")
class _MPNetEncoder(Swapped):
    """Hands on the table of biases (32, H) in place of the biases of all pairs."""

    attends = False
    overrides = ("compute_position_bias",)

    def compute_position_bias(
        self, x: Any, position_ids: Any = None, num_buckets: int = BUCKETS
    ) -> Any:
        if position_ids is not None or num_buckets != BUCKETS:
            raise ValueError(
                "position_ids, num_buckets: got others than the encoder of MPNet "
                f"passes; expected None and {BUCKETS}"
            )
        return self.relative_attention_bias.weight


@replaces("mpnet.MPNetSelfAttention")
class _MPNetSelfAttention(Masked):
    """Attention by `rel_bias` and T5's buckets, with scores that are scaled."""

    def prepare(self) -> Attributes:
        return {"buckets": t5_buckets(BUCKETS, 128, True)}

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_bias: torch.Tensor | None = None,
        output_attentions: bool = False,
        **keywords: Any,
    ) -> Any:
        self.check_keywords(keywords, attention_mask)
        terms: Terms = {}
        if position_bias is not None:
            terms = {"rel_bias": _checked(position_bias).T, "buckets": self.buckets}
        out, weights = attend_rows(
            self,
            self.q(hidden_states),
            self.k(hidden_states),
            self.v(hidden_states),
            attention_mask,
            heads=self.num_attention_heads,
            dropout=self.dropout.p,
            weighed=output_attentions,
            **terms,
        )
        out = self.o(out)
        return (out, weights) if output_attentions else (out,)


def _checked(table: torch.Tensor) -> torch.Tensor:
    if table.dim() != 2:
        raise ValueError(
            f"position_bias: got shape {tuple(table.shape)}; expected the table of "
            "the encoder, (num_buckets, num_heads)"
        )
    return table
