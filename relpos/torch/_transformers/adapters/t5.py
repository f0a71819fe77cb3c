"""T5 and mT5."""

from __future__ import annotations

from typing import Any

import torch

from relpos.torch._transformers.adapters.base import (
    Asking,
    Attributes,
    Caching,
    tokens_before,
)
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch._transformers.interface.registry import Terms, WithTerms
from relpos.torch.nn._positions import t5_buckets


@replaces("t5.T5Attention", "mt5.MT5Attention")
class _T5Attention(Caching, Asking, WithTerms):
    """Attention of T5 by buckets and `rel_bias`, which layers pass as position_bias."""

    def prepare(self) -> Attributes:
        count = self.relative_attention_num_buckets
        farthest = self.relative_attention_max_distance
        return {"buckets": t5_buckets(count, farthest, not self.is_decoder)}

    def forward(
        self,
        hidden_states: torch.Tensor,
        mask: torch.Tensor | None = None,
        key_value_states: torch.Tensor | None = None,
        position_bias: torch.Tensor | None = None,
        cache: Any = None,
        *,
        past_key_values: Any = None,
        **keywords: Any,
    ) -> Any:
        cache = self.check_call(cache, past_key_values, mask, keywords)
        if position_bias is None and self.has_relative_attention_bias:
            # no Parameter: reentrant checkpoints change what a layer returns
            position_bias = self.relative_attention_bias.weight.clone()
        if position_bias is None:  # across, where the model makes a bias of zeros
            position_bias = hidden_states.new_empty(0)
        offset = tokens_before(cache, self.layer_idx)
        original: Any = super()
        return original.forward(
            hidden_states,
            mask=mask,
            key_value_states=key_value_states,
            position_bias=position_bias,
            query_offset=offset,
            **{self.cache_name: cache},
            **keywords,
        )

    def position_terms(self, table: torch.Tensor) -> Terms:
        """Return the table (num_buckets, H) as arguments of attention, if not empty."""
        if not table.numel():
            return {}
        return {"rel_bias": table.T, "buckets": self.buckets}
