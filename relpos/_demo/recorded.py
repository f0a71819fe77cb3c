"""Step 4: recorded attention cores of public implementations, repeated with relpos.

A file of relpos/data has what entered an upstream attention core (projected query,
key and value, tables as upstream stores them, the mask as `allowed`) and its context,
all in float64, and names the upstream. Some files also have a gradient `d_context` and
the gradients `d_*` that follow from it. Some are of one head or one item of a batch,
with the gradients that depend on nothing else. cores.py and models.py say how
the conventions of each map to those of relpos.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.resources import as_file, files
from typing import Any

import numpy as np

import relpos
from relpos._catalogue.rows import Array, Limits, cast
from relpos._demo import models
from relpos._demo.cores import CORES, Case
from relpos._demo.report import TEXTS, Report

__all__ = ["CASES", "Case", "largest", "load", "recorded", "repeat"]

CASES = CORES | models.CORES
Gaps = tuple[float, float | None]  # of output and gradients

# Recorded values carry the rounding of their makers, and of the tables they computed.
OUTPUT_FLOAT64 = 1e-12
DRAWS = 4
GRADIENTS: Limits = {np.float64: 1e-10, np.float32: 6e-6}


def load(name: str) -> Case:
    """Return the arrays of a case, and `source`: upstream, commit, object."""
    with as_file(files("relpos") / "data" / f"{name}.npz") as path, np.load(path) as f:
        case: Case = {key: f[key] for key in f.files}
    case["source"] = json.loads(str(case["source"]))
    return case


def differences(name: str, case: Case, dtype: type) -> Gaps:
    """Return the largest differences to the recorded context and gradients."""
    known, core = cast(case, dtype), CASES[name]
    result = core.run(known)
    gap = float(np.abs(result.out - case["context"]).max())
    if "d_context" not in case:
        return gap, None
    found = core.backward(result, known)
    wanted = {name[2:]: x for name, x in case.items() if name.startswith("d_")}
    del wanted["context"]
    return gap, float(np.max([largest(found[n], x) for n, x in wanted.items()]))


def limit(name: str, case: Case, dtype: type) -> float:
    """Return the largest error that rounding explains in the output of a case.

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

    def moved(x: Any) -> Any:
        if getattr(x, "dtype", None) != np.float64:
            return x
        return x * (1 + size * rng.choice([-1, 1], x.shape))

    exact = CASES[name].run(case).out
    changed = [{key: moved(x) for key, x in case.items()} for _ in range(DRAWS)]
    outputs = [CASES[name].run(each).out for each in changed]
    return float(np.max([np.abs(out - exact).max() for out in outputs]))


def largest(got: Array, wanted: Array) -> float:
    """Return the largest difference over the largest number that is wanted."""
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def recorded(report: Report) -> None:
    """Compare every core in float64 and float32."""
    report.begin("recorded")
    report.say("stored")
    report.say("picture")
    report.picture("attention", maps=with_and_without())
    report.covers(count=len(CASES))
    repeat(report, "scheme", [*CASES], differences, "context", limit)


def repeat(
    report: Report,
    heading: str,
    names: Sequence[str],
    gaps: Callable[[str, Case, type], Gaps],
    output: str,
    output_limit: Callable[[str, Case, type], float],
) -> dict[str, list[float | None]]:
    """Add a table of recorded cases and return the gaps of each column.

    The gap of a column that comes nearest to its limit is checked.
    """
    columns: dict[str, list[float | None]] = {}
    limited: dict[str, list[tuple[float, float]]] = {}
    rows = []
    for name in names:
        title = TEXTS["cases"][name]
        report.progress(f"repeating {title}")
        case = load(name)
        pairs = {dtype: gaps(name, case, dtype) for dtype in GRADIENTS}
        cells = []
        for number, kind in enumerate(("output", "gradients")):
            for dtype, pair in pairs.items():
                gap, column = pair[number], f"{kind} {dtype.__name__}"
                cells.append("-" if gap is None else f"{gap:.1e}")
                columns.setdefault(column, []).append(gap)
                if gap is not None:
                    most = (
                        GRADIENTS[dtype] if number else output_limit(name, case, dtype)
                    )
                    limited.setdefault(column, []).append((gap, most))
        shape = " x ".join(map(str, case[output].shape))
        rows.append([title, origin(case), shape, *cells])
    header = [heading, "upstream and commit", "shape of output", *columns]
    report.table("table", header, rows)
    for column, each in limited.items():
        gap, allowed = max(each, key=nearness)
        kind, dtype_name = column.split()
        report.check(f"worst of these, {kind} in {dtype_name}", gap, allowed)
    return columns


def nearness(pair: tuple[float, float]) -> float:
    """Return a gap over its limit; NaN is beyond every limit."""
    gap, allowed = pair
    return gap / allowed if gap == gap else float("inf")


def origin(case: Case) -> str:
    """Return the upstream of a case and its commit."""
    source = case["source"]
    commit = source["commit"].removesuffix("n/a")[:8]
    return f"{source['upstream']} {commit}".rstrip()


def with_and_without() -> dict[str, Any]:
    """Return the weights of a head of the recorded Transformer-XL, by a title."""
    case = load("transformer_xl_memory")
    common: dict[str, Any] = {name: case[name] for name in ("query", "key", "value")}
    common.update(is_causal=True, query_offset=16, return_weights=True)
    terms = {name: case[name] for name in ("rel_key", "pos_bias_u", "pos_bias_v")}
    with_terms: Any = relpos.transformer_xl_attention(**common, **terms)
    without: Any = relpos.attention(**common)
    weights = with_terms.weights[0, 0], without.weights[0, 0]
    return dict(zip(("with the relative terms", "without them"), weights, strict=True))
