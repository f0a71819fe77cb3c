"""The pairs that a call of attention shows, for one block of queries after the other.

What `relpos.attention` hides is kept in two forms: the first and the last key of each
query, and flags of blocks. A BlockMask is flags of blocks too: those that are listed,
and those of them in which mask_mod decides.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from relpos._attention.problem import Problem
from relpos._attention.rules import UNBOUNDED
from relpos._checks import kind_of

#: The module of FlexAttention, which relpos does not load.
FLEX = "torch.nn.attention.flex_attention"
#: What relpos reads of a BlockMask.
_ATTRIBUTES = ["kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices"]
_ATTRIBUTES += ["BLOCK_SIZE", "seq_lengths", "mask_mod"]


class Part(NamedTuple):
    """Batch items, heads and queries of a block, as slices of their axes."""

    batch: slice
    head: slice
    query: slice


class Hidden(NamedTuple):
    """Pairs of a block that are hidden: of all its keys, or of some columns."""

    columns: slice | Tensor
    flags: Tensor  # broadcasts to (batch, head, query, columns)


@dataclass
class BlockFlags:
    """Blocks of queries and keys that are seen, (1 or B, 1 or H, rows, columns)."""

    seen: Tensor
    queries: int  # of a block
    keys: int
    partly: Tensor | None = None  # those in which mask_mod decides

    def varies(self, axis: int) -> bool:
        return self.seen.shape[axis] > 1

    def of(self, flags: Tensor, part: Part) -> Tensor:
        """Return the flags of a part, one row for each row of blocks that it has."""
        first = part.query.start // self.queries
        last = (part.query.stop - 1) // self.queries
        batch = part.batch if flags.shape[0] > 1 else slice(None)
        head = part.head if flags.shape[1] > 1 else slice(None)
        return flags[batch, head, first : last + 1]

    def spread(self, flags: Tensor, part: Part, keys: Tensor) -> Tensor:
        """Return flags of a part for each of its queries and of `keys`."""
        own = self.of(flags, part)[..., keys // self.keys]
        if own.shape[2] == 1:
            return own
        at = torch.arange(part.query.start, part.query.stop) // self.queries
        return own[:, :, at - at[0]]


@dataclass
class Visible:
    """Pairs that a call shows: those that every rule shows."""

    keys: int
    begin: Tensor | None = None  # (1 or B, Lq), with `end`
    end: Tensor | None = None
    mask: Tensor | None = None  # (1 or B, 1 or H, 1 or Lq, 1 or Lk), True is seen
    blocks: list[BlockFlags] = field(default_factory=list)

    def varies(self, axis: int) -> bool:
        """Return True where blocks differ along the axis of items 0 or of heads 1."""
        return any(flags.varies(axis) for flags in self.blocks)

    def selects(self) -> bool:
        """Return True where blocks of queries may see fewer keys than all."""
        return self.begin is not None or bool(self.blocks)

    def rows(self) -> int | None:
        """Return how many queries the shortest blocks have; None without any."""
        return min((flags.queries for flags in self.blocks), default=None)

    def keys_of(self, part: Part) -> slice | Tensor:
        """Return the keys that any query of a part may see."""
        first, last = 0, self.keys
        if self.begin is not None and self.end is not None:
            own = slice(None) if len(self.begin) == 1 else part.batch
            begin, end = self.begin[own, part.query], self.end[own, part.query]
            sees = begin < end
            if not sees.any():
                return slice(0, 0)
            first, last = int(begin[sees].min()), int(end[sees].max())
        seen: Tensor | None = None
        for flags in self.blocks:
            any_row = flags.of(flags.seen, part).flatten(0, 2).any(0)
            of_keys = any_row.repeat_interleave(flags.keys)[: self.keys]
            seen = of_keys if seen is None else seen & of_keys
        if seen is None:
            return _rounded(first, last, self.keys)
        found = seen[first:last].nonzero()[:, 0] + first
        if not len(found):
            return slice(0, 0)
        first, last = int(found[0]), int(found[-1]) + 1
        return slice(first, last) if last - first == len(found) else found

    def hidden_in(self, part: Part, keys: Tensor) -> list[Hidden]:
        """Return what is hidden among the `keys` of a part, but for mask_mod."""
        found = []
        everywhere = slice(None)
        if self.begin is not None and self.end is not None:
            own = slice(None) if len(self.begin) == 1 else part.batch
            begin = self.begin[own, part.query][:, None, :, None]
            end = self.end[own, part.query][:, None, :, None]
            flags = (keys < begin) | (keys >= end)
            if flags.any():
                found.append(Hidden(everywhere, flags))
        if self.mask is not None:
            mask = _cut(self.mask, part)
            if mask.shape[-1] > 1:
                mask = mask[..., keys]
            found.append(Hidden(everywhere, ~mask))
        for blocks in self.blocks:
            if not blocks.of(blocks.seen, part)[..., keys // blocks.keys].all():
                flags = ~blocks.spread(blocks.seen, part, keys)
                found.append(Hidden(everywhere, flags))
        return found

    def partly(self, part: Part, keys: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the columns in which mask_mod decides, and flags of where it does."""
        for blocks in self.blocks:
            if blocks.partly is None:
                continue
            own = blocks.of(blocks.partly, part).flatten(0, 2).any(0)
            columns = own[keys // blocks.keys].nonzero()[:, 0]
            if len(columns):
                return columns, blocks.spread(blocks.partly, part, keys[columns])
        return None


def _rounded(first: int, last: int, keys: int, step: int = 128) -> slice:
    """Return a slice of keys whose ends are multiples, so that few lengths occur."""
    return slice(first // step * step, min(-(-last // step) * step, keys))


def _cut(mask: Tensor, part: Part) -> Tensor:
    for axis, own in enumerate(part):
        if mask.shape[axis] > 1:
            mask = mask[(slice(None),) * axis + (own,)]
    return mask


# ---- of the operands of a call -------------------------------------------------------


def visible_of(problem: Problem, count: int, mask: Tensor | None) -> Visible:
    """Return the pairs that a checked call shows, its `mask` of all axes given apart.

    `count` is the number of batch items.
    """
    operands, sizes = problem.operands, problem.sizes
    visible = Visible(sizes.Lk, mask=mask)
    begin = torch.zeros(1, sizes.Lq, dtype=torch.int64)
    end = torch.full_like(begin, sizes.Lk)
    left, right = operands["window_left"], operands["window_right"]
    is_bounded = False
    if (left, right) != (UNBOUNDED, UNBOUNDED):
        offset = _of_items(operands.get("query_offset", 0), problem.batch, count)
        at = torch.arange(sizes.Lq) + offset[:, None]
        begin, end, is_bounded = begin + 0 * at, end + 0 * at, True
        if left != UNBOUNDED:
            begin = torch.maximum(begin, at - left)
        if right != UNBOUNDED:
            end = torch.minimum(end, at + (right + 1))
    if "key_ranges" in operands:
        ranges = torch.as_tensor(operands["key_ranges"])
        whole = (*problem.batch, sizes.Lq, 2)
        if ranges.dim() == 2:
            ranges = ranges.expand(1, sizes.Lq, 2)
        else:
            ranges = ranges.expand(whole).reshape(count, sizes.Lq, 2)
        begin, end = (
            torch.maximum(begin, ranges[..., 0]),
            torch.minimum(end, ranges[..., 1]),
        )
        is_bounded = True
    if "key_lengths" in operands:
        lengths = _of_items(operands["key_lengths"], problem.batch, count)
        begin, end = torch.broadcast_tensors(
            begin, torch.minimum(end, lengths[:, None])
        )
        is_bounded = True
    if is_bounded:
        visible.begin, visible.end = torch.broadcast_tensors(begin, end)
    if "key_blocks" in operands:
        blocks = torch.as_tensor(operands["key_blocks"])
        blocks = _with_axes(blocks, problem.batch, count)
        group = operands["block_heads"]
        if blocks.shape[1] > 1:
            blocks = blocks.repeat_interleave(group, 1)
        size = operands["block_queries"], operands["block_keys"]
        visible.blocks.append(BlockFlags(blocks, *size))
    return visible


def _of_items(numbers: Any, batch: tuple[int, ...], count: int) -> Tensor:
    """Return integers of all batch items as (1,), others as (B,)."""
    integers = torch.as_tensor(numbers, dtype=torch.int64)
    if not integers.dim():
        return integers[None]
    return integers.expand(batch).reshape(count)


def _with_axes(flags: Tensor, batch: tuple[int, ...], count: int) -> Tensor:
    """Return flags (..., G, rows, columns) as (1 or B, G, rows, columns)."""
    while flags.dim() < 3:
        flags = flags[None]
    if flags[..., 0, 0, 0].numel() == 1 or flags.dim() == 3:
        return flags.reshape(1, *flags.shape[-3:])
    return flags.expand(*batch, *flags.shape[-3:]).reshape(count, *flags.shape[-3:])


def whole_mask(mask: Tensor, batch: tuple[int, ...], count: int) -> Tensor:
    """Return a bool attn_mask as (1 or B, 1 or H, 1 or Lq, 1 or Lk)."""
    while mask.dim() < 3:
        mask = mask[None]
    return _with_axes(mask, batch, count)


# ---- BlockMask -----------------------------------------------------------------------


def is_block_mask(value: object) -> bool:
    # whoever has one has loaded the module
    kind = getattr(sys.modules.get(FLEX), "BlockMask", None)
    return kind is not None and isinstance(value, kind)


def check_block_mask(mask: Any) -> None:
    """Refuse what is no BlockMask, or one without what relpos reads of it."""
    if not is_block_mask(mask):
        raise TypeError(
            f"block_mask: got {kind_of(mask)}; expected a BlockMask, as "
            "torch.nn.attention.flex_attention.create_block_mask returns it"
        )
    for name in _ATTRIBUTES:
        if not hasattr(mask, name):
            raise TypeError(
                f"block_mask: got a BlockMask of PyTorch {torch.__version__} without "
                f"the attribute {name}; expected one with it"
            )


def flags_of(mask: Any, sizes: tuple[int, int, int, int]) -> BlockFlags:
    """Return the blocks that a BlockMask lists, for a call of (B, H, Lq, Lk)."""
    count, heads, queries, keys = sizes
    lengths = tuple(mask.seq_lengths)
    if lengths != (queries, keys):
        raise ValueError(
            f"block_mask: got one for {lengths[0]} queries and {lengths[1]} keys; "
            f"expected one for {queries} and {keys}"
        )
    rows, columns = mask.BLOCK_SIZE
    grid = -(-queries // rows), -(-keys // columns)
    partly = _listed("kv", mask.kv_num_blocks, mask.kv_indices, grid)
    seen = partly
    if mask.full_kv_num_blocks is not None:
        full = _listed("full_kv", mask.full_kv_num_blocks, mask.full_kv_indices, grid)
        # a block in both lists is full
        seen, partly = partly | full, partly & ~full
    if seen.shape[0] not in (1, count) or seen.shape[1] not in (1, heads):
        raise ValueError(
            f"block_mask: got one for {seen.shape[0]} batch items and {seen.shape[1]} "
            f"heads; expected 1 or {count}, and 1 or {heads}"
        )
    return BlockFlags(seen, rows, columns, partly)


def _listed(
    name: str, counts: Tensor, indices: Tensor, grid: tuple[int, int]
) -> Tensor:
    """Return flags (B, H, *grid) of listed blocks: the first of each row count."""
    if indices.dim() != 4 or indices.shape[:-1] != counts.shape:
        raise ValueError(
            f"block_mask: got {name}_num_blocks of shape {tuple(counts.shape)} and "
            f"{name}_indices of shape {tuple(indices.shape)}; expected (B, H, rows) "
            "and (B, H, rows, n)"
        )
    if counts.shape[-1] != grid[0]:
        raise ValueError(
            f"block_mask: got {name}_num_blocks with {counts.shape[-1]} rows of "
            f"blocks; expected {grid[0]}"
        )
    listed = torch.arange(indices.shape[-1]) < counts[..., None]
    wrong = listed & ((indices < 0) | (indices >= grid[1]))
    if wrong.any() or (counts > indices.shape[-1]).any():
        raise IndexError(
            f"block_mask: got {name}_indices with a block beyond the keys, or fewer "
            f"entries than {name}_num_blocks says; expected blocks 0 to {grid[1] - 1}"
        )
    # what is not listed goes to a column that is cut off
    at = torch.where(listed, indices, grid[1]).long()
    flags = torch.zeros(*counts.shape, grid[1] + 1, dtype=torch.bool)
    return flags.scatter_(-1, at, True)[..., : grid[1]]
