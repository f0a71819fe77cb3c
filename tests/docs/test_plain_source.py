"""Sources in Python have no stars over literals, which hide a list or keywords.

``[*("a", "b"), "c"]`` is ``["a", "b", "c"]``, and ``f(**{"scale": 2})`` is
``f(scale=2)``. Such stars keep items on one line where the formatter would give each
its own. A star over a name or a call joins what is known only when the program runs,
and stays: ``[*names, "c"]``. So does one over a dict that has a computed key, or that
joins dicts: ``f(**{name: 2})``, ``f(**{**keywords, "scale": 2})``.
"""

import ast
import re

import pytest
from documents import ROOT

FOLDERS = ("benchmarks", "docs", "relpos", "tests")
LITERALS = (ast.Dict, ast.List, ast.Set, ast.Tuple)
#: Text that a file with such a star has, as the formatter leaves no space behind one.
STAR = re.compile(r"\*[(\[{]")


def stars_over_literals(tree):
    """Yield the nodes with such a star; keys that are computed are no keywords."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Starred) and isinstance(node.value, LITERALS):
            yield node
        elif isinstance(node, ast.Dict):
            items = zip(node.keys, node.values, strict=True)
            yield from (x for key, x in items if key is None and type(x) is ast.Dict)
        elif isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg is None and could_be_keywords(keyword.value):
                    yield keyword.value


def could_be_keywords(value):
    """Tell whether ``**value`` is a literal with names; not one that joins dicts."""
    if not isinstance(value, ast.Dict) or None in value.keys:
        return False
    return any(isinstance(key, ast.Constant) for key in value.keys)


@pytest.mark.parametrize(
    "source",
    [
        'x = [*("a", "b"), "c"]',
        "f(*[1, 2], 3)",
        "x = {*{1, 2}, 3}",
        'f(**{"scale": 2})',
        'x = {**{"scale": 2}, "offset": 1}',
    ],
)
def test_stars_over_literals_are_found(source):
    assert STAR.search(source)
    assert len([*stars_over_literals(ast.parse(source))]) == 1


@pytest.mark.parametrize(
    "source",
    [
        'x = [*names, "c"]',
        "f(*args, **keywords)",
        "f(**{name: 2})",
        'f(**keywords | {"scale": 2})',
        'f(**{**keywords, "scale": 2})',
        'x = {**keywords, "offset": 1}',
    ],
)
def test_other_stars_are_not(source):
    assert not [*stars_over_literals(ast.parse(source))]


def test_sources_have_no_stars_over_literals():
    files = [ROOT / "setup.py"]
    for folder in FOLDERS:
        files += sorted((ROOT / folder).rglob("*.py"))
    for script in sorted((ROOT / ".ci").glob("*")):
        is_file = script.is_file()  # and not the folder of compiled modules
        if is_file and script.read_text().startswith("#!/usr/bin/env python"):
            files.append(script)
    found = []
    for path in files:
        name, text = path.relative_to(ROOT).as_posix(), path.read_text()
        if not STAR.search(text):
            continue
        for node in stars_over_literals(ast.parse(text)):
            found.append(f"{name}:{node.lineno}")
    assert not found
