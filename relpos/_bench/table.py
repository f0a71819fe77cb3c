"""What a table of figures is made of: rows, their verdicts, facts of the machine."""

from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter, thread_time
from typing import Any

import numpy as np

import relpos
from relpos import _core
from relpos._bench import harness

__all__ = ["Plan", "Row", "cpu_name", "facts", "run", "summary", "write"]


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
    def of_peak(
        cls, label: str, timing: harness.Timing, flops: float, error: float
    ) -> Row:
        """A fraction of the core's multiply-add peak."""
        return cls(
            label,
            "of FMA peak",
            timing.shares(flops),
            timing.tried,
            seconds=timing.seconds(),
            flops=flops,
            error=error,
        )

    def aimed_at(self, target: float | None, at_most: bool = False) -> Row:
        """The same row with a target."""
        return replace(self, target=target, at_most=at_most)

    @property
    def figure(self) -> float | None:
        return statistics.median(self.figures) if self.figures else None

    @property
    def verdict(self) -> str:
        if self.figure is None or len(self.figures) < harness.FEWEST_KEPT:
            return "noisy"
        if self.target is None:
            return ""
        reached = (
            self.figure <= self.target if self.at_most else self.figure >= self.target
        )
        return "PASS" if reached else "short"

    def line(self) -> str:
        spread = (
            f"{min(self.figures):.3f} - {max(self.figures):.3f}" if self.figures else ""
        )
        bound = "<=" if self.at_most else ">="
        cells = (
            f"{self.label:<58}",
            f"{self.figure:7.3f}" if self.figure is not None else f"{'':7}",
            f"{self.unit:<24}",
            f"{spread:<15}",
            f"{len(self.figures):>2}/{self.tried:<2}",
            f"{self.seconds * 1e3:9.3f}" if self.seconds else f"{'':9}",
            f"{self.flops / self.seconds / 1e9:7.1f}"
            if self.seconds and self.flops
            else f"{'':7}",
            f"{self.error:7.0e}" if self.error is not None else f"{'':7}",
            f"{bound} {self.target:.2f}" if self.target is not None else f"{'':7}",
            self.verdict,
        )
        return " ".join(cells).rstrip()

    def record(self) -> dict[str, Any]:
        """What the JSON file says of the row."""
        return asdict(self) | {"figure": self.figure, "verdict": self.verdict}


HEADER = (
    f"{'row':<58} {'figure':>7} {'':<24} {'lowest - highest':<15} kept "
    f"{'ms':>9} {'GF/s':>7} {'error':>7} {'target':<7}"
)


def facts(isas: Sequence[str], dtypes: Sequence[str], cores: int) -> dict[str, Any]:
    """The machine and what was built for it, with the multiply-add rate of one core."""
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
    """The processor's name, family and model where the system tells them."""
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


def run(plan: Plan, pattern: str) -> list[Row]:
    """Measure the rows whose label matches, and print each."""
    print(HEADER)
    rows = []
    for label, measure in plan:
        if re.search(pattern, label):
            rows.append(measure())
            print(rows[-1].line(), flush=True)
    return rows


def summary(rows: Sequence[Row]) -> str:
    """How many rows reached their targets."""
    verdicts = [row.verdict for row in rows if row.target is not None]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in ("PASS", "short", "noisy"))
    return f"{len(rows)} rows, {len(verdicts)} with a target: {counts}"


def write(path: Path, about: dict[str, Any], rows: Sequence[Row]) -> None:
    """Write all that is known of the rows as one JSON object."""
    document = {"facts": about, "rows": [row.record() for row in rows]}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
