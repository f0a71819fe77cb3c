"""Changes relpos or csrc in one place at a time, and runs the tests that reach it.

First record which tests reach which line (tests/tools/covered.py), then::

    python tests/tools/mutants.py python 300 --record build/quick --out python.jsonl
    python tests/tools/mutants.py c 100 --record build/nets --out c.jsonl
    python tests/tools/mutants.py core 200 --record build/nets --out core.jsonl
    python tests/tools/mutants.py compare before.jsonl after.jsonl

`core` changes the kernels alone. A mutant first gets random problems by the programs of
tests/core (mutants_core.py), both number types changed alike: this needs no record and
kills most. Those that survive get the recorded cases, and then, where there is a
record, the tests that reach the line, as a mutant of `c` does. Mutants that are listed
in equal_mutants.toml are not run. `--programs` leaves out all tests of Python.

Seed and operators (mutations.py) alone say which mutants a tree has. All work is done
in temporary copies of the tree, one for each of `--jobs`. The file of results has a
line for each mutant, and one that it has is not run again, so that an interrupted run
can go on.

A mutant first gets the quick cases (tests/tools/selection.py) of the test functions
that reach its line, for at most 60 seconds of CPU. If it survives, it gets the other
cases of these functions and of those that reach the function around the line, for at
most 120 seconds. A process forked from one that has imported what the tests need, but
not relpos, runs them, those first whose function is quickest, up to the first failure:

killed     a test failed, or a process ended by a signal
survived   no test failed
timeout    the tests did not end in twice the time; a test may wait for ever
unreached  no test that passed reaches the file (those of relpos.torch need torch)
invalid    the compiler refuses it
listed     equal_mutants.toml has the reason why no test can notice it
unsure     the test that failed also fails in the unchanged copy

A line that runs on import has the tests that reach the function around it, and then
those of its file. C is built for the plainest instruction set alone, and only the
objects that have the changed file are compiled again. The last lines say which share of
the mutants that died the quick cases killed, and name those that only the other cases
killed. `compare` lists what died before and lives now; its exit status is 1 where one
is listed.
"""

from __future__ import annotations

import argparse
import ast
import collections
import contextlib
import functools
import importlib
import json
import multiprocessing
import os
import resource
import shlex
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from copied import ROOT, build_plainest, copy_tree
from mutants_core import Programs, core_mutations, reason_of
from mutations import Mutation, c_mutations, choose, python_mutations
from never_passed import names_of_tests
from reached import Reached, reached_c, reached_python, tests_of

#: Seconds of CPU that the quick cases of a mutant may take, and then the others.
LIMITS = {"quick": 60.0, "full": 120.0}
#: So many test functions run first: pytest collects a few in a fraction of the time.
FIRST = 40
#: What tests import: a child that is forked has it already.
WARM = (
    "numpy",
    "pytest",
    "hypothesis.strategies",
    "scipy.sparse",
    "dask.array",
    "ml_dtypes",
    "mpmath",
    "html5lib",
)
#: Tests of recorded cases, which every mutant of the kernels gets that survives so far.
RECORDED = (
    "tests/attention/test_recorded.py",
    "tests/gradients/test_gradients_recorded.py",
)
Row = dict[str, Any]


def all_mutations(kind: str) -> list[Mutation]:
    """Return every mutation of the tree."""
    if kind == "core":
        return core_mutations()
    make = {"python": python_mutations, "c": c_mutations}[kind]
    files = ROOT.glob("relpos/**/*.py" if kind == "python" else "csrc/**/*.[ch]")
    found = []
    for path in sorted(files):
        name = str(path.relative_to(ROOT))
        found += make(name, path.read_text(encoding="utf-8"))
    return found


# ---- building ----------------------------------------------------------------------


class Core:
    """The objects of a copy's C core, and what each is made of."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        build_plainest(tree, CFLAGS="-O1")
        rows = json.loads((tree / "build" / "compile_commands.json").read_text())
        self.rows = [row["arguments"] for row in rows]
        names = [words[words.index("-o") + 1] for words in self.rows]
        self.objects = {name: (tree / name).read_bytes() for name in names}
        self.parts = [self._parts(words) for words in self.rows]
        (self.core,) = tree.glob("relpos/_core*.so")

    def _parts(self, words: list[str]) -> set[str]:
        """Return the files of csrc that one object is compiled from."""
        cut = words.index("-o")
        asked = [w for w in words[:cut] + words[cut + 2 :] if w != "-c"]
        done = self._run([*asked, "-MM"])
        paths = done.stdout.replace("\\\n", " ").split()[1:]
        full = [(self.tree / path).resolve() for path in paths]
        return {str(p.relative_to(self.tree)) for p in full if self.tree in p.parents}

    def _run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, check=False, cwd=self.tree, capture_output=True, text=True
        )

    def build(self, path: str) -> bool:
        """Compile what has a file, and link; return False where that is refused."""
        self.restore()
        chosen = [w for w, p in zip(self.rows, self.parts, strict=True) if path in p]
        jobs = [
            subprocess.Popen(words, cwd=self.tree, stderr=subprocess.DEVNULL)
            for words in chosen
        ]
        statuses = [job.wait() for job in jobs]  # of all, also after a failure
        if any(statuses):
            return False
        return self.link()

    def restore(self) -> None:
        """Put back the objects of the unchanged source."""
        for name, held in self.objects.items():
            (self.tree / name).write_bytes(held)

    def link(self) -> bool:
        """Make the core of the objects."""
        self.core.unlink(missing_ok=True)
        link = shlex.split(sysconfig.get_config_var("LDSHARED"))
        words = [*link, *self.objects, "-pthread", "-lm", "-ldl", "-o", str(self.core)]
        return self._run(words).returncode == 0


# ---- running ------------------------------------------------------------------------


class Outcome(NamedTuple):
    """Verdict on a copy: what became of its tests, and the test that failed."""

    verdict: str
    test: str = ""


class Watch:
    """A plugin of pytest: chooses and orders cases, and ends a run in time."""

    def __init__(self, functions: list[str], speed: str, seconds: float) -> None:
        self.rank = {name: number for number, name in enumerate(functions)}
        self.speed = speed
        self.seconds = seconds
        self.failed = ""
        self.is_ended = False  # before all tests have run

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Keep the cases of the functions; --quick then chooses some of these."""
        chosen = [x for x in items if function_of(x.nodeid) in self.rank]
        if self.speed == "full":
            chosen = without_quick(chosen)
        items[:] = sorted(chosen, key=lambda x: self.rank[function_of(x.nodeid)])

    def pytest_collectreport(self, report: Any) -> None:
        """Keep the file that cannot be collected."""
        if report.failed and not self.failed:
            self.failed = f"{report.nodeid} (not collected)"

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the test that failed."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_runtest_teardown(self, item: Any) -> None:
        """End the run when its time is used up, by the processes of tests, too."""
        if sum(os.times()[:4]) > self.seconds:
            item.session.shouldstop = "the time is used up"
            self.is_ended = True


def function_of(nodeid: str) -> str:
    """Return a case's test function: its id without parameters."""
    return nodeid.partition("[")[0]


def without_quick(items: list[Any]) -> list[Any]:
    """Return the cases that the quick run leaves out, or runs in a smaller size."""
    import selection  # of the copy, by pytest's setting pythonpath

    from relpos import _core

    quick = selection.select(items, best_table=list(_core.by_isa)[-1])
    kept = {id(item) for item in quick if "sized" not in item.fixturenames}
    return [item for item in items if id(item) not in kept]


def run_in_child(
    tree: Path, functions: list[str], speed: str, seconds: float, pipe: Any
) -> None:
    """Run tests of a copy, and send the one that failed, or nothing."""
    os.setsid()  # so that what tests start ends with this process
    # A case may be one long call of C, after which no hook is reached: a hard limit.
    most = int(2 * seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))
    output = os.open(os.devnull, os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(tree)
    sys.path[0] = str(tree)  # and no longer the folder of this file
    os.environ["PYTHONPATH"] = str(tree)
    import pytest

    watch = Watch(functions, speed, seconds)
    files = sorted({name.partition("::")[0] for name in functions})
    options = ["-x", "-q", "--tb=no", "-p", "no:cacheprovider", f"--{speed}"]
    # The modules of prepare_imports, of which pytest warns: warnings are errors.
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    status = pytest.main([*options, *files], plugins=[watch])
    # Nothing is left to run where the quick run has all cases of these functions.
    is_good = status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    if not watch.failed and not is_good and not watch.is_ended:
        watch.failed = f"exit status {status}"
    pipe.send(watch.failed)


def run_tests(tree: Path, functions: list[str], speed: str, seconds: float) -> Outcome:
    """Return what became of a copy's tests, which may take these seconds of CPU."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    arguments = tree, functions, speed, seconds, sender
    process = context.Process(target=run_in_child, args=arguments)
    process.start()
    sender.close()
    process.join(10 * seconds)  # on the clock: other processes may have the CPUs
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()
    if process.exitcode in (-signal.SIGKILL, -signal.SIGXCPU):
        return Outcome("timeout")
    try:
        failed = receiver.recv()
    except EOFError:
        return Outcome("killed", f"exit status {process.exitcode}")
    return Outcome("killed", failed) if failed else Outcome("survived")


def batches(near: list[str], around: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield which cases of which test functions run one after the other."""
    yield "quick", near[:FIRST]
    yield "quick", near[FIRST:]
    yield "full", [*near, *around]


def judge(tree: Path, near: list[str], around: list[str]) -> Row:
    """Run the tests of a changed copy until one fails."""
    left = dict(LIMITS)
    for speed, functions in batches(near, around):
        if not functions or left[speed] < 1:
            continue
        before = sum(os.times()[2:4])
        outcome = run_tests(tree, functions, speed, left[speed])
        left[speed] -= sum(os.times()[2:4]) - before
        if outcome.verdict != "survived":
            return {"verdict": outcome.verdict, "by": outcome.test, "cases": speed}
    return {"verdict": "survived", "by": "", "cases": ""}


@contextlib.contextmanager
def changed(tree: Path, mutation: Mutation) -> Iterator[None]:
    """Apply a mutation to the copy, and take it back."""
    path = tree / mutation.path
    text = path.read_text(encoding="utf-8")
    path.write_text(mutation.apply(text), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(text, encoding="utf-8")


def run_mutant(
    tree: Path,
    core: Core | None,
    mutation: Mutation,
    near: list[str],
    around: list[str],
) -> Row:
    """Run the tests of a changed copy, and those that fail in the unchanged one too."""
    if not near and not around:
        return {"verdict": "unreached", "by": "", "cases": ""}
    with changed(tree, mutation):
        if core is not None and not core.build(mutation.path):
            return {"verdict": "invalid", "by": "", "cases": ""}
        row = judge(tree, near, around)
    if row["verdict"] != "killed":
        return row
    if core is not None:
        core.restore()
        core.link()
    # Where no test is named the process ended: any of them may have been running.
    name = function_of(row["by"])
    again = [name] if name in {*near, *around} else near[:1]
    unchanged = run_tests(tree, again, row["cases"], LIMITS["full"])
    return row if unchanged.verdict == "survived" else row | {"verdict": "unsure"}


def prepare_imports() -> None:
    """Import what tests need beside relpos, so that children need not."""
    for name in WARM:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


class Kernels:
    """Judges mutants of the kernels: by programs, and then by tests."""

    def __init__(self, tree: Path, has_tests: bool, mutations: list[Mutation]) -> None:
        self.tree = tree
        self.has_tests = has_tests
        self.programs = Programs(
            tree, [mutation for mutation in mutations if not reason_of(mutation, tree)]
        )
        self.recorded = [
            f"{path}::{name}"
            for path in RECORDED
            for name in names_of_tests(ast.parse((tree / path).read_text()).body)
        ]

    @functools.cached_property
    def core(self) -> Core:
        """The extension, which only mutants need that survive the programs."""
        return Core(self.tree)

    def judge(self, mutation: Mutation, near: list[str], around: list[str]) -> Row:
        """Return what became of a mutant."""
        if reason := reason_of(mutation, self.tree):
            return {"verdict": "listed", "by": reason, "cases": ""}
        row = self.programs.judge(mutation)
        if row["verdict"] != "survived" or not self.has_tests:
            return row
        near = [*self.recorded, *(x for x in near if x not in self.recorded)]
        around = [x for x in around if x not in self.recorded]
        return run_mutant(self.tree, self.core, mutation, near, around)


def run_share(
    options: argparse.Namespace, mutations: list[Mutation], reached: Reached
) -> None:
    """Run some mutants in a copy of the tree; append the result of each."""
    seconds = seconds_of(options.record)
    is_python = options.action == "python"
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_tree(Path(folder).resolve(), with_core=is_python)
        judge_one = judge_of(options, tree, mutations)
        if not options.programs:
            compile_modules(tree)
        for mutation in mutations:
            start = time.monotonic()
            near, around = tests_of(mutation, reached, seconds)
            row = asdict(mutation) | judge_one(mutation, near, around)
            row["tests"] = len(near) + len(around)
            row["seconds"] = round(time.monotonic() - start, 1)
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            took = f"{row['verdict']:<9} {row['cases']:<6} {row['seconds']:6.1f}s"
            print(took, line_of(row), flush=True)


def compile_modules(tree: Path) -> None:
    """Compile Python once; a changed file is compiled anew, since its hash differs."""
    words = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash"]
    subprocess.run([sys.executable, *words, "relpos", "tests"], cwd=tree, check=True)


def judge_of(
    options: argparse.Namespace, tree: Path, mutations: list[Mutation]
) -> Callable[[Mutation, list[str], list[str]], Row]:
    """Return what judges a mutant of the copy by the tests that reach it."""
    if options.action == "core":
        return Kernels(tree, not options.programs, mutations).judge
    core = Core(tree) if options.action == "c" else None
    return functools.partial(run_mutant, tree, core)


def seconds_of(record: Path) -> dict[str, float]:
    """Return the seconds of the tests that passed when a record was made, if it was."""
    path = record / "tests.json"
    return dict(json.loads(path.read_text())["seconds"]) if path.exists() else {}


def read_reached(options: argparse.Namespace, names: set[str]) -> Reached:
    """Return the tests that reach the lines of files."""
    if options.action == "python":
        return reached_python(options.record, names)
    return reached_c(options.record, names, seconds_of(options.record))


def run_all(options: argparse.Namespace) -> list[Row]:
    """Run the mutants that the file of results lacks; return the results of all."""
    chosen = choose(all_mutations(options.action), options.count, options.seed)
    done = read_rows(options.out) if options.out.exists() else {}
    missing = [mutation for mutation in chosen if mutation.key not in done]
    reached = read_reached(options, {mutation.path for mutation in missing})
    prepare_imports()
    context = multiprocessing.get_context("fork")
    shares = [missing[number :: options.jobs] for number in range(options.jobs)]
    workers = [
        context.Process(target=run_share, args=(options, share, reached))
        for share in shares
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    failed = sum(worker.exitcode != 0 for worker in workers)
    if failed:
        # what went wrong is printed by the process; rows that it left are kept
        raise SystemExit(f"{failed} of {len(workers)} processes failed: see above")
    rows = read_rows(options.out) if options.out.exists() else {}
    return [rows[mutation.key] for mutation in chosen if mutation.key in rows]


# ---- results ------------------------------------------------------------------------


def read_rows(path: Path) -> dict[str, Row]:
    """Return the rows of a file of results by the keys of the mutants."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return {row["key"]: row for row in map(json.loads, lines)}


def line_of(row: Row) -> str:
    """Return the place and the change of a mutant in a line."""
    change = f"{row['old'][:50]!r}: {row['new'][:50]!r}"
    return f"{row['path']}:{row['line']} {row['operator']} {change}"


def died(row: Row) -> bool:
    """Return True for a mutant that tests noticed."""
    return row["verdict"] in ("killed", "timeout")


def report(rows: list[Row]) -> list[str]:
    """Return lines of how many mutants had each verdict, and of what quick misses."""
    counts = collections.Counter(row["verdict"] for row in rows)
    lines = [", ".join(f"{count} {name}" for name, count in counts.most_common())]
    killed = [row for row in rows if died(row)]
    missed = [row for row in killed if row["cases"] == "full"]
    if killed:
        quick = len(killed) - len(missed)
        share = f"{quick / len(killed):.1%}"
        lines.append(
            f"quick kills {quick} of the {len(killed)} that full kills: {share}"
        )
    lines += [f"missed by quick: {line_of(row)}; {row['by']}" for row in missed]
    return lines


def settled(rows: list[Row]) -> str:
    """Return a line of how many mutants died, or cannot be noticed."""
    valid = [row for row in rows if row["verdict"] != "invalid"]
    dead = sum(map(died, valid))
    unnoticed = sum(row["verdict"] == "listed" for row in valid)
    share = f"{(dead + unnoticed) / max(1, len(valid)):.1%}"
    counts = f"{dead} died and {unnoticed} are listed"
    return f"of {len(valid)} that compile, {counts}: {share}"


def compare(before: dict[str, Row], after: dict[str, Row]) -> list[str]:
    """Return a line for each mutant that died before and survives now."""
    alive = ("survived", "unreached")
    return [
        line_of(row)
        for key, row in after.items()
        if row["verdict"] in alive and key in before and died(before[key])
    ]


def main() -> int:
    """Run mutants, or compare results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("python", "c", "core", "compare"))
    parser.add_argument("rest", nargs="+", help="how many mutants, or two results")
    parser.add_argument("--seed", type=int, default=25)
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--record", type=Path, default=ROOT / "build" / "nets")
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"))
    parser.add_argument(
        "--programs", action="store_true", help="core: by the programs alone"
    )
    parser.add_argument(
        "--least", type=int, default=0, help="fail if fewer mutants die"
    )
    options = parser.parse_args()
    if options.action == "compare":
        before, after = (read_rows(Path(name)) for name in options.rest)
        lines = compare(before, after)
        for line in lines:
            print(line)
        print("before:", *report(list(before.values())))
        print("after:", *report(list(after.values())))
        return int(bool(lines))
    options.count = int(options.rest[0])
    options.out = options.out.resolve()
    rows = run_all(options)
    for line in [*report(rows), settled(rows)]:
        print(line)
    return int(sum(map(died, rows)) < options.least)


if __name__ == "__main__":
    sys.exit(main())
