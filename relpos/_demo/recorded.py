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

from relpos._catalogue.rows import Array, Limits, cast, present
from relpos._demo import models, modern
from relpos._demo.cores import CORES, Case
from relpos._demo.report import Report

__all__ = ["CASES", "Case", "beside", "largest", "load", "recorded"]

CASES = CORES | models.CORES | modern.CORES
Gaps = tuple[float, float | None]  # of output and gradients

# Recorded values carry the rounding of their makers, and of the tables they computed.
OUTPUT_FLOAT64 = 1e-12
DRAWS = 4
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


def limit(name: str, case: Case, dtype: type) -> float:
    """The largest error that rounding explains in the output of a case.

    In float32 each step from an input to the output rounds by at most u = 2**-24 of
    its result: n = D + Lk + 4 steps for the input, a score of D terms, its scale, the
    exponential, the division and a sum over Lk keys; n = 4 for the input, the cosine,
    the product and the sum of a rotation. To first order each error is one of the
    inputs, and n errors of random sign amount to one of sqrt(n) u [1]_. The limit is
    the largest change of the float64 output in four draws of such errors of the inputs.
    Drawn errors have their full size, u, where roundings average u / sqrt(3) at most:
    an output beyond the limit is off by sqrt(3) times the extreme of its distribution.

    References
    ----------
    .. [1] Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis",
       SIAM Journal on Scientific Computing 41, 2019
    """
    if dtype is np.float64:
        return OUTPUT_FLOAT64
    rng = np.random.default_rng(0)
    sums = (case["query"].shape[-1], case["key"].shape[-2]) if "query" in case else ()
    size = float(np.sqrt(sum(sums) + 4)) * 2.0**-24

    def output(known: Case) -> Array:
        function, settings = CASES[name].call(known)
        return np.asarray(function(**settings, return_context=True).out)

    def moved(x: Any) -> Any:
        if getattr(x, "dtype", None) != np.float64:
            return x
        return x * (1 + size * rng.choice([-1, 1], x.shape))

    exact = output(case)
    draws = [{key: moved(x) for key, x in case.items()} for _ in range(DRAWS)]
    return float(np.max([np.abs(output(each) - exact).max() for each in draws]))


def largest(got: Array, wanted: Array) -> float:
    """Largest difference over the largest number that is wanted."""
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def recorded(report: Report) -> None:
    """Every core in float64 and float32."""
    report.begin("Recorded attention cores of public implementations, and relpos's")
    report.say("largest difference to the recorded output, and to the recorded")
    report.say("gradients over the largest number of each ('-': none in the file):")
    titles = {name: core.title for name, core in CASES.items()}
    beside(report, "scheme", titles, differences, "context", limit)


def beside(
    report: Report,
    heading: str,
    titles: dict[str, str],
    gaps: Callable[[str, Case, type], Gaps],
    output: str,
    output_limit: Callable[[str, Case, type], float],
) -> None:
    """A table of recorded cases, a line each, and a check of each column's worst.

    The worst is the gap that comes nearest to its limit.
    """
    found: dict[tuple[str, Any], list[tuple[float, float]]] = {}
    rows = []
    for name, title in titles.items():
        case = load(name)
        pairs = {dtype: gaps(name, case, dtype) for dtype in GRADIENTS}
        cells = []
        for place, kind in enumerate(("output", "gradients")):
            for dtype, pair in pairs.items():
                gap = pair[place]
                cells.append("-" if gap is None else f"{gap:.1e}")
                allowed = GRADIENTS[dtype] if place else output_limit(name, case, dtype)
                found.setdefault((kind, dtype), [])
                found[kind, dtype] += [] if gap is None else [(gap, allowed)]
        shape = " x ".join(map(str, case[output].shape))
        rows.append([title, origin(case), shape, *cells])
    names = [f"{kind} {dtype.__name__}" for kind, dtype in found]
    report.table([heading, "upstream and commit", "shape of output", *names], rows)
    for (kind, dtype), each in found.items():
        gap, allowed = max(each, key=nearness)
        report.check(f"worst of these, {kind} in {dtype.__name__}", gap, allowed)


def nearness(pair: tuple[float, float]) -> float:
    """A gap over its limit; NaN is beyond every limit."""
    gap, allowed = pair
    return gap / allowed if gap == gap else float("inf")


def origin(case: Case) -> str:
    """Return the origin of a case: the upstream and its commit."""
    source = case["source"]
    commit = source["commit"].removesuffix("n/a")[:8]
    return f"{source['upstream']} {commit}".rstrip()
