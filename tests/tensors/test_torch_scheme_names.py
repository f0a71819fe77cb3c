"""RelativeMultiheadAttention takes every name of a scheme, and stores one of them."""

from __future__ import annotations

import ast
import inspect

import pytest
import torch

import relpos.torch
from relpos._schemes import SCHEMES, scheme_called
from relpos.nn import multihead as arrays
from relpos.torch import nn
from relpos.torch.nn import _positions as positions

ARGUMENTS = {"scheme", "schemes", "position"}


def layer(position, **options):
    torch.manual_seed(0)
    return nn.RelativeMultiheadAttention(8, 2, position=position, **options)


def test_no_other_argument_names_a_scheme():
    found = set()
    for module in (relpos.torch, nn):
        for name in module.__all__:
            taken = {*inspect.signature(getattr(module, name)).parameters}
            found |= {(name, each) for each in ARGUMENTS & taken}
    of_relpos = "plan", "scheme"  # the function of relpos itself
    assert found == {("RelativeMultiheadAttention", "position"), of_relpos}


@pytest.mark.parametrize("position", [*filter(None, positions.SCHEMES)])
def test_every_name_makes_the_same_layer(position):
    wanted = layer(position, is_causal=True)
    for name in scheme_called(position).names:
        made = layer(name, is_causal=True)
        assert made.position == position
        assert repr(made) == repr(wanted)
        found, expected = made.state_dict(), wanted.state_dict()
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[key], expected[key]) for key in found)


@pytest.mark.parametrize("scheme", SCHEMES, ids=lambda scheme: scheme.name)
def test_a_scheme_without_a_layer_is_refused_by_all_its_names(scheme):
    known = {*scheme.names} & {*positions.SCHEMES}
    for name in (*scheme.names, *scheme.variants):
        if not known or name in scheme.variants:
            with pytest.raises(ValueError, match=f"^position: got {name!r}; expected"):
                layer(name)


def test_sizes_go_with_every_name():
    assert layer("rotary", base=100.0).sizes == {"base": 100.0}
    with pytest.raises(ValueError, match=r"^width: got 4 with position='rope'; "):
        layer("rotary", width=4)
    assert layer("relative_global", max_len=4).sizes == {"max_len": 4}


def test_the_type_lists_every_name_once():
    source = inspect.getsource(positions)
    (found,) = [
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AnnAssign)
        and ast.unparse(node.target) == "PositionName"
    ]
    own = [x.value for x in ast.walk(found) if isinstance(x, ast.Constant)]
    others = positions.SCHEMES.keys() - {None} - arrays.SCHEMES.keys()
    schemes = map(scheme_called, others)
    assert sorted(own) == sorted(name for s in schemes for name in s.names)
    assert "multihead.PositionName" in ast.unparse(found)
