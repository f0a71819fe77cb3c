"""Keys, or blocks of keys, that an indexer picks for each query, by their numbers."""

from __future__ import annotations

import math
from typing import Any

import torch


def check_indices(indices: torch.Tensor, query: torch.Tensor, keys: int) -> None:
    """Raise unless there are integers (B, Lq, k), of fewer than `keys`.

    An indexer names a key once. Where `indices` name one twice, it counts twice, but
    once where they become a mask.
    """
    if indices.is_floating_point() or indices.dtype == torch.bool:
        raise TypeError(f"indices: got a tensor of {indices.dtype}; expected integers")
    expected = query.shape[0], query.shape[2]
    if indices.dim() != 3 or tuple(indices.shape[:2]) != expected:
        raise ValueError(
            f"indices: got shape {tuple(indices.shape)}; expected (B, Lq, k), here "
            f"{(*expected, 'k')}, the keys of each query"
        )
    # the errors of torch do not name the argument
    if not torch.compiler.is_compiling() and indices.numel():
        largest = int(indices.max())
        if largest >= keys:
            raise IndexError(
                f"indices: got {largest}, outside the {keys} keys; expected at most "
                f"{keys - 1}"
            )


def visible_picks(
    indices: torch.Tensor, mask: torch.Tensor | None, is_causal: bool, keys: int
) -> torch.Tensor | None:
    """Return `key_indices` of `graph_attention`, with -1 for each key that is hidden.

    An early query sees fewer keys than it has picks, and the rest of these are later
    keys. None for a mask that is not one of bool for all heads.
    """
    if mask is None:
        if is_causal:  # query i is key i
            places = torch.arange(indices.shape[1], device=indices.device)
            indices = indices.where(indices <= places[:, None], -1)
        return indices[:, None]
    if mask.dtype != torch.bool or mask.dim() != 4 or mask.shape[1] != 1:
        return None
    batch, queries = indices.shape[:2]
    if mask.shape[-1] != keys or mask.shape[-2] not in (1, queries):
        return None  # `attention` says what is wrong
    rows = mask[:, 0].expand(batch, queries, keys)
    is_visible = rows.gather(-1, indices.clamp(min=0).long())
    return indices.where(is_visible, -1)[:, None]


def as_mask(
    indices: torch.Tensor, mask: torch.Tensor | None, keys: int
) -> torch.Tensor:
    """Return a mask that hides all other keys, for what `graph_attention` lacks."""
    is_picked = indices.new_zeros((*indices.shape[:2], keys + 1), dtype=torch.bool)
    # a negative number, which is no key, goes to one behind the last
    places = indices.where(indices >= 0, keys).long()
    is_picked = is_picked.scatter(-1, places, True)[:, None, :, :keys]
    if mask is None:
        return is_picked
    if mask.dtype == torch.bool:
        return is_picked & mask
    if not mask.is_floating_point():
        return mask  # which `attention` refuses
    return torch.where(is_picked, mask, -math.inf)


# ---- blocks of keys ------------------------------------------------------------------


def picked_blocks(
    indices: torch.Tensor, module: torch.nn.Module, query: torch.Tensor, keys: int
) -> dict[str, Any]:
    """Return `key_blocks` and `block_size` of `attention` for the blocks of a model.

    `indices` (B, G, Lq, n) are the blocks that each query of a group of heads picked;
    a negative number is none. The module's indexer says how many keys a block has.
    """
    size = getattr(getattr(module, "indexer", None), "block_size", None)
    if type(size) is not int or size < 1:
        raise ValueError(
            f"block_indices: got a Tensor of a {type(module).__name__} whose "
            f"indexer.block_size is {size}; expected a number of keys, at least 1"
        )
    if indices.is_floating_point() or indices.dtype == torch.bool:
        raise TypeError(
            f"block_indices: got a tensor of {indices.dtype}; expected integers"
        )
    batch, _, queries, _ = query.shape
    if indices.dim() != 4 or (indices.shape[0], indices.shape[2]) != (batch, queries):
        raise ValueError(
            f"block_indices: got shape {tuple(indices.shape)}; expected (B, G, Lq, n), "
            f"here ({batch}, G, {queries}, n), the blocks of each query"
        )
    count = -(-keys // size)
    if not torch.compiler.is_compiling() and indices.numel():
        largest = int(indices.max())
        if largest >= count:
            raise IndexError(
                f"block_indices: got {largest}, outside the {count} blocks of {size} "
                f"keys; expected at most {count - 1}"
            )
    blocks = indices.new_zeros((*indices.shape[:3], count + 1), dtype=torch.bool)
    # a negative number, which is no block, goes to one behind the last
    places = indices.where(indices >= 0, count).long()
    blocks = blocks.scatter(-1, places, True)[..., :count]
    return {"key_blocks": blocks, "block_size": (1, size)}
