"""Show by Frama-C that no integer of a plan overflows within the limits of problems.h.

    python tests/proofs/overflow.py [--double] [--positions] [--tree TREE]

overflow.c has the calls that its value analysis (Eva) follows, over every problem that
problem.h makes. The output says which functions it followed, what it relied on without
showing it, and what it did not look at. The exit status is 1 if it found anything that
is not in `KNOWN`, or no longer finds what is.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
HERE = "tests/proofs"
COMPILER = "gcc"
PREPROCESSED = (
    "-E -C -D__FC_MACHDEP_GCC_X86_64 -D__FRAMAC__ -nostdinc"
    " -isystem /usr/share/frama-c/libc"
)
#: A loop is followed 12 times before its variables are taken to be any numbers: there
#: are at most 8 chunks. Annotations of the C library that it cannot read are left out.
ANALYSIS = (
    "-machdep gcc_x86_64 -kernel-warn-key annot-error=inactive -eva"
    " -eva-widening-delay 12 -eva-no-results -eva-show-progress"
    " -warn-signed-overflow -warn-signed-downcast"
)
#: Spellings of vectors that it has no grammar for, each with one that it reads.
SPELLINGS = ((r"^#pragma.*$", ""), (r"\)\[0\]", ")"), (r"\bslope\[0\]", "slope"))


class Finding(NamedTuple):
    """An alarm: the header below csrc/kernels, the function, and what is not shown."""

    path: str
    function: str
    text: str


#: What Eva cannot show, since it keeps an interval of each variable and no relation
#: between two; and why it holds. Assertions are looked at in builds for debugging.
KNOWN = {
    Finding("attention/sight.h", "rp_visible", "v.begin <= v.end && v.end <= p->Lk"):
        "both are cut to the keys, and either to the other",
    Finding("attention/tiles/plan.h", "plan_paths", "plan->group > 0"):
        "Hk divides H",
    Finding("graph/backward.h", "plan_graph_wave", "gg->sharing > 0"):
        "groups divide H, and there are heads",
    Finding("attention/rows/forward.h", "plan_rows", "plan->rows > 0"):
        "Hk divides H, and there are queries",
    Finding("attention/tiles/shown.h", "start_tile", "0 < width && width < count + NR"):
        "its keys lie in the tile, and j0 less than NR before them",
    Finding("attention/tiles/backward/plan.h", "plan_chunks",
            "gp->chunks <= RP_CHUNKS"):
        "a chunk has at least its share of the keys",
    Finding("attention/tiles/partials.h", "window_queries",
            "low <= middle && middle < high"):
        "the middle of an interval",
    Finding("attention/tiles/partials.h", "plan_queries",
            "0 <= rows && rows <= RP_CHUNKS * gp->plan.Lq_pad"):
        "a chunk adds at most all queries",
    Finding("attention/tiles/partials.h", "plan_partial",
            "0 <= next && next <= RP_CHUNKS * rows"):
        "a chunk adds at most all rows",
    Finding("attention/tiles/waves.h", "lay_out_tables", r"\valid_read(&t->heads)"):
        "the first `table_count` tables are set",
    Finding("attention/tiles/waves.h", "lay_out_tables", r"\valid_read(&t->batches)"):
        "the first `table_count` tables are set",
    Finding("attention/tiles/waves.h", "wave_of", "signed downcast"):
        "beyond_memory refuses a problem with so many bytes",
}  # fmt: skip
#: Those that are found where sizes are planned, which `--positions` leaves out.
OF_SIZES = ("plan_rows", "lay_out_tables", "wave_of")
#: What is not looked at.
UNREAD = """\
csrc/python/*.c: they include Python.h and NumPy's headers
csrc/runtime/*.c: threads, memory and large products; overflow.c has its own rp_multiply
csrc/kernels/dense, encodings and ufuncs.h: loops of gufuncs, whose arrays are in memory
rp_at, trim_table: products with strides, which lead to memory that there is
sizes of lengths that are all near RP_LONGEST: beyond_memory, which computes in double,
    refuses them; overflow.c has boxes of lengths, each with one as large as it may be
unsigned sizes of bytes: arena.h multiplies them by rp_multiply"""


class Report(NamedTuple):
    """Alarms, functions and statements of one analysis."""

    findings: set[Finding]
    functions: set[str]
    statements: tuple[int, int]  # reached, of those in these functions


def available() -> bool:
    """Return True if Frama-C and gcc are installed."""
    return all(map(shutil.which, ("frama-c", COMPILER)))


def preprocessed(tree: Path, is_double: bool, positions: bool) -> str:
    """Return overflow.c with all its headers, as Frama-C reads it."""
    numbers = f"-DRP_IS_F32={int(not is_double)}"
    parts = f"-DPOSITIONS_ALONE={int(positions)}"
    command = [COMPILER, *PREPROCESSED.split(), numbers, parts]
    text = subprocess.run(
        [*command, f"{HERE}/overflow.c"],
        check=True, cwd=tree, stdout=subprocess.PIPE, text=True,
    ).stdout  # fmt: skip
    for spelling, readable in SPELLINGS:
        text = re.sub(spelling, readable, text, flags=re.MULTILINE)
    return text


def analysis(tree: Path, is_double: bool, positions: bool) -> str:
    """Run Frama-C; return its log."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "overflow.i")
        source.write_text(preprocessed(tree, is_double, positions))
        done = subprocess.run(
            ["frama-c", *ANALYSIS.split(), source],
            check=False, cwd=tree, capture_output=True, text=True,
        )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"frama-c failed:\n{done.stdout[-3000:]}{done.stderr}")
    return done.stdout


def finding(tree: Path, path: str, line: int, words: str) -> Finding:
    """Return an alarm by names and text, as lines move with each edit."""
    lines = (tree / path).read_text().splitlines()
    before = (re.match(r"(\w+)\(", text) for text in reversed(lines[:line]))
    function = next(match[1] for match in before if match)
    text = " ".join(words.split())
    if text.startswith("function fails"):
        rest = " ".join(" ".join(lines[line - 1 :][:4]).split())
        text = rest.removeprefix("rp_assert(").partition(");")[0]
    elif text.startswith("signed downcast"):
        text = "signed downcast"
    else:
        text = text.partition(" assert ")[2].partition(";")[0] or text
    return Finding(path.removeprefix("csrc/kernels/"), function, text)


def report(tree: Path, log: str) -> Report:
    """Read a log."""
    alarms = re.findall(
        r"^\[eva:alarm\] (\S+?):(\d+): Warning:\s*\n((?:  .*\n)+)", log, re.MULTILINE
    )
    reached = re.search(r"(\d+) statements reached \(out of (\d+)\)", log)
    if reached is None:
        raise RuntimeError(f"frama-c gave no summary:\n{log[-3000:]}")
    driver = "\n".join(path.read_text() for path in (tree / HERE).glob("*.[ch]"))
    own = set(re.findall(r"^(?:\w+ )?(\w+)\(", driver, re.MULTILINE))
    return Report(
        {finding(tree, path, int(line), words) for path, line, words in alarms},
        set(re.findall(r"computing for function (\w+)", log)) - own,
        (int(reached[1]), int(reached[2])),
    )


def analysed(tree: Path, is_double: bool = False, positions: bool = False) -> Report:
    """Analyse a tree."""
    return report(tree, analysis(tree, is_double, positions))


def expected(positions: bool) -> set[Finding]:
    """Return what of `KNOWN` an analysis is to find."""
    return {x for x in KNOWN if not positions or x.function not in OF_SIZES}


def faults(found: Report, positions: bool = False) -> list[str]:
    """Return what is wrong, one line for each."""
    known = expected(positions)
    lines = [f"not shown: {': '.join(x)}" for x in sorted(found.findings - known)]
    gone = sorted(known - found.findings)
    lines += [f"no longer found: {': '.join(x)}" for x in gone]
    reached, statements = found.statements
    if reached < statements:
        lines.append(f"reached {reached} of {statements} statements")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was followed, what was relied on, and what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tree", type=Path, default=ROOT, help="the sources")
    parser.add_argument("--double", action="store_true", help="kernels of float64")
    parser.add_argument("--positions", action="store_true", help="without sizes")
    asked = parser.parse_args(arguments)
    found = analysed(asked.tree.resolve(), asked.double, asked.positions)
    print(f"{len(found.functions)} functions were followed:")
    print(*sorted(found.functions), sep=", ")
    print("\nrelied on, and not shown:")
    for what in sorted(found.findings & KNOWN.keys()):
        print(f"{': '.join(what)}: {KNOWN[what]}")
    print(f"\nnot looked at:\n{UNREAD}\n")
    wrong = faults(found, asked.positions)
    print(*wrong or ["no signed integer overflows"], sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
