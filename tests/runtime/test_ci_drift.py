""".ci/drift: its table, its status, and what it makes of an index and of pytest.

An environment that installs nothing takes the place of its own.
"""

import importlib.machinery
import importlib.util
import sys
import time

import pytest
from documents import ROOT

SCRIPT = ROOT / ".ci" / "drift"
pytestmark = pytest.mark.skipif(not SCRIPT.exists(), reason="no source tree")
TESTED = """
[oldest]
torch = "2.6.0"
transformers = "5.23.0"
[newest]
torch = "2.14.1"
transformers = "5.24.0"
"""


@pytest.fixture
def drift(monkeypatch):
    """The script as a module."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader = importlib.machinery.SourceFileLoader("drift", str(SCRIPT))
    spec = importlib.util.spec_from_loader("drift", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture
def run(drift, monkeypatch, tmp_path, capsys):
    """Runs main where what `fails` names fails: (status, rows of the table, asked)."""
    (tmp_path / "relpos").mkdir()
    (tmp_path / "relpos" / "tested.toml").write_text(TESTED)

    def run(*fails):
        asked = []

        class Environment(drift.Environment):
            def __enter__(self):
                self.folder.mkdir()
                asked.append("made")
                return self

            def __exit__(self, *error):
                super().__exit__(*error)
                asked.append("removed")

            def install(self, *requirements):
                asked.append(requirements)
                return not any(text in fails for text in requirements)

            def versions(self):
                return "torch 1, transformers 2\n"

            def test(self, source, arguments):
                assert source == tmp_path and self.folder.exists()
                return (5, int(arguments[0] in fails), 2)

        monkeypatch.setattr(drift, "Environment", Environment)
        monkeypatch.setattr(drift, "newer", lambda *_: ["torch: the index has 9.9"])
        status = drift.main("relpos.whl", tmp_path, tmp_path)
        said = capsys.readouterr().out
        assert said.endswith("\ntorch: the index has 9.9\n")
        table = said.partition("\nenvironment ")[2].splitlines()[1:5]
        return status, table, asked

    return run


def test_both_sets_are_installed_tested_and_removed_one_after_the_other(run):
    status, table, asked = run()
    assert status == 0
    assert [item for item in asked if isinstance(item, str)] == ["made", "removed"] * 2
    names = [row.partition("  ")[0] for row in table]
    steps = ("without transformers", "with transformers")
    assert names == [
        f"{name}, {step}" for name in ("oldest", "newest") for step in steps
    ]
    assert all(row.endswith("torch 1, transformers 2") for row in table)
    assert [row.split()[-8:-5] for row in table] == [
        ["15", "0", "6"],
        ["5", "0", "2"],
    ] * 2
    first, last = asked[1:3]
    assert first[0].endswith("relpos.whl[test,plot,dask,torch]")
    assert first[1:] == ("torch==2.6.0.*", "xarray")
    assert last == ("transformers==5.23.0.*",)


@pytest.mark.parametrize("fault", ["tests/sharded", "--pyargs", "torch==2.6.0.*"])
def test_a_failure_fails_after_all_were_tried(run, fault):
    status, table, asked = run(fault)
    assert status == 1 and asked.count("removed") == 2 and len(table) == 4
    assert ("cannot be installed" in table[0]) == (fault == "torch==2.6.0.*")


NEWER = "torch: the index has 2.15.0, newer than 2.14.1"


@pytest.mark.parametrize(
    ("printed", "line"),
    [
        ("torch (2.15.0)\nAvailable versions: 2.15.0, 2.14.1", [NEWER]),
        ("torch (2.14.1)\n", []),
        ("torch (2.9.1)\n", []),
        ("", ["torch: the index gives no version"]),
    ],
)
def test_a_newer_version_in_the_index_is_named(drift, printed, line):
    pip = [sys.executable, "-c", f"print({printed!r})"]
    assert [*drift.newer(pip, {"torch": "2.14.1"})] == line


def test_versions_are_those_of_the_relpos_that_is_installed(
    drift, tmp_path, monkeypatch
):
    (tmp_path / "relpos.py").write_text("raise ImportError('sources, not built')")
    monkeypatch.chdir(tmp_path)
    environment = drift.Environment(tmp_path)
    environment.python = sys.executable
    assert environment.versions().startswith("numpy ")


@pytest.mark.parametrize(
    ("tests", "counts"),
    [
        ("def test_a(): pass\ndef test_b(): pass", (2, 0, 0)),
        ("def test_a(): pass\ndef test_b(): assert 0", (1, 1, 0)),
        ("import pytest\n@pytest.mark.skip\ndef test_a(): pass", (0, 0, 1)),
        ("import nothing_of_this_name", (0, 1, 0)),
        ("raise SystemExit(3)", (0, 1, 0)),
    ],
)
def test_what_pytest_reports_is_counted(drift, tmp_path, tests, counts):
    (tmp_path / "test_it.py").write_text(tests)
    environment = drift.Environment(tmp_path)
    environment.pytest = [sys.executable, "-m", "pytest"]
    assert environment.test(tmp_path, ["test_it.py"]) == counts


def test_what_takes_too_long_is_stopped_and_fails(drift, tmp_path, monkeypatch):
    (tmp_path / "test_it.py").write_text("import time\ndef test_a(): time.sleep(600)")
    monkeypatch.setattr(drift, "DEADLINE", time.monotonic() + 3)
    environment = drift.Environment(tmp_path)
    environment.pytest = [sys.executable, "-m", "pytest"]
    assert environment.test(tmp_path, ["test_it.py"]) == (0, 1, 0)
