"""How the benchmarks measure: results first, then ratios that survive a moving clock.

A core's clock moves by tens of per cent within seconds, and on a shared machine so does
everything else. So nothing here is compared by its bare time, but calls that are too
small for anything else (small_calls.py):

1. A row calls the function once and compares what it wrote with `relpos.reference`
   (float64) at the timed size. A wrong result ends the program; it is never timed.
2. The *yardstick*, a loop that does nothing but independent multiply-adds in registers,
   with the instruction set and dtype of the kernel, runs just before and just after the
   kernel. A repeat whose yardsticks differ by more than 3 % is dropped.
3. The figure of a row is the median of the kept repeats: *useful* floating-point
   operations (of the pairs that are not hidden, no tile padding) over time, over the
   yardstick's rate. Beside it: the lowest and the highest repeat, how many were kept.

Works of one thread are timed by that thread's own CPU clock, which stands still while
other programs have the core; works of several threads by the clock on the wall, so
those rows need an idle machine. Ratios of two functions time both within one repeat.
Rows about memory use a yardstick that only reads: the same arrays, through the faster
of two NumPy reductions.

Run it with little else on the machine: dropped repeats cost time, and a row that keeps
fewer than three says "noisy".
"""

from __future__ import annotations

import math
import os
import statistics
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from time import sleep, thread_time
from typing import Any

import numpy as np
import numpy.typing as npt

from relpos import _core

__all__ = [
    "ERROR_LIMIT",
    "FEWEST_KEPT",
    "GRADIENT_LIMIT",
    "YARDSTICK_SPREAD",
    "Array",
    "Clock",
    "Timing",
    "Work",
    "Yardstick",
    "check_error",
    "fma_yardstick",
    "interleave",
    "read_yardstick",
    "seconds_of",
    "use_blas_threads",
]

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
# The same of a gradient. Those compared are of a few queries, whose terms cancel more
# than a whole sequence's: up to 2e-6 here.
GRADIENT_LIMIT = {"float32": 1e-5, "float64": 1e-13}

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
    """Start the program again with NumPy's BLAS at `count` threads, unless it is there.

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
    """Multiply-add rate of `threads` cores together, in operations per second."""
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


def read_yardstick(arrays: Sequence[Array]) -> Yardstick:
    """Rate of only reading `arrays` once, in bytes per second, by one thread."""
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
    return lambda: size * passes / sum(seconds(fastest) for _ in range(passes))


@dataclass(frozen=True)
class Timing:
    """Kept repeats: for each work seconds a call, and the yardstick's rate."""

    repeats: list[list[tuple[float, float]]]
    tried: int

    def shares(self, amount: float) -> list[float]:
        """`amount` (flops or bytes) of the work / its time / the yardstick's rate."""
        return [amount / (seconds * rate) for [(seconds, rate)] in self.repeats]

    def ratios(self) -> list[float]:
        """Time of the first work over time of the second, at the same clock."""
        products = [[seconds * rate for seconds, rate in row] for row in self.repeats]
        return [first / second for first, second in products]

    def seconds(self) -> float | None:
        """Median seconds of a call of the first work."""
        if not self.repeats:
            return None
        return statistics.median(repeat[0][0] for repeat in self.repeats)


def seconds_of(
    work: Work, calls: int, clock: Clock = thread_time, pause: float = 0.0
) -> float:
    """Seconds of one of several calls, after a pause."""
    if pause:
        sleep(pause)
    start = clock()
    for _ in range(calls):
        work()
    return (clock() - start) / calls


def interleave(
    works: Sequence[Work],
    yardstick: Yardstick,
    wanted: int,
    clock: Clock = thread_time,
    pause: float = 0.0,
) -> Timing:
    """Time every work between two readings of the yardstick.

    Ends when `wanted` repeats are kept, or four times as many were tried. With a
    `pause` each call comes after so many idle seconds.
    """
    calls = []
    for work in works:
        work()
        several = math.ceil(WORK_SECONDS / max(seconds_of(work, 1, clock), 1e-7))
        calls.append(1 if pause else several)
    repeats: list[list[tuple[float, float]]] = []
    tried, last = 0, yardstick()
    while len(repeats) < wanted and tried < 4 * wanted:
        tried += 1
        rates, times = [last], []
        for work, count in zip(works, calls, strict=True):
            times.append(seconds_of(work, count, clock, pause))
            rates.append(yardstick())
        last = rates[-1]
        if max(rates) - min(rates) <= YARDSTICK_SPREAD * max(rates):
            around = [(a + b) / 2 for a, b in pairwise(rates)]
            repeats.append(list(zip(times, around, strict=True)))
    return Timing(repeats, tried)


def check_error(
    result: Array,
    expected: Array,
    what: str,
    limits: dict[str, float] = ERROR_LIMIT,
) -> float:
    """Normwise error of `result`; a result too wrong to be timed ends the program."""
    limit = limits[result.dtype.name]
    error = float(np.linalg.norm(result - expected) / np.linalg.norm(expected))
    if not error <= limit:
        sys.exit(f"{what}: wrong result, error {error:.2e} > {limit:.0e}")
    return error
