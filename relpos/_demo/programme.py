"""``python -m relpos demo``: relpos computes examples, and each result is checked.

`STEPS` is the whole programme. A step is a function that takes the `Report`, says what
it shows and calls `report.check` for each thing that must be true; add one to the list
to add it to the demo. A new scheme is one row in relpos/_catalogue/rows.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import relpos
from relpos._checks import hinted
from relpos._demo import page
from relpos._demo.overview import overview
from relpos._demo.page import pictures
from relpos._demo.positions import sentences, skewing
from relpos._demo.recorded import layers, recorded
from relpos._demo.report import Report
from relpos._demo.schemes import pytorch, schemes
from relpos._demo.training import training


def environment(report: Report) -> None:
    """Report the version, the kernels, the threads, NumPy and BLAS."""
    report.begin("environment")
    report.facts.update(relpos.show_config(mode="dicts"))
    report.note(report.setting())


STEPS: list[Callable[[Report], None]] = [
    environment,
    sentences,
    skewing,
    recorded,
    layers,
    schemes,
    training,
    overview,
    pictures,
    pytorch,
]


@hinted
def demo(
    *, as_json: bool = False, plots: bool = True, report: Report | None = None
) -> Report:
    """Compute examples and check every result: ``python -m relpos demo``.

    It prints a line for each part, then a summary. In a notebook, the report that it
    returns is shown below the cell, with its tables and pictures.

    Parameters
    ----------
    as_json : bool
        Print one JSON object at the end instead of text.
    plots : bool
        Draw pictures. Outside of a notebook they are also written to ``relpos-demo/``,
        and so is ``report.html``, the report as a page, unless `as_json`.
    report : Report, optional
        The report that the steps fill; by default it prints to standard output.

    Returns
    -------
    Report
        The results. `failed` is the number of checks that failed, `steps` has every
        table and check, `pictures` the PNG files.

    """
    report = page.PageReport(quiet=as_json) if report is None else report
    for step in [step for step in STEPS if plots or step is not pictures]:
        step(report)
        report.end()
    if report.pictures:
        page.draw_missing(report)  # what steps after `pictures` asked for
    # The line of progress is taken away.
    report.progress()
    seconds = sum(report.seconds)
    if as_json:
        print(json.dumps(report.as_dict(seconds), indent=2), file=report.stream)
        # A reader of JSON has all of it, and no text after it.
        return report
    report.write("\n" + "\n".join(["Checked:", *(f"  {x}" for x in report.scope)]))
    report.write("\n".join(["", *report.closing]))
    if report.facts:
        report.write(f"\n{report.setting()}\nCPU: {report.cpu}")
    if report.pictures and not page.in_notebook():
        report.write(f"The tables and pictures as a page: {page.write(report)}")
    report.write(f"{report.summary()}, in {seconds:.0f} s")
    return report
