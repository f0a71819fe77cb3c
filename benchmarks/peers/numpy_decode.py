"""NumPy for one query: a loop over heads, and all heads in each operation.

Each product is with a vector, so both read keys, values and tables once and do little
else. The loop leaves out the subtraction of the largest score, which the numbers of a
benchmark need not.
"""

from __future__ import annotations

import numpy as np

from benchmarks.peers.base import Peer, Skipped, Work
from benchmarks.peers.blocks import Form, form_of
from benchmarks.peers.by_hand import Forward, InNumpy
from benchmarks.problems import Problem
from benchmarks.timing import Array


class Loop:
    """A short program: two products with a vector for each item and head."""

    def __init__(self, case: Problem, form: Form) -> None:
        self.x, self.is_long = case.arrays, case.scheme in ("music", "xl")
        q = case.arrays["query"]
        self.scale = q.dtype.type(q.shape[-1] ** -0.5)
        block = form.block(0, 1)
        self.m, self.band = block.m, block.band
        self.near, self.inner = block.near, block.inner

    def table(self, name: str, head: int) -> Array:
        """Return the output of one head."""
        table = self.x[name]
        return table[head] if table.ndim == 3 else table

    def scores(self, item: tuple[int, ...]) -> Array:
        """Return the products of one query with its keys."""
        q, head = self.x["query"][item][0] * self.scale, item[-1]
        content = position = q
        if "pos_bias_u" in self.x:
            u, v = self.x["pos_bias_u"], self.x["pos_bias_v"]
            content = q + (u[head] if u.ndim == 2 else u) * self.scale
            position = q + (v[head] if v.ndim == 2 else v) * self.scale
        s: Array = self.x["key"][item][: self.m] @ content
        if self.is_long:
            s += self.table("rel_key", head)[self.band] @ position
        elif "rel_key" in self.x:
            terms = self.table("rel_key", head) @ position
            s[: self.near.start] += terms[0]
            s[self.near] += terms[self.inner]
            s[self.near.stop :] += terms[-1]
        return s

    def __call__(self) -> dict[str, Array]:
        out = np.empty_like(self.x["query"])
        for item in np.ndindex(out.shape[:-2]):
            w = np.exp(self.scores(item))
            total = w @ self.x["value"][item][: self.m]
            if "rel_value" in self.x:
                total += self.of_table(w) @ self.table("rel_value", item[-1])
            out[item] = total / w.sum()
        return {"out": out}

    def of_table(self, w: Array) -> Array:
        """Weights summed by row of a clipped table."""
        sums = np.zeros(self.x["rel_value"].shape[-2], w.dtype)
        sums[self.inner] = w[self.near]
        sums[0] += w[: self.near.start].sum()
        sums[-1] += w[self.near.stop :].sum()
        return sums


def loop(case: Problem, mode: str, threads: int) -> Work:
    form = form_of(case)
    if form.queries != 1 or mode == "fwdbwd":
        raise Skipped("works only for one query, forward")
    return Loop(case, form)


def batched(case: Problem, mode: str, threads: int) -> Work:
    if form_of(case).queries != 1 or mode == "fwdbwd":
        raise Skipped("works only for one query, forward")
    return Forward(InNumpy(threads), case, 1, case.arrays["key"].nbytes).run


PEERS = (
    Peer("numpy_loop", False, None, loop),
    Peer("numpy_batched", False, None, batched),
)
