"""Rows that describe the operands of `attention`, compared with those of C."""

from __future__ import annotations

import inspect

import pytest

import relpos
from relpos import _core
from relpos._attention.attention import as_call
from relpos._attention.fire_network import NAMES as FIRE
from relpos._attention.operands import LABELS, OPERANDS

ARRAYS = {name: operand for name, operand in OPERANDS.items() if operand.letters}
#: Other arrays that C takes: outputs, FIRE's tables, and gradients that come in.
MADE = {"out", "lse", "row_max", "row_sum", "weights", "grad_out", "grad_lse"}
MADE |= {name for name in _core.operands if "fire" in name}
MADE |= {*LABELS} - {"labels[0]"}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_row_is_that_of_c(name):
    operand = ARRAYS[name]
    letters, forward, backward = _core.operands[name]
    assert operand.letters == letters
    assert forward == backward == ("required" if operand.is_required else "optional")
    gradient = _core.operands.get(f"grad_{name}")
    assert gradient == ((letters, "", "output") if operand.has_gradient else None)


def test_c_has_no_other_operands():
    gradients = {f"grad_{name}" for name in ARRAYS if ARRAYS[name].has_gradient}
    assert set(_core.operands) == {*ARRAYS, *gradients, *MADE}


def test_letters_are_those_of_the_shape_that_messages_show():
    names = {"H": "H", "K": "Hk", "q": "Lq", "k": "Lk", "D": "D", "V": "Dv", "1": ""}
    names["2"] = "2"  # begin and end of a range
    names["P"] = "D"  # of rel_key: D, unless there is a position query of Dp columns
    names["t"] = "Lk"  # of log_decay, unless the problem is a part of a larger one
    for operand in ARRAYS.values():
        axes = [names.get(letter, "R") for letter in operand.letters]
        shown = operand.shown.replace(",)", ")").replace("Dp", "D")
        assert f"{', '.join(filter(None, axes))})" in shown


def test_gradients_are_those_of_the_rows():
    fields = [name for name, operand in OPERANDS.items() if operand.has_gradient]
    assert [*relpos.AttentionGradients._fields] == fields
    assert [*relpos.FireAttentionGradients._fields] == [*fields, *FIRE]


def test_attention_hands_on_each_argument_under_its_name(monkeypatch):
    """And what is not given, as it is by default."""
    parameters = inspect.signature(relpos.attention).parameters
    given = {name: object() for name in parameters}
    monkeypatch.setitem(relpos.attention.__globals__, "attend", lambda call: call)
    assert relpos.attention(**given) == given
    tokens = [given.pop(name) for name in ("query", "key", "value")]
    assert relpos.attention(*tokens) == as_call(*tokens, {})
    assert {*OPERANDS} <= {*parameters}
