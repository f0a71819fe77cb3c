"""Keys, or blocks of keys, that an indexer picks for each query, by their numbers."""

from __future__ import annotations

import math
from typing import Any

import torch

from relpos._attention.documents import documents_of

#: How many numbers `without_repeats` keeps at a time: those stay in the cache of a CPU.
_SCRATCH = 2**18


def check_indices(indices: torch.Tensor, query: torch.Tensor, keys: int) -> None:
    """Raise unless there are integers (B, Lq, k), of fewer than `keys`."""
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


def without_repeats(indices: torch.Tensor, keys: int) -> torch.Tensor:
    """Return the picks of each query with -1 for a key that is named again.

    A key that is named twice counts twice in `graph_attention`, and once by the masks
    of models. The last pick of each key is found for a block of queries at a time,
    which takes a fraction of the time of a sort.
    """
    if torch.compiler.is_compiling():  # which knows no number of blocks
        ordered = indices.sort(dim=-1).values
        first, others = ordered[..., :1], ordered[..., 1:]
        others = others.where(others != ordered[..., :-1], -1)
        return torch.cat([first, others], dim=-1)
    count = indices.shape[-1]
    number = torch.int16 if count < 2**15 else torch.int64
    places = torch.arange(count, dtype=number, device=indices.device)
    # a negative number, which is no key, goes to one behind the last
    at = indices.where(indices >= 0, keys).flatten(0, 1).long()
    found = []
    for block in at.split(max(1, _SCRATCH // (keys + 1))):
        last = places.new_empty((len(block), keys + 1))
        last.scatter_(-1, block, places.expand(block.shape))
        found.append(last.gather(-1, block))
    return indices.where(torch.cat(found).view(indices.shape) == places, -1)


def visible_picks(
    indices: torch.Tensor, mask: torch.Tensor | None, is_causal: bool, keys: int
) -> torch.Tensor | None:
    """Return `key_indices` of `graph_attention`, with -1 for each key that is hidden.

    An early query sees fewer keys than it has picks, and the rest of these are later
    keys. None for a mask that is not one of bool for all heads.
    """
    indices = without_repeats(indices, keys)
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


def ranges_of_documents(
    documents: torch.Tensor | None, lengths: tuple[int, int]
) -> dict[str, Any]:
    """Return packed documents as arguments of `attention` that go with blocks of keys.

    A model counts blocks over the packed sequence. `attention` refuses them next to
    `cu_seqlens`, which a program that is compiled keeps: it knows no numbers.
    """
    if documents is None or torch.compiler.is_compiling():
        return {}
    ranges = documents_of({"cu_seqlens": documents.cpu().numpy()}, *lengths)
    return {"cu_seqlens": None, "key_ranges": torch.from_numpy(ranges)}
