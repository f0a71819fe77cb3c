"""Fused attention: fractions of a core's multiply-add peak; several threads over one.

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
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from time import perf_counter, thread_time
from typing import Any

import relpos
from benchmarks import timing
from benchmarks.problems import DIM, DIRECTIONS, SCHEMES, Problem
from benchmarks.timing import Plan, Row

#: Goals: fractions of the peak of an instruction set by length.
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
    length: int = LENGTH
    heads: int = 8
    dim: int = DIM
    batch: int = 1
    dtype: str = "float32"

    def problem(self, name: str, direction: str) -> Problem:
        return SCHEMES[name].build(
            self.length,
            self.dtype,
            DIRECTIONS[direction],
            self.heads,
            batch=self.batch,
            dim=self.dim,
        )


Key = tuple[str, str, str]  # way, scheme, direction


def of_peak(
    label: str,
    timed: timing.Timing,
    flops: float,
    error: float,
    target: float | None = None,
) -> Row:
    """Make a row of fractions of the multiply-add peak."""
    return Row(
        label,
        "of FMA peak",
        timed.shares(flops),
        timed.tried,
        target,
        seconds=timed.seconds(),
        flops=flops,
        error=error,
    )


def share_row(
    label: str,
    key: Key,
    size: Size,
    isa: str,
    target: float | None,
    repeats: int,
    *,
    threads: int = 1,
    clock: timing.Clock = thread_time,
    pause: float = 0.0,
) -> Row:
    """Measure fractions of the peak of `threads` cores."""
    way, name, direction = key
    problem = size.problem(name, direction)
    flops = SCHEMES[name].flops(problem, way)
    with timing.use_isa(isa):
        call, error = problem.prepared(way, threads, label)
        yardstick = timing.fma_yardstick(isa, size.dtype, threads, clock)
        timed = timing.interleave([call], yardstick, repeats, clock, pause)
    return of_peak(label, timed, flops, error, target)


def rate_row(
    label: str,
    works: Iterable[tuple[Key, Size]],
    isa: str,
    target: float,
    repeats: int,
) -> Row:
    """Measure the rate of the first of two works over that of the second."""
    calls, flops, errors = [], [], []
    with timing.use_isa(isa):
        for (way, name, direction), size in works:
            problem = size.problem(name, direction)
            call, error = problem.prepared(way, 1, label)
            calls.append(call)
            flops.append(SCHEMES[name].flops(problem, way))
            errors.append(error)
        yardstick = timing.fma_yardstick(isa, "float32")
        timed = timing.interleave(calls, yardstick, repeats)
    more = flops[0] / flops[1]
    return Row(
        label,
        f"of the rate at {LONG_BASE}",
        [more / ratio for ratio in timed.ratios()],
        timed.tried,
        target,
        seconds=timed.seconds(),
        flops=flops[0],
        error=errors[0],
    )


class Rows:
    """A plan to which rows are added."""

    def __init__(self, full: bool) -> None:
        self.plan: Plan = []
        self.full = full

    def add(self, label: str, measure: Callable[..., Row], *arguments: Any) -> None:
        repeats = 15 if self.full else 5
        self.plan.append((label, partial(measure, label, *arguments, repeats=repeats)))

    def fractions(self, isa: str) -> None:
        """Add the grid of one instruction set, each on its own peak."""
        for key, targets in FRACTIONS.items():
            for length, target in targets.items():
                if self.full or length == LENGTH:
                    label = f"{' '.join(key)} L={length} {isa}"
                    self.add(label, share_row, key, Size(length), isa, target)

    def other_sizes(self, isa: str) -> None:
        """Add short, ragged and long sequences, other heads, float64."""
        for name in LONG_TABLES:
            key = "forward", name, "both"
            for length, target in SHORT.items():
                label = f"{' '.join(key)} L={length} {isa}"
                self.add(label, share_row, key, Size(length), isa, target)
            for way in ("forward", "backward"):
                key = way, name, "both"
                for what, (fields, less) in OTHER_SIZES.items():
                    label = f"{' '.join(key)} {what} {isa}"
                    target = round(FRACTIONS[key][LENGTH] - less, 2)
                    size = Size(**fields)
                    self.add(label, share_row, key, size, isa, target)
                for length, target in LONG.items():
                    works = [(key, Size(n, heads=1)) for n in (length, LONG_BASE)]
                    label = f"{' '.join(key)} L={length} H=1 {isa}"
                    self.add(label, rate_row, works, isa, target)


def make_plan(isas: list[str], full: bool) -> Plan:
    """Return the rows as (label, function that measures), best kernels first."""
    rows = Rows(full)
    for isa in isas:
        rows.fractions(isa)
    if full:
        rows.other_sizes(isas[0])
    return rows.plan


# ---- threads ----------------------------------------------------------------------

#: Each of two threads over one alone, by heads of all items together.
TWO_THREADS = {8: 0.95, 1: 0.90}
MORE_THREADS = (4, 8, 16)
MORE_HEADS = {1: (1, 1), 8: (1, 8), 64: (8, 8)}  # to items and heads
PAUSE = 0.02


def scaling_row(
    label: str,
    key: Key,
    size: Size,
    isa: str,
    threads: int,
    pause: float,
    target: float | None,
    repeats: int,
) -> Row:
    """Measure the rate of each thread over that of one alone."""
    shared = label, key, size, isa, target, repeats
    alone = share_row(*shared, clock=perf_counter)
    row = share_row(*shared, threads=threads, clock=perf_counter, pause=pause)
    shares = row.figures if alone.figures else []
    figures = [share / median(alone.figures) for share in shares]
    return replace(row, unit="of one thread", figures=figures)


def make_threads_plan(isas: list[str], full: bool) -> Plan:
    """Return rows of two threads, and of more where the machine has them.

    Threads are timed by the clock on the wall and need as many idle cores. Rows `after
    a pause` call after 20 ms without work, when the workers are asleep.
    """
    isa, repeats = isas[0], 15 if full else 5
    plan: Plan = []
    cores = relpos.get_num_threads()

    def add(
        key: Key,
        size: Size,
        threads: int,
        pause: float = 0.0,
        target: float | None = None,
    ) -> None:
        label = f"{threads} threads {' '.join(key)} BH={size.batch * size.heads}"
        label += " after a pause" if pause else ""
        arguments = label, key, size, isa, threads, pause, target, repeats
        plan.append((label, partial(scaling_row, *arguments)))

    for heads, target in TWO_THREADS.items() if cores > 1 else ():
        for way in ("forward", "backward"):
            for name in ("music", "xl", "plain") if full else ("music",):
                for direction in DIRECTIONS:
                    for pause in (0.0, PAUSE):
                        key = way, name, direction
                        add(key, Size(heads=heads), 2, pause, target)
    for threads in (n for n in MORE_THREADS if n <= cores):
        for batch, heads in MORE_HEADS.values():
            for way in ("forward", "backward"):
                add((way, "music", "both"), Size(heads=heads, batch=batch), threads)
    return plan
