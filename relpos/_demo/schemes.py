"""Step 6: the schemes, a line each: error of output and gradients, time and memory."""

from __future__ import annotations

import numpy as np

from relpos._catalogue import numpy_forms
from relpos._catalogue.measure import Measurement, measure
from relpos._catalogue.rows import (
    ATTENTION,
    GRADIENT_SIZE,
    LARGE,
    PAIRS,
    PAIRS_ROW,
    ROWS,
    SMALL,
    Row,
    errors,
    gradient_errors,
    relative_error,
)
from relpos._demo.report import Report

__all__ = ["schemes"]


def schemes(report: Report) -> None:
    """Both tables, and the form that stores a vector for each pair."""
    report.begin("Each scheme: errors, time and memory beside NumPy")
    accuracy(report)
    speed(report)
    vector_per_pair(report)


def accuracy(report: Report) -> None:
    """Errors of outputs and gradients."""
    sizes = "L = {length}, {heads} heads, D = {dim}"
    report.say(
        "error: norm of the difference to relpos.reference over the norm of that,"
    )
    report.say(f"and the limit it must keep; {sizes.format(**SMALL)}.")
    report.say("gradients: the largest such error among those of all inputs;")
    report.say(f"{sizes.format(**GRADIENT_SIZE)}.")
    kinds = ("output", "gradients")
    rows = []
    for row in ROWS:
        report.progress(f"checking {row.name}")
        limits = [row.limits, row.gradients.limits if row.gradients else {}]
        found = [errors(row), gradient_errors(row)]
        cells = []
        for kind, gaps, bounds in zip(kinds, found, limits, strict=True):
            for dtype in (np.float32, np.float64):
                if dtype not in bounds:
                    cells.append("-")
                    continue
                gap, limit = gaps[dtype], bounds[dtype]
                name = f"{row.name}, {kind}, error in {dtype.__name__}"
                report.check(name, gap, limit, in_table=True)
                cells.append(f"{gap:.1e} <= {limit:.0e}")
        rows.append([row.name, *cells])
    names = [f"{kind} {bits}" for kind in kinds for bits in ("float32", "float64")]
    report.table(["", *names], rows)


def speed(report: Report) -> None:
    """Time and memory, each form in a process of its own."""
    report.say("time: the fastest of up to five runs; memory: beyond input and output;")
    report.say("gradients: forward and backward together.")
    report.say("float32, L = {length}, {heads} heads, D = {dim}.".format(**LARGE))
    header = ["", "time: relpos", "NumPy", "gradients"]
    header += ["memory: relpos", "NumPy", "gradients"]
    rows = []
    for row in ROWS:
        report.progress(f"measuring {row.name}")
        forms = {
            form: measure(row.name, form)
            for form in ("relpos", "numpy", "gradients")
            if getattr(row, form) is not None
        }
        check_memory(report, row, forms)
        found = [forms.get(form) for form in ("relpos", "numpy", "gradients")]
        rows.append(
            [
                row.name,
                *(f"{form.seconds * 1e3:.1f} ms" if form else "-" for form in found),
                *(form.memory_text() if form else "-" for form in found),
            ]
        )
    report.table(header, rows)


def check_memory(report: Report, row: Row, forms: dict[str, Measurement]) -> None:
    """No attention of relpos may need what a form that stores scores must have.

    Forward that is one head's at least, backward the scores and their gradients of all
    heads.
    """
    one_head = LARGE["length"] ** 2 * np.dtype(np.float32).itemsize
    limits = {
        "relpos": ("one head's scores", one_head),
        "gradients": ("all scores and their gradients", 2 * LARGE["heads"] * one_head),
    }
    for form, (stored, limit) in limits.items():
        used = forms[form].memory if form in forms else None
        if used is not None and row.limits is ATTENTION:
            report.check(
                f"{row.name}, {form}: extra MB, beside those of {stored}",
                used / 1e6,
                limit / 1e6,
                in_table=True,
            )


def vector_per_pair(report: Report) -> None:
    """Runs the L x L x d form where it fits, and computes it for the large size."""
    inputs = PAIRS_ROW.inputs(np.float32, **PAIRS)
    gap = relative_error(PAIRS_ROW.relpos(**inputs), numpy_forms.pairs(**inputs))
    form = measure(PAIRS_ROW.name, "numpy")
    times = LARGE["heads"] * (LARGE["length"] / PAIRS["length"]) ** 2
    bytes_each = np.dtype(np.float32).itemsize * LARGE["dim"]
    report.say(
        f"With a vector for each pair (L x L x d): L = {PAIRS['length']}, one head, "
        f"{form.seconds * 1e3:.0f} ms and {form.memory_text()};"
    )
    report.say(
        f"computed for the size above: {form.seconds * times:.1f} s and "
        f"{LARGE['heads'] * LARGE['length'] ** 2 * bytes_each / 1e9:.1f} GB."
    )
    report.check("Shaw keys against that form", gap, 2 * ATTENTION[np.float32])
