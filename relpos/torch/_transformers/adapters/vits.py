"""The text encoder of VITS and MMS-TTS."""

from __future__ import annotations

from typing import Any

import torch

from relpos.torch._transformers.adapters.base import Masked, attend_projected
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch._transformers.interface.registry import Terms


@replaces("vits.VitsAttention")
class _VitsAttention(Masked):
    """Attention by `rel_key` and `rel_value` in a window, and none outside of it."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        key_value_states: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        output_attentions: bool = False,
    ) -> Any:
        # the model does not read key_value_states
        terms: Terms = {}
        if self.window_size:
            terms = {
                "rel_key": self.emb_rel_k[0],
                "rel_value": self.emb_rel_v[0],
                "beyond": "zero",
            }
        return attend_projected(
            self,
            hidden_states,
            attention_mask,
            weighed=bool(output_attentions),
            **terms,
        )
