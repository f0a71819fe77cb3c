"""JAX under jit, dense and over blocks, gradients by vjp: a second or two to compile.

XLA's products use all of a CPU that MKL and OpenBLAS do not know yet. Its own
`jax.nn.dot_product_attention` is the dense form, and slower than this one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.peers.base import Peer, Skipped, Work
from benchmarks.peers.expression import Expression, Library
from benchmarks.problems import Problem
from benchmarks.timing import Array

Tensor = Any


class InJax(Library):
    """JAX by the methods of an expression."""

    def __init__(self) -> None:
        import jax

        self.jax: Any = jax
        self.xp: Any = jax.numpy

    def array(self, x: Array) -> Tensor:
        return self.xp.asarray(x)

    def pad(self, x: Tensor, left: int, right: int) -> Tensor:
        widths = [(0, 0)] * (x.ndim - 1) + [(left, right)]
        return self.xp.pad(x, widths)

    def plus_products(
        self, added: Tensor, a: Tensor, b: Tensor, scale: float
    ) -> Tensor:
        return added + (a * scale) @ b.mT

    def softmax(self, s: Tensor) -> Tensor:
        return self.jax.nn.softmax(s, axis=-1)


def prepare(case: Problem, mode: str, threads: int, *, size: int | None) -> Work:
    if mode == "decode" and size is not None:
        raise Skipped("one query cannot be cut into blocks")
    library = InJax()
    jax = library.jax
    expression = Expression(library, case, size)
    x = {name: library.array(array) for name, array in case.arrays.items()}
    grad_out = library.array(case.grad_out)

    def forward(x: Any, grad_out: Any) -> Any:
        return {"out": expression(x)}

    def both(x: Any, grad_out: Any) -> Any:
        out, back = jax.vjp(expression, x)
        return {"out": out, **back(grad_out)[0]}

    work = jax.jit(both if mode == "fwdbwd" else forward)
    compiled = work.lower(x, grad_out).compile()

    def call() -> dict[str, Array]:
        found = jax.block_until_ready(compiled(x, grad_out))
        return {name: np.asarray(array) for name, array in found.items()}

    return call


PEERS = tuple(
    Peer(name, size is None, "jax", partial(prepare, size=size))
    for name, size in (
        ("jax_jit", None),
        ("jax_jit_blocks_128", 128),
        ("jax_jit_blocks_256", 256),
    )
)
