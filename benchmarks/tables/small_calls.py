"""Microseconds of calls so small that the time before the kernel counts.

Every scheme of the catalogue on four tokens of 16 numbers, one head, one batch item,
float32, on as many threads as usual; rows named `and backward` are a forward and the
backward of its context together, and rows `over attention` what a scheme's own function
takes longer than `attention` with the same operands. Output and gradients are compared
with the definition at this size first.

There is nothing to compare these with but themselves, so here alone times are compared:
the best of many batches of calls, each on the thread's own CPU clock. That clock leaves
out what other programs do, but not what they do to the caches: `chrt -f 5 taskset -c 1`
before the command helps there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import relpos
from benchmarks import timing
from benchmarks.problems import GRADIENT_LIMIT
from relpos._catalogue.rows import ROWS, Inputs, Row, cast, draw

SIZE = {"heads": 1, "length": 4, "dim": 16}
#: Microseconds at most.
TARGETS = {
    "NoPE (no positions)": 15.0,
    "NoPE (no positions) and backward": 60.0,
}
#: Settings of `attention` that stand for a scheme, by its function.
SETTINGS: dict[str, Callable[[Inputs], dict[str, Any]]] = {
    "shaw_attention": lambda inputs: {},
    "relative_global_attention": lambda inputs: {
        "is_causal": True,
        "min_relative_position": 1 - len(inputs["rel_key"]),
    },
    "transformer_xl_attention": lambda inputs: {},
}
OVER_ATTENTION = 5.0  # microseconds at most
CALLS = 50  # of a batch
PARTS = 5  # of the batches: each gives its best, the figure is their median


def inputs_of(row: Row) -> Inputs:
    """Return a scheme's inputs; query, key and value with one batch axis."""
    made = row.inputs(np.float32, **SIZE)
    tokens = {"query", "key", "value"} & made.keys()
    return made | {name: made[name][None] for name in tokens}


def exactly(inputs: Inputs) -> Inputs:
    given = {name: x for name, x in inputs.items() if name != "dtype"}
    return cast(given, np.float64)


def best_row(
    label: str, call: Callable[[], object], error: float, batches: int
) -> timing.Row:
    best = [
        min(timing.seconds_of(call, CALLS) for _ in range(batches))
        for _ in range(PARTS)
    ]
    return timing.Row(
        label,
        "us",
        [seconds * 1e6 for seconds in best],
        PARTS,
        TARGETS.get(label),
        at_most=True,
        seconds=min(best),
        error=error,
    )


def forward_row(label: str, row: Row, batches: int) -> timing.Row:
    inputs = inputs_of(row)
    call = partial(row.relpos, **inputs)
    error = timing.check_error(call(), row.reference(**exactly(inputs)), label)
    return best_row(label, call, error, batches)


def over_attention_row(label: str, row: Row, batches: int) -> timing.Row:
    """Measure the difference of the least times of a scheme and of `attention`."""
    inputs = inputs_of(row)
    own = partial(row.relpos, **inputs)
    plain = partial(relpos.attention, **inputs, **SETTINGS[row.scheme](inputs))
    error = timing.check_error(own(), plain().astype(np.float64), label)
    more = []
    for _ in range(PARTS):
        pairs = [
            [timing.seconds_of(call, CALLS) for call in (own, plain)]
            for _ in range(batches)
        ]
        least = np.min(pairs, axis=0)
        more.append(float(least[0] - least[1]) * 1e6)
    return timing.Row(
        label, "us", more, PARTS, OVER_ATTENTION, at_most=True, error=error
    )


def both_row(label: str, row: Row, batches: int) -> timing.Row:
    gradients: Any = row.gradients
    inputs = inputs_of(row)
    shape = row.relpos(**inputs).shape
    grad_out = draw(np.random.default_rng(1), np.float32, *shape)
    call = partial(gradients.relpos, grad_out, **inputs)
    wanted = gradients.reference(grad_out.astype(np.float64), **exactly(inputs))
    got, limits = call(), GRADIENT_LIMIT
    error = max(
        timing.check_error(got[name], wanted[name], f"{label}, {name}", limits)
        for name in wanted
    )
    return best_row(label, call, error, batches)


def make_plan(isas: list[str], full: bool) -> timing.Plan:
    plan: timing.Plan = []
    batches = 100 if full else 10
    for row in ROWS:
        plan.append((row.name, partial(forward_row, row.name, row, batches)))
        if row.gradients is not None:
            label = f"{row.name} and backward"
            plan.append((label, partial(both_row, label, row, batches)))
        if row.scheme in SETTINGS:
            label = f"{row.name} over attention"
            plan.append((label, partial(over_attention_row, label, row, batches)))
    return plan
