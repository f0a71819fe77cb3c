"""Counts the lines of the kernels and the runtime that the programs of tests/core run.

    python tests/tools/covered_core.py
    python tests/tools/covered_core.py --seeds 500 --least 98.5

gcc and gcov are needed. One program with the objects of all instruction sets of this
CPU, in both number types, runs random problems in several ways (tests/core/core.c),
without Python. A line counts as run if any object ran it. Printed are the files with
lines that did not run, these lines, and the share of those that ran. EXCEPTIONS names
what no program of this kind can run: such lines are counted apart. The exit status is 1
if the share is below `--least` percent, or if a function of EXCEPTIONS ran in full.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from copied import ROOT
from covered import read_counts
from mutations import function_before

sys.path.append(str(ROOT / "tests" / "core"))
import harness

FOLDERS = ("csrc/kernels/", "csrc/runtime/")
FLAGS = "-O0 -w --coverage -fprofile-update=atomic"
INVALID = "what problems.h does not allow ends there, and no problem of these is so"
MACHINE = "the CPUs, the groups and the memory of this machine lead elsewhere"
LENGTH = "no length of a valid problem leads to rows of more than 2^48 numbers"
#: By file and function, why no program of tests/core runs it, or some lines of it.
EXCEPTIONS = {
    "csrc/kernels/conditions.h": dict.fromkeys(
        ("is_apart", "is_spread", "begin_apart", "is_decay_finite"),
        INVALID,
    ),
    "csrc/kernels/graph/backward.h": {"graph_backward": LENGTH},
    "csrc/kernels/graph/forward.h": {"graph_forward": LENGTH},
    "csrc/runtime/memory.c": {"rp_alloc": MACHINE},
    "csrc/runtime/parallel.c": {
        "after_fork_in_child": "behind it, gcov counts anew in a forked process"
    },
    "csrc/runtime/threads.c": dict.fromkeys(
        (
            "threads_from_affinity",
            "read_line",
            "quota_of_directory",
            "quota_of_group",
            "threads_from_quota",
        ),
        MACHINE,
    ),
    "csrc/runtime/gemm.c": {
        "blas_suits": "the programs are built without OpenBLAS",
        "blas_unit": "the programs are built without OpenBLAS",
        "rp_gemm": "the programs are built without OpenBLAS",
    },
}


class Share(NamedTuple):
    """Lines of the files, by whether a program ran them."""

    ran: int
    #: By file.
    missed: dict[str, list[int]]
    #: By file and function of EXCEPTIONS, how many lines did not run.
    excused: dict[tuple[str, str], int]

    @property
    def percent(self) -> float:
        """Share of the lines that ran."""
        missed = sum(map(len, self.missed.values()))
        return 100 * self.ran / max(1, self.ran + missed)


def count_runs(folder: Path, seeds: int) -> dict[str, dict[str, Any]]:
    """Build the program, run it, and return the counts of read_counts."""
    names = harness.objects_of(ROOT)
    build = harness.Build(folder / "build", ROOT, "gcc", FLAGS)
    program = build.program("core", build.objects(names), names)
    counts = folder / "counts"
    environment = os.environ | {"GCOV_PREFIX": str(counts)}
    runs = [
        [1, seeds, "every"],
        [1 + seeds, seeds, "guard", "nanfill", "every"],
        ["race", 3, 20],
    ]
    for words in [["runtime"], *(["all", "all", *run] for run in runs)]:
        # a wrong result, which the program reports, does not change what ran
        subprocess.run(
            [program, *map(str, words)],
            check=False,
            env=environment,
            stdout=subprocess.DEVNULL,
        )
    return read_counts(ROOT, counts)


def share_of(counts: dict[str, dict[str, Any]]) -> Share:
    """Return the lines that ran, and those that did not."""
    ran = 0
    missed: dict[str, list[int]] = {}
    excused = {(name, x): 0 for name in EXCEPTIONS for x in EXCEPTIONS[name]}
    for name in sorted(counts):
        if not name.startswith(FOLDERS):
            continue
        text = (ROOT / name).read_text(encoding="utf-8").splitlines(keepends=True)
        for number, row in sorted(counts[name].items(), key=lambda x: int(x[0])):
            before = "".join(text[: int(number)])
            place = name, function_before(before, len(before))
            if row[0] > 0:
                ran += 1
            elif place in excused:
                excused[place] += 1
            else:
                missed.setdefault(name, []).append(int(number))
    return Share(ran, missed, excused)


def main() -> int:
    """Print which lines do not run, and the share of those that do."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1500, help="of each way to run")
    parser.add_argument("--least", type=float, default=0.0, help="percent of the lines")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        share = share_of(count_runs(Path(folder).resolve(), asked.seeds))
    for name, lines in share.missed.items():
        text = (ROOT / name).read_text(encoding="utf-8").splitlines()
        print(f"{name}: {len(lines)} lines did not run")
        for line in lines:
            print(f"  {line:4} {text[line - 1]}")
    for (name, function), count in share.excused.items():
        reason = EXCEPTIONS[name][function]
        print(f"{name}: {count} lines of {function}: {reason}")
    total = share.ran + sum(map(len, share.missed.values()))
    print(f"{share.percent:.2f} % of {total} other lines ran")
    is_stale = 0 in share.excused.values()
    return int(is_stale or share.percent < asked.least)


if __name__ == "__main__":
    sys.exit(main())
