"""docs/seeds.md: each line of its tables runs, each section that it names is there."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest
from documents import ROOT, blocks, text

pytest.importorskip("matplotlib").use("agg")
pyplot = pytest.importorskip("matplotlib.pyplot")

PAGE = "docs/seeds.md"
if not (ROOT / PAGE).exists():
    pytest.skip("no docs/ in this tree", allow_module_level=True)

INTRODUCTION, *DOCUMENTS = re.split(r"^## ", text(PAGE), flags=re.M)
LINKS = dict(re.findall(r"^\[(\w+)\]: (\S+)$", text(PAGE), re.M))
STATES = {"works", "holds", "holds in part", "data", "cannot"}
ITEMS = (36, 27, 39, 32)


def rows_of(document):
    """The cells of each item: its name, what it is, code, where shown, state."""
    lines = re.findall(r"^\| (?!\| item)(.*) \|$", document, re.M)
    return [line.split(" | ") for line in lines]


def headings(path):
    """The sections of a notebook, or of a page."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(source)["cells"]
        source = "\n".join(
            "".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"
        )
    return re.findall(r"^## (.*)$", source, re.M)


def run(line, names):
    """One line; an expression that is True or False has to be True."""
    if isinstance(ast.parse(line).body[-1], ast.Expr):
        value = eval(line, names)
        assert not isinstance(value, bool | np.bool_) or value, line
    else:
        exec(line, names)


def run_document(document, skipped=("torch", "twin")):
    """All lines of a table in turn but those with one of the words `skipped`."""
    names: dict[str, object] = {}
    for block in blocks(INTRODUCTION, "python") + blocks(document, "python"):
        exec(block, names)
    for item, _, code, *_ in rows_of(document):
        for line in re.findall(r"`([^`]+)`", code):
            if any(re.search(rf"\b{word}\b", line) for word in skipped):
                continue
            try:
                run(line, names)
            except Exception as error:
                error.add_note(f"{item}: {line}")
                raise
        pyplot.close("all")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda text: text.split("\n")[0])
def test_every_line_runs(document):
    run_document(document)


@pytest.mark.torch
def test_lines_with_tensors_run():
    pytest.importorskip("torch")
    documents = [text for text in DOCUMENTS if "import torch" in text]
    assert len(documents) == 2
    for document in documents:
        run_document(document, skipped=())


def test_every_item_is_there():
    """In two lines of code at most, none of them long; else it is said why."""
    assert tuple(len(rows_of(document)) for document in DOCUMENTS) == ITEMS
    assert str(sum(ITEMS)) in INTRODUCTION
    for document, count in zip(DOCUMENTS, ITEMS, strict=True):
        assert f"{count}\nitems" in document or f"{count} items" in document
        rows = rows_of(document)
        assert len({row[0] for row in rows}) == count
        for name, what, code, shown, state in rows:
            lines = re.findall(r"`([^`]+)`", code)
            assert len(lines) <= 2 and all(len(line) <= 100 for line in lines), name
            words = " ".join(lines).split()  # a long one makes the table too wide
            assert max(map(len, words), default=0) <= 48, name
            state, _, reason = state.partition(": ")
            assert state in STATES and what, name
            assert bool(lines) == bool(shown) != (state == "cannot"), name
            assert reason or state not in ("holds in part", "data", "cannot"), name


@pytest.mark.skipif(
    not [*(ROOT / "docs" / "notebooks").glob("*.ipynb")], reason="no notebooks here"
)
def test_sections_that_are_named_are_there():
    named = set()
    for row in (row for document in DOCUMENTS for row in rows_of(document)):
        for place in filter(None, row[3].split("<br>")):
            link, section = re.fullmatch(r"\[(\w+)\] (.+)", place).groups()
            assert section in headings(ROOT / "docs" / LINKS[link]), place
            named.add(link)
    assert named == LINKS.keys()
    for link, path in LINKS.items():
        assert Path(path).name.startswith(link)
