"""Time and extra memory of one form of one scheme, in a process of its own.

The peak of the memory in use is a property of the process, and memory that earlier work
has freed would hide later needs. benchmarks/ and tests measure memory by this, too.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from relpos._catalogue import rows
from relpos._catalogue.rows import LARGE, PAIRS, Inputs, Row

REPEATS, ENOUGH_SECONDS = 5, 0.2  # at most, and when to stop before

Result = TypeVar("Result")


@dataclass(frozen=True)
class Measurement:
    """Seconds of the fastest run; bytes beyond input and output, None if unknown."""

    seconds: float
    memory: int | None

    def memory_text(self) -> str:
        return "unknown" if self.memory is None else f"{self.memory / 1e6:.1f} MB"


def measure(name: str, form: str) -> Measurement:
    """Run `form` ("relpos", "numpy" or "gradients") of a scheme in a child process."""
    (fields,) = in_child("relpos._catalogue.measure", name, form)
    return Measurement(**fields)


def in_child(
    module: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[Any]:
    """Run a module in a child process; yield the JSON of each line that it prints."""
    # The same interpreter, so that the child finds the same packages.
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        # Each line is read as the child prints it, and not at its end.
        yield from map(json.loads, child.stdout)
    # The stream has ended, and leaving the block has waited for the child.
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)


def resident(field: str) -> int | None:
    """Return VmRSS (now) or VmHWM (peak) of this process in bytes; None if unknown."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    values = [line.split() for line in lines if line.startswith(field + ":")]
    # The file has kibibytes.
    return int(values[0][1]) * 1024 if values else None


def forget_peak() -> bool:
    """Set the peak back to what is in use now (Linux).

    Memory that was freed but kept by the allocator is given back first: it would be
    used again without being seen.
    """
    try:
        # Only glibc has malloc_trim, and only Linux this file.
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (AttributeError, OSError):
        return False
    return True


def with_memory(work: Callable[[], Result]) -> tuple[Result, int | None]:
    """Return the result of a call, and the bytes at its peak beyond those before it."""
    # The reading comes after the reset, which itself gives memory back.
    known, before = forget_peak(), resident("VmRSS")
    result = work()
    peak = resident("VmHWM")
    if not known or before is None or peak is None:
        return result, None
    return result, peak - before


def bound(row: Row, form: str, inputs: Inputs) -> Callable[[], Any]:
    if form != "gradients":
        return partial(getattr(row, form), **inputs)
    assert row.gradients is not None
    # The gradient of a sum of outputs.
    grad_out = np.ones_like(row.relpos(**inputs))
    return partial(row.gradients.relpos, grad_out, **inputs)


def size_of(result: Any) -> int:
    arrays = result.values() if isinstance(result, dict) else [result]
    return sum(array.nbytes for array in arrays)


def run_here(name: str, form: str) -> Measurement:
    row = next(x for x in [*rows.ROWS, rows.PAIRS_ROW] if x.name == name)
    bound(row, form, row.inputs(np.float32, 1, 8, 8))()  # loads what is loaded once
    # The form with a vector for each pair stores L x L x D numbers, and has a size of
    # its own.
    size = PAIRS if row is rows.PAIRS_ROW else LARGE
    run = bound(row, form, row.inputs(np.float32, **size))

    def timed() -> tuple[float, int]:
        seconds: list[float] = []
        while len(seconds) < REPEATS and sum(seconds) < ENOUGH_SECONDS:
            start = perf_counter()
            out = run()
            seconds.append(perf_counter() - start)
            nbytes = size_of(out)
            # The output of one run must not be in use during the next.
            del out
        return min(seconds), nbytes

    (seconds, nbytes), more = with_memory(timed)
    # An unknown amount stays None; the output itself does not count as extra.
    return Measurement(seconds, more and max(more - nbytes, 0))


if __name__ == "__main__":
    print(json.dumps(asdict(run_here(*sys.argv[1:]))))
