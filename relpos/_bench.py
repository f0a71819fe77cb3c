"""``python -m relpos bench``: the speed of every scheme against its NumPy form.

Each row is the time of the NumPy form, which stores every score, over the time of
relpos, one thread each, both within one repeat. Rows named `backward` are forward and
backward together over the forward. `benchmarks` has its tables and its harness from
here.

A core's clock changes by tens of per cent within seconds. No call is therefore compared
by its time alone:

1. A row compares outputs and gradients with `relpos.reference` before it is timed, and
   the output with the NumPy form at the size that is timed. A wrong result ends the
   program.
2. The *yardstick*, a loop of independent multiply-adds in registers, with the
   instruction set and dtype of the kernel, runs just before and just after the call. A
   repeat whose yardsticks differ by more than 3 % is dropped.
3. The figure of a row is the median of the kept repeats. A row that keeps fewer than
   three says "noisy".

Calls of one thread are timed by the CPU clock of that thread, which does not advance
while other programs use the core; those of several threads by the clock on the wall.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from time import perf_counter, sleep, thread_time
from typing import Any, NamedTuple, TypedDict

import numpy as np

import relpos
from relpos import _core
from relpos._catalogue.measure import bound
from relpos._catalogue.rows import LARGE, ROWS, Array, Row as SchemeRow, gaps
from relpos._settings import use_isa
from relpos._text import amount

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

Yardstick = Callable[[], float]
Work = Callable[[], object]
Clock = Callable[[], float]


def use_blas_threads(count: int = 1) -> None:
    """Start the program again with NumPy's BLAS at `count` threads, unless it has them.

    BLAS libraries read these variables once, when NumPy loads them.
    """
    # The program starts again at most once: its copy has the variables.
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

    # A first count of rounds, which only measures how many fill the time.
    rounds = 10_000
    flops_per_round = loop(kind, rounds) / rounds
    rate(rounds)  # the first wide instructions run at a lower clock
    rounds = math.ceil(YARDSTICK_SECONDS * rate(rounds) / flops_per_round)
    if threads == 1:
        return lambda: rate(rounds)
    pool = ThreadPoolExecutor(threads)  # fma_loop releases the GIL
    # Each thread has its own rounds and its own clock, and the rates add up.
    return lambda: sum(pool.map(rate, [rounds] * threads))


class Sample(NamedTuple):
    """Seconds of a call, and the rates of the yardstick before and after it."""

    seconds: float
    before: float
    after: float

    @property
    def rate(self) -> float:
        return (self.before + self.after) / 2


@dataclass(frozen=True)
class Timing:
    """Kept repeats: for each work the seconds of a call, and the yardstick's rate."""

    repeats: list[list[tuple[float, float]]]
    tried: int

    def shares(self, amount: float) -> list[float]:
        """Return `amount` (flops or bytes) over time and the yardstick's rate."""
        # Flops over seconds and over the rate are a share of what the core could do.
        return [amount / (seconds * rate) for [(seconds, rate)] in self.repeats]

    def ratios(self) -> list[float]:
        """Return the times of the first work over those of the second."""
        # A time multiplied by the rate is in multiply-adds, whatever the clock was.
        products = [[seconds * rate for seconds, rate in row] for row in self.repeats]
        return [first / second for first, second in products]

    def seconds(self) -> float | None:
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
    # A reading after one work is that before the next.
    order, last = [*works], yardstick()
    while True:
        samples = {}
        for name in [name for name in order if name in works]:
            if rest:
                works[name]()
            seconds = seconds_of(works[name], calls[name], clock, pause)
            if rest:
                sleep(rest)
            before, last = last, yardstick()
            samples[name] = Sample(seconds, before, last)
        yield samples
        order.reverse()


def interleave(
    works: Sequence[Work],
    yardstick: Yardstick,
    count: int,
    clock: Clock = thread_time,
    pause: float = 0.0,
) -> Timing:
    """Time the works in rounds until `count` are kept, or four times as many tried.

    A round is kept where no two readings of the yardstick in it differ by more than
    YARDSTICK_SPREAD. With a `pause` each call comes after so many idle seconds.
    """
    named, calls = {str(n): work for n, work in enumerate(works)}, {}
    for name, work in named.items():
        work()
        # The shortest time keeps the quotient finite where a clock shows 0.
        several = math.ceil(WORK_SECONDS / max(seconds_of(work, 1, clock), 1e-7))
        calls[name] = 1 if pause else several
    repeats: list[list[tuple[float, float]]] = []
    tried = 0
    for samples in rounds(named, calls, yardstick, clock, pause):
        tried += 1
        rates = [rate for x in samples.values() for rate in (x.before, x.after)]
        # Every reading of a round, so that both works saw one clock.
        if max(rates) - min(rates) <= YARDSTICK_SPREAD * max(rates):
            repeats.append([(samples[n].seconds, samples[n].rate) for n in named])
        # A busy machine ends the loop too, with fewer repeats.
        if len(repeats) == count or tried == 4 * count:
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
    # NaN fails, which `error > limit` would let pass.
    if not error <= limit:
        sys.exit(f"{what}: wrong result, error {error:.2e} > {limit:.0e}")
    return error


# ---- tables ------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    label: str
    unit: str  # what the figure is a multiple of
    figures: list[float]  # one for each kept repeat
    tried: int
    target: float | None = None
    at_most: bool = False  # the target is an upper bound
    seconds: float | None = None
    flops: float | None = None
    error: float | None = None

    @classmethod
    def of_ratios(
        cls, label: str, unit: str, timing: Timing, error: float, **goal: Any
    ) -> Row:
        """Make a row of the times of the first work over those of the second."""
        goal |= {"seconds": timing.seconds(), "error": error}
        return cls(label, unit, timing.ratios(), timing.tried, **goal)

    @property
    def figure(self) -> float | None:
        return statistics.median(self.figures) if self.figures else None

    @property
    def verdict(self) -> str:
        # A figure of too few repeats has no verdict, whatever its target is.
        if self.figure is None or len(self.figures) < FEWEST_KEPT:
            return "noisy"
        if self.target is None:
            return ""
        above = self.figure - self.target
        return "PASS" if (above <= 0 if self.at_most else above >= 0) else "short"

    def lines(self) -> str:
        """Return two lines of at most 80 columns: the goal, and the numbers."""
        spread = rate = target = ""
        if self.figures:
            spread = f"{min(self.figures):.3f} - {max(self.figures):.3f}"
        if self.seconds and self.flops:
            rate = f"{self.flops / self.seconds / 1e9:.1f}"
        if self.target is not None:
            target = f"{'<=' if self.at_most else '>='} {self.target:.2f}"
        figure = "" if self.figure is None else f"{self.figure:.3f}"
        time = f"{self.seconds * 1e3:.3f}" if self.seconds else ""
        error = "" if self.error is None else f"{self.error:.0e}"
        kept = f"{len(self.figures):>2}/{self.tried:<2}"
        goal = f"{self.label:<58} {target:<7} {self.verdict}".rstrip()
        cells = f"  {figure:>7} {self.unit:<22} {spread:<16} {kept} "
        return f"{goal}\n{cells}{time:>8} {rate:>6} {error:>6}".rstrip()

    def record(self) -> dict[str, Any]:
        return asdict(self) | {"figure": self.figure, "verdict": self.verdict}


HEADER = (
    f"{'row':<58} target\n  {'figure':>7} {'':<22} {'lowest - highest':<16} kept "
    f"{'ms':>8} {'GF/s':>6} {'error':>6}"
)


class Facts(TypedDict):
    """Facts of the machine and the build."""

    relpos: str
    numpy: str
    cpu: str
    isa: str
    load: float
    fma_gflops_per_core: dict[str, float]  # by instruction set, dtype and busy cores


def facts(isas: Sequence[str], dtypes: Sequence[str], cores: int) -> Facts:
    """Return facts of the machine and the build, and the rate of multiply-adds."""
    peaks = {}
    for isa in isas:
        for dtype in dtypes:
            for threads in range(1, cores + 1):
                # The thread's clock does not count other threads.
                clock = thread_time if threads == 1 else perf_counter
                yardstick = fma_yardstick(isa, dtype, threads, clock)
                best = max(yardstick() for _ in range(3))
                peaks[f"{isa} {dtype}, {threads} busy"] = round(best / threads / 1e9, 1)
    return {
        "relpos": relpos.__version__,
        "numpy": np.__version__,
        "cpu": cpu_name(),
        "isa": _core.isa,
        "load": os.getloadavg()[0],
        "fma_gflops_per_core": peaks,
    }


def cpu_name() -> str:
    """Return the processor's name, family and model, where the system has them."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return "unknown"
    entries = dict(
        re.findall(r"^(model name|cpu family|model)\s*:\s*(.+)$", text, re.MULTILINE)
    )
    if "model name" not in entries:
        return "unknown"
    family, model = entries.get("cpu family"), entries.get("model")
    return f"{entries['model name']} (family {family}, model {model})"


Plan = list[tuple[str, Callable[[], Row]]]


class Table(NamedTuple):
    """A table: its title, its rows, and True where its calls may use all threads."""

    about: str
    make_plan: Callable[[list[str], bool], Plan]
    as_usual: bool = False


def measured(plan: Plan, pattern: str) -> list[Row]:
    print(HEADER)
    rows = []
    for label, measure in plan:
        if re.search(pattern, label):
            rows.append(measure())
            print(rows[-1].lines(), flush=True)
    return rows


def summary(rows: Sequence[Row]) -> str:
    verdicts = [row.verdict for row in rows if row.target is not None]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in ("PASS", "short", "noisy"))
    return f"{amount(len(rows), 'row')}, {len(verdicts)} with a target: {counts}"


def add_options(
    parser: argparse._ActionsContainer, tables: Mapping[str, Table]
) -> None:
    add = parser.add_argument
    listed = ", ".join(tables)
    # argparse compares the empty list, too, with the choices
    add("tables", nargs="*", choices=[[], *tables], metavar="TABLE", help=listed)
    add("--full", action="store_true", help="all sizes, more repeats (minutes)")
    add("--rows", default="", metavar="REGEX", help="only rows that match")
    isa = "instruction set, repeatable; default: the best, and AVX2"
    add("--isa", action="append", choices=sorted(_core.by_isa), help=isa)


def run(chosen: Mapping[str, Table], options: argparse.Namespace) -> None:
    use_blas_threads()
    best = [_core.isa]
    if _core.isa == "avx512":
        best.append("avx2")
    isas = options.isa or best
    about = facts(isas, ("float32", "float64"), min(2, relpos.get_num_threads()))
    for name, value in about.items():
        parts = value.items() if isinstance(value, dict) else ()
        print(f"{name}:" if parts else f"{name}: {value}")
        for part, number in parts:
            print(f"  {part}: {number}")
    rows = []
    for name, table in chosen.items():
        print(f"\n{name}: {table.about}")
        with nullcontext() if table.as_usual else relpos.threads(1):
            rows += measured(table.make_plan(isas, options.full), options.rows)
    print(summary(rows))
    if options.json is not None:
        document = {"facts": about, "rows": [row.record() for row in rows]}
        text = json.dumps(document, indent=1)
        options.json.write_text(text + "\n", encoding="utf-8")


# ---- every scheme ------------------------------------------------------------------

# What the NumPy forms may differ by: their float32 phases alone are off by 1e-4 at the
# last of these positions.
NUMPY_LIMIT = {"float32": 1e-4}
#: relpos is not slower than the expression that everybody writes.
TARGETS = {"naive: index": 1.0, "naive: normalized index": 1.0, "learned table": 1.0}


def check(row: SchemeRow, label: str) -> float:
    """Return the largest float32 error; one above its limit ends the program."""
    largest = 0.0
    for _, dtype, gap, limit in gaps(row):
        if not gap <= limit:
            sys.exit(f"{label}: wrong result, error {gap:.2e} > {limit:.0e}")
        if dtype is np.float32:
            largest = max(largest, gap)
    return largest


def scheme_row(
    label: str,
    row: SchemeRow,
    forms: tuple[str, str],
    unit: str,
    length: int,
    repeats: int,
    isa: str,
) -> Row:
    with use_isa(isa):
        # The result is checked before it is timed.
        error = check(row, label)
        inputs = row.inputs(np.float32, **(LARGE | {"length": length}))
        first, second = (bound(row, form, inputs) for form in forms)
        if forms[0] == "numpy":
            check_error(second(), first(), label, NUMPY_LIMIT)
        yardstick = fma_yardstick(isa, "float32")
        timing = interleave([first, second], yardstick, repeats)
    return Row.of_ratios(label, unit, timing, error, target=TARGETS.get(label))


def make_plan(isas: list[str], full: bool) -> Plan:
    length, repeats = (1024, 7) if full else (256, 3)
    plan: Plan = []
    for row in ROWS:
        # A scheme that nobody writes in NumPy has no row of it.
        kinds = {row.name: (("numpy", "relpos"), "x faster")} if row.numpy else {}
        if row.gradients:
            kinds[f"backward {row.name}"] = (("gradients", "relpos"), "x forward")
        for label, (forms, unit) in kinds.items():
            sizes = length, repeats, isas[0]
            plan.append((label, partial(scheme_row, label, row, forms, unit, *sizes)))
    return plan


TABLES = {"schemes": Table("every scheme over its NumPy form", make_plan)}
