"""``python -m relpos bench``: the speed of every scheme against its NumPy form.

Each row is the time of the NumPy form, which stores every score, over the time of
relpos, one thread each, both within one repeat. Before a scheme is timed, its output
and gradients are compared with its definition, at the small size and the limits of the
demo, and its output with the NumPy form at the size that is timed. Rows named
`backward` are forward and backward together over the forward.
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np

from relpos import _core
from relpos._bench import harness, table
from relpos._catalogue.measure import bound
from relpos._catalogue.row import LARGE, Row, errors, gradient_errors
from relpos._catalogue.rows import ROWS

# What the NumPy forms may differ by: their float32 phases alone are off by 1e-4 at the
# last of these positions.
NUMPY_LIMIT = {"float32": 1e-4}
#: relpos is not slower than the expression that everybody writes.
TARGETS = {"naive: index": 1.0, "naive: normalized index": 1.0, "learned table": 1.0}


def check(row: Row, label: str) -> float:
    """Return the largest float32 error; one above its limit ends the program."""
    found = [(gap, row.limits[dtype], dtype) for dtype, gap in errors(row).items()]
    limits = row.gradients.limits if row.gradients else {}
    found += [
        (gap, limits[dtype], dtype) for dtype, gap in gradient_errors(row).items()
    ]
    for gap, limit, _ in found:
        if not gap <= limit:
            sys.exit(f"{label}: wrong result, error {gap:.2e} > {limit:.0e}")
    return max(gap for gap, _, dtype in found if dtype is np.float32)


def scheme_row(
    label: str, row: Row, forms: tuple[str, str], unit: str, length: int, repeats: int
) -> table.Row:
    """Measure the time of the first form over that of the second."""
    error = check(row, label)
    inputs = row.inputs(np.float32, **{**LARGE, "length": length})
    first, second = (bound(row, form, inputs) for form in forms)
    if forms[0] == "numpy":
        harness.check_error(second(), first(), label, NUMPY_LIMIT)
    yardstick = harness.fma_yardstick(_core.isa, "float32")
    timing = harness.interleave([first, second], yardstick, repeats)
    return table.Row.of_ratios(label, unit, timing, error, target=TARGETS.get(label))


def make_plan(isas: list[str], full: bool) -> table.Plan:
    """Return every row as (label, function that measures it)."""
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


TABLES = {"schemes": table.Table("every scheme over its NumPy form", make_plan)}
