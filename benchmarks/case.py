"""What relpos and its peers are asked for: arrays, options, the result's gradient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relpos._bench.harness import Array
from relpos._bench.problems import SCHEMES, Problem

__all__ = ["MODES", "Case", "make_case", "problem_of"]

#: A backward alone is relpos's only: what else a forward keeps for it differs too much.
MODES = ("fwd", "bwd", "fwdbwd", "decode")


@dataclass(frozen=True)
class Case:
    """One call: `arrays` by the argument names of relpos's function of the scheme.

    `scheme` is a name or synonym of the catalogue; `options` are further arguments, as
    `query_offset` when decoding.
    """

    scheme: str
    is_causal: bool
    arrays: dict[str, Array]
    options: dict[str, Any]
    grad_out: Array


def problem_of(
    scheme: str, is_causal: bool, shape: Sequence[int], mode: str, dtype: str
) -> Problem:
    """The same call as relpos's own benchmark has it, which checks its results."""
    batch, heads, length, dim = shape
    queries = 1 if mode == "decode" else None
    return SCHEMES[scheme].build(
        length, dtype, is_causal, heads, batch=batch, dim=dim, queries=queries
    )


def make_case(scheme: str, is_causal: bool, shape: Sequence[int], mode: str) -> Case:
    """A case of float32 and shape (batch, heads, length, dim)."""
    problem = problem_of(scheme, is_causal, shape, mode, "float32")
    options = {n: x for n, x in problem.options.items() if n != "is_causal"}
    return Case(scheme, is_causal, problem.arrays, options, problem.grad_out())
