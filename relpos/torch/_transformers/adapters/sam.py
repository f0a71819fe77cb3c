"""SAM, and other vision transformers with positions of rows and of columns."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import interpolate

from relpos.torch._transformers.adapters.base import Swapped
from relpos.torch._transformers.adapters.table import replaces
from relpos.torch._transformers.interface.registry import (
    Terms,
    attend,
    wants_weights,
)
from relpos.torch.nn._layer import join_heads

#: Maps of so many cells take less time by more columns, and larger ones by labels.
FEW_CELLS = 1024
#: A part of a larger map has at least so many cells, whose labels all parts share.
PART_CELLS = 256


@replaces(
    "sam.SamVisionAttention",
    "sam.SamVisionSdpaAttention",
    "sam_hq.SamHQVisionAttention",
    "sam_hq.SamHQVisionSdpaAttention",
    "slanext.SLANeXtVisionAttention",
    "got_ocr2.GotOcr2VisionAttention",
    "deepseek_ocr2.DeepseekOcr2SamVisionAttention",
    "deepseek_ocr2.DeepseekOcr2SamVisionSdpaAttention",
    "unlimited_ocr.UnlimitedOcrSamVisionAttention",
    "unlimited_ocr.UnlimitedOcrSamVisionSdpaAttention",
    "pp_formulanet.PPFormulaNetVisionAttention",
)
class _SamVisionAttention(Swapped):
    """Attention with columns for rows and columns of the map."""

    def forward(
        self, hidden_states: torch.Tensor, output_attentions: bool | None = None
    ) -> Any:
        out, weights = attend_map(
            self,
            hidden_states,
            heads=self.num_attention_heads,
            has_positions=self.use_rel_pos,
            dropout=self.dropout,
            weighed=bool(output_attentions) or wants_weights(self, {}),
        )
        # the model has one axis for items and heads
        return out, None if weights is None else weights.flatten(0, 1)


@replaces("seggpt.SegGptAttention")
class _SegGptAttention(Swapped):
    """SAM's, without dropout."""

    def forward(
        self, hidden_states: torch.Tensor, output_attentions: bool = False
    ) -> Any:
        return attend_map(
            self,
            hidden_states,
            heads=self.num_attention_heads,
            has_positions=self.use_relative_position_embeddings,
            dropout=0.0,
            weighed=output_attentions,
        )


@replaces("vitdet.VitDetAttention")
class _VitDetAttention(Swapped):
    """SAM's, without dropout."""

    def forward(
        self, hidden_state: torch.Tensor, output_attentions: bool = False
    ) -> Any:
        out, weights = attend_map(
            self,
            hidden_state,
            heads=self.num_heads,
            has_positions=self.use_relative_position_embeddings,
            dropout=0.0,
            weighed=output_attentions,
        )
        return (out, weights) if output_attentions else (out,)


def attend_map(
    module: Any,
    hidden: torch.Tensor,
    *,
    heads: int,
    has_positions: bool,
    dropout: float,
    weighed: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return attention of a map (B, height, width, H * D) to itself, and weights."""
    height, width = hidden.shape[1:3]
    rows = module.qkv(hidden.flatten(1, 2)).unflatten(-1, (3, heads, -1)).unbind(2)
    query, key, value = (x.transpose(1, 2) for x in rows)
    terms: Terms = {}
    parts = 1
    if has_positions and height * width > FEW_CELLS:
        parts = _parts_of(height, width)
        # Each part of the queries is a head of its own, with the keys of its head.
        query = query.unflatten(2, (parts, -1)).flatten(1, 2)
        terms = _by_labels(module, height, width, heads, parts)
    elif has_positions:
        query, key = _widened(module, query, key, height, width)
    out, weights = attend(
        query,
        key,
        value,
        dropout_p=dropout if module.training else 0.0,
        weighed=weighed,
        scale=module.scale,
        enable_gqa=parts > 1,
        **terms,
    )
    out = out.unflatten(1, (heads, parts)).flatten(2, 3)
    if weights is not None:
        weights = weights.unflatten(1, (heads, parts)).flatten(2, 3)
    return module.proj(join_heads(out).unflatten(1, (height, width))), weights


def _parts_of(height: int, width: int) -> int:
    """Return into how many parts of equal numbers of rows a map is cut."""
    fits = [n for n in range(1, height + 1) if height % n == 0]
    return max(n for n in fits if n == 1 or height // n * width >= PART_CELLS)


def _by_labels(module: Any, height: int, width: int, heads: int, parts: int) -> Terms:
    """Return both tables, one after the other, and the rows of each pair of cells.

    All parts have the labels of the first, which are few enough for the caches. Their
    tables begin with the embeddings of the rows that lie so far from theirs.
    """
    size = height // parts
    down = _of_size(module.rel_pos_h, height)
    right = _of_size(module.rel_pos_w, width)
    rows = height + size - 1
    windows = down.unfold(0, rows, size).transpose(1, 2)
    # Rows of the table that rise with the keys cost less than rows that fall: the
    # embeddings of columns lie from the last to the first.
    columns = right.flip(0).expand(parts, -1, -1)
    # the model does not scale these products
    table = torch.cat([windows, columns], dim=1) / module.scale
    kind = torch.int16 if table.shape[1] < 2**15 else torch.int32
    at = torch.arange(height * width, device=down.device)
    y, x = (at // width).to(kind), (at % width).to(kind)
    few = slice(size * width)
    labels = (
        y[few, None] - (y - (height - 1)),
        x - (x[few, None] - (rows + width - 1)),
    )
    return {"rel_key": table.repeat(heads, 1, 1), "labels": labels}


def _widened(
    module: Any, query: torch.Tensor, key: torch.Tensor, height: int, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return query and key with a column for each row and column of the map.

    Those of a query are its products with the embeddings of the distances, and those of
    a key are 1 at its own row and column.
    """
    # the model does not scale these products
    grid = (query / module.scale).unflatten(2, (height, width))
    y, x = (torch.arange(side, device=key.device) for side in (height, width))
    to_rows = _of_size(module.rel_pos_h, height)[y[:, None] - y + height - 1]
    to_columns = _of_size(module.rel_pos_w, width)[x[:, None] - x + width - 1]
    down = torch.einsum("bnhwd,hkd->bnhwk", grid, to_rows)
    right = torch.einsum("bnhwd,wkd->bnhwk", grid, to_columns)
    products = torch.cat([down, right], dim=-1).flatten(2, 3)
    at = torch.arange(height * width, device=key.device)[:, None]
    ones = torch.cat([at // width == y, at % width == x], dim=-1).to(key.dtype)
    return (
        torch.cat([query, products], dim=-1),
        torch.cat([key, ones.expand(*key.shape[:2], -1, -1)], dim=-1),
    )


def _of_size(table: torch.Tensor, side: int) -> torch.Tensor:
    """Return an embedding for each distance, of another size of picture resized."""
    rows = 2 * side - 1
    if len(table) == rows:
        return table
    return interpolate(table.T[None], size=rows, mode="linear")[0].T
