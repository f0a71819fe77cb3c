"""Reads from a record of tests/tools/covered.py which tests run which line."""

from __future__ import annotations

import ast
import collections
import json
from collections.abc import Iterable
from pathlib import Path

from copied import ROOT
from mutations import Mutation

Reached = dict[str, dict[int, set[str]]]


def reached_python(record: Path, names: set[str]) -> Reached:
    """Return by file and line the tests that run it, where any does.

    A context is `static|dynamic`, where the static one is that of lines on import, or
    the name of the test that started the process.
    """
    from coverage import CoverageData

    tests_by_line: Reached = {name: collections.defaultdict(set) for name in names}
    for path in sorted((record / "python").iterdir()):
        data = CoverageData(str(path))
        data.read()
        for file in data.measured_files():
            name = file[file.rindex("/relpos/") + 1 :]
            if name not in names:
                continue
            for line, contexts in data.contexts_by_lineno(file).items():
                tests = {c.partition("|")[2] or c for c in contexts}
                tests_by_line[name][line] |= {test for test in tests if "::" in test}
    return tests_by_line


def reached_c(record: Path, names: set[str], seconds: dict[str, float]) -> Reached:
    """Return by file and line the tests of the files of tests that run it."""
    tests_by_line: Reached = {name: collections.defaultdict(set) for name in names}
    of_unit = collections.defaultdict(set)
    for test in seconds:
        of_unit[test.partition("::")[0].replace("/", "-")].add(test)
    for path in sorted((record / "c").glob("*.json")):
        lines_of = json.loads(path.read_text())
        tests = set()
        for unit, tests_of_unit in of_unit.items():
            # A folder of relpos is a unit of many files.
            if unit == path.stem or unit.startswith(f"{path.stem}-"):
                tests |= tests_of_unit
        for name in names & lines_of.keys():
            for line, (count, _) in lines_of[name].items():
                if count:
                    tests_by_line[name][int(line)] |= tests
    return tests_by_line


def tests_of(
    mutation: Mutation, reached: Reached, seconds: dict[str, float]
) -> tuple[list[str], list[str]]:
    """Return the tests that reach the line, and more that reach what is around it.

    Where no test reaches the line, as it runs on import, the first are those that reach
    the function around it, and the others those that reach most of the file.
    """
    lines = reached[mutation.path]

    def quickest(names: Iterable[str]) -> list[str]:
        passed = [name for name in names if name in seconds]
        return sorted(passed, key=lambda name: (seconds[name], name))

    near = quickest(lines.get(mutation.line, ()))
    around = {x for n in lines_around(mutation) for x in lines.get(n, ())} - {*near}
    if near:
        return near, quickest(around)
    counts = collections.Counter(test for tests in lines.values() for test in tests)
    others = [name for name in quickest(counts) if name not in around]
    others.sort(key=lambda name: -counts[name])
    return [*quickest(around), *others], []


def lines_around(mutation: Mutation) -> range:
    """Return the lines of the smallest function of Python around a mutation."""
    if not mutation.path.endswith(".py"):
        return range(0)
    tree = ast.parse((ROOT / mutation.path).read_text(encoding="utf-8"))
    around = range(0)
    for node in ast.walk(tree):  # the outer ones first
        if isinstance(node, ast.FunctionDef):
            lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            if mutation.line in lines:
                around = lines
    return around
