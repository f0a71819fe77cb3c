"""Blocks of queries, forward and backward by hand.

What somebody writes who knows the skew and the size of a cache: scores of one block at
a time in scratch that is used again, hidden keys cut off, no array of all pairs. Where
sequences are short a block has several heads, or several batch items of all heads, so
that the interpreter's time is shared.

Queries carry log2 e as well, since exp2 takes half of exp's time or less. It is not
divided by its sums: rows of out are. Gradients of a block follow at once from its
weights, which nobody stores; the divisor of the weights goes into the rows of grad_out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.peers.base import Peer, Skipped, Work
from benchmarks.peers.blocks import Block, form_of
from benchmarks.problems import Problem
from benchmarks.timing import Array

Group = tuple[slice, slice]  # of batch items, of heads
Grads = dict[str, Any]


# NumPy and PyTorch: what both call by the same name is called by it; what only one has,
# or has faster by another way, is a method here.


class InNumpy:
    """einsum sums rows in a third of sum's time."""

    def __init__(self, threads: int) -> None:
        self.module: Any = np

    def array(self, x: Any) -> Any:
        return x

    def numpy(self, x: Any) -> Any:
        return x

    def empty(self, count: int, like: Any) -> Any:
        return np.empty(count, like.dtype)

    def strided(
        self, flat: Any, shape: tuple[int, ...], steps: tuple[int, ...], start: int
    ) -> Any:
        """A view of a flat array; steps and start in elements."""
        item = flat.itemsize
        strides = tuple(step * item for step in steps)
        return np.ndarray(shape, flat.dtype, flat, start * item, strides)

    def row_sums(self, x: Any) -> Any:
        return np.einsum("...j->...", x)[..., None]

    def row_products(self, x: Any, y: Any) -> Any:
        """Return the dot product of each pair of rows: (..., 1)."""
        return np.einsum("...j,...j->...", x, y)[..., None]

    def column_sums(self, x: Any) -> Any:
        return x.sum(axis=-2)

    def mask(self, hidden: Any) -> Any:
        return hidden

    def weights(self, s: Any, part: slice, mask: Any) -> Any:
        """2^(s - max), in place; of columns `part` only what the mask leaves.

        exp2 takes half of exp's time, but not where its result is 0 or subnormal.
        """
        if mask is not None:
            np.copyto(s[..., part], -np.inf, where=mask)
        s -= s.max(axis=-1, keepdims=True)
        if mask is not None:
            np.copyto(s[..., part], 0.0, where=mask)
        np.exp2(s, out=s)
        if mask is not None:
            np.copyto(s[..., part], 0.0, where=mask)
        return s

    def product(self, a: Any, b: Any, out: Any) -> Any:
        return np.matmul(a, b, out=out)

    def product_plus(self, added: Any, a: Any, b: Any, out: Any) -> Any:
        np.matmul(a, b, out=out)
        out += added
        return out

    def add_product(self, total: Any, a: Any, b: Any, scratch: Any) -> None:
        total += np.matmul(a, b, out=scratch)


class InTorch:
    """baddbmm adds while it multiplies."""

    def __init__(self, threads: int) -> None:
        self.module: Any = import_module("torch")
        self.module.set_num_threads(threads)
        self.module.set_flush_denormal(True)

    def array(self, x: Any) -> Any:
        return self.module.from_numpy(x)

    def numpy(self, x: Any) -> Any:
        return x.numpy()

    def empty(self, count: int, like: Any) -> Any:
        return self.module.empty(count, dtype=like.dtype)

    def strided(
        self, flat: Any, shape: tuple[int, ...], steps: tuple[int, ...], start: int
    ) -> Any:
        return self.module.as_strided(flat, shape, steps, start)

    def row_sums(self, x: Any) -> Any:
        return x.sum(-1, keepdim=True)

    def row_products(self, x: Any, y: Any) -> Any:
        return (x * y).sum(-1, keepdim=True)

    def column_sums(self, x: Any) -> Any:
        return x.sum(-2)

    def mask(self, hidden: Any) -> Any:
        """masked_fill_ takes four times as long as an addition."""
        mask = self.module.zeros(hidden.shape)
        return mask.masked_fill_(self.module.from_numpy(hidden), -math.inf)

    def weights(self, s: Any, part: slice, mask: Any) -> Any:
        if mask is not None:
            s[..., part] += mask
        s -= s.amax(-1, keepdim=True)
        return s.exp2_()

    def product(self, a: Any, b: Any, out: Any) -> Any:
        """matmul asks many questions before it calls bmm."""
        b = b[None] if b.ndim == 3 and len(a) == 1 else b
        if a.ndim == b.ndim == 4:
            self.module.bmm(a.flatten(0, 1), b.flatten(0, 1), out=out.flatten(0, 1))
        else:
            out[...] = a @ b
        return out

    def product_plus(self, added: Any, a: Any, b: Any, out: Any) -> Any:
        three = (x.flatten(0, 1) for x in (added, a, b))
        self.module.baddbmm(*three, out=out.flatten(0, 1))
        return out

    def add_product(self, total: Any, a: Any, b: Any, scratch: Any) -> None:
        total.flatten(0, 1).baddbmm_(a.flatten(0, 1), b.flatten(0, 1))


def transposed(x: Any) -> Any:
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

    def results(self, gradients: dict[str, Any]) -> dict[str, Array]:
        """As NumPy's and of the shapes given."""
        shapes = {name: x.shape for name, x in self.given.items()}
        shapes["out"] = shapes["query"]
        return {
            n: self.library.numpy(x).reshape(shapes[n]) for n, x in gradients.items()
        }


class Both(Forward):
    """Forward, and the gradients of all arrays."""

    def __init__(
        self, library: InNumpy | InTorch, case: Problem, size: int, group_bytes: int
    ) -> None:
        super().__init__(library, case, size, group_bytes)
        grad_out = case.grad_out
        self.grad_out = library.array(grad_out.reshape(-1, *grad_out.shape[-3:]))

    def run(self) -> dict[str, Array]:
        out, grads = self.empty_out(), {}
        for name, x in self.x.items():
            grads[name] = self.xp.zeros_like(x)
        for group in self.groups:
            for block in self.blocks:
                mine = out[group][..., block.rows, :]
                rows = self.queries(group, block)
                w, lengths = self.weights(self.scores(group, block, *rows), block)
                self.attend(group, block, w, lengths, mine)
                d = self.score_grads(group, block, w, lengths, mine, grads)
                self.row_grads(group, block, rows, d, grads)
        for name in {"key", "rel_key"} & {*grads}:
            grads[name] *= math.log(2.0)  # which queries carry the inverse of
        return self.results({"out": out, **grads})

    def score_grads(
        self, group: Group, block: Block, w: Any, lengths: Any, out: Any, grads: Grads
    ) -> Any:
        """dS; adds to the gradients of the value side."""
        rows = self.grad_out[group][..., block.rows, :]
        go = self.xp.divide(rows, lengths, out=self.array("go", *rows.shape))
        values = self.x["value"][group][..., : block.m, :]
        self.add_product(grads["value"][group][..., : block.m, :], transposed(w), go)
        make = self.in_zeros if self.is_long else self.array
        d = self.library.product(go, transposed(values), make("d", *w.shape))
        if "rel_value" in self.x:
            table = self.of_heads("rel_value", group)
            sums = self.array("sums", *w.shape[:-1], table.shape[-2])  # of attend
            self.add_to_table(grads["rel_value"], group, slice(None), sums, go)
            products = self.rows_by(go, table, "products")
            add_ends(d, products, block.near)
            d[..., block.near] += self.repeated(products, block)
        d -= self.library.row_products(go, out)
        d *= w
        return d

    def row_grads(
        self, group: Group, block: Block, rows: tuple[Any, Any], d: Any, grads: Grads
    ) -> None:
        """Adds to the gradients of query, key, table and biases."""
        content, position = rows
        keys = self.x["key"][group][..., : block.m, :]
        dq = self.library.product(d, keys, self.array("dq", *content.shape))
        self.add_product(grads["key"][group][..., : block.m, :], transposed(d), content)
        if "pos_bias_u" in grads:
            self.add_to_bias(grads["pos_bias_u"], group, dq)
        if "rel_key" in grads:
            dq_position = self.table_grads(group, block, position, d, grads)
            if "pos_bias_v" in grads:
                self.add_to_bias(grads["pos_bias_v"], group, dq_position)
            dq += dq_position
        self.xp.multiply(dq, self.scale, out=grads["query"][group][..., block.rows, :])

    def table_grads(
        self, group: Group, block: Block, position: Any, d: Any, grads: Grads
    ) -> Any:
        """Return the term's gradient of the query; add to that of the table."""
        table, rows = self.of_heads("rel_key", group), slice(None)
        if self.is_long:
            table, rows = table[..., block.band, :], block.band
            terms = self.array("d", *d.shape[:-1], block.n + block.m - 1)
            terms = terms[..., : table.shape[-2]]
        else:
            terms = self.sums(d, table.shape[-2], block, "terms")
        self.add_to_table(grads["rel_key"], group, rows, terms, position)
        found = self.array("dq position", *position.shape)
        return self.library.product(terms, table, found)

    def add_product(self, total: Any, a: Any, b: Any) -> None:
        self.library.add_product(total, a, b, self.array("product", *total.shape))

    def add_to_table(
        self, grad: Any, group: Group, rows: slice, terms: Any, x: Any
    ) -> None:
        """Adds terms' x, summed over what shares the table, to rows of its gradient."""
        if grad.ndim == 3:
            products = self.array(
                "product", *terms.shape[:2], terms.shape[-1], x.shape[-1]
            )
            self.library.product(transposed(terms), x, products)
            grad[group[1], rows] += products.sum(axis=0)
        else:
            flat = terms.reshape(-1, terms.shape[-1])
            grad[rows] += flat.T @ x.reshape(-1, x.shape[-1])

    def add_to_bias(self, grad: Any, group: Group, dq: Any) -> None:
        """Adds the sums of rows."""
        total = self.library.column_sums(dq).sum(axis=0) * self.scale
        if grad.ndim == 2:
            grad[group[1]] += total
        else:
            grad += total.sum(axis=0)


def prepare(
    case: Problem, mode: str, threads: int, *, library: Any, size: int, group_bytes: int
) -> Work:
    if mode == "decode":
        raise Skipped("one query cannot be cut into blocks")
    kind = Both if mode == "fwdbwd" else Forward
    return kind(library(threads), case, size, group_bytes).run


PEERS = tuple(
    Peer(
        f"{name}_blocks_{size}",
        False,
        package,
        partial(prepare, library=library, size=size, group_bytes=group_bytes),
    )
    for name, package, library, group_bytes in (
        ("numpy", None, InNumpy, 1 << 19),
        ("torch", "torch", InTorch, 1 << 19),
    )
    for size in (128, 256)
)
