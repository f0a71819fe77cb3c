"""The last step: every scheme compared with eager PyTorch and its autograd."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

import numpy as np

from relpos._catalogue.rows import ROWS
from relpos._demo.report import Report
from relpos._opinion.check import check_row

__all__ = ["pytorch"]

KINDS = ("output", "gradients")


def pytorch(report: Report) -> None:
    """Report the errors of ``python -m relpos check``."""
    report.begin("pytorch")
    if find_spec("torch") is None:
        report.say("absent")
        return
    version = import_module("torch").__version__
    found = []
    for row in ROWS:
        report.progress(f"comparing {row.name} with PyTorch")
        found.append(check_row(row))
        for error, limit in zip(found[-1].errors, found[-1].limits, strict=True):
            report.check(f"{row.name} compared with PyTorch", error, limit)
    worst = max(0.0, *(error for each in found for error in each.errors[1::2]))
    report.covers(count=len(ROWS), version=version)
    report.say("compared", count=len(ROWS), version=version, worst=f"{worst:.1e}")
    names = [f"{kind}, {bits}" for kind in KINDS for bits in ("float32", "float64")]
    shares = np.full((len(names), len(ROWS)), np.nan)
    for at, each in enumerate(found):
        pairs = zip(each.errors, each.limits, strict=True)
        shares[: len(each.errors), at] = [
            error / limit if limit else error for error, limit in pairs
        ]
    report.picture(
        "pytorch",
        rows=[row.name for row in ROWS],
        series=dict(zip(names, shares, strict=True)),
        unit="error / limit",
    )
