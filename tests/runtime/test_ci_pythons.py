""".ci/pythons: what cannot be had is named and skipped, and one Python is enough.

Scripts take the places of apt-get, whose mirror is down, and of pip; Pythons are links
to the one that runs this, or do not run.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from documents import ROOT

PYTHONS = ROOT / ".ci" / "pythons"
HEADERS = Path(sysconfig.get_path("include"))
pytestmark = [
    pytest.mark.skipif(not PYTHONS.exists(), reason="no source tree"),
    pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash"),
    pytest.mark.skipif(not (HEADERS / "Python.h").is_file(), reason="needs headers"),
]
VERSIONS = ["3.12", "3.13", "3.14", "3.14t", "3.15"]
NO_WHEELS = "exit 1"
PIP = """
[ "$1" = --python ] && tests=$(dirname "$2")/pytest
printf '#!/bin/sh\\necho run in "$PWD"; exit %s\\n' "$TESTS_STATUS" >"$tests"
chmod +x "$tests"
"""


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def pythons(tmp_path):
    """Runs .ci/pythons with the named versions and that pip: (status, lines)."""
    for name in ("source", "bin"):
        (tmp_path / name).mkdir()
    script(tmp_path / "bin" / "apt-get", "exit 100")

    def run(versions, pip, tests=0):
        for version in VERSIONS:
            program = tmp_path / "bin" / f"python{version}"
            if version in versions:
                program.symlink_to(Path(sys.executable).resolve())
            else:
                script(program, "exit 1")
        script(tmp_path / "bin" / "pip", pip)
        done = subprocess.run(
            ["bash", PYTHONS, tmp_path / "source", tmp_path / "bin", "pytest"],
            check=False,
            env={
                "PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin",
                "HOME": str(tmp_path),
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "TESTS_STATUS": str(tests),
            },
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout.splitlines()

    return run


def test_one_python_is_enough_and_the_others_are_named(pythons):
    status, lines = pythons(["3.13", "3.15"], PIP)
    assert status == 0
    assert lines[0].startswith("Debian's unstable suite cannot be had")
    assert "Python 3.14t: cannot be had here; skipped" in lines
    assert sum(line.startswith("run in") for line in lines) == 2
    assert lines[-1] == "tried: 3.13 3.15; skipped: 3.12 3.14 3.14t"


def test_a_python_whose_tests_fail_fails(pythons):
    status, lines = pythons(["3.13", "3.15"], PIP, tests=1)
    assert status == 1
    assert lines[-1].startswith("run in")


def test_without_wheels_a_python_is_skipped_and_none_at_all_fails(pythons, monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    status, lines = pythons(["3.15"], NO_WHEELS)
    assert status == 1
    assert "no wheels for numpy>=2" in lines
    assert "Python 3.15: what the tests need cannot be had; skipped" in lines
    assert lines[-1] == "tried: none; skipped: 3.12 3.13 3.14 3.14t 3.15"
