"""The encoders of Granite Speech, Granite Speech Plus and Granite Speech 5.

Their tokens attend within blocks of `context_size`, which fold into the batch, by the
keys of relative positions of Shaw.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import pad

from relpos.torch._transformers.adapters.base import Swapped, attend_rows
from relpos.torch._transformers.adapters.table import replaces


class _InBlocks(Swapped):
    """Attention by `rel_key` within blocks, of which the last one is padded."""

    def in_blocks(
        self,
        rows: list[torch.Tensor],
        mask: torch.Tensor | None,
        rows_by_offset: torch.Tensor,
        **settings: Any,
    ) -> torch.Tensor:
        """Return attention (B, L, H * D) of query, key and value, each of this shape.

        The mask (B, L) of bool is False at padding. `rows_by_offset` are the rows of
        the embeddings that belong to the offsets of keys, from the lowest one on.
        """
        size = self.context_size
        items, length, _ = rows[0].shape
        missing = -length % size
        if missing:
            rows = [pad(x, (0, 0, 0, missing)) for x in rows]
            if mask is None:
                shape = (items, length)
                mask = torch.ones(shape, dtype=torch.bool, device=rows[0].device)
            mask = pad(mask, (0, missing), value=False)
        if mask is not None:
            mask = mask.reshape(-1, 1, 1, size)
        query, key, value = (x.reshape(-1, size, x.shape[-1]) for x in rows)
        table = self.rel_pos_emb(rows_by_offset)
        out, _ = attend_rows(self, query, key, value, mask, rel_key=table, **settings)
        return out.reshape(items, length + missing, -1)[:, :length]


@replaces(
    "granite_speech.GraniteSpeechConformerAttention",
    "granite_speech_plus.GraniteSpeechPlusConformerAttention",
)
class _GraniteSpeechConformerAttention(_InBlocks):
    """Attention of all tokens of a block, with the norm before it."""

    def forward(
        self, hidden_states: torch.Tensor, attention_dists: torch.Tensor
    ) -> torch.Tensor:
        rows = rows_of("attention_dists", attention_dists, self.context_size)
        hidden_states = self.pre_norm(hidden_states)
        key, value = self.to_kv(hidden_states).chunk(2, dim=-1)
        out = self.in_blocks(
            [self.to_q(hidden_states), key, value],
            None,
            rows,
            heads=self.num_heads,
            dropout=0.0,
            weighed=False,
            scale=self.scale,
        )
        projected: torch.Tensor = self.dropout(self.to_out(out))
        return projected


@replaces("granite_speech5.GraniteSpeech5EncoderAttention")
class _GraniteSpeech5EncoderAttention(_InBlocks):
    """Attention of the tokens of a block that are no padding."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        position_embeddings: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        **keywords: Any,
    ) -> Any:
        self.check_keywords(keywords, attention_mask)
        if attention_mask is not None:
            check_padding(attention_mask, hidden_states)
        rows = rows_of("position_embeddings", position_embeddings, self.context_size)
        projections = self.q_proj, self.k_proj, self.v_proj
        out = self.in_blocks(
            [project(hidden_states) for project in projections],
            attention_mask,
            rows,
            heads=self.config.num_attention_heads,
            dropout=self.attention_dropout,
            weighed=False,
            scale=self.scaling,
        )
        return self.o_proj(out), None


def check_padding(mask: torch.Tensor, hidden_states: torch.Tensor) -> None:
    """Raise for another mask than one of the tokens that are no padding."""
    expected = tuple(hidden_states.shape[:2])
    if mask.dtype != torch.bool or mask.shape != expected:
        raise ValueError(
            f"attention_mask: got shape {tuple(mask.shape)} of {mask.dtype}; expected "
            f"{expected} of torch.bool, False at padding"
        )


def rows_of(name: str, distances: torch.Tensor, size: int) -> torch.Tensor:
    """Return the row of the embeddings at each offset of a key, 1 - size to size - 1.

    The argument `name` has the row of each pair of a block, (size, size), by query
    minus key.
    """
    if distances.shape != (size, size):
        raise ValueError(
            f"{name}: got shape {tuple(distances.shape)}; expected ({size}, {size}), "
            "the rows of all pairs of a block"
        )
    # a program that is compiled knows no numbers
    is_compared = not torch.compiler.is_compiling()
    if is_compared and not torch.equal(distances[1:, 1:], distances[:-1, :-1]):
        raise ValueError(
            f"{name}: got rows that do not follow from query minus key; expected the "
            "buffer attention_dists of the encoder"
        )
    return torch.cat([distances[1:, 0].flip(0), distances[0]])
