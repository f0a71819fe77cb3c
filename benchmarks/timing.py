"""The harness of ``python -m relpos bench``, and works in alternation for a budget.

All that benchmarks/ takes from private modules of relpos is imported here and in
`problems.py`.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter, thread_time
from typing import Any

import numpy as np

from relpos import _core
from relpos._bench import (
    BLAS_THREAD_VARIABLES as BLAS_THREAD_VARIABLES,
    FEWEST_KEPT,
    YARDSTICK_SECONDS,
    YARDSTICK_SPREAD,
    Array as Array,
    Clock as Clock,
    Plan as Plan,
    Row as Row,
    Sample,
    Table as Table,
    Timing as Timing,
    Work as Work,
    Yardstick as Yardstick,
    check_error as check_error,
    cpu_name as cpu_name,
    fma_yardstick as fma_yardstick,
    interleave as interleave,
    rounds,
    seconds_of as seconds_of,
)
from relpos._catalogue.measure import in_child as in_child, with_memory as with_memory
from relpos._settings import use_isa as use_isa

BEST_ISA, ISAS, CORES = _core.isa, [*_core.by_isa], _core.count_cpus()[0]
ROUNDS = 15
#: A work is timed so often even when the time is spent, or when it is far off.
FEWEST_ROUNDS = 3
#: One that takes this many times as long as the fastest of its kind is timed no more.
FAR = 1.3
#: A sample takes at least this long, of several calls if need be.
SAMPLE_SECONDS = 0.004
#: Threads that have run out of work stay awake for so long, 0.2 s by OpenMP's habit: on
#: a core that the next work then has to share.
AWAKE_SECONDS = 0.3


class Rows(list[tuple[str, Callable[[], Row]]]):
    """A plan to which rows are added, with the repeats of each."""

    def __init__(self, full: bool, most: int = 15, least: int = 5) -> None:
        super().__init__()
        self.repeats = most if full else least

    def add(
        self, label: str, measure: Callable[..., Row], *given: Any, **more: Any
    ) -> None:
        """Add the row that `measure` returns for its label and arguments."""
        more["repeats"] = self.repeats
        self.append((label, partial(measure, label, *given, **more)))


def read_yardstick(arrays: Sequence[Array]) -> Yardstick:
    """Return a measure of the rate of only reading `arrays`, in bytes per second.

    One thread reads each array once, through the faster of two NumPy reductions.
    """
    flat = [array.reshape(-1) for array in arrays]
    size = sum(array.nbytes for array in flat)

    def seconds(reduce: Callable[[Array], object]) -> float:
        start = thread_time()
        for array in flat:
            reduce(array)
        return thread_time() - start

    def max_(array: Array) -> object:
        return np.maximum.reduce(array)

    def dot(array: Array) -> object:
        return np.dot(array, array)

    times = {reduce: min(seconds(reduce) for _ in range(4)) for reduce in (max_, dot)}
    fastest = min(times, key=times.__getitem__)
    passes = math.ceil(YARDSTICK_SECONDS / times[fastest])

    def rate() -> float:
        return size * passes / sum(seconds(fastest) for _ in range(passes))

    return rate


@dataclass
class Samples:
    """Seconds of the calls of a work, and the yardstick's rate at each."""

    kept: list[Sample] = field(default_factory=list)
    dropped: list[Sample] = field(default_factory=list)

    @property
    def all(self) -> list[Sample]:
        """Return the kept ones, or all where too few were kept to say anything."""
        enough = len(self.kept) >= FEWEST_KEPT
        return self.kept if enough else self.kept + self.dropped

    @property
    def seconds(self) -> float:
        return statistics.median(x.seconds for x in self.all)

    @property
    def cost(self) -> float:
        """Return the median of what the yardstick does in the time of a call."""
        return statistics.median(x.seconds * x.rate for x in self.all)

    def add(self, sample: Sample) -> None:
        """Keep a sample, or drop it where the clock moved."""
        before, after = sample.before, sample.after
        if abs(before - after) > YARDSTICK_SPREAD * max(before, after):
            self.dropped.append(sample)
        else:
            self.kept.append(sample)


def far_off(
    first: Mapping[str, float], kinds: Mapping[str, object], times: float = FAR
) -> set[str]:
    """Return works that take more than so many times as long as the best of a kind."""
    best: dict[object, float] = {}
    for name, time in first.items():
        best[kinds[name]] = min(time, best.get(kinds[name], time))
    return {name for name, time in first.items() if time > times * best[kinds[name]]}


def alternate(
    works: Mapping[str, Work],
    yardstick: Yardstick,
    clock: Clock,
    budget: float,
    threads: int = 1,
    *,
    first: Mapping[str, float] | None = None,
    kinds: Mapping[str, object] | None = None,
) -> dict[str, Samples]:
    """Return samples of each work, taken round by round.

    `first` are the seconds of a call before, which is made here if they are not given.
    Works of one of `kinds` are compared, and those far from the best of their kind are
    left out. It ends after ROUNDS, or when `budget` seconds are over. Several threads
    of one work are asleep before the next is timed.
    """
    running = dict(works)
    samples = {name: Samples() for name in works}
    if not first:
        first = {
            name: seconds_of(work, 1, perf_counter) for name, work in works.items()
        }
    kinds = kinds or {name: name for name in works}
    calls = {
        name: math.ceil(SAMPLE_SECONDS / max(seconds, 1e-7))
        for name, seconds in first.items()
    }
    pause = AWAKE_SECONDS if threads > 1 else 0.0
    end = perf_counter() + budget
    # `rounds` reads `running` anew for each round: what is deleted is timed no more.
    turns = rounds(running, calls, yardstick, clock, rest=pause)
    for turn, timed in enumerate(turns, 1):
        for name, sample in timed.items():
            samples[name].add(sample)
        if turn == FEWEST_ROUNDS:
            for name in far_off(first, kinds):
                del running[name]
        if turn == ROUNDS or (turn >= FEWEST_ROUNDS and perf_counter() > end):
            break
    return samples
