"""README.md: its examples run, its commands are one line, its tables are complete."""

import doctest
import re
from pathlib import Path

import pytest

import relpos

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
pytestmark = pytest.mark.skipif(not README.exists(), reason="no README beside tests/")


def text():
    return README.read_text(encoding="utf-8")


def section(title):
    """The text under a heading, up to the next one."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text(), re.M | re.S)
    assert found, f"no heading {title!r}"
    return found.group(1)


def blocks(source, language):
    """The fenced blocks of a language, indented ones included, without indentation."""
    fence = rf"^( *)```{language}\n(.*?)^ *```$"
    return [
        "".join(line.removeprefix(indent) for line in body.splitlines(keepends=True))
        for indent, body in re.findall(fence, source, re.M | re.S)
    ]


def test_examples_give_the_output_they_show(monkeypatch):
    monkeypatch.chdir(ROOT)
    source = "\n".join(blocks(text(), "python"))
    examples = doctest.DocTestParser().get_doctest(source, {}, "README", "README.md", 0)
    assert len(examples.examples) >= 12
    said = []
    failed, _ = doctest.DocTestRunner(verbose=False).run(examples, out=said.append)
    assert failed == 0, "".join(said)


@pytest.mark.parametrize(
    ("title", "ending"),
    [("Run it", "-m relpos demo"), ("Test it", "-m pytest -q")],
)
def test_one_command_does_it_all(title, ending):
    fenced = re.findall(r"^```.*?^```$", section(title), re.M | re.S)
    assert len(fenced) == 1
    (command,) = fenced[0].splitlines()[1:-1]
    assert command.startswith("python3 -m venv .venv && ")
    assert command.endswith(ending)


def test_the_table_names_every_public_function_and_no_other():
    rows = re.findall(r"^\| (`.*?) \|", section("Functions"), re.M)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    public = {
        name
        for name in relpos.__all__
        if not name.startswith("_") and not isinstance(getattr(relpos, name), type)
    }
    assert listed == public


def test_the_map_names_what_is_there():
    (tree,) = blocks(section("Where things are"), "text")
    named = [line.split()[0] for line in tree.splitlines()]
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []
