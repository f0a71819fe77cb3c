"""The repository's root: its texts, their sections, blocks, examples; experiments."""

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def text(name):
    """A file at the root, whole."""
    return (ROOT / name).read_text(encoding="utf-8")


def experiment(name):
    """A module of docs/experiments, which only the source tree has."""
    if not (ROOT / "docs" / "experiments").exists():
        pytest.skip("no docs/ in this tree")
    return import_module(f"docs.experiments.{name}")


def page_as_written(monkeypatch, extension):
    """The page that an extension of the site writes, which is as it writes it today."""
    folder = ROOT / "docs" / "_extensions"
    if not folder.exists():
        pytest.skip("no docs/ in this tree")
    monkeypatch.syspath_prepend(folder)
    page = import_module(extension)
    found = page.PAGE.read_text(encoding="utf-8")
    assert page.written(found) == found
    return found


def section(name, title):
    """The text under a heading, up to the next one."""
    found = re.search(
        rf"^## {title}\n(.*?)(?=^## |\Z)", text(name), re.MULTILINE | re.DOTALL
    )
    assert found, f"{name}: no heading {title!r}"
    return found.group(1)


def blocks(source, language):
    """The fenced blocks of a language, indented ones included, without indentation."""
    fence = rf"^( *)```{language}\n(.*?)^ *```$"
    return [
        "".join(line.removeprefix(indent) for line in body.splitlines(keepends=True))
        for indent, body in re.findall(fence, source, re.MULTILINE | re.DOTALL)
    ]


def run_examples(name, least, language="python", names=None):
    """Runs the examples of a file, at least so many, and compares what they show.

    They have the names that are given. Returns the names that are there after them.
    """
    source = "\n".join(blocks(text(name), language))
    parser = doctest.DocTestParser()
    examples = parser.get_doctest(source, names or {}, name, name, 0)
    assert len(examples.examples) >= least
    said = []
    runner = doctest.DocTestRunner(verbose=False)
    failed, _ = runner.run(examples, out=said.append, clear_globs=False)
    assert failed == 0, "".join(said)
    return examples.globs
