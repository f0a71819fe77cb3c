"""Inkling 2 and Inkling 2 Loop."""

from __future__ import annotations

from typing import Any

import torch

from relpos.torch._transformers.adapters.base import Asking, Caching, Swapped
from relpos.torch._transformers.adapters.inkling import offset_in, terms_of_curves
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch._transformers.interface.registry import Terms, WithTerms

#: The version of transformers with this attention, which has a sink for each query.
SINCE = 5, 24


@replaces(
    "inkling2.Inkling2RelativePositionBias",
    "inkling2_loop.Inkling2LoopRelativePositionBias",
    since=SINCE,
)
class _Inkling2RelativePositionBias(Swapped):
    """Returns the position query, which the norm has scaled."""

    attends = False

    def forward(
        self, hidden_states: torch.Tensor, relative_distance: Any, position_ids: Any
    ) -> torch.Tensor:
        states = self.linear(hidden_states).unflatten(-1, (self.num_heads, -1))
        rows: torch.Tensor = self.norm(states, position_ids).transpose(1, 2)
        return rows


class _Inkling2Attention(Caching, Asking, WithTerms):
    """Attention by `position_query`, a table by distance and sinks of queries."""

    def handed_on(
        self,
        hidden_states: torch.Tensor,
        mask: torch.Tensor | None,
        cache: Any,
        former: Any,
        cache_offset: int,
        keywords: dict[str, Any],
    ) -> dict[str, Any]:
        """Return what the original gets by name: the cache, and where queries begin."""
        cache = self.check_call(cache, former, mask, keywords)
        layer = self.layer_idx + cache_offset
        return {
            "attention_mask": mask,
            "query_offset": offset_in(cache, hidden_states.shape[1], layer),
            "cache_offset": cache_offset,
            self.cache_name: cache,
            **keywords,
        }

    def position_terms(self, position_query: torch.Tensor) -> Terms:
        """Return the query (B, H, Lq, d_rel) with the curves by distance."""
        return terms_of_curves(position_query, self.relative_position_bias.proj)


@replaces(
    "inkling2.Inkling2SlidingAttention",
    "inkling2_loop.Inkling2LoopSlidingAttention",
    since=SINCE,
)
class _Inkling2SlidingAttention(_Inkling2Attention):
    """Attention within a window."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        relative_distance: Any,
        conv_mask: torch.Tensor | None = None,
        cache: Any = None,
        key_hidden_states: torch.Tensor | None = None,
        value_hidden_states: torch.Tensor | None = None,
        cache_offset: int = 0,
        *,
        past_key_values: Any = None,
        **keywords: Any,
    ) -> Any:
        original: Any = super()
        return original.forward(
            hidden_states,
            relative_distance=relative_distance,
            conv_mask=conv_mask,
            key_hidden_states=key_hidden_states,
            value_hidden_states=value_hidden_states,
            **self.handed_on(
                hidden_states,
                attention_mask,
                cache,
                past_key_values,
                cache_offset,
                keywords,
            ),
        )


@replaces(
    "inkling2.Inkling2FullAttention",
    "inkling2_loop.Inkling2LoopFullAttention",
    since=SINCE,
)
class _Inkling2FullAttention(_Inkling2Attention):
    """Attention to all tokens before, of which keys and values have their own."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        key_hidden_states: torch.Tensor,
        value_hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        relative_distance: Any,
        conv_mask: torch.Tensor | None = None,
        cache: Any = None,
        cache_offset: int = 0,
        *,
        past_key_values: Any = None,
        **keywords: Any,
    ) -> Any:
        original: Any = super()
        return original.forward(
            hidden_states,
            key_hidden_states=key_hidden_states,
            value_hidden_states=value_hidden_states,
            relative_distance=relative_distance,
            conv_mask=conv_mask,
            **self.handed_on(
                hidden_states,
                attention_mask,
                cache,
                past_key_values,
                cache_offset,
                keywords,
            ),
        )
