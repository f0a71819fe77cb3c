"""Texts of errors: all public functions, misused in some sixty ways."""

from __future__ import annotations

import inspect
import re

import misuse
import pytest

#: Functions whose packages are installed, with a good call.
EVERY = misuse.every()
STORED = misuse.stored()
AGAIN = "write the texts again by `python tests/cases/misuse.py`, and read what changed"
#: What a text says of the argument that came, and of what was wanted.
CAME = re.compile(r"\b(got|shape|given|has|None|overlaps|leads|runs|read-only|\d+)\b")
WANTED = re.compile(r"\b(expected|did you mean|pass)\b")


#: A call with too few or too many arguments: what is called comes first.
DOES_NOT_FIT = re.compile(
    r"(\w+)\(\) (needs an argument '\w+'|takes .* positional arguments?, but got \d+)"
)


@pytest.mark.parametrize("name", STORED)
def test_texts_of_a_function(name):
    if name not in EVERY:
        assert not misuse.there(name), AGAIN
        pytest.skip("a package is not installed")
    function, good = EVERY[name]
    errors = misuse.errors_of(function, good)
    called = name.rpartition(".")[2]
    for kind, error in errors:
        misfit = DOES_NOT_FIT.match(str(error))
        if misfit:
            assert misfit[1] == called, (kind, error)
            continue
        first, colon, rest = str(error).partition(":")
        assert colon and CAME.search(rest) and WANTED.search(rest), (kind, error)
        known = {*inspect.signature(function).parameters, called}
        if "keyword" not in kind:  # these are named as they were given
            assert re.split(r"\W", first)[0] in known, (kind, error)
    assert misuse.block_of(name, errors) == STORED[name], AGAIN


def test_all_functions_have_texts():
    assert EVERY.keys() <= STORED.keys(), AGAIN


def test_there_are_forty_kinds():
    kinds = {
        line.partition(":")[0]
        for text in STORED.values()
        for line in text.splitlines()[1:]
    }
    assert len(kinds) >= 40
