"""Several works in alternation, each between two readings of a yardstick."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter, sleep

from relpos._bench.harness import (
    FEWEST_KEPT,
    YARDSTICK_SPREAD,
    Clock,
    Yardstick,
    seconds_of,
)

__all__ = ["Samples", "alternate"]

ROUNDS = 15
#: A work is asked so often even when the time is spent, or when it is far off.
FEWEST_ROUNDS = 3
#: One that takes this many times as long as the fastest of its kind gets no more.
FAR = 1.3
#: A sample takes at least this long, of several calls if need be.
SAMPLE_SECONDS = 0.004
#: Threads that have run out of work stay awake for so long, 0.2 s by OpenMP's habit: on
#: a core that the next work then has to share.
AWAKE_SECONDS = 0.3

Work = Callable[[], object]


@dataclass
class Samples:
    """What was measured of a work: seconds of a call, and the yardstick's rate."""

    kept: list[tuple[float, float]] = field(default_factory=list)
    dropped: list[tuple[float, float]] = field(default_factory=list)

    @property
    def all(self) -> list[tuple[float, float]]:
        """The kept ones, or all where too few were kept to say anything."""
        enough = len(self.kept) >= FEWEST_KEPT
        return self.kept if enough else self.kept + self.dropped

    @property
    def seconds(self) -> float:
        """Median seconds of a call."""
        return statistics.median(seconds for seconds, _ in self.all)

    @property
    def cost(self) -> float:
        """Median of what the yardstick could have done in the time of a call."""
        return statistics.median(seconds * rate for seconds, rate in self.all)

    def add(self, seconds: float, before: float, after: float) -> None:
        """A sample; one at a clock that moved is set apart."""
        moved = abs(before - after) > YARDSTICK_SPREAD * max(before, after)
        into = self.dropped if moved else self.kept
        into.append((seconds, (before + after) / 2))


def far_off(first: Mapping[str, float], kinds: Mapping[str, object]) -> set[str]:
    """Works whose first time says that they are not the fastest of their kind."""
    best: dict[object, float] = {}
    for name, time in first.items():
        best[kinds[name]] = min(time, best.get(kinds[name], time))
    return {name for name, time in first.items() if time > FAR * best[kinds[name]]}


def alternate(
    works: Mapping[str, Work],
    first: Mapping[str, float],
    kinds: Mapping[str, object],
    yardstick: Yardstick,
    clock: Clock,
    budget: float,
    threads: int = 1,
) -> dict[str, Samples]:
    """Samples of each work: round by round, each second round in the other order.

    `first` are the seconds of a call that has been. Ends after ROUNDS, or when `budget`
    seconds are over. Several threads of one work are asleep before the next comes,
    whose own have been woken by a call when its time is taken.
    """
    far = far_off(first, kinds)
    calls = {
        name: math.ceil(SAMPLE_SECONDS / max(time, 1e-7))
        for name, time in first.items()
    }
    samples = {name: Samples() for name in works}
    end = perf_counter() + budget
    order, last = list(works), yardstick()
    for turn in range(ROUNDS):
        if turn >= FEWEST_ROUNDS and perf_counter() > end:
            break
        for name in order:
            if turn < FEWEST_ROUNDS or name not in far:
                if threads > 1:
                    works[name]()
                seconds = seconds_of(works[name], calls[name], clock)
                if threads > 1:
                    sleep(AWAKE_SECONDS)
                before, last = last, yardstick()
                samples[name].add(seconds, before, last)
        order.reverse()
    return samples
