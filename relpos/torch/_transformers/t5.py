"""T5 and mT5: the table goes from layer to layer, in the place of a dense bias."""

from __future__ import annotations

from typing import Any

import torch
from transformers.models.mt5 import modeling_mt5
from transformers.models.t5 import modeling_t5

from relpos.torch._transformers.layers import Asking
from relpos.torch.nn._positions import t5_buckets


class _ByTable(Asking):
    """Attention of T5 by `rel_bias` (H, num_buckets) and buckets."""

    def prepare(self) -> None:
        module: Any = self
        self.buckets = t5_buckets(
            module.relative_attention_num_buckets,
            module.relative_attention_max_distance,
            not module.is_decoder,
        )

    def forward(
        self,
        hidden_states: torch.Tensor,
        mask: torch.Tensor | None = None,
        key_value_states: torch.Tensor | None = None,
        position_bias: torch.Tensor | None = None,
        past_key_values: Any = None,
        **keywords: Any,
    ) -> Any:
        self.check_registry()
        module: Any = self
        if position_bias is None and module.has_relative_attention_bias:
            position_bias = module.relative_attention_bias.weight
        if position_bias is None:  # across, where the model makes a bias of zeros
            position_bias = hidden_states.new_empty(0)
        offset = 0
        if past_key_values is not None:
            offset = int(past_key_values.get_seq_length(module.layer_idx))
        call: Any = super()
        return call.forward(
            hidden_states,
            mask=mask,
            key_value_states=key_value_states,
            position_bias=position_bias,
            past_key_values=past_key_values,
            query_offset=offset,
            **keywords,
        )

    def position_terms(self, table: torch.Tensor) -> dict[str, Any]:
        """The table (num_buckets, H) as arguments of attention, if it has rows."""
        if not table.numel():
            return {}
        return {"rel_bias": table.T, "buckets": self.buckets}


class T5Attention(_ByTable, modeling_t5.T5Attention):
    """T5's."""


class MT5Attention(_ByTable, modeling_mt5.MT5Attention):
    """mT5's."""
