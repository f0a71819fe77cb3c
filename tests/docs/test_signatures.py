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


@pytest.mark.parametrize("name", sorted({*DEFINITIONS} - {"attention"}))
def test_a_definition_takes_five_lines_of_help(name):
    """`attention` takes more: by its 25 parameters, whose names alone are that long."""
    assert len(str(inspect.signature(getattr(relpos.reference, name)))) <= 400
