"""Timing by ratios that do not depend on the clock, of results that were checked first.

A core's clock moves by tens of per cent within seconds, and on a shared machine so does
everything else. No call is therefore compared by its time alone:

1. A row calls the function once and compares what it wrote with `relpos.reference`
   (float64). A wrong result ends the program; it is never timed.
2. The *yardstick*, a loop of independent multiply-adds in registers, with the
   instruction set and dtype of the kernel, runs just before and just after the call. A
   repeat whose yardsticks differ by more than 3 % is dropped.
3. The figure of a row is the median of the kept repeats. The lowest and the highest
   repeat, and the number of kept ones, are printed next to it.

Works of one thread are timed by the CPU clock of that thread, which stands still while
other programs have the core. Works of several threads are timed by the clock on the
wall, so those rows need an idle machine. A ratio of two functions times both within one
repeat.

Run it with little else on the machine: dropped repeats cost time, and a row that keeps
fewer than three says "noisy".
"""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from time import sleep, thread_time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from relpos import _core

# The two readings around a repeat may differ by this share of the larger one.
YARDSTICK_SPREAD = 0.03
# Long enough to see the clock the kernel saw, short enough that it had no time to move.
YARDSTICK_SECONDS = 0.007
# A work shorter than this is called several times within one repeat.
WORK_SECONDS = 0.005
# Fewer kept repeats than this are no figure.
FEWEST_KEPT = 3
# Largest error, over the norm of the expected result, of a result worth timing: float64
# is the project's own gate, float32 ten times what correct kernels show here (2e-7).
ERROR_LIMIT = {"float32": 2e-6, "float64": 1e-14}

BLAS_THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

Array = npt.NDArray[Any]
Yardstick = Callable[[], float]
Work = Callable[[], object]
Clock = Callable[[], float]


def use_blas_threads(count: int = 1) -> None:
    """Start the program again with NumPy's BLAS at `count` threads, unless it has them.

    BLAS libraries read these variables once, when NumPy loads them.
    """
    if all(os.environ.get(name) == str(count) for name in BLAS_THREAD_VARIABLES):
        return
    environment = os.environ | dict.fromkeys(BLAS_THREAD_VARIABLES, str(count))
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


@cache
def fma_yardstick(
    isa: str, dtype: str, threads: int = 1, clock: Clock = thread_time
) -> Yardstick:
    """Return a measure of the multiply-adds per second of `threads` cores together."""
    loop: Any = _core.by_isa[isa].fma_loop
    kind = np.dtype(dtype).char

    def rate(rounds: int) -> float:
        start = clock()
        flops: float = loop(kind, rounds)
        return flops / (clock() - start)

    rounds = 10_000
    flops_per_round = loop(kind, rounds) / rounds
    rate(rounds)  # the first wide instructions run at a lower clock
    rounds = math.ceil(YARDSTICK_SECONDS * rate(rounds) / flops_per_round)
    if threads == 1:
        return lambda: rate(rounds)
    pool = ThreadPoolExecutor(threads)  # fma_loop releases the GIL
    return lambda: sum(pool.map(rate, [rounds] * threads))


class Sample(NamedTuple):
    """Seconds of a call, and the rates of the yardstick before and after it."""

    seconds: float
    before: float
    after: float

    @property
    def rate(self) -> float:
        """Return the mean rate of the yardstick."""
        return (self.before + self.after) / 2


@dataclass(frozen=True)
class Timing:
    """Kept repeats: for each work the seconds of a call, and the yardstick's rate."""

    repeats: list[list[tuple[float, float]]]
    tried: int

    def shares(self, amount: float) -> list[float]:
        """Return `amount` (flops or bytes) over time and the yardstick's rate."""
        return [amount / (seconds * rate) for [(seconds, rate)] in self.repeats]

    def ratios(self) -> list[float]:
        """Return the times of the first work over those of the second."""
        products = [[seconds * rate for seconds, rate in row] for row in self.repeats]
        return [first / second for first, second in products]

    def seconds(self) -> float | None:
        """Return the median seconds of a call of the first work."""
        if not self.repeats:
            return None
        return statistics.median(repeat[0][0] for repeat in self.repeats)


def seconds_of(
    work: Work, calls: int, clock: Clock = thread_time, pause: float = 0.0
) -> float:
    """Return the seconds of one of several calls, after a pause."""
    if pause:
        sleep(pause)
    start = clock()
    for _ in range(calls):
        work()
    return (clock() - start) / calls


def rounds(
    works: Mapping[str, Work],
    calls: Mapping[str, int],
    yardstick: Yardstick,
    clock: Clock = thread_time,
    pause: float = 0.0,
    rest: float = 0.0,
) -> Iterator[dict[str, Sample]]:
    """Time every work once in each round, between two readings of the yardstick.

    Each second round has the opposite order. A work that the caller takes out of
    `works` is left out from then on. Each call comes after `pause` idle seconds. With a
    `rest`, a call that is not timed wakes the threads of a work first, and the
    yardstick waits so many seconds until they sleep again.
    """
    order, last = [*works], yardstick()
    while True:
        found = {}
        for name in [name for name in order if name in works]:
            if rest:
                works[name]()
            seconds = seconds_of(works[name], calls[name], clock, pause)
            if rest:
                sleep(rest)
            before, last = last, yardstick()
            found[name] = Sample(seconds, before, last)
        yield found
        order.reverse()


def interleave(
    works: Sequence[Work],
    yardstick: Yardstick,
    wanted: int,
    clock: Clock = thread_time,
    pause: float = 0.0,
) -> Timing:
    """Time the works in rounds until `wanted` are kept, or four times as many tried.

    A round is kept where no two readings of the yardstick in it differ by more than
    YARDSTICK_SPREAD. With a `pause` each call comes after so many idle seconds.
    """
    named, calls = {str(n): work for n, work in enumerate(works)}, {}
    for name, work in named.items():
        work()
        several = math.ceil(WORK_SECONDS / max(seconds_of(work, 1, clock), 1e-7))
        calls[name] = 1 if pause else several
    repeats: list[list[tuple[float, float]]] = []
    tried = 0
    for found in rounds(named, calls, yardstick, clock, pause):
        tried += 1
        rates = [rate for x in found.values() for rate in (x.before, x.after)]
        if max(rates) - min(rates) <= YARDSTICK_SPREAD * max(rates):
            repeats.append([(found[n].seconds, found[n].rate) for n in named])
        if len(repeats) == wanted or tried == 4 * wanted:
            break
    return Timing(repeats, tried)


def check_error(
    result: Array,
    expected: Array,
    what: str,
    limits: dict[str, float] = ERROR_LIMIT,
) -> float:
    """Return the normwise error of `result`; one above the limit ends the program."""
    limit = limits[result.dtype.name]
    error = float(np.linalg.norm(result - expected) / np.linalg.norm(expected))
    if not error <= limit:
        sys.exit(f"{what}: wrong result, error {error:.2e} > {limit:.0e}")
    return error
