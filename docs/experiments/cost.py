"""Cost of relative terms: Shaw's keys and values compared with plain attention.

Two figures: attention alone, forward and backward, and a whole step of training of a
layer of a Transformer (attention, network, norms, Adam). Both are ratios of processor
time to the same without relative terms, measured in turns in one process, one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time
from typing import TypedDict

import numpy as np

import relpos
from docs.experiments.page import spread
from relpos import nn

HEADS, DIM, REACH = 8, 64, 16
HIDDEN = 2048
#: Batch and length; the first four have 1024 tokens.
SHAPES = [(32, 32), (8, 128), (2, 512), (1, 1024), (1, 32), (1, 128)]
TURNS, SHORTEST = 3, 0.05  # alternations, and seconds of one measurement


def core(batch: int, length: int, relative: bool, seed: int) -> Callable[[], object]:
    rng = np.random.default_rng(seed)
    shape = (batch, HEADS, length, DIM)
    q, k, v, grad = rng.standard_normal((4, *shape), np.float32)
    tables = rng.standard_normal((2, 2 * REACH + 1, DIM), np.float32)
    names = {"rel_key": tables[0], "rel_value": tables[1]} if relative else {}

    def call() -> object:
        found = relpos.attention(q, k, v, **names, return_context=True)
        return found.context.backward(grad)

    return call


def step(batch: int, length: int, relative: bool, seed: int) -> Callable[[], object]:
    sizes = {"position": "shaw", "max_relative_position": REACH} if relative else {}
    width = HEADS * DIM
    layer = nn.TransformerLayer(width, HEADS, HIDDEN, rng=seed, **sizes)
    optimizer = nn.Adam(layer.parameters())
    rng = np.random.default_rng(seed)
    x, grad = rng.standard_normal((2, batch, length, width), np.float32)

    def call() -> None:
        layer(x)
        optimizer.zero_grad()
        layer.backward(grad)
        optimizer.step()

    return call


def seconds(call: Callable[[], object], times: int) -> float:
    """Return the processor time of so many calls."""
    start = process_time()
    for _ in range(times):
        call()
    return process_time() - start


def ratio(make: Callable[..., Callable[[], object]], *shape: int, seed: int) -> float:
    """With relative terms over without: the median of a few turns."""
    plain, relative = make(*shape, False, seed), make(*shape, True, seed)
    relative()
    plain()
    times = max(1, round(SHORTEST / max(seconds(plain, 1), 1e-4)))
    turns = [seconds(relative, times) / seconds(plain, times) for _ in range(TURNS)]
    return float(np.median(turns))


class Cost(TypedDict):
    """A shape, and its ratios by seed."""

    batch: int
    length: int
    attention: list[float]
    step: list[float]


class Results(TypedDict):
    """Cost of relative terms, by shape."""

    shapes: list[Cost]


def run(seeds: list[int], quick: bool) -> Results:
    """By shape, ratios by seed of attention alone and of a step of training."""
    shapes = SHAPES[-2:] if quick else SHAPES
    rows = []
    with relpos.threads(1):
        for batch, length in shapes:
            row: Cost = {
                "batch": batch,
                "length": length,
                "attention": [ratio(core, batch, length, seed=seed) for seed in seeds],
                "step": [ratio(step, batch, length, seed=seed) for seed in seeds],
            }
            rows.append(row)
    return {"shapes": rows}


def check(results: Results, quick: bool) -> None:
    """Relative terms cost; of a whole step less than of the attention alone."""
    for row in results["shapes"]:
        attention, step_of_layer = np.median(row["attention"]), np.median(row["step"])
        assert 1 < attention < 4, row
        assert step_of_layer < attention, row


def table(results: Results) -> list[list[str]]:
    rows = [
        [f"{r['batch']} x {r['length']}", spread(r["attention"]), spread(r["step"])]
        for r in results["shapes"]
    ]
    return [["batch x length", "attention alone", "step of a layer"], *rows]
