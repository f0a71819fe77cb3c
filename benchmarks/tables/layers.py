"""Speed of whole layers of relpos.nn, forward and backward, one core.

Rows: RelativeGlobalAttention and ShawAttention (k = 16) in training, float32, as a
fraction of the multiply-add peak. Useful operations: 2 for each number of a weight and
each token, twice that backward, and those of the attention as in attention.py.

First the output and the gradient of the input are compared, for one item of the batch,
with NumPy's products in float64 around `relpos.reference`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks import timing
from benchmarks.problems import GRADIENT_LIMIT
from benchmarks.tables.attention import of_peak
from benchmarks.timing import BEST_ISA, Array, Plan, Row, Rows
from relpos import nn, reference

SHAPES = ((8, 100, 768, 12), (4, 256, 512, 8))  # batch, length, width, heads
SHAW_K = 16


@dataclass(frozen=True)
class Case:
    """A layer and its attention, as `relpos.reference` has it.

    `projections` are the names of the Linears of query, key and value, and of that of
    the output or None; `flops` those of the attention, forward and backward.
    """

    layer: Any
    heads: int
    projections: tuple[str, str, str, str | None]
    attention: dict[str, Any]
    flops: tuple[float, float]

    def weight(self, name: str) -> Array:
        weight: Array = getattr(self.layer, name).weight.data.astype(np.float64)
        return weight

    def split(self, x: Array) -> Array:
        """Split into heads: (L, E) -> (H, L, D)."""
        return x.reshape(len(x), self.heads, -1).swapaxes(0, 1)

    def expected(self, x: Array, grad: Array) -> tuple[Array, ...]:
        """Return the output and the gradient of one item (L, E)."""
        *names, last = self.projections
        biases = [getattr(self.layer, name).bias.data for name in names]
        heads: list[Any] = [
            self.split(x @ self.weight(name).T + bias)
            for name, bias in zip(names, biases, strict=True)
        ]
        attended: Any = reference.attention(*heads, **self.attention)
        out = join(attended)
        if last is not None:
            out = out @ self.weight(last).T + getattr(self.layer, last).bias.data
            grad = grad @ self.weight(last)
        found = reference.attention_backward(self.split(grad), *heads, **self.attention)
        parts = zip(found[:3], names, strict=True)
        return out, np.sum([join(x) @ self.weight(name) for x, name in parts], axis=0)


def join(x: Array) -> Array:
    """Join heads: (H, L, D) -> (L, E)."""
    return x.swapaxes(0, 1).reshape(x.shape[1], -1)


def music(batch: int, length: int, width: int, heads: int) -> Case:
    layer = nn.RelativeGlobalAttention(width, heads, length, dropout=0.0, rng=0)
    table = layer.Er.data.astype(np.float64)
    attention = {
        "is_causal": True,
        "rel_key": table,
        "min_relative_position": 1 - length,
    }
    pairs = batch * length * (length + 1) / 2  # of all heads, times D: pairs * width
    names = ("query", "key", "value", None)
    flops = 6 * pairs * width, 16 * pairs * width
    return Case(layer, heads, names, attention, flops)


def shaw(batch: int, length: int, width: int, heads: int) -> Case:
    layer: Any = nn.ShawAttention(width, heads, SHAW_K, rng=0)
    tables = {
        name: getattr(layer, name).weight.data.astype(np.float64)
        for name in ("rel_key", "rel_value")
    }
    work = batch * length * (length + 2 * SHAW_K + 1) * width
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    return Case(layer, heads, names, tables, (4 * work, 10 * work))


def layer_row(
    label: str, build: Any, shape: tuple[int, ...], backward: bool, repeats: int
) -> Row:
    case, rng = build(*shape), np.random.default_rng(1)
    batch, length, width, _ = shape
    x, grad = rng.standard_normal((2, batch, length, width), dtype=np.float32)
    out, grad_x = case.layer(x), case.layer.backward(grad)
    wanted = case.expected(x[0].astype(np.float64), grad[0].astype(np.float64))
    error = max(
        timing.check_error(got[0], want, label, GRADIENT_LIMIT)
        for got, want in zip((out, grad_x), wanted, strict=True)
    )
    work = partial(case.layer.backward, grad) if backward else partial(case.layer, x)
    yardstick = timing.fma_yardstick(BEST_ISA, "float32")
    timed = timing.interleave([work], yardstick, repeats)
    count = 4 - case.projections.count(None)
    products = 2 * count * batch * length * width**2 * (2 if backward else 1)
    flops = products + case.flops[backward]
    return of_peak(label, timed, flops, error)


def make_plan(isas: list[str], full: bool) -> Plan:
    rows = Rows(full)
    for name, build in {"music": music, "shaw k=16": shaw}.items():
        for shape in SHAPES:
            for backward in (False, True):
                way = "backward" if backward else "forward"
                label = f"{name} {way} {shape[:3]} H={shape[3]}"
                rows.add(label, layer_row, build, shape, backward)
    return rows
