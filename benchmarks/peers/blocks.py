"""Positions and offsets in a block of queries, which every peer computes with.

A block of n queries sees the first m keys. The table rows that its pairs use are a band
of at most n + m - 1 rows in order, and the product of its queries with the band, read
from column n - 1 on with rows one shorter, has the term of pair (i, j) at [i, j]: the
skew, without a copy. Of a causal table, which ends at distance 0, the rows beyond it
are missing, and hidden pairs read what stands in the next row.

Shaw's clipped table: to the left of `near`, all queries of the block use row 0, to its
right all use the last row, and between them a band that is the table with its ends
repeated.
"""

from dataclasses import dataclass

import numpy as np

from benchmarks.peers.base import Skipped
from benchmarks.problems import Problem

SCHEMES = ("plain", "music", "xl", "shaw")


@dataclass(frozen=True)
class Block:
    """Queries `rows`, the m keys they may see, and how tables lie to them."""

    rows: slice
    n: int
    m: int
    diagonal: slice  # keys of which some queries see only a part
    hidden: np.ndarray | None  # which of these, (n, width)
    band: slice  # rows of an unclipped table
    near: slice  # keys that do not all use the same end of a clipped table
    ends: tuple[int, int]  # how often these need its first and its last row
    inner: slice  # and the rows between, once each


@dataclass(frozen=True)
class Form:
    """Sizes of a case, and where relative position 0 is in its table."""

    queries: int
    keys: int
    is_causal: bool
    offset: int  # query i stands at key i + offset
    zero: int
    clip: int

    def blocks(self, size: int) -> list[Block]:
        """All queries, `size` at a time."""
        starts = range(0, self.queries, size)
        return [self.block(i, min(i + size, self.queries)) for i in starts]

    def block(self, start: int, end: int) -> Block:
        """Queries start to end."""
        n, first, last = end - start, start + self.offset, end - 1 + self.offset
        m = min(self.keys, last + 1) if self.is_causal else self.keys
        diagonal, hidden = slice(min(first, m), m), None
        if self.is_causal and n > 1:
            hidden = np.arange(first, m) > np.arange(first, last + 1)[:, None]
        begin = min(max(first - self.clip + 1, 0), m)
        near = slice(begin, max(min(last + self.clip, m), begin))
        # Rows of the table for near's band, did it go on for ever.
        low, high = near.start - last + self.clip, near.stop - first + self.clip
        rows = 2 * self.clip + 1
        ends = (max(0, min(1, high) - low), max(0, high - max(low, 1, rows - 1)))
        inner = slice(max(low, 1), min(high, rows - 1))
        band = slice(max(0, self.zero - last), self.zero + m - first)
        return Block(slice(start, end), n, m, diagonal, hidden, band, near, ends, inner)


def form_of(case: Problem) -> Form:
    """Return the positions of a case; raise Skipped if the peers do not know them."""
    unknown = {*case.options} - {"is_causal", "query_offset"}
    if case.scheme not in SCHEMES or unknown:
        raise Skipped(f"written for {', '.join(SCHEMES)}, without {sorted(unknown)}")
    queries, keys = (case.arrays[name].shape[-2] for name in ("query", "key"))
    rows = case.arrays["rel_key"].shape[-2] if "rel_key" in case.arrays else 1
    zero = (rows - 1) // 2
    if case.scheme == "xl":
        zero = keys - 1
    elif case.scheme == "music" and case.is_causal:
        zero = rows - 1
    offset = keys - queries if case.scheme == "xl" else 0
    offset = case.options.get("query_offset", offset)
    return Form(queries, keys, case.is_causal, offset, zero, (rows - 1) // 2)
