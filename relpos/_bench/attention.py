"""Fused attention on one core, as a fraction of its multiply-add peak.

8 heads of size 64, one batch item and float32 unless a row says otherwise, through the
Python functions, tables and packing included: plain, music (relative_global_attention),
xl (transformer_xl_attention) and shaw (keys and values, k = 16), both directions and
causal, forward and backward. For comparison: ragged and long sequences, other sizes of
heads, float64.

Useful operations of N visible pairs: 4·N·D plain, 6·N·D with a long table; backward,
which computes the scores again, 10·N·D and 16·N·D. Shaw's are plain's, with a pair more
for each query and row of its tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from time import thread_time
from typing import Any

from relpos import _core
from relpos._bench import harness
from relpos._bench.problems import DIM, DIRECTIONS, SCHEMES, Problem
from relpos._bench.table import Plan, Row
from relpos._settings import use_isa

__all__ = ["make_plan", "measure_shares"]

#: What this project set itself: fractions of the peak of an instruction set by length.
FRACTIONS: dict[tuple[str, str, str], dict[int, float]] = {
    ("forward", "music", "both"): {512: 0.81, 1024: 0.84, 2048: 0.86},
    ("forward", "music", "causal"): {1024: 0.79, 2048: 0.82},
    ("forward", "xl", "both"): {512: 0.81, 1024: 0.84, 2048: 0.85},
    ("forward", "xl", "causal"): {1024: 0.79, 2048: 0.82},
    ("forward", "plain", "both"): {512: 0.81, 1024: 0.83, 2048: 0.85},
    ("forward", "plain", "causal"): {1024: 0.77, 2048: 0.81},
    ("forward", "shaw", "both"): {1024: 0.79},
    ("backward", "music", "both"): {512: 0.79, 1024: 0.83, 2048: 0.84},
    ("backward", "music", "causal"): {1024: 0.77, 2048: 0.81},
    ("backward", "xl", "both"): {512: 0.77, 1024: 0.81, 2048: 0.83},
    ("backward", "xl", "causal"): {1024: 0.76, 2048: 0.80},
    ("backward", "plain", "both"): {512: 0.80, 1024: 0.85, 2048: 0.87},
    ("backward", "plain", "causal"): {1024: 0.79, 2048: 0.82},
    ("backward", "shaw", "both"): {1024: 0.78},
}
SHORT = {64: 0.64, 128: 0.76, 256: 0.82}  # forward, not causal
#: How far these may fall below the fraction of LENGTH, in points of peak.
OTHER_SIZES: dict[str, tuple[dict[str, Any], float]] = {
    "L=1000": ({"length": 1000}, 0.03),
    "L=1023": ({"length": 1023}, 0.03),
    "D=32": ({"dim": 32}, 0.06),
    "D=128": ({"dim": 128}, 0.06),
    "float64": ({"dtype": "float64"}, 0.05),
}
#: Rate of long sequences over that at 2048, one head.
LONG = {8192: 0.97, 16384: 0.97}
LONG_BASE = 2048
LONG_TABLES = ("music", "xl", "plain")

# The one length of rows that have no table of lengths.
LENGTH = 1024


@dataclass(frozen=True)
class Size:
    """What a row is measured at."""

    length: int = LENGTH
    heads: int = 8
    dim: int = DIM
    batch: int = 1
    dtype: str = "float32"

    def problem(self, name: str, direction: str) -> Problem:
        """A problem of a scheme."""
        return SCHEMES[name].build(
            self.length,
            self.dtype,
            DIRECTIONS[direction],
            self.heads,
            batch=self.batch,
            dim=self.dim,
        )


Key = tuple[str, str, str]  # way, scheme, direction


def measure_shares(
    key: Key,
    size: Size,
    isa: str,
    repeats: int,
    label: str,
    *,
    threads: int = 1,
    clock: harness.Clock = thread_time,
    pause: float = 0.0,
) -> tuple[Row, harness.Timing]:
    """A row of fractions of the peak of `threads` cores, and how it was timed."""
    way, name, direction = key
    problem = size.problem(name, direction)
    flops = SCHEMES[name].flops(problem, way)
    with use_isa(isa):
        call, error = problem.prepared(way, threads, label)
        yardstick = harness.fma_yardstick(isa, size.dtype, threads, clock)
        timing = harness.interleave([call], yardstick, repeats, clock, pause)
    return Row.of_peak(label, timing, flops, error), timing


def fraction_row(
    label: str, key: Key, size: Size, isa: str, target: float | None, repeats: int
) -> Row:
    """Fraction of one core's peak."""
    row, _ = measure_shares(key, size, isa, repeats, label)
    return row.aimed_at(target)


def rate_row(
    label: str,
    works: Iterable[tuple[Key, Size]],
    isa: str,
    target: float,
    repeats: int,
) -> Row:
    """Rate of the first of two works over that of the second, at LONG_BASE."""
    calls, flops, errors = [], [], []
    with use_isa(isa):
        for (way, name, direction), size in works:
            problem = size.problem(name, direction)
            call, error = problem.prepared(way, 1, label)
            calls.append(call)
            flops.append(SCHEMES[name].flops(problem, way))
            errors.append(error)
        yardstick = harness.fma_yardstick(isa, "float32")
        timing = harness.interleave(calls, yardstick, repeats)
    more = flops[0] / flops[1]
    return Row(
        label,
        f"of the rate at {LONG_BASE}",
        [more / ratio for ratio in timing.ratios()],
        timing.tried,
        target,
        seconds=timing.seconds(),
        flops=flops[0],
        error=errors[0],
    )


class Rows:
    """A plan in the making."""

    def __init__(self, full: bool) -> None:
        self.plan: Plan = []
        self.full = full

    def add(self, label: str, measure: Callable[..., Row], *arguments: Any) -> None:
        repeats = 15 if self.full else 5
        self.plan.append((label, partial(measure, label, *arguments, repeats=repeats)))

    def fractions(self, isa: str) -> None:
        """The grid of one instruction set, each on its own peak."""
        for key, targets in FRACTIONS.items():
            for length, target in targets.items():
                if self.full or length == LENGTH:
                    label = f"{' '.join(key)} L={length} {isa}"
                    self.add(label, fraction_row, key, Size(length), isa, target)

    def other_sizes(self, isa: str) -> None:
        """Short, ragged and long sequences, other heads, float64."""
        for name in LONG_TABLES:
            key = "forward", name, "both"
            for length, target in SHORT.items():
                label = f"{' '.join(key)} L={length} {isa}"
                self.add(label, fraction_row, key, Size(length), isa, target)
            for way in ("forward", "backward"):
                key = way, name, "both"
                for what, (fields, less) in OTHER_SIZES.items():
                    label = f"{' '.join(key)} {what} {isa}"
                    target = round(FRACTIONS[key][LENGTH] - less, 2)
                    size = Size(**fields)
                    self.add(label, fraction_row, key, size, isa, target)
                for length, target in LONG.items():
                    works = [(key, Size(n, heads=1)) for n in (length, LONG_BASE)]
                    label = f"{' '.join(key)} L={length} H=1 {isa}"
                    self.add(label, rate_row, works, isa, target)


def make_plan(isas: list[str], full: bool) -> Plan:
    """Every row as (label, function that measures it), best instruction set first."""
    rows = Rows(full)
    for isa in isas:
        rows.fractions(isa)
    if full:
        rows.other_sizes(isas[0])
    return rows.plan


def default_isas() -> list[str]:
    """The best, and AVX2 beside AVX-512."""
    return [_core.isa, *(["avx2"] if _core.isa == "avx512" else [])]
