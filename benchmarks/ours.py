"""relpos as one of the entrants, and the results that all are compared with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.peers.base import Peer, Work
from benchmarks.problems import Problem, largest_error as largest_error
from benchmarks.timing import Array


def prepare(case: Problem, mode: str, threads: int) -> Work:
    """Return calls of the scheme's function; "bwd" is the backward of one forward."""
    if mode == "bwd":
        return case.bind_backward(threads, case.grad_out)
    if mode == "fwdbwd":
        with_context = case.call(threads, return_context=True)

        def both() -> dict[str, Array]:
            result = with_context()
            return {"out": result.out, **case.gradients(result, threads, case.grad_out)}

        return both
    call = case.call(threads)

    def forward() -> dict[str, Array]:
        return {"out": call()}

    return forward


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
        exact.check_backward(threads, exact.function)
    return results
