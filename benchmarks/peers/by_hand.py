"""Blocks of queries, the forward by hand.

What somebody writes who knows the skew and the size of a cache: scores of one block at
a time in scratch that is used again, hidden keys cut off, no array of all pairs. Where
sequences are short a block has several heads, or several batch items of all heads, so
that the interpreter's time is shared.

Queries carry log2 e as well, since exp2 takes half of exp's time or less. It is not
divided by its sums: rows of out are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from typing import Any

from benchmarks.peers.blocks import Block, form_of
from benchmarks.peers.libraries import InNumpy, InTorch
from benchmarks.problems import Problem
from benchmarks.timing import Array

Group = tuple[slice, slice]  # of batch items, of heads


def transposed(x: Any) -> Any:
    """The last two axes exchanged."""
    return x.swapaxes(-1, -2)


def add_ends(x: Any, ends: Any, near: slice) -> None:
    """Left and right of near all pairs of a query have the same term."""
    x[..., : near.start] += ends[..., :1]
    x[..., near.stop :] += ends[..., -1:]


class Forward:
    """A case cut into groups of heads and blocks of `size` queries.

    `group_bytes`: as many heads at once as have so many bytes of scores, or one.
    """

    def __init__(
        self, library: InNumpy | InTorch, case: Problem, size: int, group_bytes: int
    ) -> None:
        self.library, self.xp = library, library.module
        self.given, q = case.arrays, case.arrays["query"]
        self.scale = float(q.shape[-1] ** -0.5)
        self.scale_2 = self.scale / math.log(2.0)
        whole = ("query", "key", "value")
        self.x = {
            name: library.array(x.reshape(-1, *x.shape[-3:]) if name in whole else x)
            for name, x in case.arrays.items()
        }
        self.is_long = case.scheme in ("music", "xl")
        form = form_of(case)
        self.blocks = form.blocks(size)
        self.masks = {
            block.rows.start: library.mask(block.hidden)
            for block in self.blocks
            if block.hidden is not None
        }
        n = max(block.n for block in self.blocks)
        self.groups = list(self.cut(group_bytes // (n * form.keys * q.itemsize)))
        columns = [x.shape[-1] for x in case.arrays.values()]
        rows = max(n, *columns) + case.arrays.get("rel_value", q[..., :1, :]).shape[-2]
        together = max(math.prod(self.x["query"][g].shape[:2]) for g in self.groups)
        self.most = together * rows * (n + form.keys)
        self.scratch: dict[str, Any] = {}
        self.array, self.skewed = cache(self._array), cache(self._skewed)

    def cut(self, heads: int) -> Iterator[Group]:
        """Groups of so many heads: of one batch item, or of whole batch items."""
        batch, all_heads = self.x["query"].shape[:2]
        items, some = max(1, heads // all_heads), max(1, min(heads, all_heads))
        for b in range(0, batch, items):
            for h in range(0, all_heads, some):
                yield slice(b, b + items), slice(h, h + some)

    def _array(self, use: str, *shape: int) -> Any:
        """Scratch; that of one use is the same memory whatever the shape."""
        if use not in self.scratch:
            self.scratch[use] = self.library.empty(self.most, self.x["query"])
        return self.scratch[use][: math.prod(shape)].reshape(shape)

    def _skewed(self, use: str, *shape: int) -> Any:
        """[i, j] of (b, h, n, m) is column n - 1 - i + j of row i of (b, h, n, ld)."""
        b, h, n, m, ld = shape
        self.array(use, b, h, n, ld)
        steps = (h * n * ld, n * ld, ld - 1, 1)
        return self.library.strided(self.scratch[use], (b, h, n, m), steps, n - 1)

    def of_heads(self, name: str, group: Group) -> Any:
        """A table, or a bias as a row, of the group's heads or of all alike."""
        x = self.x[name]
        if name.startswith("pos_bias"):
            x = x[..., None, :]
        return x[group[1]] if x.ndim == 3 else x

    def queries(self, group: Group, block: Block) -> tuple[Any, Any]:
        """q + u and q + v, times scale * log2 e."""
        q = self.x["query"][group][..., block.rows, :]
        content = self.array("content", *q.shape)
        self.xp.multiply(q, self.scale_2, out=content)
        if "pos_bias_u" not in self.x:
            return content, content
        position = self.array("position", *q.shape)
        v = self.of_heads("pos_bias_v", group) * self.scale_2
        self.xp.add(content, v, out=position)
        content += self.of_heads("pos_bias_u", group) * self.scale_2
        return content, position

    def rows_by(self, rows: Any, table: Any, use: str) -> Any:
        """rows (b, h, n, d) times the table's: one product if all heads share it."""
        shape = (*rows.shape[:-1], table.shape[-2])
        out = self.array(use, *shape)
        if table.ndim == 2:
            flat = rows.reshape(-1, rows.shape[-1])
            self.library.product(flat, table.T, out.reshape(-1, shape[-1]))
        else:
            self.library.product(rows, transposed(table), out)
        return out

    def repeated(self, products: Any, block: Block) -> Any:
        """Products with a clipped table as those with the band of `near`, skewed."""
        left, right = block.ends
        m = block.near.stop - block.near.start
        columns = block.n + m - 1
        band = self.array("band", *products.shape[:-1], columns)
        band[..., :left] = products[..., :1]
        band[..., left : columns - right] = products[..., block.inner]
        band[..., columns - right :] = products[..., -1:]
        return self.skewed("band", *products.shape[:-1], m, columns)

    def scores(self, group: Group, block: Block, content: Any, position: Any) -> Any:
        """s times log2 e, hidden pairs too."""
        keys = transposed(self.x["key"][group][..., : block.m, :])
        s = self.array("s", *content.shape[:-1], block.m)
        if self.is_long:
            band = self.of_heads("rel_key", group)[..., block.band, :]
            ld = self.rows_by(position, band, "band").shape[-1]
            added = self.skewed("band", *s.shape, ld)
            return self.library.product_plus(added, content, keys, s)
        self.library.product(content, keys, s)
        if "rel_key" in self.x:
            table = self.of_heads("rel_key", group)
            products = self.rows_by(position, table, "products")
            add_ends(s, products, block.near)
            s[..., block.near] += self.repeated(products, block)
        return s

    def weights(self, s: Any, block: Block) -> tuple[Any, Any]:
        """exp(s - max), in place, and its sums."""
        w = self.library.weights(s, block.diagonal, self.masks.get(block.rows.start))
        return w, self.library.row_sums(w)

    def in_zeros(self, use: str, *shape: int) -> Any:
        """A skewed array with zeros around it, so that `use` is a band of rows."""
        *lead, n, m = shape
        whole = self.array(use, *lead, n, n + m - 1)
        whole[..., : n - 1] = 0.0
        whole[..., m:] = 0.0
        return self.skewed(use, *shape, n + m - 1)

    def sums(self, pairs: Any, rows: int, block: Block, use: str) -> Any:
        """Sum over the pairs of each row of a clipped table: (b, h, n, rows)."""
        left, right = block.ends
        near = pairs[..., block.near]
        columns = block.n + near.shape[-1] - 1
        self.in_zeros("near", *near.shape)[...] = near
        band = self.array("near", *pairs.shape[:-1], columns)
        total = self.array(use, *pairs.shape[:-1], rows)
        total[...] = 0.0
        total[..., block.inner] = band[..., left : columns - right]
        row_sums = self.library.row_sums
        total[..., :1] += row_sums(band[..., :left])
        total[..., :1] += row_sums(pairs[..., : block.near.start])
        total[..., -1:] += row_sums(band[..., columns - right :])
        total[..., -1:] += row_sums(pairs[..., block.near.stop :])
        return total

    def attend(
        self, group: Group, block: Block, w: Any, lengths: Any, out: Any
    ) -> None:
        """out_i = sum of w_ij (v_j + a^V) over the sum of w_ij."""
        values = self.x["value"][group][..., : block.m, :]
        found = self.library.product(w, values, self.array("out", *out.shape))
        if "rel_value" in self.x:
            table = self.of_heads("rel_value", group)
            found += self.xp.matmul(self.sums(w, table.shape[-2], block, "sums"), table)
        self.xp.divide(found, lengths, out=out)

    def run(self) -> dict[str, Array]:
        """The case's output."""
        out = self.empty_out()
        for group in self.groups:
            for block in self.blocks:
                content, position = self.queries(group, block)
                s = self.scores(group, block, content, position)
                w, lengths = self.weights(s, block)
                self.attend(group, block, w, lengths, out[group][..., block.rows, :])
        return self.results({"out": out})

    def empty_out(self) -> Any:
        q = self.x["query"]
        return self.library.empty(math.prod(q.shape), q).reshape(q.shape)

    def results(self, found: dict[str, Any]) -> dict[str, Array]:
        """As NumPy's and of the shapes given."""
        shapes = {name: x.shape for name, x in self.given.items()}
        shapes["out"] = shapes["query"]
        return {n: self.library.numpy(x).reshape(shapes[n]) for n, x in found.items()}
