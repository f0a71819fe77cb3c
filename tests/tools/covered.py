"""Records lines and branches of relpos and csrc that tests run, and by which tests.

Run with a Python that has NumPy, pytest, coverage and what the tests need; gcc and gcov
are needed for csrc. Each file of tests runs in a process of its own, in a copy of the
tree whose C core is built for the plainest instruction set alone::

    python tests/tools/covered.py record build/nets
    python tests/tools/covered.py record build/nets --only tests/attention
    python tests/tools/covered.py record build/quick --python
    python tests/tools/covered.py compare before/summary.json build/nets/summary.json

The folder then holds `summary.json` (per file: lines, branches, and those not run),
`tests.json` (seconds of each test that passed; those that failed) and, for
tests/tools/mutants.py, which test runs which line. Files of tests that were recorded
there before, of the same tree, are not run again. `compare` lists files of csrc with
more lines or branches not run, and relpos as a whole; it exits with 1 if there are any.
`--python` records relpos alone, by the quick cases of all tests in one process, with
the core that is installed, in a fraction of the time: mutants of Python need no more.
It records everything anew.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from copied import build_plainest, copy_tree

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 1800  # seconds of a file of tests
LIMIT_OF_ALL = 7200  # and of the quick cases of all files
SETTINGS = """[run]
branch = True
source = {tree}/relpos
data_file = {out}/python/{unit}
parallel = True
context = ${{RELPOS_TEST-{context}}}
"""


def units(only: list[str]) -> list[str]:
    """Return files of tests, and the folders and files of relpos with examples."""
    found = [str(p.relative_to(ROOT)) for p in ROOT.glob("tests/*/test_*.py")]
    found += [str(p.relative_to(ROOT)) for p in ROOT.glob("relpos/[!.]*")]
    good = [
        n for n in found if n.endswith(".py") or (ROOT / n / "__init__.py").exists()
    ]
    return sorted(n for n in good if not only or any(n.startswith(x) for x in only))


def run_file(tree: Path, out: Path, name: str) -> None:
    """Run a file of tests, with Python's contexts and C's counts kept apart."""
    print(name, flush=True)
    unit = name.replace("/", "-")
    run_pytest(tree, out, unit, [name], context=name, limit=LIMIT)
    rows = read_counts(tree, out / "counts" / unit)
    (out / "c" / f"{unit}.json").write_text(json.dumps(rows))
    shutil.rmtree(out / "counts" / unit, ignore_errors=True)


def run_pytest(
    tree: Path, out: Path, unit: str, arguments: list[str], context: str, limit: float
) -> None:
    """Run pytest under coverage, whose lines on import get a context."""
    settings = out / "settings" / f"{unit}.ini"
    text = SETTINGS.format(tree=tree, out=out, unit=unit, context=context)
    settings.write_text(text, encoding="utf-8")
    environment = os.environ | {
        "PYTHONPATH": f"{tree}:{tree / 'tests' / 'tools'}",
        "COVERAGE_PROCESS_START": str(settings),  # read by children, where relpos runs
        "RELPOS_RECORD": str(out / "times" / unit),
        "GCOV_PREFIX": str(out / "counts" / unit),
    }
    words = [sys.executable, "-m", "coverage", "run", f"--rcfile={settings}"]
    words += ["-m", "pytest", "-q", "-p", "contexts", "-p", "no:cacheprovider"]
    (out / "times" / unit).unlink(missing_ok=True)
    try:
        subprocess.run(
            [*words, *arguments],
            check=False,
            cwd=tree,
            env=environment,
            stdout=subprocess.DEVNULL,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        print(f"{unit}: longer than {limit} seconds", file=sys.stderr)


def read_counts(tree: Path, counts: Path) -> dict[str, dict[str, Any]]:
    """Return by file of csrc and line: how often it ran, and each branch of it.

    Objects that share a header are added up, branch by branch as they come in a line.
    """
    by_file: dict[str, dict[str, Any]] = {}
    for data in counts.rglob("*.gcda"):
        notes = Path("/") / data.relative_to(counts).with_suffix(".gcno")
        shutil.copy2(notes, data.with_suffix(".gcno"))
        words = ["gcov", "--json-format", "--stdout", "--branch-probabilities", data]
        done = subprocess.run(words, cwd=counts, capture_output=True, check=True)
        for file in json.loads(done.stdout)["files"]:
            path = Path(file["file"])
            path = path if path.is_absolute() else tree / path
            if not path.is_relative_to(tree / "csrc"):
                continue
            lines = by_file.setdefault(str(path.resolve().relative_to(tree)), {})
            for line in file["lines"]:
                row = lines.setdefault(str(line["line_number"]), [0, []])
                add_counts(row, [line["count"], [b["count"] for b in line["branches"]]])
    return by_file


def add_counts(row: list[Any], more: list[Any]) -> None:
    """Add a line's counts to those of a row."""
    row[0] += more[0]
    both = [*row[1], *[0] * (len(more[1]) - len(row[1]))]
    more = [*more[1], *[0] * (len(both) - len(more[1]))]
    row[1] = [a + b for a, b in zip(both, more, strict=True)]


def summarize(tree: Path, out: Path) -> dict[str, Any]:
    """Return per file how many lines and branches there are, and those not run."""
    import coverage

    whole = coverage.Coverage(data_file=str(out / "whole"), branch=True)
    whole.set_option("run:source", [str(tree / "relpos")])
    places = [str(tree / "relpos"), "*/relpos"]  # of copies that are gone, too
    whole.set_option("paths", {"relpos": places})
    whole.combine(sorted(map(str, (out / "python").iterdir())), keep=True)
    whole.json_report(outfile=str(out / "report.json"))
    report = json.loads((out / "report.json").read_text())
    python = {}
    for path, known in report["files"].items():
        name = str(Path(path).resolve().relative_to(tree))
        said = known["summary"]
        python[name] = {
            "lines": said["num_statements"],
            "branches": said["num_branches"],
            "lines_not_run": known["missing_lines"],
            "branches_not_run": known["missing_branches"],
        }
    return {"python": python, "c": summarize_c(out)}


def summarize_c(out: Path) -> dict[str, Any]:
    """Return the same of csrc, from all files of tests."""
    total: dict[str, dict[str, Any]] = {}
    for path in sorted((out / "c").glob("*.json")):
        for name, lines in json.loads(path.read_text()).items():
            for number, counts in lines.items():
                row = total.setdefault(name, {}).setdefault(number, [0, []])
                add_counts(row, counts)
    summary = {}
    for name, lines in sorted(total.items()):
        rows = {
            int(n): row for n, row in sorted(lines.items(), key=lambda x: int(x[0]))
        }
        branches = [
            ([n, i], c) for n, row in rows.items() for i, c in enumerate(row[1])
        ]
        summary[name] = {
            "lines": len(rows),
            "branches": len(branches),
            "lines_not_run": [n for n, row in rows.items() if not row[0]],
            "branches_not_run": [place for place, count in branches if not count],
        }
    return summary


def read_times(out: Path) -> dict[str, Any]:
    """Return the seconds of tests that passed, and the names of those that failed."""
    seconds: dict[str, float] = {}
    failed = set()
    for path in (out / "times").iterdir():
        for line in path.read_text().splitlines():
            name, took, is_failed, _ = json.loads(line)
            seconds[name] = seconds.get(name, 0.0) + took
            failed |= {name} if is_failed else set()
    passed = {name: s for name, s in sorted(seconds.items()) if name not in failed}
    return {"seconds": passed, "failed": sorted(failed)}


def record(out: Path, only: list[str], is_python: bool, jobs: int) -> None:
    """Run all files of tests that are not recorded yet, and sum up."""
    for name in ("python", "c", "times", "counts", "settings"):
        (out / name).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(Path(folder).resolve(), with_core=is_python)
        if is_python:
            arguments = ["--quick", *only]
            run_pytest(tree, out, "all", arguments, context="", limit=LIMIT_OF_ALL)
        else:
            flags = "--coverage -fprofile-update=atomic"
            build_plainest(tree, CFLAGS=flags, LDFLAGS="--coverage")
            done = {path.stem for path in (out / "c").iterdir()}
            left = [name for name in units(only) if name.replace("/", "-") not in done]
            with ThreadPoolExecutor(jobs) as pool:
                list(pool.map(partial(run_file, tree, out), left))
        (out / "tests.json").write_text(json.dumps(read_times(out), indent=1))
        summary = json.dumps(summarize(tree, out), indent=1, sort_keys=True)
    (out / "summary.json").write_text(summary + "\n")


def grown(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return a line for each file of csrc, and for relpos, of which less is run."""

    def sizes(files: dict[str, Any], names: list[str]) -> list[int]:
        kinds = ("lines_not_run", "branches_not_run")
        return [sum(len(files[n][kind]) for n in names if n in files) for kind in kinds]

    groups = [("c", name, [name]) for name in sorted(before["c"] | after["c"])]
    groups.append(("python", "relpos/", sorted(before["python"] | after["python"])))
    found = []
    for kind, label, names in groups:
        pairs = zip(sizes(before[kind], names), sizes(after[kind], names), strict=True)
        for what, (old, new) in zip(("lines", "branches"), pairs, strict=True):
            if new > old:
                found.append(f"{label}: {what} not run: {old} before, {new} after")
    return found


def main() -> int:
    """Record, or compare."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--only", nargs="*", default=[], help="beginnings of names")
    parser.add_argument("--python", action="store_true", help="relpos alone")
    parser.add_argument("--jobs", type=int, default=1, help="files of tests at a time")
    asked = parser.parse_args()
    if asked.action == "record":
        record(asked.paths[0].resolve(), asked.only, asked.python, asked.jobs)
        return 0
    before, after = (json.loads(path.read_text()) for path in asked.paths)
    lines = grown(before, after)
    print(*lines, sep="\n")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
