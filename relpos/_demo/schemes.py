"""Step 6, errors, time and memory of each scheme; the last step, PyTorch's results."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

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
    gaps,
    relative_error,
)
from relpos._demo.report import Report
from relpos._opinion.check import check_row
from relpos._text import table_lines

KINDS = ("output", "gradients")
SIZES = "L = {length}, {heads} heads, D = {dim}"


def schemes(report: Report) -> None:
    """Report both tables, and the form that stores a vector for each pair."""
    report.begin("schemes")
    report.say("forms")
    report.picture("fingerprints")
    report.covers(count=len(ROWS))
    accuracy(report)
    speed(report)
    vector_per_pair(report)


def accuracy(report: Report) -> None:
    names = [f"{kind} {bits}" for kind in KINDS for bits in ("float32", "float64")]
    rows = []
    for row in ROWS:
        report.progress(f"checking {row.name}")
        cells = dict.fromkeys(names, "-")
        for kind, dtype, gap, limit in gaps(row):
            # Every error of every scheme is a check.
            name = f"{row.name}, {kind}, error in {dtype.__name__}"
            report.check(name, gap, limit)
            cells[f"{kind} {dtype.__name__}"] = f"{gap:.1e} <= {limit:.0e}"
        rows.append([row.name, *cells.values()])
    sizes = {
        "outputs": SIZES.format(**SMALL),
        "gradients": SIZES.format(**GRADIENT_SIZE),
    }
    report.table("errors", ["", *names], rows, sizes)


def speed(report: Report) -> None:
    """Report time and memory, of each form in its own process."""
    forms = ("relpos", "numpy", "gradients")
    header = ["", "time: relpos", "NumPy", "gradients"]
    header += ["memory: relpos", "NumPy", "gradients"]
    rows, seconds = [], []
    for row in ROWS:
        report.progress(f"measuring {row.name}")
        measured = {
            form: measure(row.name, form) for form in forms if getattr(row, form)
        }
        # Memory is checked where the system tells it.
        check_memory(report, row, measured)
        results = [measured.get(form) for form in forms]
        times = [f"{each.seconds * 1e3:.1f} ms" if each else "-" for each in results]
        memory = [each.memory_text() if each else "-" for each in results]
        rows.append([row.name, *times, *memory])
        # A form that a scheme lacks is a gap in the picture.
        seconds.append([each.seconds * 1e3 if each else np.nan for each in results])
    caption = report.text("times", size=SIZES.format(**LARGE))
    report.closing += [f"{caption}:"]
    report.closing += table_lines(header[:4], [row[:4] for row in rows])
    names = ("relpos", "NumPy", "relpos, forward and backward")
    report.say("numpy")
    report.picture(
        "times",
        rows=[row.name for row in ROWS],
        series=dict(zip(names, zip(*seconds, strict=True), strict=True)),
        unit="milliseconds",
    )
    report.table("table", header, rows, {"caption": caption})


def check_memory(report: Report, row: Row, forms: dict[str, Measurement]) -> None:
    """Check that attention needs less than a form that stores scores.

    The limit forward is the scores of one head; backward it is the scores of all heads
    and their gradients.
    """
    # Scores of one head in float32.
    one_head = LARGE["length"] ** 2 * np.dtype(np.float32).itemsize
    limits = {
        "relpos": ("one head's scores", one_head),
        "gradients": ("all scores and their gradients", 2 * LARGE["heads"] * one_head),
    }
    for form, (stored, limit) in limits.items():
        used = forms[form].memory if form in forms else None
        # Only attention stores scores; encodings have limits of another kind.
        if used is not None and row.limits is ATTENTION:
            name = f"{row.name}, {form}: extra MB, compared with those of {stored}"
            report.check(name, used / 1e6, limit / 1e6)


def vector_per_pair(report: Report) -> None:
    """Run the L x L x d form where it fits, and scale it to the large size."""
    inputs = PAIRS_ROW.inputs(np.float32, **PAIRS)
    gap = relative_error(PAIRS_ROW.relpos(**inputs), numpy_forms.pairs(**inputs))
    form = measure(PAIRS_ROW.name, "numpy")
    # The work grows with the heads and with the square of the length.
    times = LARGE["heads"] * (LARGE["length"] / PAIRS["length"]) ** 2
    bytes_each = np.dtype(np.float32).itemsize * LARGE["dim"]
    report.say(
        "pairs",
        length=PAIRS["length"],
        ms=f"{form.seconds * 1e3:.0f}",
        mb=form.memory_text(),
        seconds=f"{form.seconds * times:.1f}",
        gb=f"{LARGE['heads'] * LARGE['length'] ** 2 * bytes_each / 1e9:.1f}",
    )
    # Both results round in float32, so that their difference has twice the limit.
    report.check("Shaw keys against that form", gap, 2 * ATTENTION[np.float32])


def pytorch(report: Report) -> None:
    report.begin("pytorch")
    if find_spec("torch") is None:
        report.lacks("PyTorch", "absent")
        return
    # torch is imported only where it is installed.
    version = import_module("torch").__version__
    comparisons = []
    for row in ROWS:
        report.progress(f"comparing {row.name} with PyTorch")
        comparison = check_row(row)
        comparisons.append(comparison)
        for error, limit in zip(comparison.errors, comparison.limits, strict=True):
            report.check(f"{row.name} compared with PyTorch", error, limit)
    # Errors alternate: in float32, in float64.
    in_float64 = [error for each in comparisons for error in each.errors[1::2]]
    worst = max(in_float64, default=0.0)
    report.covers(count=len(ROWS), version=version)
    report.say("compared", count=len(ROWS), version=version, worst=f"{worst:.1e}")
    names = [f"{kind}, {bits}" for kind in KINDS for bits in ("float32", "float64")]
    shares = np.full((len(names), len(ROWS)), np.nan)
    for at, each in enumerate(comparisons):
        pairs = zip(each.errors, each.limits, strict=True)
        # A limit of 0 has no share: then the error itself is drawn, which is 0.
        shares[: len(each.errors), at] = [x / most if most else x for x, most in pairs]
    report.picture(
        "pytorch",
        rows=[row.name for row in ROWS],
        series=dict(zip(names, shares, strict=True)),
        unit="error / limit",
    )
