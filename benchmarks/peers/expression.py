"""A case as an expression, as people write it in a library with automatic gradients.

One block of all queries is the dense form; blocks of some are a loop of a few lines,
each over the keys that it sees. The skew is a flat view: a row is one element shorter.
Of Shaw's clipped tables only what lies near the diagonal is skewed, the rest are two
columns; a gather and a scatter take several times as long.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from benchmarks.peers.blocks import Block, form_of
from benchmarks.problems import Problem
from benchmarks.timing import Array

Tensor = Any
Tensors = dict[str, Tensor]


class Library(Protocol):
    """Operations of PyTorch and JAX; `xp` has those that they call alike."""

    xp: Any

    def array(self, x: Array) -> Tensor:
        """As the library's own."""

    def pad(self, x: Tensor, left: int, right: int) -> Tensor:
        """Zeros beside the last axis."""

    def plus_products(
        self, added: Tensor, a: Tensor, b: Tensor, scale: float
    ) -> Tensor:
        """added + scale * a b'."""

    def softmax(self, s: Tensor) -> Tensor:
        """Over the last axis."""

    def spread(self, column: Tensor, count: int) -> Tensor:
        """A column as often as that."""
        return self.xp.broadcast_to(column, (*column.shape[:-1], count))

    def by_heads(self, rows: Tensor, table: Tensor) -> Tensor:
        """Products of rows (b, h, n, d) with those of a table for each head."""
        return self.xp.einsum("bhid,hrd->bhir", rows, table)


def queries(x: Tensors, scale: float) -> tuple[Tensor, Tensor]:
    """q + u, and (q + v) times the scale where a table is multiplied by it."""
    q = x["query"]
    content = q + x["pos_bias_u"][..., None, :] if "pos_bias_u" in x else q
    position = q + x["pos_bias_v"][..., None, :] if "pos_bias_v" in x else q
    return content, position * scale if "rel_key" in x else position


def by_table(library: Library, rows: Tensor, table: Tensor) -> Tensor:
    """Products of each row with each of the table's, for all heads or for each."""
    if table.ndim == 2 or rows.shape[0] == 1:
        return rows @ table.mT
    return library.by_heads(rows, table)


class Expression:
    """The output of a case as an expression of its tensors, matmul and softmax."""

    def __init__(self, library: Library, case: Problem, size: int | None) -> None:
        self.library = library
        self.form, self.size = form_of(case), size
        self.is_long = case.scheme in ("music", "xl")
        self.scale = float(case.arrays["query"].shape[-1] ** -0.5)
        self.blocks = self.form.blocks(size or self.form.queries)
        dtype = case.arrays["query"].dtype
        self.masks = [self.mask(block, dtype) for block in self.blocks]
        self.cat = library.xp.concatenate

    def mask(self, block: Block, dtype: Any) -> Tensor | None:
        """0 and -inf, to be added."""
        if block.hidden is None:
            return None
        mask = np.zeros((block.n, block.m), dtype)
        mask[:, block.diagonal][block.hidden] = -np.inf
        return self.library.array(mask)

    def __call__(self, x: Tensors) -> Tensor:
        content, position = queries(x, self.scale)
        if self.is_long and self.form.is_causal:
            # A row more, so that rows of the skewed view are long enough.
            longer = self.library.pad(x["rel_key"].mT, 0, 1).mT
            x = {**x, "rel_key": longer}
        parts = []
        for block, mask in zip(self.blocks, self.masks, strict=True):
            rows = (q_[..., block.rows, :] for q_ in (content, position))
            parts.append(self.of_block(x, block, mask, *rows))
        return parts[0] if len(parts) == 1 else self.cat(parts, -2)

    def of_block(
        self, x: Tensors, block: Block, mask: Any, content: Tensor, position: Tensor
    ) -> Tensor:
        keys, values = x["key"][..., : block.m, :], x["value"][..., : block.m, :]
        if "rel_key" in x:
            bias = self.bias(x, block, position)
            s = self.library.plus_products(bias, content, keys, self.scale)
        else:
            s = (content * self.scale) @ keys.mT
        if mask is not None:
            s += mask
        p = self.library.softmax(s)
        out = p @ values
        if "rel_value" in x:
            sums = self.sums(p, block, x["rel_value"].shape[-2])
            out = out + sums @ x["rel_value"]
        return out

    def bias(self, x: Tensors, block: Block, position: Tensor) -> Tensor:
        """The position term of the scores."""
        if self.is_long:
            band = x["rel_key"][..., block.band.start : block.band.stop + 1, :]
            return self.skewed(by_table(self.library, position, band), block.m)
        cat, spread = self.cat, self.library.spread
        (left, right), near = block.ends, block.near
        terms = by_table(self.library, position, x["rel_key"])
        first, last = terms[..., :1], terms[..., -1:]
        band = [spread(first, left), terms[..., block.inner], spread(last, right)]
        middle = self.skewed(cat(band, -1), near.stop - near.start)
        sides = spread(first, near.start), spread(last, block.m - near.stop)
        return cat([sides[0], middle, sides[1]], -1)

    def sums(self, p: Tensor, block: Block, rows: int) -> Tensor:
        """Weights summed by row of a clipped table."""
        (left, right), near, inner = block.ends, block.near, block.inner
        band = self.unskewed(p[..., near])
        end = band.shape[-1] - right
        first = p[..., : near.start].sum(-1) + band[..., :left].sum(-1)
        last = p[..., near.stop :].sum(-1) + band[..., end:].sum(-1)
        between = band[..., left:end]
        between = self.library.pad(between, inner.start - 1, rows - 1 - inner.stop)
        return self.cat([first[..., None], between, last[..., None]], -1)

    def skewed(self, x: Tensor, m: int) -> Tensor:
        """[i, j] is column n - 1 - i + j of row i."""
        *lead, n, ld = x.shape
        if n == 1:
            return x[..., :m]
        flat = x.reshape(*lead, n * ld)[..., n - 1 : n - 1 + n * (ld - 1)]
        return flat.reshape(*lead, n, ld - 1)[..., :m]

    def unskewed(self, x: Tensor) -> Tensor:
        """The band of which x is the skewed part, with zeros around it."""
        *lead, n, m = x.shape
        if n == 1:
            return x
        flat = self.library.pad(x, 0, n - 2).reshape(*lead, n * (n + m - 2))
        return self.library.pad(flat, n - 1, 1).reshape(*lead, n, n + m - 1)
