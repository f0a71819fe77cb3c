"""Indexers of sparse attention: DeepSeek V3.2 and the models that took it over."""

from __future__ import annotations

import sys
from typing import Any

import torch

from relpos.torch._indexer import indexer_top_k
from relpos.torch._transformers.adapters.base import Caching, one_cache
from relpos.torch._transformers.adapters.table import replaces

_Rotations = tuple[torch.Tensor, torch.Tensor]


class _Indexer(Caching):
    """An indexer that keeps scores of a block of queries at a time.

    The original's are an array of every head, query and key.
    """

    attends = False
    picks = True
    #: The module of the original, which has the functions that rotate.
    home: str
    rotation = "apply_rotary_pos_emb"

    @staticmethod
    def of_class(original: Any) -> dict[str, str]:
        return {"home": original.__module__, **Caching.of_class(original)}

    def rotated(
        self, query: torch.Tensor, key: torch.Tensor, rotations: _Rotations
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return rows (B, L, heads, D) with their first columns rotated."""
        count = self.qk_rope_head_dim
        turned = self.rotated_whole(query[..., :count], key[..., :count], rotations)
        return (
            torch.cat([turned[0], query[..., count:]], dim=-1),
            torch.cat([turned[1], key[..., count:]], dim=-1),
        )

    def rotated_whole(
        self, query: torch.Tensor, key: torch.Tensor, rotations: _Rotations
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return rows with all their columns rotated, as the original does it."""
        rotate = getattr(sys.modules[self.home], self.rotation)
        query, key = rotate(query, key, *rotations, unsqueeze_dim=2)
        return query, key

    def picks_of(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        hidden_states: torch.Tensor,
        mask: torch.Tensor,
        cache: Any,
    ) -> torch.Tensor:
        """Return the keys of each query, (B, L, index_topk or all), of int32.

        A query that sees fewer keys also gets some that the mask hides, as by the
        original: whoever takes the picks hides them again.
        """
        if not isinstance(mask, torch.Tensor):
            raise TypeError(
                f"attention_mask: got {type(mask).__name__}; expected a tensor of bool "
                "or of numbers to add, without which later keys would be picked"
            )
        key = key.squeeze(2)
        if cache is not None:
            key = cache.update_indexer(key, self.layer_idx)
        weights = self.weights_proj(hidden_states.to(self.weights_proj.weight.dtype))
        factor = self.softmax_scale * self.n_heads**-0.5
        if mask.dtype == torch.bool:
            lowest = torch.finfo(torch.float32).min
            visible = torch.zeros(mask.shape, dtype=torch.float32)
            mask = visible.masked_fill(~mask, lowest)
        return indexer_top_k(
            query.transpose(1, 2),
            key,
            weights.float().transpose(1, 2) * factor,
            self.index_topk,
            attn_mask=mask,
        )


class _LoraIndexer(_Indexer):
    """An indexer whose queries are made of the compressed ones of the attention."""

    def keys_of(self, hidden_states: torch.Tensor) -> torch.Tensor:
        keys: torch.Tensor = self.k_norm(self.wk(hidden_states))
        return keys

    @torch.no_grad()
    def forward(
        self,
        hidden_states: torch.Tensor,
        q_resid: torch.Tensor,
        position_embeddings: _Rotations,
        attention_mask: torch.Tensor,
        position_ids: Any,
        cache: Any = None,
        *,
        past_key_values: Any = None,
    ) -> torch.Tensor:
        query = self.wq_b(q_resid).unflatten(-1, (self.n_heads, self.head_dim))
        key = self.keys_of(hidden_states).unsqueeze(2)
        query, key = self.rotated(query, key, position_embeddings)
        cache = one_cache(cache, past_key_values)
        return self.picks_of(query, key, hidden_states, attention_mask, cache)


@replaces("deepseek_v32.DeepseekV32Indexer", "axk2.AXK2Indexer")
class _DeepseekIndexer(_LoraIndexer):
    """DeepSeek V3.2's, and A.X K2's."""


@replaces("glm_moe_dsa.GlmMoeDsaIndexer", "dots3_note.Dots3NoteTextIndexer")
class _GlmIndexer(_LoraIndexer):
    """GLM-MoE-DSA's, and dots3's: neighbouring columns are a pair."""

    rotation = "apply_rotary_pos_emb_interleave"


class _LastColumns(_LoraIndexer):
    """HY V4's, which rotates the last columns, after a norm of float32."""

    def keys_of(self, hidden_states: torch.Tensor) -> torch.Tensor:
        keys = self.wk(hidden_states).to(self.k_norm.weight.dtype)
        normed: torch.Tensor = self.k_norm(keys).to(hidden_states.dtype)
        return normed

    def rotated(
        self, query: torch.Tensor, key: torch.Tensor, rotations: _Rotations
    ) -> tuple[torch.Tensor, torch.Tensor]:
        count = self.head_dim - self.qk_rope_head_dim
        turned = self.rotated_whole(query[..., count:], key[..., count:], rotations)
        return (
            torch.cat([query[..., :count], turned[0]], dim=-1),
            torch.cat([key[..., :count], turned[1]], dim=-1),
        )


@replaces("hy_v4.HYV4Indexer")
class _HYV4Indexer(_LastColumns):
    """HY V4's."""


@replaces("hy_v4_vl.HYV4VLIndexer", since=(5, 24))
class _HYV4VLIndexer(_LastColumns):
    """HY V4 VL's, which older versions lack."""


@replaces("mistral_large4.MistralLarge4TextIndexer")
class _MistralIndexer(_Indexer):
    """Mistral Large 4's: queries are made of the tokens, and scaled by position."""

    rotation = "apply_rotary_pos_emb_interleave"

    @torch.no_grad()
    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: _Rotations,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor,
        cache: Any = None,
        *,
        past_key_values: Any = None,
    ) -> torch.Tensor:
        query = self.wq_b(self.q_input_norm(hidden_states))
        query = query.unflatten(-1, (self.n_heads, self.head_dim))
        query = self.softmax_scaling(query, position_ids, head_dim_first=False)
        key = self.k_norm(self.wk(hidden_states)).unsqueeze(2)
        if self.use_rope:
            query, key = self.rotated(query, key, position_embeddings)
        cache = one_cache(cache, past_key_values)
        return self.picks_of(query, key, hidden_states, attention_mask, cache)
