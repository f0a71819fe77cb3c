"""relpos as one of the entrants, and the results that all are compared with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import relpos
from benchmarks.peers.base import Peer, Work
from benchmarks.problems import Problem
from benchmarks.timing import Array


def prepare(case: Problem, mode: str, threads: int) -> Work:
    """Return calls of the scheme's function; "bwd" is the backward of one forward."""
    function: Any = getattr(relpos, case.function)
    keywords = {**case.arrays, **case.options, "num_threads": threads}

    def gradients(context: Any) -> dict[str, Array]:
        found = context.backward(case.grad_out, num_threads=threads)
        return {name: getattr(found, name) for name in case.arrays}

    def forward() -> dict[str, Array]:
        return {"out": function(**keywords)}

    def both() -> dict[str, Array]:
        made = function(**keywords, return_context=True)
        return {"out": made.out, **gradients(made.context)}

    if mode == "fwdbwd":
        return both
    if mode != "bwd":
        return forward
    context = function(**keywords, return_context=True).context
    return lambda: gradients(context)


RELPOS = Peer("relpos", False, None, prepare)


def exact_results(case: Problem, mode: str, threads: int) -> dict[str, Array]:
    """Return the results of a case in float64, by relpos.

    They are compared with the definitions, which build all pairs at once: `Problem`
    says how some queries of a long sequence stand for the whole. A difference ends the
    program.
    """
    arrays = {name: x.astype(np.float64) for name, x in case.arrays.items()}
    exact = replace(case, arrays=arrays)
    results = prepare(exact, mode, threads)()
    if "out" in results:
        exact.check(results["out"], exact.function)
    if mode in ("bwd", "fwdbwd"):
        exact.check_backward(threads, exact.grad_out, exact.function)
    return results


def largest_error(found: dict[str, Array], wanted: dict[str, Array]) -> float:
    """Return the largest error over a result's norm; infinity where one is missing."""
    if found.keys() != wanted.keys():
        return np.inf
    gaps = [
        np.linalg.norm(found[name] - want) / np.linalg.norm(want)
        for name, want in wanted.items()
    ]
    return float(np.max(gaps))
