"""Step 10: every scheme beside eager PyTorch and its autograd."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from relpos._catalogue.rows import ROWS
from relpos._demo.report import Report
from relpos._opinion.check import check_row

__all__ = ["beside_torch"]


def beside_torch(report: Report) -> None:
    """Report the largest error of ``python -m relpos check`` in a line."""
    report.begin("Where PyTorch stands")
    if find_spec("torch") is None:
        report.say("PyTorch is not installed (pip install torch): nothing beside it.")
        return
    version = import_module("torch").__version__
    worst = 0.0
    for row in ROWS:
        report.progress(f"checking {row.name} beside PyTorch")
        found = check_row(row)
        for error, limit in zip(found.errors, found.limits, strict=True):
            report.check(f"{row.name} beside PyTorch", error, limit, in_table=True)
        worst = max(worst, *found.errors[1::2])
    report.say(
        f"PyTorch {version}: {len(ROWS)} schemes, outputs and gradients, beside eager"
    )
    report.say(f"expressions and autograd; the largest error in float64: {worst:.1e}.")
