"""A row: one problem, relpos and all peers that compute it, checked, then timed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from benchmarks import timing
from benchmarks.ours import RELPOS, exact_results, largest_error
from benchmarks.peers import PEERS, Peer, Skipped
from benchmarks.peers.base import Work
from benchmarks.problems import SCHEMES, Problem, problem_of
from benchmarks.results import Entrant, Figures, Record

ROOT = Path(__file__).resolve().parents[1]
#: What libraries read once, when they are loaded.
THREAD_VARIABLES = (
    *timing.BLAS_THREAD_VARIABLES,
    "OMP_NUM_THREADS",
    "RELPOS_NUM_THREADS",
)

#: Largest error of a float32 result, over its norm, that is worth timing.
ERROR_LIMIT = 1e-5
#: What a first call does once is lost in so many seconds.
LONG_CALL = 0.2
WAYS = {"fwd": "forward", "bwd": "backward", "fwdbwd": "forward+backward"}


@dataclass(frozen=True)
class Spec:
    """Fields of a row; `shape` is batch, heads, length, dim, `peers` are names."""

    scheme: str
    is_causal: bool
    mode: str
    shape: tuple[int, int, int, int]
    threads: int = 1
    peers: tuple[str, ...] = ()

    @classmethod
    def of(cls, fields: dict[str, Any]) -> Spec:
        batch, heads, length, dim = fields["shape"]
        shape = batch, heads, length, dim
        peers = tuple(fields["peers"])
        return cls(**fields | {"shape": shape, "peers": peers})

    @property
    def label(self) -> str:
        direction = " causal" if self.is_causal else ""
        threads = f", {self.threads} threads" if self.threads > 1 else ""
        shape = ",".join(map(str, self.shape))
        return f"{self.scheme}{direction} {self.mode} {shape}{threads}"


def prepare(peer: Peer, case: Problem, spec: Spec) -> Work:
    """Return the work of a peer; Skipped says why there is none."""
    if peer.package and importlib.util.find_spec(peer.package) is None:
        raise Skipped(f"needs {peer.package}")
    if spec.mode == "bwd" and peer is not RELPOS:
        raise Skipped("a backward alone is measured of relpos only")
    return peer.prepare(case, spec.mode, spec.threads)


def entry(peer: Peer, measure: Callable[[], Figures]) -> Entrant:
    """Return what is measured of a peer, or the reason why it is left out."""
    try:
        return {"name": peer.name, "ready_made": peer.ready_made, **measure()}
    except Skipped as reason:
        text = str(reason)
    except Exception as failure:  # noqa: BLE001 - another library's, which is named
        first_line = (str(failure).splitlines() or [""])[0]
        text = f"failed: {type(failure).__name__}: {first_line}"[:200]
    return {"name": peer.name, "ready_made": peer.ready_made, "skipped": text}


def checked(
    peers: Iterable[Peer], case: Problem, spec: Spec, clock: timing.Clock
) -> tuple[dict[str, Work], dict[str, float], list[Entrant]]:
    """Return works whose results are right, and the seconds of their calls, by peer.

    The last result has the error of each peer, or the reason why it is left out.
    """
    exact = exact_results(case, spec.mode, spec.threads)
    works: dict[str, Work] = {}
    seconds: dict[str, float] = {}

    def check(peer: Peer) -> Figures:
        work = prepare(peer, case, spec)
        start = clock()
        results = work()
        time = clock() - start
        error = largest_error(results, exact)
        if not error <= ERROR_LIMIT:  # nan is refused, too
            raise Skipped(f"wrong result, error {error:.1e}")
        if time < LONG_CALL:  # a first call compiles and loads: take the next one
            time = timing.seconds_of(work, 1, clock)
        works[peer.name], seconds[peer.name] = work, time
        return {"error": error}

    return works, seconds, [entry(peer, partial(check, peer)) for peer in peers]


def amount(spec: Spec, case: Problem) -> float:
    """Return the useful operations, or the bytes that decoding has to read."""
    if spec.mode == "decode":
        return float(sum(x.nbytes for x in case.read))
    return SCHEMES[spec.scheme].flops(case, WAYS[spec.mode])


def yardstick_of(spec: Spec, case: Problem, clock: timing.Clock) -> timing.Yardstick:
    """Return a measure of multiply-adds, or of reading what decoding reads."""
    if spec.mode == "decode":
        return timing.read_yardstick(case.read)
    return timing.fma_yardstick(timing.BEST_ISA, "float32", spec.threads, clock)


def measure(spec: Spec, budget: float) -> Record:
    """Return the row of the JSON file, timed for about `budget` seconds."""
    case = problem_of(spec.scheme, spec.is_causal, spec.shape, spec.mode)
    chosen = [RELPOS, *(peer for peer in PEERS if peer.name in spec.peers)]
    clock = process_time if spec.threads == 1 else perf_counter
    works, seconds, entrants = checked(chosen, case, spec, clock)
    samples = timing.alternate(
        works,
        yardstick_of(spec, case, clock),
        clock,
        budget,
        spec.threads,
        first=seconds,
        kinds={peer.name: (peer is RELPOS, peer.ready_made) for peer in chosen},
    )
    useful = amount(spec, case)
    for n, entrant in enumerate(entrants):
        if entrant["name"] in samples:
            measured = figures(samples[entrant["name"]], useful)
            entrants[n] = {**entrant, **measured}
    return {
        "scheme": spec.scheme,
        "is_causal": spec.is_causal,
        "mode": spec.mode,
        "shape": list(spec.shape),
        "threads": spec.threads,
        "peers": [],  # the entrants say which
        "label": spec.label,
        "useful": useful,
        "entrants": entrants,
    }


def figures(samples: timing.Samples, useful: float) -> Figures:
    """Return the seconds of an entrant, its share of the peak, and counts."""
    return {
        "seconds": samples.seconds,
        "share": useful / samples.cost,
        "kept": len(samples.kept),
        "tried": len(samples.kept) + len(samples.dropped),
    }
