"""docs/seeds.md: its code runs, its items are there, and the sections that it names."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import numpy as np
import pytest
from documents import ROOT, text

pytest.importorskip("matplotlib").use("agg")
pyplot = pytest.importorskip("matplotlib.pyplot")

PAGE = "docs/seeds.md"
if not (ROOT / PAGE).exists():
    pytest.skip("no docs/ in this tree", allow_module_level=True)

INTRODUCTION, *DOCUMENTS = re.split(r"^## ", text(PAGE), flags=re.MULTILINE)
LINKS = dict(re.findall(r"^\[(\w+)\]: (\S+)$", text(PAGE), re.MULTILINE))
ITEMS = (36, 27, 39, 32)
FENCED = re.compile(
    r"^```(?:python|\{picture\} [^\n]*\n:open:\n:page:\n)\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def sections_of(document):
    """The titles of a document's sections, and their texts."""
    parts = re.split(r"^### (.*)\n", document, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def items_of(section):
    """The text of each item, by its number."""
    found = re.findall(r"^(\d+)\. (.*(?:\n   .*)*)", section, re.MULTILINE)
    return {int(number): " ".join(words.split()) for number, words in found}


def headings(path):
    """The sections of a notebook, or of a page."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(source)["cells"]
        source = "\n".join(
            "".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"
        )
    return re.findall(r"^## (.*)$", source, re.MULTILINE)


def run(block, names):
    """A block of code; an expression that is True or False has to be True."""
    for line in ast.parse(block).body:
        code = ast.unparse(line)
        if isinstance(line, ast.Expr):
            value = eval(code, names)
            assert not isinstance(value, bool | np.bool_) or value, code
        else:
            exec(code, names)


def run_document(document, skipped=("torch", "twin")):
    """All blocks of a document in turn but those with one of the words `skipped`."""
    names: dict[str, object] = {}
    for block in FENCED.findall(INTRODUCTION) + FENCED.findall(document):
        if not any(re.search(rf"\b{word}\b", block) for word in skipped):
            run(block, names)
    pyplot.close("all")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda text: text.split("\n")[0])
def test_every_line_runs(document):
    assert len(FENCED.findall(document)) > 5
    run_document(document)


@pytest.mark.torch
def test_lines_with_tensors_run():
    pytest.importorskip("torch")
    documents = [text for text in DOCUMENTS if "import torch" in text]
    assert len(documents) == 2
    for document in documents:
        run_document(document, skipped=())


def test_every_item_is_there():
    """Each has lines of code, a picture, or the reason why relpos does not have it."""
    assert str(sum(ITEMS)) in INTRODUCTION
    for document, count in zip(DOCUMENTS, ITEMS, strict=True):
        assert f"{count} items" in " ".join(document.split())
        sections = sections_of(document)
        assert sum(len(items_of(section)) for _, section in sections) == count
        for title, section in sections:
            items = items_of(section)
            assert list(items) == list(range(1, len(items) + 1)), title
            codes = re.findall(r"^# (\d+)$", section, re.MULTILINE)
            left = [n for n, words in items.items() if f"{n}" not in codes]
            pictures = [n for n in left if "**Left out:**" not in items[n]]
            assert len(pictures) <= section.count("```{picture} "), title


def test_code_is_as_narrow_as_a_column_of_the_page():
    for block in FENCED.findall(text(PAGE)):
        assert max(map(len, block.splitlines())) <= 78, block


@pytest.mark.skipif(
    not [*(ROOT / "docs" / "notebooks").glob("*.ipynb")], reason="no notebooks here"
)
def test_sections_that_are_named_are_there():
    named = set()
    for shown in re.findall(r"^Shown in (.*(?:\n.+)*)\.$", text(PAGE), re.MULTILINE):
        for part in " ".join(shown.split()).split("; "):
            _, link, titles = re.fullmatch(r"\[(.*?)\]\[(\w+)\]: (.*)", part).groups()
            there = headings(ROOT / "docs" / LINKS[link])
            assert {*re.findall(r'"([^"]+)"', titles)} <= {*there}, part
            named.add(link)
    assert named == LINKS.keys()
    for link, path in LINKS.items():
        assert Path(path).name.startswith(link)
