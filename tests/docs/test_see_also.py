"""Names under See Also exist, and each has a description."""

from __future__ import annotations

import re
from importlib.util import find_spec
from operator import attrgetter

import pytest
from docstrings import entries, public, sections

import relpos

#: Modules that are more than a list of what they hold.
MODULES = {
    f"relpos.{name}": getattr(relpos, name)
    for name in ("nn", "recipes", "reference", "ufuncs")
}
PUBLIC = {
    name: thing
    for name, thing in (public() | MODULES).items()
    if "See Also" in sections(thing)
}
LINE = re.compile(r"^(\S[^\n]*?) : ([A-Z`][^\n]*(?:\n    [^\n]*)*)$", re.M)


def room_of(name):
    """Return relpos, or its module that has this public name."""
    rest = name.split(".")[1]
    return relpos if callable(getattr(relpos, rest)) else getattr(relpos, rest)


def is_there(room, name):
    """Return the object that `name` refers to, in a module or from relpos on."""
    if name == "relpos":
        return relpos
    if name.startswith("relpos.torch.") and find_spec("torch") is None:
        return name  # nothing to look it up in: the tests of relpos.torch do
    try:
        if name.startswith("relpos."):
            return attrgetter(name.removeprefix("relpos."))(relpos)
        return attrgetter(name)(room)
    except AttributeError:
        return None


@pytest.mark.parametrize("name", PUBLIC)
def test_names_that_are_there_each_with_a_word_on_it(name):
    body = sections(PUBLIC[name])["See Also"].strip()
    lines = LINE.findall(body)
    assert "\n".join(f"{names} : {text}" for names, text in lines) == body
    assert all(text.endswith(".") and len(text) < 160 for _, text in lines)
    found = [is_there(room_of(name), other) for other in entries(body)]
    assert all(thing is not None for thing in found), body
    assert PUBLIC[name] not in found, "a docstring that refers to itself"
