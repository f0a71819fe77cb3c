"""A mask beside a dense bias, in the form that costs `relpos.attention` least."""

from __future__ import annotations

import math
from typing import Any

import torch


def beside_bias(bias: torch.Tensor, mask: torch.Tensor | None) -> dict[str, Any]:
    """A dense bias and a mask as arguments of `attention`.

    Where every query's keys lie in one run, the bias stays what it is, often one for
    the whole batch, and the mask becomes `key_ranges`.
    """
    if mask is None:
        return {"attn_mask": bias}
    if mask.dtype != torch.bool:
        return {"attn_mask": bias + mask}
    ranges = None if torch.compiler.is_compiling() else key_ranges(mask)
    if ranges is not None:
        return {"attn_mask": bias, "key_ranges": ranges}
    return {"attn_mask": torch.where(mask, bias, -math.inf)}


def key_ranges(mask: torch.Tensor) -> torch.Tensor | None:
    """The first visible key of each query and the one after the last, (B, Lq, 2).

    None if the heads of `mask`, (B, heads, Lq, Lk), differ, or a query's keys have a
    gap between them.
    """
    if mask.shape[1] != 1:
        return None
    queries, keys = mask.shape[2:]
    rows = mask[:, 0, : 1 if mask.stride(2) == 0 else queries].to(torch.uint8)
    begin = rows.argmax(-1)
    end = keys - rows.flip(-1).argmax(-1)
    count = rows.sum(-1, dtype=torch.int64)
    if not bool(((end - begin == count) | (count == 0)).all()):
        return None
    end = torch.where(count == 0, begin, end)
    return torch.stack([begin, end], dim=-1).expand(-1, queries, -1)
