"""Extra memory of relpos and its peers, each in a process of its own.

python -m benchmarks.memory: reads a JSON object of a `name` and `specs`, prints a line
of JSON for each: bytes at the peak beyond the inputs and the results, index tensors and
all that is made for a shape included. glibc gives back what is freed, at once.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from subprocess import CalledProcessError
from typing import Any

from benchmarks import rows
from benchmarks.ours import RELPOS
from benchmarks.peers import PEERS, Peer
from benchmarks.problems import problem_of
from benchmarks.results import Entrant, Figures, Record
from benchmarks.rows import Spec
from benchmarks.timing import in_child, with_memory

WARM_LENGTH = 32
#: Blocks from so many bytes on are mapped, each for itself.
GIVING = {"MALLOC_MMAP_THRESHOLD_": str(2**16)}


def extra(peer: Peer, spec: Spec) -> Figures:
    """Bytes of one call, after what is loaded once has been loaded."""
    batch, heads, length, dim = spec.shape
    short = length if peer.compiled else WARM_LENGTH
    warm = problem_of(
        spec.scheme, spec.is_causal, (batch, heads, short, dim), spec.mode
    )
    rows.prepare(peer, warm, spec)()
    del warm
    case = problem_of(spec.scheme, spec.is_causal, spec.shape, spec.mode)
    gc.collect()  # cycles of the call before hold what it used

    def prepared_and_called() -> dict[str, Any]:
        return rows.prepare(peer, case, spec)()

    results, more = with_memory(prepared_and_called)
    if more is None:  # a system on which the peak is not known
        return {"bytes": None}
    held = sum(x.nbytes for x in results.values())
    return {"bytes": max(more - held, 0)}


def run_child(name: str, specs: Sequence[Spec]) -> Iterator[Entrant]:
    """One peer's entries, as far as the process comes."""
    request = {"name": name, "specs": [asdict(spec) for spec in specs]}
    environment = os.environ | dict.fromkeys(rows.THREAD_VARIABLES, "1") | GIVING
    with suppress(CalledProcessError):
        yield from in_child(
            "benchmarks.memory",
            json.dumps(request),
            environment=environment,
            folder=rows.ROOT,
        )


def records(specs: Sequence[Spec]) -> list[Record]:
    """A row for each, all peers in it."""
    records_of_specs: list[Record] = []
    for spec in specs:
        fields: Any = asdict(spec) | {"label": spec.label, "entrants": []}
        records_of_specs.append(fields)
    for peer in (RELPOS, *PEERS):
        numbers = [n for n, s in enumerate(specs) if peer.name in ("relpos", *s.peers)]
        if not numbers:
            continue
        # Not strict: a child that dies leaves out its last entries.
        entries = run_child(peer.name, [specs[n] for n in numbers])
        for n, entrant in zip(numbers, entries, strict=False):
            records_of_specs[n]["entrants"].append(entrant)
    return records_of_specs


def main() -> None:
    request = json.loads(sys.argv[1])
    peer = next(each for each in (RELPOS, *PEERS) if each.name == request["name"])
    for fields in request["specs"]:
        entrant = rows.entry(peer, partial(extra, peer, Spec.of(fields)))
        print(json.dumps(entrant), flush=True)


if __name__ == "__main__":
    main()
