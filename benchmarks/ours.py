"""Relpos as one of those that are asked, and the results that all are held against."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import relpos
from benchmarks.case import Case, problem_of
from benchmarks.peers.base import Peer, Work
from relpos._bench.harness import Array
from relpos._bench.problems import SCHEMES, Problem
from relpos._catalogue.schemes import scheme_called

__all__ = ["RELPOS", "exact_results", "largest_error"]


def prepare(case: Case, mode: str, threads: int) -> Work:
    """Calls of the scheme's own function; "bwd" is the backward of one forward."""
    function: Any = getattr(relpos, scheme_called(SCHEMES[case.scheme].name).call)
    keywords = {**case.arrays, "is_causal": case.is_causal, **case.options}
    keywords["num_threads"] = threads

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


def exact_results(case: Case, mode: str, threads: int) -> dict[str, Array]:
    """What a case gives in float64, by relpos held against its definitions.

    Definitions build all pairs at once, so only some queries of a long sequence are
    asked of them; `Problem` says how they vouch for the whole.
    """
    batch, heads, _, dim = case.arrays["query"].shape
    shape = batch, heads, case.arrays["key"].shape[-2], dim
    problem = problem_of(case.scheme, case.is_causal, shape, mode, "float64")
    arrays = {name: x.astype(np.float64) for name, x in case.arrays.items()}
    problem = replace(problem, arrays=arrays)
    grad_out = case.grad_out.astype(np.float64)
    exact = replace(case, arrays=arrays, grad_out=grad_out)
    results = prepare(exact, mode, threads)()
    vouch(problem, results, mode, threads, grad_out)
    return results


def vouch(
    problem: Problem,
    results: dict[str, Array],
    mode: str,
    threads: int,
    grad_out: Array,
) -> None:
    """End the program where the definitions do not give these results."""
    if "out" in results:
        problem.check(results["out"], problem.function)
    if mode in ("bwd", "fwdbwd"):
        problem.check_backward(threads, grad_out, problem.function)


def largest_error(found: dict[str, Array], wanted: dict[str, Array]) -> float:
    """The largest error of a result over its norm; infinity where one is missing."""
    if found.keys() != wanted.keys():
        return np.inf
    gaps = [
        np.linalg.norm(found[name] - want) / np.linalg.norm(want)
        for name, want in wanted.items()
    ]
    return float(np.max(gaps))
