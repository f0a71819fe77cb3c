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

from dataclasses import replace
from itertools import product
from statistics import median
from time import perf_counter, thread_time
from typing import Any

import relpos
from benchmarks import timing
from benchmarks.problems import DIRECTIONS, SCHEMES, Problem
from benchmarks.timing import Plan, Row, Rows

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

Key = tuple[str, str, str]  # way, scheme, direction
#: A length, a dtype and further sizes of `Scheme.build`, where they are not the usual.
Sizes = dict[str, Any]


def built(
    key: Key, length: int = LENGTH, dtype: str = "float32", **sizes: int
) -> tuple[Problem, int]:
    """Return the problem of a row, and its useful operations."""
    way, name, direction = key
    problem = SCHEMES[name].build(length, dtype, DIRECTIONS[direction], **sizes)
    return problem, SCHEMES[name].flops(problem, way)


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
    sizes: Sizes,
    isa: str,
    target: float | None,
    repeats: int,
    *,
    threads: int = 1,
    clock: timing.Clock = thread_time,
    pause: float = 0.0,
) -> Row:
    """Measure fractions of the peak of `threads` cores."""
    problem, flops = built(key, **sizes)
    dtype = problem.arrays["query"].dtype.name
    with timing.use_isa(isa):
        call, error = problem.prepared(key[0], threads, label)
        yardstick = timing.fma_yardstick(isa, dtype, threads, clock)
        timed = timing.interleave([call], yardstick, repeats, clock, pause)
    return of_peak(label, timed, flops, error, target)


def rate_row(
    label: str, key: Key, length: int, isa: str, target: float, repeats: int
) -> Row:
    """Measure the rate of one head at a length over that at LONG_BASE."""
    calls, flops, errors = [], [], []
    with timing.use_isa(isa):
        for size in (length, LONG_BASE):
            problem, work = built(key, size, heads=1)
            call, error = problem.prepared(key[0], 1, label)
            calls.append(call)
            flops.append(work)
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


def add_fractions(rows: Rows, isa: str, full: bool) -> None:
    """Add the grid of one instruction set, each on its own peak."""
    for key, targets in FRACTIONS.items():
        for length, target in targets.items():
            if full or length == LENGTH:
                label = f"{' '.join(key)} L={length} {isa}"
                rows.add(label, share_row, key, {"length": length}, isa, target)


def add_other_sizes(rows: Rows, isa: str) -> None:
    """Add short, ragged and long sequences, other heads, float64."""
    for name in LONG_TABLES:
        key = "forward", name, "both"
        for length, target in SHORT.items():
            label = f"{' '.join(key)} L={length} {isa}"
            rows.add(label, share_row, key, {"length": length}, isa, target)
        for way in ("forward", "backward"):
            key = way, name, "both"
            for what, (sizes, less) in OTHER_SIZES.items():
                label = f"{' '.join(key)} {what} {isa}"
                target = round(FRACTIONS[key][LENGTH] - less, 2)
                rows.add(label, share_row, key, sizes, isa, target)
            for length, target in LONG.items():
                label = f"{' '.join(key)} L={length} H=1 {isa}"
                rows.add(label, rate_row, key, length, isa, target)


def make_plan(isas: list[str], full: bool) -> Plan:
    """Return the rows as (label, function that measures), best kernels first."""
    rows = Rows(full)
    for isa in isas:
        add_fractions(rows, isa, full)
    if full:
        add_other_sizes(rows, isas[0])
    return rows


# ---- threads ----------------------------------------------------------------------

#: Each of two threads over one alone, by heads of all items together.
TWO_THREADS = {8: 0.95, 1: 0.90}
MORE_THREADS = (4, 8, 16)
MORE_HEADS = ((1, 1), (1, 8), (8, 8))  # items and heads
PAUSE = 0.02


def scaling_row(
    label: str,
    key: Key,
    sizes: Sizes,
    isa: str,
    threads: int,
    pause: float,
    target: float | None,
    repeats: int,
) -> Row:
    """Measure the rate of each thread over that of one alone."""
    shared = label, key, sizes, isa, target, repeats
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
    isa, rows, cores = isas[0], Rows(full), relpos.get_num_threads()

    def add(
        key: Key,
        items: int,
        heads: int,
        threads: int,
        pause: float = 0.0,
        target: float | None = None,
    ) -> None:
        label = f"{threads} threads {' '.join(key)} BH={items * heads}"
        label += " after a pause" if pause else ""
        sizes = {"batch": items, "heads": heads}
        rows.add(label, scaling_row, key, sizes, isa, threads, pause, target)

    names = ("music", "xl", "plain") if full else ("music",)
    two_threads = TWO_THREADS if cores > 1 else {}
    for heads, target in two_threads.items():
        for way, name, direction in product(("forward", "backward"), names, DIRECTIONS):
            for pause in (0.0, PAUSE):
                add((way, name, direction), 1, heads, 2, pause, target)
    for threads in (n for n in MORE_THREADS if n <= cores):
        for items, heads in MORE_HEADS:
            for way in ("forward", "backward"):
                add((way, "music", "both"), items, heads, threads)
    return rows
