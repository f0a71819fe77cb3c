"""Tables of figures: rows and their verdicts, facts of the machine, the command."""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any, NamedTuple

import numpy as np

import relpos
from relpos import _core
from relpos._bench import harness


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
        cls, label: str, unit: str, timing: harness.Timing, error: float, **goal: Any
    ) -> Row:
        """Make a row of the times of the first work over those of the second."""
        goal |= {"seconds": timing.seconds(), "error": error}
        return cls(label, unit, timing.ratios(), timing.tried, **goal)

    @property
    def figure(self) -> float | None:
        return statistics.median(self.figures) if self.figures else None

    @property
    def verdict(self) -> str:
        if self.figure is None or len(self.figures) < harness.FEWEST_KEPT:
            return "noisy"
        if self.target is None:
            return ""
        above = self.figure - self.target
        return "PASS" if (above <= 0 if self.at_most else above >= 0) else "short"

    def line(self) -> str:
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
        cells = f"{self.label:<58} {figure:>7} {self.unit:<24} {spread:<15} {kept} "
        cells += f"{time:>9} {rate:>7} {error:>7} {target:<7} {self.verdict}"
        return cells.rstrip()

    def record(self) -> dict[str, Any]:
        """Return the row as the JSON file has it."""
        return asdict(self) | {"figure": self.figure, "verdict": self.verdict}


HEADER = (
    f"{'row':<58} {'figure':>7} {'':<24} {'lowest - highest':<15} kept "
    f"{'ms':>9} {'GF/s':>7} {'error':>7} {'target':<7}"
)


def facts(isas: Sequence[str], dtypes: Sequence[str], cores: int) -> dict[str, Any]:
    """Return facts of the machine and the build, and the rate of multiply-adds."""
    peaks = {}
    for isa in isas:
        for dtype in dtypes:
            for threads in range(1, cores + 1):
                clock = thread_time if threads == 1 else perf_counter
                yardstick = harness.fma_yardstick(isa, dtype, threads, clock)
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
    found = dict(re.findall(r"^(model name|cpu family|model)\s*:\s*(.+)$", text, re.M))
    if "model name" not in found:
        return "unknown"
    family, model = found.get("cpu family"), found.get("model")
    return f"{found['model name']} (family {family}, model {model})"


Plan = list[tuple[str, Callable[[], Row]]]


class Table(NamedTuple):
    """A table: its title, its rows, and True where its calls may use all threads."""

    about: str
    make_plan: Callable[[list[str], bool], Plan]
    as_usual: bool = False


def measured(plan: Plan, pattern: str) -> list[Row]:
    """Measure the rows whose label matches, and print each."""
    print(HEADER)
    rows = []
    for label, measure in plan:
        if re.search(pattern, label):
            rows.append(measure())
            print(rows[-1].line(), flush=True)
    return rows


def summary(rows: Sequence[Row]) -> str:
    """Return how many rows reached their targets."""
    verdicts = [row.verdict for row in rows if row.target is not None]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in ("PASS", "short", "noisy"))
    return f"{len(rows)} rows, {len(verdicts)} with a target: {counts}"


def add_options(
    parser: argparse._ActionsContainer, tables: Mapping[str, Table]
) -> None:
    """Add the options of a command that prints tables."""
    add = parser.add_argument
    listed = ", ".join(tables)
    # argparse compares the empty list, too, with the choices
    add("tables", nargs="*", choices=[[], *tables], metavar="TABLE", help=listed)
    add("--full", action="store_true", help="all sizes, more repeats (minutes)")
    add("--rows", default="", metavar="REGEX", help="only rows that match")
    isa = "instruction set, repeatable; default: the best, and AVX2"
    add("--isa", action="append", choices=sorted(_core.by_isa), help=isa)


def run(chosen: Mapping[str, Table], options: argparse.Namespace) -> None:
    """Print the chosen tables, and write their rows where a file is given."""
    harness.use_blas_threads()
    best = [_core.isa, *(["avx2"] if _core.isa == "avx512" else [])]
    isas = options.isa or best
    about = facts(isas, ("float32", "float64"), min(2, relpos.get_num_threads()))
    for name, value in about.items():
        print(f"{name}: {value}")
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
