"""Changes relpos or csrc in one place at a time, and runs the tests that reach it.

First record which tests reach which line (tests/tools/covered.py), then::

    python tests/tools/mutants.py python 300 --record build/nets --out python.json
    python tests/tools/mutants.py c 100 --record build/nets --out c.json
    python tests/tools/mutants.py compare before.json after.json

Of 300 mutants `--range 0 150` runs the first half; a mutant that the file of results
has is not run again. All work is done in a temporary copy of the tree. Seed and
operators (mutations.py) alone say which mutants a tree has. A mutant gets the tests
that reach its line, quick ones first, up to 60 seconds of what they took when they were
recorded, and stops at the first that fails:

killed     a test failed, or a process ended by a signal
survived   no test failed
timeout    the tests did not end in the time of `--wall`
unreached  no test that passed reaches the line
invalid    the compiler refuses it
unsure     the test that failed also fails in the unchanged copy

A line that runs on import, or only in a child process, counts as reached by the tests
of that file of tests, those first that reach most of the changed file.
C is built for the plainest instruction set alone, and only the objects that have the
changed file are compiled again. `compare` lists what died before and lives now, and the
shares that died; its exit status is 1 where one is listed.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from copied import ROOT, build_plainest, copy_tree
from mutations import Mutation, c_mutations, choose, python_mutations
from reached import reached_c, reached_python, tests_of


def all_mutations(kind: str) -> list[Mutation]:
    """Return every mutation of the tree."""
    make = {"python": python_mutations, "c": c_mutations}[kind]
    files = ROOT.glob("relpos/**/*.py" if kind == "python" else "csrc/**/*.[ch]")
    found = []
    for path in sorted(files):
        name = str(path.relative_to(ROOT))
        found += make(name, path.read_text(encoding="utf-8"))
    return found


# ---- building ----------------------------------------------------------------------


class Core:
    """The C core of a copy, and its objects before any change."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        build_plainest(tree)
        # Lists of the files of an object, too: a refused change removes them.
        self.objects = {
            path: path.read_bytes() for path in tree.glob("build/temp.*/**/*.[do]")
        }

    def build(self) -> bool:
        """Compile what a changed file reaches; return False if it is refused."""
        try:
            build_plainest(self.tree)
        except subprocess.CalledProcessError:
            return False
        return True

    def restore(self) -> None:
        """Make the core of the restored source, without compiling it again.

        The objects are written after the source was restored, so they are newer.
        """
        for path, content in self.objects.items():
            path.write_bytes(content)
        build_plainest(self.tree)


# ---- running ------------------------------------------------------------------------


def run_tests(tree: Path, tests: list[str], wall: float) -> tuple[str, str]:
    """Return what became of the mutant in a copy, and the test that noticed it."""
    words = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    (tree / "chosen-tests").write_text("\n".join(tests))
    done = subprocess.Popen(
        [*words, "--tb=no", "@chosen-tests"],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = done.communicate(timeout=wall)
    except subprocess.TimeoutExpired:
        os.killpg(done.pid, 9)
        done.communicate()
        return "timeout", ""
    failed = [s for s in said.splitlines() if s.startswith(("FAILED", "ERROR"))]
    noticed = failed[0] if failed else f"exit status {done.returncode}"
    return ("survived", "") if done.returncode == 0 else ("killed", noticed)


def judge(
    tree: Path, core: Core | None, mutation: Mutation, tests: list[str], wall: float
) -> tuple[str, str]:
    """Apply a mutation to the copy, run the tests, and take it back."""
    if not tests:
        return "unreached", ""
    path = tree / mutation.path
    text = path.read_text(encoding="utf-8")
    path.write_text(mutation.apply(text), encoding="utf-8")
    try:
        if core is not None and not core.build():
            return "invalid", ""
        verdict, noticed = run_tests(tree, tests, wall)
    finally:
        path.write_text(text, encoding="utf-8")
        if core is not None:
            core.restore()
    if verdict != "killed":
        return verdict, noticed
    match = re.match(r"FAILED (.*?)(?: - |$)", noticed)
    again = [match[1]] if match else tests[:1]  # the file does not import, or a signal
    unchanged, _ = run_tests(tree, again, wall)
    return (verdict if unchanged == "survived" else "unsure"), noticed


def run_range(asked: argparse.Namespace) -> None:
    """Run the mutants of a range; write the results after each."""
    chosen = choose(all_mutations(asked.action), asked.count, asked.seed)
    first, last = asked.range or (0, len(chosen))
    seconds = json.loads((asked.record / "tests.json").read_text())["seconds"]
    names = {mutation.path for mutation in chosen}
    if asked.action == "python":
        reached = reached_python(asked.record, names)
    else:
        reached = reached_c(asked.record, names, seconds)
    found = json.loads(asked.out.read_text()) if asked.out.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(Path(folder).resolve(), with_core=asked.action == "python")
        core = Core(tree) if asked.action == "c" else None
        for mutation in chosen[first:last]:
            if mutation.key in found:
                continue
            start = time.monotonic()
            tests = tests_of(mutation, reached, seconds)
            verdict, noticed = judge(tree, core, mutation, tests, asked.wall)
            took = round(time.monotonic() - start, 1)
            row = asdict(mutation) | {"verdict": verdict, "by": noticed}
            found[mutation.key] = row | {"tests": len(tests), "seconds": took}
            asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(f"{verdict:<9} {took:6.1f}s {mutation.path}:{mutation.line}", end=" ")
            print(mutation.operator, repr(mutation.old[:50]), flush=True)
    print(shares(found))


def shares(found: dict[str, Any]) -> str:
    """Return how many mutants had each verdict."""
    counts = collections.Counter(row["verdict"] for row in found.values())
    return ", ".join(f"{count} {name}" for name, count in counts.most_common())


def compare(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return a line for each mutant that died before and survives now."""
    alive = ("survived", "unreached")
    return [
        f"{row['path']}:{row['line']} {row['operator']} {row['old']!r}: {row['new']!r}"
        for key, row in after.items()
        if row["verdict"] in alive and key in before
        if before[key]["verdict"] in ("killed", "timeout")
    ]


def main() -> int:
    """Run mutants, or compare results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("python", "c", "compare"))
    parser.add_argument("rest", nargs="+", help="how many mutants, or two results")
    parser.add_argument("--seed", type=int, default=25)
    parser.add_argument("--range", type=int, nargs=2, metavar=("FIRST", "END"))
    parser.add_argument("--record", type=Path, default=ROOT / "build" / "nets")
    parser.add_argument("--out", type=Path, default=Path("mutants.json"))
    parser.add_argument("--wall", type=float, default=120.0, help="seconds at most")
    asked = parser.parse_args()
    if asked.action == "compare":
        before, after = (json.loads(Path(name).read_text()) for name in asked.rest)
        lines = compare(before, after)
        print(*lines, f"before: {shares(before)}", f"after: {shares(after)}", sep="\n")
        return int(bool(lines))
    asked.count = int(asked.rest[0])
    run_range(asked)
    return 0


if __name__ == "__main__":
    sys.exit(main())
