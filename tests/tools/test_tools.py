"""The tools that show that a change lost nothing: what they compute without a tree."""

import ast
import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import covered
import covered_core
import mutants
import mutants_core
import mutations
import never_passed
import pytest
import reached
import signatures
import variants

BUDGET = Path(__file__).resolve().parents[2] / ".ci" / "budget"
PYTHON = '''"""Text, 1."""

LIMIT = 3


class Pair:
    """Two."""

    def f(self, first: "int" = 1, *more):
        """Return 2 numbers."""
        if first < 2 and not more:
            raise ValueError(f"first: got {first + 1}; expected 2 or more")
        self.kept = "é", max(first, 7)
        print(first)
        return self.kept if more else first * 2
'''
C = """/* a == b + 1 */
#define ONE (2 + 1)
static int
sum(int count, int step)
{
    int total = 0; /* 1 */
    if (count < 3 && step) {
        total += step;
        add(count, step);
    }
    return total + 1;
}
"""


def test_mutations_of_python_are_other_valid_programs():
    found = mutations.python_mutations("a.py", PYTHON)
    made = {ast.dump(ast.parse(mutation.apply(PYTHON))) for mutation in found}
    assert len(made) == len(found)
    assert ast.dump(ast.parse(PYTHON)) not in made
    assert {mutation.operator for mutation in found} == {
        "comparison",
        "and/or",
        "arithmetic",
        "+1",
        "-1",
        "return",
        "negation",
        "swap",
        "deletion",
    }


def test_mutations_of_python_leave_texts_and_annotations_alone():
    kept = ('"""Text, 1."""', "LIMIT = 3", ': "int" =', "got {first + 1};", "2 numbers")
    for mutation in mutations.python_mutations("a.py", PYTHON):
        changed = mutation.apply(PYTHON)
        lost = [part for part in kept if part not in changed]
        assert lost == ["got {first + 1};"] * (mutation.old.startswith("raise"))


def test_mutations_of_c_are_inside_functions():
    found = mutations.c_mutations("a.c", C)
    head, body = C.split("{\n", 1)
    texts = [mutation.apply(C) for mutation in found]
    assert all(text.startswith(head) and "/* 1 */" in text for text in texts)
    assert len(set(texts)) == len(texts) and C not in texts
    wanted = (
        "count <= 3",
        "3 || step",
        "total -= step",
        "add(step, count)",
        "return 0;",
    )
    for part in (*wanted, "if (!(count < 3 && step))", "total - 1", "int total = (1)"):
        assert part not in body and any(part in text for text in texts)


def test_a_choice_depends_on_seed_and_text_alone():
    found = mutations.python_mutations("a.py", PYTHON)
    chosen = mutations.choose(found, 5, 1)
    assert chosen == mutations.choose(found[::-1], 5, 1)
    assert chosen != mutations.choose(found, 5, 2)
    later = mutations.python_mutations("a.py", PYTHON.replace("LIMIT", "\n\nLIMIT"))
    moved = mutations.choose(later, 5, 1)
    assert [m.key for m in moved] == [m.key for m in chosen]


def test_tests_of_a_line_and_of_the_function_around_it(tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text(PYTHON, encoding="utf-8")
    monkeypatch.setattr(reached, "ROOT", tmp_path)
    mutation = mutations.python_mutations("a.py", PYTHON)[-1]
    assert [*reached.lines_around(mutation)] == [9, 10, 11, 12, 13, 14, 15]
    seconds = {"t.py::slow": 59.0, "t.py::quick": 2.0, "t.py::other": 0.1}

    def tests_of(**lines):
        by_line = {int(number[1:]): {*names} for number, names in lines.items()}
        return reached.tests_of(mutation, {"a.py": by_line}, seconds)

    slow, quick, other = seconds
    assert tests_of(n15=[slow, quick, "t.py::failed"]) == ([quick, slow], [])
    assert tests_of(n15=[slow], n9=[slow, quick], n2=[other]) == ([slow], [quick])
    on_import = tests_of(n9=[quick], n2=[slow, other], n1=[slow])
    assert on_import == ([quick, slow, other], [])
    assert tests_of() == ([], [])


def test_mutants_that_survive_now_or_are_killed_by_more_cases_are_listed():
    place = {"path": "a.py", "line": 3, "operator": "+1", "old": "1", "new": "2"}
    killed = place | {"verdict": "killed", "cases": "quick", "by": "t.py::quick"}
    missed = killed | {"cases": "full", "by": "t.py::slow[3]"}
    survived = place | {"verdict": "survived", "cases": "", "by": ""}
    before = {"x": killed, "y": survived}
    after = {"x": survived, "y": survived}
    assert mutants.compare(before, after) == ["a.py:3 +1 '1': '2'"]
    assert mutants.compare(before, before) == []
    assert mutants.report([killed, missed, survived, killed, killed]) == [
        "4 killed, 1 survived",
        "quick kills 3 of the 4 that full kills: 75.0%",
        "missed by quick: a.py:3 +1 '1': '2'; t.py::slow[3]",
    ]


def test_mutants_that_died_or_that_nothing_can_notice_are_counted():
    verdicts = ["killed", "timeout", "listed", "survived", "unsure", "invalid"]
    rows = [{"verdict": verdict} for verdict in verdicts]
    assert mutants.settled(rows) == "of 5 that compile, 2 died and 1 are listed: 60.0%"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_of_mutants_that_fails_ends_the_run(tmp_path, monkeypatch, capfd):
    """The error of the process is the only one: no results are read that it lacks."""

    def run_share(*arguments):
        raise RuntimeError("the unchanged core fails")

    mutation = mutations.c_mutations("a.h", C)[0]
    out = tmp_path / "core.jsonl"
    monkeypatch.setattr(mutants, "all_mutations", lambda action: [mutation])
    monkeypatch.setattr(mutants, "read_reached", lambda options, names: {})
    monkeypatch.setattr(mutants, "run_share", run_share)
    monkeypatch.setattr(sys, "argv", ["mutants.py", "core", "1", "--out", str(out)])
    with pytest.raises(SystemExit, match="2 of 2 processes failed: see above"):
        mutants.main()
    assert capfd.readouterr().err.count("RuntimeError: the unchanged core fails") == 2


def test_a_mutant_of_the_kernels_has_a_place():
    changes = [m for m in mutations.c_mutations("a.h", C) if m.new == "<="]
    (place,) = (mutants_core.place_of(mutation, C) for mutation in changes)
    old = "if (count < 3 && step) {"
    assert place == ("a.h", "sum", old, old.replace("<", "<="))


@pytest.fixture(scope="module")
def of_kernels():
    if mutants_core.harness.compiler() != "gcc":
        pytest.skip("needs gcc")
    return mutants_core.core_mutations()


def test_mutants_of_the_kernels_change_the_objects(of_kernels):
    lines = mutants_core.lines_of_objects()
    assert {m.path for m in of_kernels} < lines.keys()
    assert all(m.line in lines[m.path] for m in of_kernels)
    assert mutants_core.ASSERTIONS in lines
    texts = {path: (mutants_core.ROOT / path).read_text() for path in lines}
    for mutation in of_kernels:
        assert "rp_assert" not in texts[mutation.path].splitlines()[mutation.line - 1]


def test_listed_mutants_are_in_the_tree_and_have_a_reason(of_kernels):
    texts = {path: (mutants_core.ROOT / path).read_text() for path, *_ in listed()}
    places = {
        mutants_core.place_of(mutation, texts[mutation.path])
        for mutation in of_kernels
        if mutation.path in texts
    }
    for place, reason in listed().items():
        assert place in places
        assert re.match("(Equal|Speed): [A-Z].*[.]$", reason), reason


def listed():
    return mutants_core.listed()


TESTED = """import pytest
@pytest.fixture
def sized(): return lambda quick, full: full
def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true")
    parser.addoption("--full", action="store_true")
"""
OF_A_MUTANT = """import a
def test_good(): pass
def test_value(): assert a.f() == 1
def test_time():
    while a.f() == 3: pass
"""


@pytest.mark.few(3)
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("value", "functions", "outcome"),
    [
        (1, ["good", "value", "time"], ("survived", "")),
        (2, ["good", "value", "time"], ("killed", "tests/test_a.py::test_value")),
        (2, ["good", "time"], ("survived", "")),
        (3, ["time", "value"], ("timeout", "")),
        ("(", ["good"], ("killed", "tests/test_a.py (not collected)")),
    ],
)
def test_a_process_runs_the_tests_of_a_changed_copy(
    value, functions, outcome, tmp_path
):
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (tmp_path / "a.py").write_text(f"def f(): return {value}\n")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "conftest.py").write_text(TESTED)
    (tmp_path / "tests" / "test_a.py").write_text(OF_A_MUTANT)
    names = [f"tests/test_a.py::test_{name}" for name in functions]
    seconds = 1.0 if value == 3 else 20.0
    assert mutants.run_tests(tmp_path, names, "quick", seconds) == outcome


OF_VARIANTS = """#include <stdio.h>
static int
largest(const int *of,
        int count)
{
    int found = of[0];
    for (int n = 1; n < count; n++)
        found = of[n] > found ? of[n] : found;
    return found + 2;
}

#define TWICE 2 /* what is before a function is not its type */
static void
add(int *to, const int more[], int count)
{
    *to += TWICE * more[count - 1];
}

int
main(void)
{
    int numbers[] = {3, 5, 4, 9}, sum = 1;
    add(&sum, numbers, 2);
    printf("%d %d", largest(numbers, 3), sum);
    return 0;
}
"""


@pytest.mark.skipif(mutants_core.harness.compiler() is None, reason="needs a compiler")
def test_a_variable_of_the_environment_chooses_a_mutation(tmp_path):
    """Each variant says what the text says to which its mutation was applied."""
    found = [
        mutation
        for mutation in mutations.c_mutations("a.c", OF_VARIANTS)
        if mutation.operator in ("operator", "+1") and mutation.line < 19
    ]
    assert len(found) > 6
    text = variants.with_variants(OF_VARIANTS, dict(enumerate(found)))
    text = variants.DECLARATION + text + variants.DEFINITION
    said = run_source(tmp_path / "all", text, None)
    assert said == run_source(tmp_path / "one", OF_VARIANTS, None) == "7 11"
    others = set()
    for number, mutation in enumerate(found):
        said = run_source(tmp_path / "all", text, number)
        assert said == run_source(tmp_path / "one", mutation.apply(OF_VARIANTS), None)
        others.add(said)
    assert len(others) > 4


def run_source(folder, text, number):
    """Compile and run a program; return what it says."""
    folder.mkdir(exist_ok=True)
    (folder / "a.c").write_text(text)
    words = [mutants_core.harness.compiler(), "-w", "-o", folder / "a", folder / "a.c"]
    subprocess.run(words, check=True)
    chosen = {} if number is None else {variants.VARIABLE: str(number)}
    done = subprocess.run(
        [folder / "a"], check=True, capture_output=True, env=os.environ | chosen
    )
    return done.stdout.decode()


class FakeBuild:
    """A build whose program fails with mutation 0, and whose compiler refuses 1."""

    def __init__(self, folder, tree, cc, flags):
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)

    def objects(self, names):
        text = (self.folder / "sources/csrc/a.h").read_text()
        if "_mutant1(" in text:
            raise RuntimeError("a.h: In function 'sum_mutant1':\na.h:1:1: error: ..")
        return names

    def program(self, name, kernels, objects):
        program = self.folder / name
        program.write_text('#!/bin/sh\n[ "$RELPOS_MUTANT" != 0 ] || exit 3\n')
        program.chmod(0o755)
        return program


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
def test_mutants_that_the_compiler_refuses_are_left_out(tmp_path, monkeypatch):
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc/a.h").write_text(C)
    (tmp_path / "csrc/relpos.h").write_text("#ifndef A\n#define A\n#endif\n")
    (tmp_path / "tests/core").mkdir(parents=True)
    (tmp_path / "tests/core/wrapped.c").write_text("")
    monkeypatch.setattr(mutants_core.harness, "Build", FakeBuild)
    monkeypatch.setattr(mutants_core, "wider_objects", lambda: ("avx2_f32",))
    chosen = mutations.c_mutations("csrc/a.h", C)[:3]
    programs = mutants_core.Programs(tmp_path, chosen)
    rows = [programs.judge(mutation) for mutation in chosen]
    assert [row["verdict"] for row in rows] == ["killed", "invalid", "survived"]
    assert rows[0]["by"] == "base_f32: " and rows[0]["cases"] == "random"
    built = [(name, "sanitize" in flags) for name, flags in programs.built]
    assert built == [
        ("base_f32", False),
        ("base_f64", False),
        ("avx2_f32", False),
        ("base_f32", True),
    ]
    shared = tmp_path / "build/variants0/sources/csrc/relpos.h"
    assert shared.read_text().count(variants.DECLARATION) == 1


PROGRAM = """#!/bin/sh
[ "$*" = "all all 1 400" ] || exit 7
%s
"""


@pytest.mark.skipif(os.name != "posix", reason="needs a shell")
@pytest.mark.parametrize(
    ("end", "verdict", "by"),
    [
        ("exit 0", "survived", ""),
        ("echo first >&2; echo second >&2; exit 1", "killed", "first"),
        ("kill -SEGV $$", "killed", "signal 11"),
        ("while :; do :; done", "timeout", "the program did not end"),
    ],
)
def test_a_program_of_a_mutant_ends_well_or_not(
    end, verdict, by, tmp_path, monkeypatch
):
    monkeypatch.setattr(mutants_core, "LIMIT", 1)
    program = tmp_path / "core"
    program.write_text(PROGRAM % end)
    program.chmod(0o755)
    row = mutants_core.run_program(program, *mutants_core.STEPS["random"])
    assert row == {"verdict": verdict, "by": by}


def test_lines_that_programs_do_not_run_are_counted(tmp_path, monkeypatch):
    names = ("csrc/kernels/a.h", "csrc/python/b.c", "csrc/runtime/c.c")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(C, encoding="utf-8")
    excepted = {names[2]: {"sum": "a reason"}}
    monkeypatch.setattr(covered_core, "ROOT", tmp_path)
    monkeypatch.setattr(covered_core, "EXCEPTIONS", excepted)
    lines = {"11": [3, []], "7": [0, []], "9": [0, []]}
    share = covered_core.share_of(dict.fromkeys(names, lines))
    assert share == (2, {names[0]: [7, 9]}, {(names[2], "sum"): 2})
    assert share.percent == 50


def test_less_covered_files_of_c_and_relpos_as_a_whole_are_listed():
    def summary(**lines):
        files = {
            name: {"lines_not_run": [*range(count)], "branches_not_run": []}
            for name, count in lines.items()
        }
        c = {name: known for name, known in files.items() if name.startswith("c")}
        return {"c": c, "python": {n: x for n, x in files.items() if n not in c}}

    before = summary(c1=2, c2=0, p1=1, p2=1)
    assert covered.grown(before, summary(c1=1, c2=0, p1=2, p2=0)) == []
    assert len(covered.grown(before, summary(c1=1, c2=1, p1=3, p2=0))) == 2


TESTS = """
import pytest
test_of_rows = refused("f")

@pytest.mark.parametrize("x", [1, 2])
def test_of_cases(x):
    def test_inside():
        pass

class TestGroup:
    def test_method(self):
        pass

class Layer:
    def test_of_no_group(self):
        pass

def helper():
    pass
"""
#: The functions of TESTS in a file of this name.
A_FILE = "tests/folder/test_a.py"
FUNCTIONS = {
    f"{A_FILE}::test_of_rows",
    f"{A_FILE}::test_of_cases",
    f"{A_FILE}::TestGroup::test_method",
}


def test_test_functions_are_read_from_the_source(tmp_path):
    path = tmp_path / A_FILE
    path.parent.mkdir(parents=True)
    path.write_text(TESTS, encoding="utf-8")
    path.with_name("shared.py").write_text(TESTS, encoding="utf-8")
    assert never_passed.functions_in(tmp_path) == FUNCTIONS


@pytest.mark.parametrize(
    ("ids", "reasons", "faults"),
    [
        (["test_of_rows[x[0]-1]", "test_of_cases", "TestGroup::test_method[1]"], [], 0),
        (["test_of_rows", "test_of_cases[2]"], [], 1),
        (["test_of_rows", "test_of_cases[2]"], ["TestGroup::test_method"], 0),
        (["test_of_rows", "test_of_cases[2]"], ["TestGroup::test_meth"], 2),
        (["test_of_rows", "TestGroup::test_method"], ["test_of_rows"], 2),
        ([], [], 3),
    ],
)
def test_functions_that_passed_nowhere_are_listed(ids, reasons, faults):
    passed = never_passed.functions_of(f"{A_FILE}::{name}" for name in ids)
    known = {f"{A_FILE}::{name}": "needs another CPU" for name in reasons}
    assert len(never_passed.faults(FUNCTIONS, passed, known)) == faults


def test_the_list_of_what_passed_nowhere_fails(tmp_path, monkeypatch, capsys):
    path = tmp_path / A_FILE
    path.parent.mkdir(parents=True)
    path.write_text(TESTS, encoding="utf-8")
    files = [tmp_path / "passed-one", tmp_path / "passed-two"]
    files[0].write_text(f"{A_FILE}::test_of_rows[1]\n{A_FILE}::test_of_rows[2]\n")
    files[1].write_text(f"{A_FILE}::test_of_cases[a-b]\nrelpos/x.py::relpos.x\n")
    words = ["never_passed.py", *map(str, files), "--root", str(tmp_path)]
    monkeypatch.setattr("sys.argv", words)
    monkeypatch.setattr(never_passed, "REASONS", {})
    assert never_passed.main() == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed == [
        "passed-one: 2 cases, of 1 functions",
        "passed-two: 2 cases, of 1 functions",
        "2 of 3 test functions passed",
        f"passed nowhere: {A_FILE}::TestGroup::test_method",
    ]
    reason = {f"{A_FILE}::TestGroup::test_method": "needs another CPU"}
    monkeypatch.setattr(never_passed, "REASONS", reason)
    assert never_passed.main() == 0
    assert "needs another CPU" in capsys.readouterr().out


DOC = """Return a sum.

Parameters
----------
query : array, shape (..., L, D)
    In radians.
key, value : array
    Others.

Returns
-------
Array
    Of shape (L, D).

Raises
------
ValueError
    For a table with an even number of rows.
TypeError
    As `attention`.

References
----------
.. [1] Shaw, "Self-Attention", 2018.
"""


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        ("key, value : array", "value : array", ("parameter", "key")),
        ("(..., L, D)", "any", ("shape", "query (..., L, D)")),
        ("radians", "whatever", ("unit", "radian")),
        ('.. [1] Shaw, "Self-Attention", 2018.', "", ("source", None)),
        ("For a table with an even number of rows", "As `x`", ("error", None)),
        ("TypeError\n    As `attention`.\n", "", ("error", "TypeError: ")),
    ],
)
def test_what_help_lost_is_listed(old, new, lost):
    assert old in DOC
    before = {"relpos.f": {"signature": "(query)", "doc": DOC}}
    after = {"relpos.f": {"signature": "(query)", "doc": DOC.replace(old, new)}}
    lines = signatures.differences(before, after)
    said = [line for line in lines if f"help lost {lost[0]} {lost[1] or ''}" in line]
    assert len(said) == 1
    assert signatures.differences(before, before) == []


def test_errors_and_sources_may_be_worded_anew():
    changed = DOC.replace("For a table with an", "The table has an").replace(
        'Shaw, "Self-Attention", 2018.', 'Shaw, "Self-Attention" (2018)'
    )
    before = {"relpos.f": {"signature": "", "doc": DOC}}
    after = {"relpos.f": {"signature": "", "doc": changed}}
    assert changed != DOC and signatures.differences(before, after) == []


def test_names_and_signatures_that_differ_are_listed():
    before = {n: {"signature": "(x)", "doc": ""} for n in ("relpos.f", "relpos.g")}
    after = {"relpos.g": {"signature": "(x, y)", "doc": ""}}
    lines = signatures.differences(before, after)
    assert lines[0] == "gone: relpos.f" and "(x, y)" in lines[-1]


@pytest.mark.skipif(not BUDGET.exists(), reason="no source tree")
def test_budget_counts_code_docstrings_and_comments():
    loader = importlib.machinery.SourceFileLoader("budget", str(BUDGET))
    budget = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("budget", loader)
    )
    loader.exec_module(budget)
    text = (
        '"""One.\n\nThree.\n"""\n\n# a comment\nx = (\n    1,  # one\n    # two\n\n)\n'
    )
    assert budget.count_lines(text) == (3, 4, 2)
    assert budget.count_lines('def f():\n    """Say."""\n    "no docstring"\n') == (
        2,
        1,
        0,
    )
    counted = {"relpos/a.py": (1, 2, 3), "tests/b.py": (10, 20, 30)}
    assert budget.add_up(counted) == (11, 22, 33)
    assert budget.add_up(counted, "relpos/") == (1, 2, 3)
    assert budget.is_python(".ci/x", b"#!/usr/bin/env python3\n")
    assert not budget.is_python(".ci/x", b"#!/usr/bin/env bash\n# python\n")


#: A tree with the strict settings and the options of this one, and a test that passes.
TOY = {
    "pyproject.toml": '[tool.pytest.ini_options]\nfilterwarnings = ["error"]\n',
    "conftest.py": (
        "def pytest_addoption(parser):\n"
        "    parser.addoption('--quick', action='store_true')\n"
    ),
    "test_toy.py": "def test_passes(): pass\n\ndef test_fails(): assert False\n",
}
ASK = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import mutants
mutants.prepare_imports()
for name in ("test_passes", "test_fails"):
    functions = [f"test_toy.py::{name}"]
    print(mutants.run_tests(Path(sys.argv[2]), functions, "quick", 60.0).verdict)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_mutant_survives_tests_that_pass_and_is_killed_by_one_that_fails(tmp_path):
    for name, text in TOY.items():
        (tmp_path / name).write_text(text)
    tools = str(Path(mutants.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", ASK, tools, str(tmp_path)],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.split() == ["survived", "killed"], done.stderr
