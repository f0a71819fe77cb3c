"""An hour of speech through the attention of a Conformer layer, forward and backward.

45,000 frames (80 ms each, as encoders have them that take every eighth of 10 ms) attend
to each other in 8 heads of 64: Transformer-XL's terms with the past and the future. The
usual form makes the position scores of every query and distance before it shifts them:
8 * 45,000 * 89,999 numbers. The process that measures makes nothing else, so that its
peak is that of inputs, outputs, gradients and what the call needs.

The results are held against float64 where that is cheap: whole rows (some queries
against all keys) from the inputs alone; whole columns and diagonals (all queries
against some keys, or at some distances) from the inputs and the rows' sums; and the
gradients of u and v, together, by the sum of those of all queries.
"""

from __future__ import annotations

import json
import sys
from time import process_time
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

import relpos
from relpos._catalogue.measure import forget_peak, in_child, resident
from relpos._catalogue.rows import relative_error

SEEDS = [0]
HEADS, DIM = 8, 64
HOUR, SHORT = 45_000, 3_000  # frames
WINDOW = 24  # queries, keys and distances that are held against float64
SCALE = DIM**-0.5

Array = NDArray[Any]


def position_scores(frames: int) -> int:
    """Bytes of the position scores of the usual form, before the shift."""
    return HEADS * frames * (2 * frames - 1) * 4


def inputs(frames: int) -> dict[str, Array]:
    """Queries, keys, values, projected sinusoids, u, v and a gradient of the output."""
    rng = np.random.default_rng(SEEDS[0])
    shape = HEADS, frames, DIM
    arrays = {
        name: rng.standard_normal(shape, dtype=np.float32)
        for name in ("query", "key", "value", "grad_out")
    }
    width = HEADS * DIM
    rows = relpos.sinusoidal(np.arange(1 - frames, frames), width).astype(np.float32)
    weight = rng.standard_normal((width, width), dtype=np.float32) / np.sqrt(width / 2)
    rows = rows @ weight.astype(np.float32)
    arrays["rel_key"] = np.ascontiguousarray(
        rows.reshape(-1, HEADS, DIM).swapaxes(0, 1)
    )
    arrays["u"], arrays["v"] = rng.standard_normal((2, HEADS, DIM), dtype=np.float32)
    return arrays


class Pairs:
    """Weights of chosen pairs of one head and gradients of their scores, in float64."""

    def __init__(self, arrays: dict[str, Array], out: Array, lse: Array, head: int):
        self.parts = {name: x[head] for name, x in arrays.items()}
        self.out, self.lse = out[head], lse[head].astype(np.float64)
        self.everyone = np.arange(len(self.out))

    def of(self, name: str, rows: Array | int) -> Array:
        return self.parts[name][rows].astype(np.float64)

    def scores(self, query: Array | int, key: Array | int) -> Array:
        """Scores of pairs, one index or as many of each."""
        q, row = self.of("query", query), key - query + len(self.out) - 1
        content = (q + self.parts["u"]) * self.of("key", key)
        return SCALE * (content + (q + self.parts["v"]) * self.of("rel_key", row)).sum(
            -1
        )

    def pulls(self, query: Array, key: Array | int) -> tuple[Array, Array]:
        """Weights by the rows' sums that were returned, and gradients of the scores."""
        weights = np.exp(self.scores(query, key) - self.lse[query])
        grad, out = self.of("grad_out", query), self.out[query]
        return weights, weights * (grad * (self.of("value", key) - out)).sum(-1)

    def row(self, query: int) -> dict[str, Array]:
        """Compute a query's result and its gradient from the inputs alone."""
        scores, values = self.scores(query, self.everyone), self.parts["value"]
        top = scores.max()
        weights = np.exp(scores - top)
        lse = top + np.log(weights.sum())
        out = (weights @ values.astype(np.float64)) / weights.sum()
        pulls = np.exp(scores - lse) * ((values - out) @ self.of("grad_out", query))
        rows = self.everyone - query + len(self.out) - 1
        both = self.of("key", self.everyone) + self.of("rel_key", rows)
        return {"out": out, "lse": lse, "grad_query": SCALE * (pulls @ both)}

    def column(self, key: int) -> dict[str, Array]:
        weights, pulls = self.pulls(self.everyone, key)
        queries = self.of("query", self.everyone) + self.parts["u"]
        grad_value = weights @ self.of("grad_out", self.everyone)
        return {"grad_key": SCALE * (pulls @ queries), "grad_value": grad_value}

    def diagonal(self, offset: int) -> Array:
        """Gradient of the table's row of a relative position."""
        last = len(self.out)
        queries = np.arange(max(0, -offset), last - max(0, offset))
        _, pulls = self.pulls(queries, queries + offset)
        return SCALE * (pulls @ (self.of("query", queries) + self.parts["v"]))


def errors(arrays: dict[str, Array], result: Any, grads: Any) -> dict[str, float]:
    """Each output and gradient beside float64."""
    out, frames = result.out, arrays["query"].shape[1]
    window = np.linspace(0, frames - 1, WINDOW).astype(int)
    offsets = np.linspace(-frames // 2, frames // 2, WINDOW).astype(int)
    measured: dict[str, list[Any]] = {}
    exact: dict[str, list[Any]] = {}

    def hold(name: str, mine: Any, other: Any) -> None:
        measured.setdefault(name, []).append(mine)
        exact.setdefault(name, []).append(other)

    for head in (0, HEADS - 1):
        pairs = Pairs(arrays, out, result.lse, head)
        mine = {"out": out, "lse": result.lse, "grad_query": grads.query}
        mine |= {"grad_key": grads.key, "grad_value": grads.value}
        for at in window:
            for name, other in {**pairs.row(at), **pairs.column(at)}.items():
                hold(name, mine[name][head, at], other)
        for offset in offsets:
            row = grads.rel_key[head, offset + frames - 1]
            hold("grad_rel_key", row, pairs.diagonal(offset))
    both = grads.pos_bias_u + grads.pos_bias_v  # as the gradients of all queries add up
    hold("grad_u_and_v", both, grads.query.sum(1, dtype=np.float64))
    return {
        name: relative_error(np.asarray(mine, np.float64), np.asarray(exact[name]))
        for name, mine in measured.items()
    }


class Results(TypedDict):
    """Seconds, bytes, and errors by result, of one pass."""

    frames: int
    seconds_forward: float
    seconds_backward: float
    peak_bytes: int
    bytes_before: int
    bytes_of_inputs_and_results: int
    bytes_of_position_scores: int
    errors: dict[str, float]


def measure(frames: int) -> Results:
    """One forward and backward pass in this process, then the comparison."""
    operands = inputs(frames)
    forget_peak()  # that of making the inputs
    before = resident("VmRSS")
    start = process_time()
    result = relpos.transformer_xl_attention(
        *(operands[name] for name in ("query", "key", "value", "rel_key", "u", "v")),
        return_lse=True,
        return_context=True,
    )
    middle = process_time()
    grads = result.context.backward(operands["grad_out"])
    end = process_time()
    peak = resident("VmHWM")
    arrays = [
        *operands.values(),
        result.out,
        result.lse,
        *(x for x in grads if x is not None),
    ]
    return {
        "frames": frames,
        "seconds_forward": middle - start,
        "seconds_backward": end - middle,
        "peak_bytes": peak,
        "bytes_before": before,
        "bytes_of_inputs_and_results": sum(x.nbytes for x in arrays),
        "bytes_of_position_scores": position_scores(frames),
        "errors": errors(operands, result, grads),
    }


def run(seeds: list[int], quick: bool) -> Results:
    """Measured in a process of its own."""
    frames = SHORT if quick else HOUR
    measured: Results
    (measured,) = in_child("docs.experiments.speech", str(frames))
    return measured


def check(results: Results, quick: bool) -> None:
    """Right in every part, in a small part of what the position scores alone take."""
    assert max(results["errors"].values()) < 5e-6, results["errors"]
    share = results["peak_bytes"] / results["bytes_of_position_scores"]
    assert share < (0.4 if quick else 0.012), share


def table(results: Results) -> list[list[str]]:
    rows = [
        ["frames", f"{results['frames']:,}"],
        ["forward, processor time", f"{results['seconds_forward']:.0f} s"],
        ["backward, processor time", f"{results['seconds_backward']:.0f} s"],
        *(
            [what, f"{results[name] / 2**30:.2f} GiB"]
            for name, what in {
                "peak_bytes": "peak of the process",
                "bytes_of_inputs_and_results": "of which inputs, outputs, gradients",
                "bytes_of_position_scores": "position scores of the usual form",
            }.items()
        ),
    ]
    worst = max(results["errors"].values())
    return [
        ["what", "measured"],
        *rows,
        ["largest error compared with float64", f"{worst:.1e}"],
    ]


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
