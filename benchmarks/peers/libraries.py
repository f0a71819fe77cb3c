"""NumPy and PyTorch as one sees them who computes by hand, in arrays used again.

What both call by the same name is called by it; what only one has, or has faster by
another way, has a method here.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy as np


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
        """added + a @ b."""
        np.matmul(a, b, out=out)
        out += added
        return out

    def add_product(self, total: Any, a: Any, b: Any, scratch: Any) -> None:
        """total += a @ b."""
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
