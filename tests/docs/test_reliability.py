"""docs/reliability.md: each test that it names exists, and a stage runs its cases."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from importlib.util import find_spec

import never_passed
import pytest
from documents import ROOT, text

PAGE = "docs/reliability.md"
if not (ROOT / PAGE).exists():
    pytest.skip("no docs/ in this tree", allow_module_level=True)

ROWS = re.findall(
    r"^\| (?!hazard|---)(.*?) \| (.*?) \| ?(.*?) ?\|$", text(PAGE), re.MULTILINE
)
NAMED = [name for _, tests, _ in ROWS for name in re.findall(r"`(tests/.*?)`", tests)]
FILES = sorted({name.partition("::")[0] for name in NAMED})
STAGES = ROOT / ".ci" / "stages"
#: Files that pytest collects where torch is installed.
OF_TENSORS = "tests/tensors/"
#: Tests outside of that folder that are marked torch.
MARKED = {"tests/runtime/test_floating_state.py::test_tensors_leave_the_modes"}


#: Files whose tests need --thorough.
THOROUGH = {"tests/runtime/test_large_calls.py"}


def is_marked_torch(name):
    return name.startswith(OF_TENSORS) or name in MARKED


def collected(*arguments):
    """The test functions that a call of pytest collects, in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *arguments]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider"],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    return {line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line}


def test_every_hazard_has_a_test():
    assert len(ROWS) >= 35
    assert [hazard for hazard, tests, _ in ROWS if "`tests/" not in tests] == []
    assert len(NAMED) == len({*NAMED})


def test_each_test_is_in_the_source():
    assert {*NAMED} - never_passed.functions_in(ROOT) == set()


def test_each_test_is_collected(sized):
    """By pytest itself, which takes seconds."""
    if not sized(False, True):
        pytest.skip("pytest --full runs it")
    files, names = FILES, {*NAMED}
    if find_spec("torch") is None:
        files = [file for file in FILES if not file.startswith(OF_TENSORS)]
        names = {name for name in NAMED if not name.startswith(OF_TENSORS)}
    assert names - collected("--full", *files) == set()


# ---- the stages ----------------------------------------------------------------------


def commands():
    """The arguments of each pytest of `.ci/run --all` that runs all cases."""
    source = STAGES.read_text(encoding="utf-8").replace("\\\n", " ")
    # the stage of tensors calls this function with an option
    source = source.replace('python -m pytest -q "$1"', "python -m pytest -q --full")
    lines = re.findall(r"python -m pytest -q (.*(?:--full|--thorough).*)", source)
    lines += re.findall(r"python -m pytest -q ((?:--full|--thorough).*)", source)
    return [shlex.split(line) for line in dict.fromkeys(lines)]


def runs(arguments, name):
    """Return True where a call of pytest runs all cases of a test."""
    if {"-k", "--deselect"} & {*arguments}:
        return False
    torch = "-m" in arguments
    if torch and arguments[arguments.index("-m") + 1] != "torch":
        return False
    file = name.partition("::")[0]
    if file in THOROUGH and "--thorough" not in arguments:
        return False
    ignored = [x.partition("=")[2] for x in arguments if x.startswith("--ignore=")]
    paths = [x for x in arguments if x.startswith("tests/")]
    return (
        torch == is_marked_torch(name)
        and not any(file.startswith(path) for path in ignored)
        and (not paths or any(file.startswith(path) for path in paths))
    )


@pytest.mark.skipif(not STAGES.exists(), reason="no source tree")
def test_a_stage_runs_all_cases_of_each_test():
    """None of those that run all cases leaves it out by a path, a word or a mark."""
    assert len(commands()) >= 3
    left_out = [n for n in NAMED if not any(runs(call, n) for call in commands())]
    assert left_out == []


def test_what_leaves_a_test_out_is_seen():
    name = "tests/runtime/test_build.py::test_one_exported_symbol"
    assert runs(["--full"], name)
    assert runs(["--full", "tests/runtime"], name)
    assert not runs(["--full", "tests/attention"], name)
    assert not runs(["--full", "--ignore=tests/runtime"], name)
    assert not runs(["--full", "-k", "fork"], name)
    assert not runs(["--full"], "tests/runtime/test_large_calls.py::test_rows")
    assert not runs(["--full", "-m", "torch"], name)
    assert runs(
        ["--full", "-m", "torch"], "tests/tensors/test_torch_supported.py::test_cells"
    )
