"""The one call of `relpos.torch.attention`, as modules of transformers want it."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from relpos.torch import attention


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    *,
    weighed: bool = False,
    **settings: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention of (B, H, L, D), and its weights if they are wanted."""
    result: Any = attention(
        query, key, value, attn_mask, return_weights=weighed, **settings
    )
    return (result.out, result.weights) if weighed else (result, None)
