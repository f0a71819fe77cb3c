"""Blocks of queries, forward and backward by hand in one pass.

Gradients of a block follow at once from its weights, which nobody stores. The divisor
of the weights goes into the rows of grad_out.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from benchmarks.peers.base import Peer, Skipped, Work
from benchmarks.peers.blocks import Block
from benchmarks.peers.by_hand import Forward, Group, add_ends, transposed
from benchmarks.peers.libraries import InNumpy, InTorch
from benchmarks.problems import Problem
from benchmarks.timing import Array

Grads = dict[str, Any]


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
        """total += a @ b."""
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
        raise Skipped("one query is no block")
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
