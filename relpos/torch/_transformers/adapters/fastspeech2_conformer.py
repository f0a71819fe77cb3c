"""FastSpeech2-Conformer."""

from __future__ import annotations

from typing import Any

import torch

from relpos.torch._kept import project_by
from relpos.torch._transformers.adapters.base import Keeping, attend_rows
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch.nn._layer import split_heads


@replaces("fastspeech2_conformer.FastSpeech2ConformerAttention")
class _FastSpeech2ConformerAttention(Keeping):
    """Attention by `rel_key`, `pos_bias_u` and `pos_bias_v`: Transformer-XL's terms."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        pos_emb: torch.Tensor | None = None,
        output_attentions: bool | None = False,
    ) -> Any:
        if pos_emb is None:
            raise ValueError(
                "pos_emb: got None; expected the embeddings of relative positions, "
                "(1, 2 * L - 1, hidden_size)"
            )
        kept = project_by(self, pos_emb, [self.linear_pos])
        rows = self.linear_pos(pos_emb) if kept is None else kept[0]
        table = split_heads(rows, self.num_heads)
        visible = None
        if attention_mask is not None:
            visible = attention_mask.bool()[:, None]
        out, weights = attend_rows(
            self,
            self.linear_q(hidden_states),
            self.linear_k(hidden_states),
            self.linear_v(hidden_states),
            visible,
            heads=self.num_heads,
            dropout=self.dropout.p,
            weighed=bool(output_attentions),
            # a table of each item only if the items have their own embeddings
            rel_key=table[0] if len(table) == 1 else table,
            pos_bias_u=self.pos_bias_u,
            pos_bias_v=self.pos_bias_v,
        )
        return self.linear_out(out), weights
