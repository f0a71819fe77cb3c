""".ci/release: what it refuses before it builds anything; .ci/sdist_size."""

import os
import shutil
import subprocess

import pytest
from documents import ROOT

CI = ROOT / ".ci"
missing = [tool for tool in ("bash", "git") if shutil.which(tool) is None]
pytestmark = [
    pytest.mark.skipif(not CI.exists(), reason="no source tree"),
    pytest.mark.skipif(bool(missing), reason=f"needs {missing}"),
]
NAMES = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b"}
NAMES |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}


@pytest.fixture
def tree(tmp_path):
    """A repository whose changelog begins with 1.3.0; runs commands in it."""
    files = {
        "CHANGELOG.md": "# Changes\n\n## 1.3.0\n\n## 1.2.0\n",
        "CITATION.cff": "title: x\nversion: 1.2.0\n",
        "README.md": "This is version 1.2.0, of many.\n",
        "relpos/__init__.py": '__version__ = "1.2.0"\n',
        ".ci/run": "#!/usr/bin/env bash\necho stages; exit 1\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    shutil.copy(CI / "release", tmp_path / ".ci")
    (tmp_path / ".ci" / "run").chmod(0o755)

    def run(*command):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        return subprocess.run(
            command,
            check=False,
            cwd=tmp_path,
            env={**environment, **NAMES},
            capture_output=True,
            text=True,
        )

    run("git", "init", "-q")
    run("git", "add", "-A")
    run("git", "commit", "-q", "-m", "x")
    return run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "expected a version such as 1.2.3"),
        (["v1.3.0"], "expected a version such as 1.2.3"),
        (["1.3.0", "--fast"], "expected --no-ci, got --fast"),
        (["1.4.0"], "CHANGELOG.md begins with 1.3.0, not with 1.4.0"),
    ],
)
def test_what_cannot_be_released_is_refused(tree, arguments, words):
    done = tree("bash", ".ci/release", *arguments)
    assert (done.returncode, done.stderr) == (1, f"release: {words}\n")
    assert tree("git", "status", "--porcelain").stdout == ""


def test_changes_that_are_not_committed_are_refused(tree, tmp_path):
    (tmp_path / "new").write_text("x")
    done = tree("bash", ".ci/release", "1.3.0")
    assert "commit or remove" in done.stderr and done.returncode == 1


def test_a_released_version_is_refused(tree):
    tree("git", "tag", "v1.3.0")
    done = tree("bash", ".ci/release", "1.3.0")
    assert done.stderr == "release: the tag v1.3.0 exists\n"


def test_the_version_is_written_and_stages_that_fail_end_it(tree, tmp_path):
    done = tree("bash", ".ci/release", "1.3.0")
    assert (done.returncode, done.stdout) == (1, "stages\n")
    assert (tmp_path / "relpos/__init__.py").read_text() == '__version__ = "1.3.0"\n'
    assert (tmp_path / "CITATION.cff").read_text() == "title: x\nversion: 1.3.0\n"
    readme = (tmp_path / "README.md").read_text()
    assert readme == "This is version 1.3.0, of many.\n"
    assert tree("git", "log", "-1", "--format=%s").stdout == (
        "Release 1.3.0: the version\n"
    )
    assert not (tmp_path / "dist").exists()


@pytest.mark.parametrize(("size", "status"), [(8_000_000, 0), (8_000_001, 1)])
def test_an_sdist_above_eight_megabytes_fails(tmp_path, size, status):
    path = tmp_path / "relpos-1.tar.gz"
    with path.open("wb") as file:
        file.truncate(size)
    done = subprocess.run(
        [CI / "sdist_size", path], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (
        status,
        f"relpos-1.tar.gz: {size} bytes of 8000000\n",
    )
