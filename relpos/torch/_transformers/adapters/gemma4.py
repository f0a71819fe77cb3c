"""The audio encoder of Gemma 4."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad, softplus

from relpos.torch._transformers.adapters.base import Swapped
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch._transformers.interface.registry import attend, wants_weights
from relpos.torch.nn._layer import join_heads, split_heads


@replaces("gemma4.Gemma4AudioAttention")
class _Gemma4AudioAttention(Swapped):
    """Attention by `rel_key` under a cap; keys are scaled, their positions not."""

    @staticmethod
    def fits(module: Any) -> bool:
        """Return True where a query sees itself; the model means all if it does not."""
        return bool(module.max_past_horizon > 0)

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
    ) -> Any:
        if attention_mask is None:
            raise ValueError(
                "attention_mask: got None; expected the mask of blocks and their "
                "context that Gemma4AudioModel makes"
            )
        count = self.num_heads
        past, future = self.max_past_horizon, self.max_future_horizon
        query = split_heads(self.q_proj(hidden_states).float(), count)
        rows = split_heads(self.relative_k_proj(position_embeddings), count)[0]
        # a query's own key is never out of its window: it is hidden if it is padding
        own_key = attention_mask.diagonal(past, dim1=-2, dim2=-1).flatten(-2)
        out, weights = attend(
            query * (self.q_scale * softplus(self.per_dim_scale)),
            split_heads(self.k_proj(hidden_states).float(), count) * self.k_scale,
            split_heads(self.v_proj(hidden_states).float(), count),
            (own_key == 0)[..., None, : query.shape[-2]],
            scale=1.0,
            rel_key=rows.to(query.dtype),
            min_relative_position=-past,
            beyond="zero",
            softcap=self.attention_logits_soft_cap,
            window=(past - 1, max(future - 1, 0)),  # both horizons count the query
            weighed=wants_weights(self, {}),
        )
        if weights is not None:
            weights = self._in_blocks(weights)
        return self.post(join_heads(out).to(hidden_states.dtype)), weights

    def _in_blocks(self, weights: torch.Tensor) -> torch.Tensor:
        """Return weights (B, H, L, L) as the model has them: for each block of queries.

        Their shape is (B, H, blocks, queries of a block, keys that a block sees).
        """
        past, size, keys = self.max_past_horizon, self.chunk_size, self.context_size
        # to whole blocks of queries, and to whole contexts of the first and last block
        lacking = -weights.shape[-1] % size
        padded = pad(weights, (past, keys - past - 1, 0, lacking))
        # (B, H, blocks of queries, queries, blocks of keys, keys of a context)
        blocks = padded.unfold(-1, keys, size).unflatten(2, (-1, size))
        return blocks.diagonal(dim1=2, dim2=4).movedim(-1, 2)
