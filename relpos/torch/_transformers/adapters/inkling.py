"""Inkling."""

from __future__ import annotations

from typing import Any

import torch

from relpos.torch._transformers.adapters.base import Asking, Caching, Swapped
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch._transformers.interface.registry import Terms, WithTerms


@replaces("inkling.InklingRelativeLogits")
class _InklingRelativeLogits(Swapped):
    """Returns the position query, which the temperature then multiplies."""

    attends = False

    def forward(
        self, relative_states: torch.Tensor, query_positions: Any, key_positions: Any
    ) -> torch.Tensor:
        return relative_states.transpose(1, 2)


class _Counted:
    """A cache that says how many tokens it had, also after it gets new ones.

    A static cache counts in one tensor, in which the model would read the new number.
    """

    def __init__(self, cache: Any, before: int) -> None:
        self._cache, self._before = cache, before

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def get_query_offset(self, layer_idx: int = 0) -> int:
        return self._before


@replaces("inkling.InklingAttention")
class _InklingAttention(Caching, Asking, WithTerms):
    """Inkling's attention by `position_query` and a table by distance."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None,
        conv_mask: torch.Tensor | None = None,
        cache: Any = None,
        *,
        past_key_values: Any = None,
        **keywords: Any,
    ) -> Any:
        cache = self.check_call(cache, past_key_values, attention_mask, keywords)
        layer, queries = self.layer_idx, hidden_states.shape[1]
        offset = offset_in(cache, queries, layer)
        if cache is not None:
            cache = _Counted(cache, int(cache.get_query_offset(layer)))
        original: Any = super()
        return original.forward(
            hidden_states,
            attention_mask,
            conv_mask=conv_mask,
            query_offset=offset,
            **{self.cache_name: cache},
            **keywords,
        )

    def position_terms(self, position_query: torch.Tensor) -> Terms:
        """Return the query (B, H, Lq, d_rel) with the curves by distance."""
        return terms_of_curves(position_query, self.rel_logits_proj.proj)


def offset_in(cache: Any, queries: int, layer: int) -> int:
    """Return the position of a call's first query, from the first key that is there.

    A cache with a window has dropped the keys before that key.
    """
    if cache is None:
        return 0
    first_key = cache.get_mask_sizes(queries, layer)[1]
    return int(cache.get_query_offset(layer)) - int(first_key)


def terms_of_curves(position_query: torch.Tensor, curves: torch.Tensor) -> Terms:
    """Return the query (B, H, Lq, d_rel) with curves (d_rel, distances) as a table.

    Curves begin at distance 0, and a table at the farthest past. Keys that are farther
    away have no term.
    """
    return {
        "position_query": position_query,
        "rel_key": curves.T.flip(0),
        "min_relative_position": 1 - curves.shape[1],
        "beyond": "zero",
    }
