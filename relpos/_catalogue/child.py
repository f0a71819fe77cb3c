"""The child process of measure.py: one form of one scheme, timed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from relpos._catalogue import rows
from relpos._catalogue.measure import forget_peak, resident
from relpos._catalogue.row import LARGE, PAIRS, Row

REPEATS, ENOUGH_SECONDS = 5, 0.2  # at most, and when to stop before


def bound(row: Row, form: str, inputs: dict[str, Any]) -> Callable[[], Any]:
    """One form of a scheme as a call without arguments."""
    if form != "gradients":
        return partial(getattr(row, form), **inputs)
    assert row.gradients is not None
    grad_out = np.ones_like(row.relpos(**inputs))
    return partial(row.gradients.relpos, grad_out, **inputs)


def size_of(result: Any) -> int:
    """Bytes of an array, or of several by name."""
    made = result.values() if isinstance(result, dict) else [result]
    return sum(array.nbytes for array in made)


def run_here(name: str, form: str) -> dict[str, Any]:
    """Measure in this process."""
    row = next(x for x in [*rows.ROWS, rows.PAIRS_ROW] if x.name == name)
    bound(row, form, row.inputs(np.float32, 1, 8, 8))()  # loads what is loaded once
    size = PAIRS if row is rows.PAIRS_ROW else LARGE
    run = bound(row, form, row.inputs(np.float32, **size))
    known = forget_peak()
    before = resident("VmRSS")
    seconds: list[float] = []
    while len(seconds) < REPEATS and sum(seconds) < ENOUGH_SECONDS:
        start = perf_counter()
        out = run()
        seconds.append(perf_counter() - start)
        nbytes = size_of(out)
        del out
    peak = resident("VmHWM")
    memory = None
    if known and before is not None and peak is not None:
        memory = max(peak - before - nbytes, 0)
    return {"seconds": min(seconds), "memory": memory}


if __name__ == "__main__":
    print(json.dumps(run_here(*sys.argv[1:])))
