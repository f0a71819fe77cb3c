"""Judges changes of the kernels by the programs of tests/core, for mutants.py.

Each number type of the plainest instruction set is an object of its own, compiled
without optimisation from the changed tree, with a program of its own; what is in the
program beside the object is compiled once. What survives there is judged by those of
the widest instruction set of this CPU, which use parts of the code that the plainest
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

sys.path.append(str(ROOT / "tests" / "core"))
import harness

OBJECTS = ("base_f32", "base_f64")
#: Instruction sets with wider vectors, the widest first, and the flags of their CPUs.
WIDER = {
    "avx512": {"avx512f", "avx512bw", "avx512dq", "avx512vl"},
    "avx2": {"avx2", "fma"},
}
FLAGS = "-O0 -g0 -w"
#: What the program runs, by the name of the step: a first seed, how many, and switches.
STEPS = {
    "random": ("1", "400"),
    "guard": ("60001", "1200", "guard", "nanfill"),
}
#: Seconds of CPU that a step may take: several times what the unchanged core takes.
LIMIT = 60
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
    """Return the objects of the widest instruction set of this CPU, if it is an x86."""
    path = Path("/proc/cpuinfo")
    has = set(path.read_text().split()) if path.exists() else set()
    names = [name for name, flags in WIDER.items() if flags <= has]
    return tuple(f"{name}_{dtype}" for name in names[:1] for dtype in ("f32", "f64"))


def limit_cpu() -> None:
    """Let the process that starts have a limited time: a change may make it endless."""
    resource.setrlimit(resource.RLIMIT_CPU, (LIMIT, LIMIT + 5))


class Build(harness.Build):
    """A build that compiles once what is not an object of the kernels."""

    def __init__(self, folder: Path, tree: Path) -> None:
        super().__init__(folder, tree, "gcc", FLAGS)
        self.compiled: dict[str, str] = {}

    def compile(self, source: str, *more: str) -> str:
        """Compile one file of the tree, unless it was; return the object."""
        if source.startswith("csrc/isa/"):
            return super().compile(source, *more)
        if source not in self.compiled:
            self.compiled[source] = super().compile(source, *more)
        return self.compiled[source]


class Programs:
    """The program of each object of a tree."""

    def __init__(self, tree: Path) -> None:
        names = (*OBJECTS, *wider_objects())
        self.builds = {name: Build(tree / "build" / name, tree) for name in names}
        self.unchanged: dict[str, bytes] = {}
        unchanged = self.judge()
        if unchanged["verdict"] != "survived":
            raise RuntimeError(f"the unchanged core fails: {unchanged['by']}")
        self.unchanged = {name: self.object_of(name) for name in self.builds}

    def judge(self) -> Row:
        """Compile the objects and run their programs until one fails.

        An object is compiled only if the first step finds nothing in those before it.
        """
        programs: dict[str, Path] = {}
        for step, words in STEPS.items():
            for name in self.builds:
                if name not in programs:
                    try:
                        programs[name] = self.program(name)
                    except RuntimeError:
                        return {"verdict": "invalid", "by": "", "cases": ""}
                if self.object_of(name) == self.unchanged.get(name):
                    continue
                row = run_program(programs[name], *words)
                if row["verdict"] != "survived":
                    row["by"] = f"{name}: {row['by']}"
                    return row | {"cases": step}
        is_equal = {x: self.object_of(x) for x in self.builds} == self.unchanged
        verdict = "equal" if is_equal else "survived"
        return {"verdict": verdict, "by": "", "cases": ""}

    def program(self, name: str) -> Path:
        """Build the program of an object."""
        build = self.builds[name]
        return build.program("core", build.objects([name]), [name])

    def object_of(self, name: str) -> bytes:
        """Return an object that was compiled last."""
        return (self.builds[name].folder / f"csrc-isa-{name}.o").read_bytes()


def run_program(program: Path, *words: str) -> Row:
    """Return what became of the problems that a program runs."""
    try:
        done = subprocess.run(
            [program, "all", "all", *words],
            check=False,
            capture_output=True,
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
