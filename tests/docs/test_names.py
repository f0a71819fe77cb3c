"""Names in docstrings, messages and comments exist."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from pathlib import Path

import pytest
from documents import ROOT

import relpos

PACKAGE = Path(relpos.__file__).parent
NO_TORCH = importlib.util.find_spec("torch") is None


def strings(path):
    """Every string of a Python file: docstrings and messages, code left out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield re.sub(r"^ *(>>>|\.\.\.) .*", "", node.value, flags=re.MULTILINE)


def is_there(dotted):
    found = relpos
    if NO_TORCH and dotted.startswith("relpos.torch"):
        return True  # not to be had here
    for name in dotted.split(".")[1:]:
        try:
            found = getattr(found, name)
        except AttributeError:
            try:
                return bool(importlib.import_module(dotted))
            except ImportError:
                return False
    return True


def test_functions_and_modules():
    named = {
        (dotted, path.name)
        for path in PACKAGE.rglob("*.py")
        for text in strings(path)
        for dotted in re.findall(r"\brelpos(?:\.[a-zA-Z]\w*)+", text)
    }
    assert len({dotted for dotted, _ in named}) > 10
    assert [pair for pair in named if not is_there(pair[0])] == []


@pytest.mark.skipif(not (ROOT / "csrc").exists(), reason="no csrc/ in this tree")
def test_files_in_the_comments_of_c():
    named = {
        (file, path.name)
        for path in (ROOT / "csrc").rglob("*.[ch]")
        for file in re.findall(r"[\w/]+\.(?:md|py)\b", path.read_text(encoding="utf-8"))
    }
    assert named
    assert [pair for pair in named if not (ROOT / pair[0]).exists()] == []


#: relpos is not in a package index: its extras are installed from a checkout.
FROM_AN_INDEX = re.compile(
    r"pip install(?: +-[-\w]+)* +[\"']?relpos(?![\w/])|(?<![\w/.-])relpos\["
)
TEXTS = ("relpos/**/*.py", "relpos/**/*.toml", "docs/**/*.md", "docs/**/*.ipynb")
TEXTS += (
    "*.md",
    "benchmarks/**/*.md",
    "benchmarks/**/*.py",
    "csrc/**/*.md",
    "setup.py",
)


def installs(source):
    """Return what a text installs by a name that no package index has."""
    joined = re.sub(r"\"\s*\n\s*f?\"", "", source)  # of a message in several lines
    return [found.group() for found in FROM_AN_INDEX.finditer(joined)]


def test_no_text_installs_relpos_from_a_package_index():
    for wrong in (
        "run `pip install 'relpos[torch]'`",
        'comes with ``pip install "relpos[plot]"``',
        '"run `pip install "\n        "\'relpos[dask]\'`"',
        "pip install relpos",
        "python -m pip install -U relpos",
        "the extra relpos[files]",
    ):
        assert installs(wrong), wrong
    for right in (
        "pip install '.[torch]'",
        '%pip install -q "path/to/relpos[plot]"',
        "`pip install torch`, and relpos",
    ):
        assert not installs(right), right
    paths = {path for pattern in TEXTS for path in ROOT.glob(pattern)}
    assert len(paths) > 100
    found = {
        str(path.relative_to(ROOT)): installs(path.read_text("utf-8")) for path in paths
    }
    assert {name: each for name, each in found.items() if each} == {}
