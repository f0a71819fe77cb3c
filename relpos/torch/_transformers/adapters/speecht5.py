"""The encoder of SpeechT5. Its decoder has no relative positions, and stays."""

from __future__ import annotations

from typing import Any

import torch

from relpos.torch._transformers.adapters.base import Caching, Swapped, attend_projected
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch._transformers.interface.registry import Terms


@replaces("speecht5.SpeechT5RelativePositionalEncoding")
class _SpeechT5RelativePositionalEncoding(Swapped):
    """Returns the table of embeddings in place of an embedding of each pair."""

    attends = False

    def forward(self, hidden_states: torch.Tensor) -> Any:
        return self.pe_k.weight


@replaces("speecht5.SpeechT5Attention")
class _SpeechT5Attention(Caching):
    """Attention by `rel_key`, in the encoder."""

    @staticmethod
    def fits(module: Any) -> bool:
        """Return False in the decoder, whose attention is of the same class."""
        return not module.is_decoder

    def forward(
        self,
        hidden_states: torch.Tensor,
        key_value_states: torch.Tensor | None = None,
        cache: Any = None,
        attention_mask: torch.Tensor | None = None,
        position_bias: torch.Tensor | None = None,
        output_attentions: bool = False,
        *,
        past_key_values: Any = None,
        **keywords: Any,
    ) -> Any:
        cache = self.check_call(cache, past_key_values, attention_mask, keywords)
        if cache is not None or key_value_states is not None:
            raise ValueError(
                "cache, key_value_states: got one of them; expected None, as only the "
                "encoder of SpeechT5 runs with relpos"
            )
        return attend_projected(
            self,
            hidden_states,
            attention_mask,
            weighed=output_attentions,
            **_terms(position_bias),
        )


def _terms(table: torch.Tensor | None) -> Terms:
    """Return the table as arguments of attention."""
    if table is None:
        return {}
    if table.dim() != 2:
        raise ValueError(
            f"position_bias: got shape {tuple(table.shape)}; expected the embeddings "
            "of distances, (2 * max_length, head_dim)"
        )
    # The rows are query minus key, from -max_length to max_length - 1.
    return {"rel_key": table.flip(0), "min_relative_position": 1 - len(table) // 2}
