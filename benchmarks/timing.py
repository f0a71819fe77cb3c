"""Timing of several works that take turns until a budget of seconds is spent.

It builds on the harness of ``python -m relpos bench``. All that benchmarks/ takes from
private modules of relpos is imported here and in `problems.py`: a name that is imported
as itself is for the other files.
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

BEST_ISA = _core.isa
ISAS = list(_core.by_isa)
CORES = _core.count_cpus()[0]
#: The most rounds, in each of which every work is timed once.
ROUNDS = 15
#: Every work is timed in this many rounds, even if the budget is spent or it is slow.
FEWEST_ROUNDS = 3
#: After these rounds, a work that takes over this many times as long as the fastest of
#: its kind is timed no more.
FAR = 1.3
#: A sample takes at least this long: a short work is called several times in it.
SAMPLE_SECONDS = 0.004
#: Idle seconds after a work of several threads. Threads that have run out of work stay
#: awake for a while, those of OpenMP for 0.2 s by default, on cores that the next work
#: needs.
AWAKE_SECONDS = 0.3


class Rows(list[tuple[str, Callable[[], Row]]]):
    """A plan to which rows are added, which all have the same number of repeats."""

    def __init__(self, full: bool, most: int = 15, least: int = 5) -> None:
        super().__init__()
        self.repeats = most if full else least

    def add(
        self, label: str, measure: Callable[..., Row], *arguments: Any, **keywords: Any
    ) -> None:
        """Add the row that `measure` returns for its label and arguments."""
        keywords["repeats"] = self.repeats
        self.append((label, partial(measure, label, *arguments, **keywords)))


def read_yardstick(arrays: Sequence[Array]) -> Yardstick:
    """Return a measure of the rate of only reading `arrays`, in bytes per second.

    One thread reads each array once in a pass, by the faster of two NumPy reductions.
    """
    flat = [array.reshape(-1) for array in arrays]
    size = sum(array.nbytes for array in flat)

    def seconds_of_pass(reduce: Callable[[Array], object]) -> float:
        start = thread_time()
        for array in flat:
            reduce(array)
        return thread_time() - start

    def fewest_seconds(reduce: Callable[[Array], object]) -> float:
        return min(seconds_of_pass(reduce) for _ in range(4))

    def squares(array: Array) -> object:
        return np.dot(array, array)

    fastest: Callable[[Array], object] = np.maximum.reduce
    seconds, of_squares = fewest_seconds(fastest), fewest_seconds(squares)
    if of_squares < seconds:
        fastest, seconds = squares, of_squares
    passes = math.ceil(YARDSTICK_SECONDS / seconds)

    def rate() -> float:
        return size * passes / sum(seconds_of_pass(fastest) for _ in range(passes))

    return rate


@dataclass
class Samples:
    """Samples of a work: seconds of a call, and the yardstick's rates around it."""

    kept: list[Sample] = field(default_factory=list)
    dropped: list[Sample] = field(default_factory=list)

    @property
    def all(self) -> list[Sample]:
        """Return the kept samples, or all if fewer than FEWEST_KEPT were kept."""
        if len(self.kept) >= FEWEST_KEPT:
            return self.kept
        return self.kept + self.dropped

    @property
    def seconds(self) -> float:
        """Return the median of the seconds of a call."""
        return statistics.median(sample.seconds for sample in self.all)

    @property
    def cost(self) -> float:
        """Return the median of what the yardstick does in the time of a call.

        A core that runs at half its clock takes twice the seconds at half the rate: the
        product does not depend on the clock, and the seconds do.
        """
        return statistics.median(sample.seconds * sample.rate for sample in self.all)

    def add(self, sample: Sample) -> None:
        """Keep a sample, or drop it if the core's clock changed during the call."""
        before, after = sample.before, sample.after
        if abs(before - after) > YARDSTICK_SPREAD * max(before, after):
            self.dropped.append(sample)
        else:
            self.kept.append(sample)


def far_off(
    seconds: Mapping[str, float], kinds: Mapping[str, object], factor: float = FAR
) -> set[str]:
    """Return the works that take over `factor` times as long as the best of their kind.

    Both mappings are by the names of works; works of equal kinds are compared.
    """
    best: dict[object, float] = {}
    for name, time in seconds.items():
        kind = kinds[name]
        best[kind] = min(time, best.get(kind, time))
    far = set()
    for name, time in seconds.items():
        if time > factor * best[kinds[name]]:
            far.add(name)
    return far


def alternate(
    works: Mapping[str, Work],
    yardstick: Yardstick,
    clock: Clock,
    budget: float,
    threads: int = 1,
    *,
    first: Mapping[str, float] | None = None,
    kinds: Mapping[str, object] | None = None,
    awake_seconds: float = AWAKE_SECONDS,
    most_rounds: int = ROUNDS,
) -> dict[str, Samples]:
    """Return the samples of each work. Each round takes one of every work.

    `first` has the seconds of one call of each work, from which the calls of a sample
    are counted. If it is not given, each work is called once here. Works of equal
    `kinds` are compared, and after FEWEST_ROUNDS those far from the best of their kind
    are left out; without `kinds` none is. The rounds end after `most_rounds`, or when
    `budget` seconds are over. With several `threads`, a call that is not timed wakes
    those of a work, and `awake_seconds` after it they are asleep.
    """
    samples = {name: Samples() for name in works}
    if not first:
        first = {
            name: seconds_of(work, 1, perf_counter) for name, work in works.items()
        }
    if not kinds:
        kinds = {name: name for name in works}  # a kind for each: none is far off
    calls = {}
    for name, seconds in first.items():
        # a clock may read 0 for the shortest work
        calls[name] = math.ceil(SAMPLE_SECONDS / max(seconds, 1e-7))
    idle_seconds = awake_seconds if threads > 1 else 0.0
    end = perf_counter() + budget
    # `rounds` reads `running` anew for each round: what is deleted is timed no more.
    running = dict(works)
    results = rounds(running, calls, yardstick, clock, rest=idle_seconds)
    for count, in_round in enumerate(results, start=1):
        for name, sample in in_round.items():
            samples[name].add(sample)
        if count == FEWEST_ROUNDS:
            for name in far_off(first, kinds):
                del running[name]
        is_late = count >= FEWEST_ROUNDS and perf_counter() > end
        if count == most_rounds or is_late:
            break
    return samples
