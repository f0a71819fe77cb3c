"""Step 4: attention cores of public implementations, recorded, and relpos's beside.

A file of relpos/data holds what entered an upstream attention core (projected query,
key and value, tables as upstream stores them, the mask as `allowed`) and its context,
all in float64, and names the upstream; some hold a gradient `d_context` that was sent
back and the gradients `d_*` that came of it. Some are of one head or one item of a
batch, with the gradients that depend on nothing else. cores.py, models.py and modern.py
say how each one's conventions map to relpos's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import as_file, files
from typing import Any

import numpy as np

from relpos._catalogue.row import Array, Limits, cast, present
from relpos._demo import models, modern
from relpos._demo.cores import CORES, Case
from relpos._demo.report import Report

__all__ = ["CASES", "Case", "beside", "largest", "load", "recorded"]

CASES = CORES | models.CORES | modern.CORES
Gaps = tuple[float, float | None]  # of output and gradients

# Recorded values carry the rounding of their makers; float32 inputs that of the cast.
OUTPUTS: Limits = {np.float64: 1e-12, np.float32: 2e-6}
GRADIENTS: Limits = {np.float64: 1e-10, np.float32: 6e-6}


def load(name: str) -> Case:
    """The arrays of one recorded case, and `source`: upstream, commit, object."""
    with as_file(files("relpos") / "data" / f"{name}.npz") as path, np.load(path) as f:
        case: Case = {key: f[key] for key in f.files}
    case["source"] = json.loads(str(case["source"]))
    return case


def differences(name: str, case: Case, dtype: type) -> Gaps:
    """Largest difference to the recorded context, and to any recorded gradient."""
    known, core = cast(case, dtype), CASES[name]
    function, settings = core.call(known)
    result = function(**settings, return_context=True)
    gap = float(np.abs(result.out - case["context"]).max())
    if "d_context" not in case:
        return gap, None
    gradients = present(result.context.backward(known["d_context"]))
    found = core.gradients(gradients, known)
    wanted = {name[2:]: x for name, x in case.items() if name.startswith("d_")}
    del wanted["context"]
    return gap, float(np.max([largest(found[n], x) for n, x in wanted.items()]))


def largest(got: Array, wanted: Array) -> float:
    """Largest difference over the largest number that is wanted."""
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def recorded(report: Report) -> None:
    """Every core in float64 and float32."""
    report.begin("Recorded attention cores of public implementations, and relpos's")
    report.say("largest difference to the recorded output, and to the recorded")
    report.say("gradients over the largest number of each ('-': none in the file):")
    titles = {name: core.title for name, core in CASES.items()}
    beside(report, "scheme", titles, differences, "context", OUTPUTS)


def beside(
    report: Report,
    heading: str,
    titles: dict[str, str],
    gaps: Callable[[str, Case, type], Gaps],
    output: str,
    outputs: Limits,
) -> None:
    """A table of recorded cases, a line each, and a check of each column's worst."""
    kinds = {"output": outputs, "gradients": GRADIENTS}
    found: dict[tuple[str, Any], list[float]] = {}
    rows = []
    for name, title in titles.items():
        case = load(name)
        pairs = {dtype: gaps(name, case, dtype) for dtype in outputs}
        cells = []
        for place, kind in enumerate(kinds):
            for dtype, pair in pairs.items():
                gap = pair[place]
                cells.append("-" if gap is None else f"{gap:.1e}")
                found.setdefault((kind, dtype), [])
                found[kind, dtype] += [] if gap is None else [gap]
        shape = " x ".join(map(str, case[output].shape))
        rows.append([title, origin(case), shape, *cells])
    names = [f"{kind} {dtype.__name__}" for kind, dtype in found]
    report.table([heading, "upstream and commit", "shape of output", *names], rows)
    for (kind, dtype), each in found.items():
        name = f"largest of these, {kind} in {dtype.__name__}"
        report.check(name, float(np.max(each)), kinds[kind][dtype])


def origin(case: Case) -> str:
    """Who computed a case: the upstream and its commit."""
    source = case["source"]
    commit = source["commit"].removesuffix("n/a")[:8]
    return f"{source['upstream']} {commit}".rstrip()
