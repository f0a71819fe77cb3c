"""``python -m relpos demo``: relpos at work on real input, proving itself right.

`STEPS` is the whole programme. A step is a function that takes the `Report`, says what
it shows and calls `report.check` for each thing that must hold; add one to the list to
add it to the demo. A new scheme is one row in relpos/_catalogue/rows.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from time import perf_counter

from relpos._checks import hinted
from relpos._demo.beside_torch import beside_torch
from relpos._demo.facts import facts
from relpos._demo.layers import layers
from relpos._demo.overview import overview
from relpos._demo.pictures import pictures
from relpos._demo.recorded import recorded
from relpos._demo.report import Report
from relpos._demo.schemes import schemes
from relpos._demo.sentences import sentences
from relpos._demo.skewing import skewing
from relpos._demo.training import training

__all__ = ["STEPS", "demo"]

STEPS: list[Callable[[Report], None]] = [
    facts,
    sentences,
    skewing,
    recorded,
    layers,
    schemes,
    training,
    overview,
    pictures,
    beside_torch,
]


@hinted
def demo(
    *, as_json: bool = False, plots: bool = True, report: Report | None = None
) -> Report:
    """Show relpos at work on real input, and prove it right: ``python -m relpos demo``.

    In a notebook the pictures stand between the text.

    Parameters
    ----------
    as_json : bool
        Print one JSON object at the end instead of text.
    plots : bool
        Whether to draw pictures: in a notebook below the cell, elsewhere as files in
        ``relpos-demo/``.
    report : Report, optional
        Where the steps write; by default to standard output.

    Returns
    -------
    Report
        What was printed. `failed` is the number of checks that failed, `steps` has
        every table and check, `pictures` the PNG files.

    See Also
    --------
    relpos.data : The tables of its overview.
    relpos.reference : The definitions that it compares with.
    show_config : How relpos was built, and what it is using.
    """
    report = Report(quiet=as_json) if report is None else report
    start = perf_counter()
    steps = [step for step in STEPS if plots or step is not pictures]
    for number, step in enumerate(steps, 1):
        report.progress(f"step {number} of {len(steps)}: {step.__name__}")
        step(report)
        report.end()
    report.progress()
    seconds = perf_counter() - start
    if as_json:
        print(json.dumps(report.as_dict(seconds), indent=2), file=report.stream)
    else:
        print(f"\n{seconds:.0f} s", file=report.stream)
        print(report.summary(), file=report.stream)
    return report
