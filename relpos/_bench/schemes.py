"""Speed of every scheme of the demo's table against its NumPy form.

Each row is the time of the NumPy form, which stores every score, over the time of
relpos, one thread each, both within one repeat. Before it is timed a scheme is held
against its definition, output and gradients, at the small size and the limits of the
demo, and against the NumPy form at the size that is timed. Rows named `backward` are
forward and backward together over the forward.
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np

from relpos import _core
from relpos._bench import harness, table
from relpos._catalogue.child import bound
from relpos._catalogue.row import LARGE, Row, errors, gradient_errors
from relpos._catalogue.rows import ROWS

# What the NumPy forms may differ by: their float32 phases alone are off by 1e-4 at the
# last of these positions.
NUMPY_LIMIT = {"float32": 1e-4}


#: Never slower than what everybody writes.
TARGETS = {"naive: index": 1.0, "naive: normalized index": 1.0, "learned table": 1.0}


def check(row: Row, label: str) -> float:
    """Largest float32 error by the definition; one too large ends the program."""
    found = [(errors(row), row.limits)]
    if row.gradients is not None:
        found.append((gradient_errors(row), row.gradients.limits))
    for gaps, limits in found:
        for dtype, gap in gaps.items():
            if not gap <= limits[dtype]:
                sys.exit(
                    f"{label}: wrong result, error {gap:.2e} > {limits[dtype]:.0e}"
                )
    return max(gaps[np.float32] for gaps, _ in found)


def scheme_row(
    label: str, row: Row, forms: tuple[str, str], unit: str, length: int, repeats: int
) -> table.Row:
    """Time of the first form over that of the second."""
    error = check(row, label)
    inputs = row.inputs(np.float32, **{**LARGE, "length": length})
    first, second = (bound(row, form, inputs) for form in forms)
    if forms[0] == "numpy":
        harness.check_error(second(), first(), label, NUMPY_LIMIT)
    yardstick = harness.fma_yardstick(_core.isa, "float32")
    timing = harness.interleave([first, second], yardstick, repeats)
    return table.Row(
        label,
        unit,
        timing.ratios(),
        timing.tried,
        TARGETS.get(label),
        seconds=timing.seconds(),
        error=error,
    )


def make_plan(isas: list[str], full: bool) -> table.Plan:
    length, repeats = (1024, 7) if full else (256, 3)
    plan: table.Plan = []
    for row in ROWS:
        kinds = {row.name: (("numpy", "relpos"), "x faster")} if row.numpy else {}
        if row.gradients:
            kinds[f"backward {row.name}"] = (("gradients", "relpos"), "x forward")
        for label, (forms, unit) in kinds.items():
            measure = partial(scheme_row, label, row, forms, unit, length, repeats)
            plan.append((label, measure))
    return plan
