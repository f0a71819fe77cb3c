"""Reads from a record of tests/tools/covered.py which tests run which line."""

from __future__ import annotations

import collections
import json
from pathlib import Path

from mutations import Mutation

SECONDS = 60.0  # of tests, as recorded
Reached = dict[str, dict[int, set[str]]]


def reached_python(record: Path, names: set[str]) -> Reached:
    """Return by file and line the tests that run it; on import, the file of tests."""
    from coverage import CoverageData

    found: Reached = {name: collections.defaultdict(set) for name in names}
    for path in sorted((record / "python").iterdir()):
        data = CoverageData(str(path))
        data.read()
        for file in data.measured_files():
            name = file[file.rindex("/relpos/") + 1 :]
            if name not in names:
                continue
            for line, contexts in data.contexts_by_lineno(file).items():
                found[name][line] |= {c.partition("|")[2] or c for c in contexts}
    return found


def reached_c(record: Path, names: set[str], seconds: dict[str, float]) -> Reached:
    """Return by file and line the tests of the files of tests that run it."""
    found: Reached = {name: collections.defaultdict(set) for name in names}
    of_unit = collections.defaultdict(set)
    for test in seconds:
        of_unit[test.partition("::")[0].replace("/", "-")].add(test)
    for path in sorted((record / "c").glob("*.json")):
        lines_of = json.loads(path.read_text())
        tests = set()
        for unit, own in of_unit.items():  # a folder of relpos is a unit of many files
            tests |= (
                own if unit == path.stem or unit.startswith(f"{path.stem}-") else set()
            )
        for name in names & lines_of.keys():
            for line, (count, _) in lines_of[name].items():
                if count:
                    found[name][int(line)] |= tests
    return found


def tests_of(
    mutation: Mutation, reached: Reached, seconds: dict[str, float]
) -> list[str]:
    """Return the tests to run: the quickest of those that reach the line."""
    lines = reached[mutation.path]
    names = {name for name in lines.get(mutation.line, ()) if name in seconds}
    order = sorted(names, key=lambda name: (seconds[name], name))
    if not names:
        units = tuple(lines.get(mutation.line, ()))
        shares = collections.Counter(test for own in lines.values() for test in own)
        near = [name for name in seconds if name.startswith(units)]
        order = sorted(near, key=lambda name: (-shares[name], seconds[name], name))
    chosen, total = [], 0.0
    for name in order:
        total += seconds[name]
        if total > SECONDS and chosen:
            break
        chosen.append(name)
    return chosen
