"""Lists the test functions of which no case passed in any of several runs of pytest.

Where the environment variable RELPOS_PASSED names a file, pytest appends to it the ids
of the cases that passed (tests/tools/selection.py). Each run has a file of its own::

    RELPOS_PASSED=build/passed-all python -m pytest -q
    RELPOS_PASSED=build/passed-torch python -m pytest -q -m torch tests
    python tests/tools/never_passed.py build/passed-*

Test functions are read from the source, since pytest finds some only where a package
is installed. The exit status is 1 where a function passed nowhere and REASONS has no
reason for it, and where REASONS has one for a function that passed, or that is gone.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

#: By the id of a test function, why it passes in no run here: another CPU or system.
REASONS: dict[str, str] = {
    "tests/docs/test_chorales.py::test_music21_has_the_same_notes": "needs music21, "
    "which no stage installs",
}


def functions_in(root: Path) -> set[str]:
    """Return the ids of all test functions in the files of tests."""
    found = set()
    for path in sorted(root.glob("tests/**/test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        file = path.relative_to(root).as_posix()
        found |= {f"{file}::{name}" for name in names_of_tests(tree.body)}
    return found


def names_of_tests(body: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield the names of test functions as they stand in ids, `Class::method` too."""
    for node in body:
        names = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names = [node.name]
        elif isinstance(node, ast.Assign):  # of a function that another one makes
            names = [x.id for x in node.targets if isinstance(x, ast.Name)]
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            for name in names_of_tests(node.body):
                yield f"{node.name}::{name}"
        for name in names:
            if name.startswith("test_"):
                yield name


def functions_of(ids: Iterable[str]) -> set[str]:
    """Return the functions of cases: their ids without parameters."""
    return {line.partition("[")[0] for line in ids if line}


def faults(
    functions: set[str], passed: set[str], reasons: Mapping[str, str]
) -> list[str]:
    """Return a line for each function without a reason, and each reason without one."""
    never = functions - passed
    lines = [f"passed nowhere: {name}" for name in sorted(never - reasons.keys())]
    for name in sorted(reasons):
        if name not in functions:
            lines.append(f"has a reason, but is no test function: {name}")
        elif name not in never:
            lines.append(f"has a reason, but passed: {name}")
    return lines


def main() -> int:
    """Print what each run passed, and the functions that none did."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="ids of passed cases")
    parser.add_argument("--root", type=Path, default=ROOT, help="the tree with tests/")
    arguments = parser.parse_args()
    absent = [str(file) for file in arguments.files if not file.is_file()]
    if absent:
        parser.error(f"no ids of passed cases in {', '.join(absent)}")
    functions = functions_in(arguments.root)
    passed: set[str] = set()
    for file in arguments.files:
        ids = file.read_text(encoding="utf-8").splitlines()
        in_file = functions_of(ids) & functions
        print(f"{file.name}: {len(ids)} cases, of {len(in_file)} functions")
        passed |= in_file
    print(f"{len(passed)} of {len(functions)} test functions passed")
    for name in sorted(functions - passed):
        if name in REASONS:
            print(f"not here: {name}: {REASONS[name]}")
    lines = faults(functions, passed, REASONS)
    for line in lines:
        print(line)
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
