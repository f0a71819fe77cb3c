"""The command `relpos`: its version, its names, and what pyproject.toml says of it."""

import re
import subprocess
import sys
import tomllib

import pytest
from documents import ROOT

import relpos
from relpos import __main__

no_tree = pytest.mark.skipif(
    not (ROOT / "pyproject.toml").exists(), reason="no source tree"
)


def test_version_names_the_instruction_set_and_the_build(capsys):
    with pytest.raises(SystemExit) as stop:
        __main__.main(["--version"])
    facts = relpos.show_config(mode="dicts")
    assert stop.value.code == 0
    assert capsys.readouterr().out == (
        f"relpos {facts['version']} ({facts['isa']}; "
        f"{facts['compiler']}, blas {facts['blas']})\n"
    )


def test_the_module_is_the_same_command():
    done = subprocess.run(
        [sys.executable, "-m", "relpos", "--version"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"relpos {relpos.__version__} (")


@pytest.mark.parametrize("command", ["info", "demo --no-plots"])
def test_a_reader_that_has_gone_is_no_error(command):
    """As of `python -m relpos info | head -1`."""
    with subprocess.Popen(
        [sys.executable, "-m", "relpos", *command.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.close()  # before anything is printed
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.parametrize("missing", [["transformers"], ["torch", "transformers"]])
def test_models_tells_what_to_install(monkeypatch, capsys, missing):
    monkeypatch.setattr(
        __main__, "find_spec", lambda name: None if name in missing else name
    )
    assert __main__.main(["models"]) == 1
    written = capsys.readouterr()
    assert written.out == ""
    assert f"not installed: {', '.join(missing)}; run `pip install" in written.err
    assert written.err.endswith(f"{' '.join(missing)}`\n")


@pytest.mark.parametrize(
    ("started", "name"),
    [("/bin/relpos", "relpos"), ("relpos/__main__.py", "python -m relpos")],
)
def test_help_names_the_command_that_was_called(monkeypatch, started, name):
    monkeypatch.setattr(sys, "argv", [started])
    assert __main__.parser().prog == name


def project():
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@no_tree
def test_the_entry_point_is_the_main_function():
    module, _, function = project()["scripts"]["relpos"].partition(":")
    assert module == __main__.__name__ and getattr(__main__, function) is __main__.main


@no_tree
def test_classifiers_name_each_python_that_is_tested():
    found = re.findall(r"Python :: (3\.\d+)'", str(project()["classifiers"]))
    script = (ROOT / ".ci" / "pythons").read_text("utf-8")
    newer = re.search(r"^wanted=\((.*)\)$", script, re.MULTILINE)[1].split()
    oldest = project()["requires-python"].removeprefix(">=")
    assert found == [oldest, *(name for name in newer if not name.endswith("t"))]


@no_tree
def test_the_issue_template_asks_for_the_facts():
    folder = ROOT / ".github" / "ISSUE_TEMPLATE"
    if not folder.exists():
        pytest.skip("a source distribution")
    assert "`python -m relpos info`" in (folder / "bug_report.md").read_text("utf-8")
