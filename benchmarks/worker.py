"""The child process that measures: one for each number of threads.

python -m benchmarks.worker THREADS SECONDS: each line of JSON asks for a row, which is
measured and printed. Its environment sets what libraries read as they load.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from time import strftime

from benchmarks.results import Entrant, Record
from benchmarks.rows import ROOT, THREAD_VARIABLES, Spec, measure
from benchmarks.timing import far_off

#: glibc: large temporaries are kept, not given back and faulted in again by each
#: operation. Nobody is asked to know that, so everybody gets it. glibc does not take a
#: threshold of more than 32 MiB for what it maps, and gives back what an arena other
#: than the first has free: a dense form of XLA's takes three times as long with those.
TUNED = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_TRIM_THRESHOLD_": str(2**34),
}
#: A peer this many times as slow as the fastest of its kind at a shorter length is left
#: out at these lengths, where a call takes seconds.
TOO_FAR, LONG = 1.15, 2048
FAR_BEHIND = "far behind at a shorter length"


def environment(threads: int) -> dict[str, str]:
    return os.environ | TUNED | dict.fromkeys(THREAD_VARIABLES, str(threads))


def records(
    specs: Sequence[Spec], budget: float, known: Iterable[Record] = ()
) -> Iterator[Record]:
    """Measures rows in children; one that dies costs its row and no other.

    `known` are rows measured before, from which it is known who is far behind.
    """
    before = list(known)
    for threads in sorted({spec.threads for spec in specs}):
        left = [spec for spec in specs if spec.threads == threads]
        while left:
            done = 0
            for record in run_child(left, budget, before):
                before.append(record)
                yield record
                done += 1
            if done < len(left):
                print(f"{left[done].label}: the process ended", file=sys.stderr)
            left = left[done + 1 :]


def run_child(
    specs: Sequence[Spec], budget: float, before: Sequence[Record]
) -> Iterator[Record]:
    """Rows of one child, each asked for when the one before it has come."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.worker", str(specs[0].threads), str(budget)],
        cwd=ROOT,
        env=environment(specs[0].threads),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        for spec in specs:
            far = far_behind(spec, before)
            names = {x["name"] for x in far}
            left = tuple(name for name in spec.peers if name not in names)
            asked = json.dumps(asdict(replace(spec, peers=left)))
            print(asked, file=child.stdin, flush=True)
            line = child.stdout.readline()
            if not line:
                return
            record = json.loads(line)
            record["entrants"] += far
            yield record


def far_behind(spec: Spec, before: Sequence[Record]) -> list[Entrant]:
    """Peers that shorter rows of the same have shown to be far off."""
    same = [
        row
        for row in before
        if (row["scheme"], row["is_causal"], row["mode"], row["threads"])
        == (spec.scheme, spec.is_causal, spec.mode, spec.threads)
        and row["shape"][2] < spec.shape[2]
    ]
    if spec.shape[2] < LONG or not same:
        return []
    longest = max(same, key=lambda row: int(row["shape"][2]))
    peers = {x["name"]: x for x in longest["entrants"][1:]}
    kinds = {name: x["ready_made"] for name, x in peers.items()}
    seconds = {name: x["seconds"] for name, x in peers.items() if "seconds" in x}
    far = far_off(seconds, kinds, TOO_FAR)
    far |= {name for name, x in peers.items() if x.get("skipped") == FAR_BEHIND}
    return [
        {"name": name, "ready_made": kind, "skipped": FAR_BEHIND}
        for name, kind in kinds.items()
        if name in far and name in spec.peers
    ]


def main() -> None:
    threads, budget = int(sys.argv[1]), float(sys.argv[2])
    if hasattr(os, "sched_setaffinity"):  # macOS has none
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[-threads:])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    for line in sys.stdin:
        record = measure(Spec.of(json.loads(line)), budget)
        record["date"] = strftime("%Y-%m-%d %H:%M")
        print(json.dumps(record), file=answers, flush=True)


if __name__ == "__main__":
    main()
