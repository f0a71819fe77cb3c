"""csrc/README.md and the C code: what the one names, the other has; names are plain."""

from __future__ import annotations

import re

import pytest
from documents import ROOT

CSRC = ROOT / "csrc"
pytestmark = pytest.mark.skipif(not CSRC.is_dir(), reason="needs the source tree")
SOURCES = sorted(CSRC.rglob("*.[ch]"))


def blocks():
    """The code blocks of the README: the files, forward, backward."""
    return re.findall(r"```text\n(.*?)```", (CSRC / "README.md").read_text(), re.DOTALL)


def test_the_readme_names_files_that_exist():
    files, *_ = blocks()
    named = re.findall(r"^ {0,2}([\w/]+(?:\.[ch]|/))", files, re.MULTILINE)
    inside = (CSRC, CSRC / "kernels/attention", CSRC / "kernels")
    missing = [n for n in named if not any((at / n).exists() for at in inside)]
    assert len(named) > 15
    assert missing == []


def test_the_readme_draws_the_loops_with_functions_that_exist():
    _, *loops = blocks()
    named = {name for loop in loops for name in re.findall(r"[a-z]+(?:_[a-z]+)+", loop)}
    named -= {"row_max", "row_sum", "rel_key", "rel_query", "grad_out", "key_tile"}
    code = "\n".join(path.read_text() for path in SOURCES)
    missing = [
        name for name in named if not re.search(rf"^{name}\(", code, re.MULTILINE)
    ]
    assert len(named) > 15
    assert missing == []


def test_functions_have_plain_names_and_each_its_own():
    """No macro makes a name, and a breakpoint stops in one place of an object."""
    text = {path: path.read_text() for path in SOURCES}
    glued = re.compile(r"##\s*(?!name\])\w")
    assert [path.name for path in SOURCES if glued.search(text[path])] == ["isa.h"]
    defined = [
        name
        for path in SOURCES  # a name may be twice in a file, under #if and #else
        for name in {*re.findall(r"^(\w+)\([^;]*?\)\n\{", text[path], re.MULTILINE)}
    ]
    assert len(defined) > 400
    assert sorted({name for name in defined if defined.count(name) > 1}) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(CSRC)))
def test_a_file_is_short_and_says_what_it_is(path):
    lines = path.read_text().splitlines()
    assert len(lines) <= 400
    assert lines[0].startswith(f"/* {path.name}: ")


#: FIRE's parameters are no operands, so that the rules of a call know them by numbers.
FIRE_ALONE = [
    "kernels/attention/terms/fire_reach.h",
    "python/operands.c",
    "python/facts.c",
    "python/rules.c",
    "python/seen.c",
]


@pytest.mark.parametrize("term", ["fire", "decay"])
def test_a_bias_is_named_where_it_lives(term):
    """The problem, the operands, the file of the term, and the biases name it.

    So do the conditions, those of builds for debugging, and the rules of a call.
    """
    named = {str(p.relative_to(CSRC)) for p in SOURCES if term in p.read_text()}
    assert named == {
        "problems.h",
        "python/rows.h",
        "python/dimensions.c",  # sizes of its own
        "python/conditions.c",
        "python/rules.h",
        "kernels/conditions.h",
        "kernels/attention/terms/bias.h",
        f"kernels/attention/terms/{term}.h",
        # calls whose log_decay is None are read in C
        *(FIRE_ALONE if term == "fire" else ["python/arguments.c"]),
    }
