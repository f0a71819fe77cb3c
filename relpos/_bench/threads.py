"""Rate of each of several threads over that of one alone, at equal clocks.

Threads are timed by the clock on the wall and need as many idle cores. Rows `after a
pause` call after 20 ms without work, when the workers are asleep.
"""

from __future__ import annotations

from functools import partial
from time import perf_counter

import numpy as np

import relpos
from relpos._bench.attention import Key, Size, measure_shares
from relpos._bench.problems import DIRECTIONS
from relpos._bench.table import Plan, Row

__all__ = ["make_plan"]

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
    """Rate of each thread over that of one alone."""
    alone, _ = measure_shares(key, size, isa, repeats, label, clock=perf_counter)
    row, timing = measure_shares(
        key,
        size,
        isa,
        repeats,
        label,
        threads=threads,
        clock=perf_counter,
        pause=pause,
    )
    shares = row.figures if alone.figures else []
    return Row(
        label,
        "of one thread",
        [share / float(np.median(alone.figures)) for share in shares],
        timing.tried,
        target,
        seconds=row.seconds,
        flops=row.flops,
        error=row.error,
    )


def make_plan(isas: list[str], full: bool) -> Plan:
    """Two threads of this machine, and more where it has them."""
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
