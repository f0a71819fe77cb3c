"""Judges changes of the kernels by the programs of tests/core, for mutants.py.

Each number type of the plainest instruction set is an object of its own, with a program
of its own. All changes are in it, of which a variable of the environment chooses one
(variants.py), so that it is compiled once. What survives there is judged by those of
the wider instruction sets of this CPU, which use parts of the code that the plainest
one leaves out. equal_mutants.toml lists changes that no test can notice, or that
concern speed alone, by their place and with a reason.
"""

from __future__ import annotations

import functools
import os
import re
import resource
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from copied import ROOT
from mutations import Mutation, c_mutations, function_before
from variants import VARIABLE, numbers_in, write_variants

sys.path.append(str(ROOT / "tests" / "core"))
import harness

OBJECTS = ("base_f32", "base_f64")
#: Instruction sets with wider vectors, or more rows of a micro-tile, and the flags of
#: their CPUs.
WIDER = {
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
    "avx2": {"avx2", "fma"},
}
FLAGS = "-O1 -g0 -w"
#: What runs with sanitizers, which see a wrong address that changes no number. NULL + 0
#: is allowed.
SANITIZED = "base_f32"
SANITIZERS = (
    f"{FLAGS} -fsanitize=address,undefined -fno-sanitize=pointer-overflow"
    " -fno-sanitize-recover=undefined"
)
#: What the program runs, by the name of the step: a first seed, how many, and switches.
STEPS = {
    "random": ("1", "400"),
    "sanitized": ("1", "400"),
    "guard": ("60001", "1200", "guard", "nanfill"),
}
#: Seconds of CPU that a step may take: several times what the unchanged core takes.
LIMIT = 30
#: Only builds for debugging have these lines.
ASSERTIONS = "csrc/kernels/conditions.h"
LISTED = Path(__file__).with_name("equal_mutants.toml")
Row = dict[str, Any]


# ---- which mutants there are --------------------------------------------------------


def lines_of_objects() -> dict[str, set[int]]:
    """Return the lines of each file that the preprocessor leaves in the objects."""
    lines: dict[str, set[int]] = {}
    for name in OBJECTS:
        words = ["gcc", *harness.FLAGS.split(), "-E", f"csrc/isa/{name}.c"]
        done = subprocess.run(
            words, check=True, cwd=ROOT, capture_output=True, text=True
        )
        path, number = "", 0
        for line in done.stdout.splitlines():
            if marker := re.match(r'# (\d+) "(.*?)"', line):
                path, number = os.path.normpath(marker[2]), int(marker[1])
                continue
            if line.strip():
                lines.setdefault(path, set()).add(number)
            number += 1
    return lines


def core_mutations() -> list[Mutation]:
    """Return the mutations of the kernels that change an object of a release."""
    lines = lines_of_objects()
    found = []
    for path in sorted(ROOT.glob("csrc/kernels/**/*.h")):
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text(encoding="utf-8")
        rows = text.splitlines()
        for mutation in c_mutations(name, text):
            is_there = mutation.line in lines.get(name, ())
            if is_there and "rp_assert(" not in rows[mutation.line - 1]:
                found.append(mutation)
    return [mutation for mutation in found if mutation.path != ASSERTIONS]


class Place(NamedTuple):
    """A mutation as equal_mutants.toml names it, in lines without indentation."""

    path: str
    function: str
    old: str
    new: str


def place_of(mutation: Mutation, text: str) -> Place:
    """Return the place of a mutation of a file with this text."""
    first = text.rfind("\n", 0, mutation.start) + 1
    last = text.index("\n", mutation.end)
    old = text[first:last]
    new = text[first : mutation.start] + mutation.new + text[mutation.end : last]
    function = function_before(text, mutation.start)
    return Place(mutation.path, function, old.strip(), new.strip())


@functools.cache
def listed() -> dict[Place, str]:
    """Return the reasons why mutants survive, by their places."""
    rows = tomllib.loads(LISTED.read_text(encoding="utf-8")).get("mutant", [])
    return {
        Place(row["path"], row["function"], row["old"], row["new"]): row["reason"]
        for row in rows
    }


def reason_of(mutation: Mutation, tree: Path) -> str:
    """Return why a mutant survives, or nothing."""
    text = (tree / mutation.path).read_text(encoding="utf-8")
    return listed().get(place_of(mutation, text), "")


# ---- what the programs find ---------------------------------------------------------


def wider_objects() -> tuple[str, ...]:
    """Return the objects of all wider instruction sets of this CPU, if it is an x86."""
    path = Path("/proc/cpuinfo")
    has = set(path.read_text().split()) if path.exists() else set()
    names = [name for name, flags in WIDER.items() if flags <= has]
    return tuple(f"{name}_{dtype}" for name in names for dtype in ("f32", "f64"))


def limit_cpu() -> None:
    """Let the process that starts have a limited time: a change may make it endless."""
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 5))


class Programs:
    """The program of each object of a tree, with all mutations but refused ones."""

    def __init__(self, tree: Path, mutations: list[Mutation]) -> None:
        self.tree = tree
        self.objects = (*OBJECTS, *wider_objects())
        self.numbers = {mutation.key: n for n, mutation in enumerate(mutations)}
        self.mutations = dict(enumerate(mutations))
        self.built: dict[tuple[str, str], Path] = {}
        for name in OBJECTS:
            unchanged = run_program(self.program(name, FLAGS), *STEPS["random"])
            if unchanged["verdict"] != "survived":
                raise RuntimeError(f"the unchanged core fails: {unchanged['by']}")

    def judge(self, mutation: Mutation) -> Row:
        """Run the programs until one fails.

        An object is compiled only if the first step finds nothing in those before it.
        """
        number = self.numbers[mutation.key]
        for step, words in STEPS.items():
            is_sanitized = step == "sanitized"
            flags = SANITIZERS if is_sanitized else FLAGS
            for name in (SANITIZED,) if is_sanitized else self.objects:
                program = self.program(name, flags)  # may find that it is refused
                if number not in self.mutations:
                    return {"verdict": "invalid", "by": "", "cases": ""}
                row = run_program(program, *words, number=number)
                if row["verdict"] != "survived":
                    return row | {"by": f"{name}: {row['by']}", "cases": step}
        return {"verdict": "survived", "by": "", "cases": ""}

    def program(self, name: str, flags: str) -> Path:
        """Build the program of an object, unless it was, without what is refused."""
        while (name, flags) not in self.built:
            folder = self.tree / "build" / f"variants{len(self.built)}"
            sources = write_variants(self.tree, folder / "sources", self.mutations)
            build = harness.Build(folder, sources, "gcc", flags)
            try:
                made = build.program("core", build.objects([name]), [name])
                self.built[name, flags] = made
            except RuntimeError as error:
                refused = numbers_in(str(error)) & self.mutations.keys()
                if not refused:
                    raise
                for number in refused:
                    del self.mutations[number]
        return self.built[name, flags]


def run_program(program: Path, *words: str, number: int | None = None) -> Row:
    """Return what became of a program's problems, with a mutation or without."""
    chosen = {} if number is None else {VARIABLE: str(number)}
    try:
        done = subprocess.run(
            [program, "all", "all", *words],
            check=False,
            capture_output=True,
            env=os.environ | chosen,
            preexec_fn=limit_cpu,
            timeout=20 * LIMIT,
        )
        status = done.returncode
    except subprocess.TimeoutExpired:
        status = -signal.SIGXCPU
    if status == 0:
        return {"verdict": "survived", "by": ""}
    if status == -signal.SIGXCPU:
        return {"verdict": "timeout", "by": "the program did not end"}
    if status < 0:
        return {"verdict": "killed", "by": f"signal {-status}"}
    errors = done.stderr.decode(errors="replace").splitlines()
    return {"verdict": "killed", "by": errors[0] if errors else ""}
