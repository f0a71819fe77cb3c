"""Interface of a peer of the benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.problems import Problem
from benchmarks.timing import Array

Work = Callable[[], dict[str, Array]]
Prepare = Callable[[Problem, str, int], Work]


class Skipped(Exception):
    """Reason for which a peer is left out of a row, such as "no backward on CPU"."""


@dataclass(frozen=True)
class Peer:
    """Something that computes a case.

    Attributes
    ----------
    name : str
        As tables say it: "sdpa_blocks_128".
    ready_made : bool
        Whether it is one call of a library's function, not a loop that one writes.
    package : str or None
        The import name of what it needs; where it is missing, the peer is named and
        skipped.
    prepare : callable
        (case, "fwd", "fwdbwd" or "decode", threads) to the work to be timed, which
        returns "out" and, of "fwdbwd", the gradients by the names of the case's arrays.
        Compilation, index tensors and conversions are done here, outside the time.
        Raises Skipped where the peer cannot do the case.
    compiled : bool
        Whether `prepare` takes seconds for each shape.
    """

    name: str
    ready_made: bool
    package: str | None
    prepare: Prepare
    compiled: bool = False
