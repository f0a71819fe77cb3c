"""Signatures that `help` shows: types by the names they have in the code."""

import inspect

import pytest

import relpos

DEFINITIONS = [
    name
    for name in relpos.reference.__all__
    if callable(getattr(relpos.reference, name))
]


@pytest.mark.parametrize("name", DEFINITIONS)
def test_types_of_a_definition_are_names(name):
    signature = inspect.signature(getattr(relpos.reference, name))
    parameters = signature.parameters.values()
    types = [parameter.annotation for parameter in parameters]
    assert max(len(str(t)) for t in (*types, signature.return_annotation)) <= 50


@pytest.mark.parametrize("name", DEFINITIONS)
def test_a_definition_takes_five_lines_of_help(name):
    """Or it shows names alone, of which nothing more can be left out."""
    signature = inspect.signature(getattr(relpos.reference, name))
    typed = any(p.annotation is not p.empty for p in signature.parameters.values())
    assert len(str(signature)) <= 400 or not typed


def test_names_that_help_shows_alone_have_types_all_the_same():
    """`attention` has 28 parameters: help() leaves their types out, checkers do not."""
    function = relpos.reference.attention
    shown = inspect.signature(function).parameters
    assert [*shown, "return"] == list(function.__annotations__)
    assert "rel_bias=None" in str(inspect.signature(function))
