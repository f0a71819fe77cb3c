"""Rows that describe the operands of `attention`, compared with those of C."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from tolerances import assert_bitwise

import relpos
import relpos._attention.attention as of_attention
from relpos import _core
from relpos._attention.attention import as_call
from relpos._attention.fire_network import NAMES as FIRE
from relpos._attention.operands import LABELS, OPERANDS, read
from relpos._attention.problem import prepare
from relpos._attention.rules import Numbers, facts_of
from relpos._settings import kernels

ARRAYS = {name: operand for name, operand in OPERANDS.items() if operand.letters}
#: Other arrays that C takes: outputs, FIRE's tables, and gradients that come in.
MADE = {"out", "kept", "lse", "row_max", "row_sum", "weights", "grad_out", "grad_lse"}
MADE |= {name for name in _core.operands if "fire" in name}
MADE |= {*LABELS}


@pytest.mark.parametrize("name", ARRAYS)
def test_a_row_is_that_of_c(name):
    operand = ARRAYS[name]
    letters, forward, backward = _core.operands[name]
    is_required = name in ("query", "key", "value")
    assert operand.letters == letters
    assert forward == backward == ("required" if is_required else "optional")
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
    monkeypatch.setattr(of_attention, "attend", lambda call: call)
    assert relpos.attention(**given) == given
    tokens = [given.pop(name) for name in ("query", "key", "value")]
    assert relpos.attention(*tokens) == as_call(*tokens, {})
    assert {*OPERANDS} <= {*parameters}


# ---- what C reads and repeats --------------------------------------------------------

#: Shapes of operands of (2, 3) batch items, 4 heads, 5 queries, 6 keys, 8 columns, and
#: those that they are repeated to.
REPEATED = {
    "query": ((3, 4, 5, 8), (2, 3, 4, 5, 8)),
    "key": ((2, 1, 4, 6, 8), (2, 3, 4, 6, 8)),
    "value": ((4, 6, 8), (2, 3, 4, 6, 8)),
    "attn_mask": ((5, 1), (2, 3, 4, 5, 6)),
    "rel_key": ((7, 8), (2, 3, 4, 7, 8)),
    "rel_query": ((1, 7, 8), (2, 3, 4, 7, 8)),
    "rel_value": ((3, 4, 7, 8), (2, 3, 4, 7, 8)),
    "rel_bias": ((7,), (2, 3, 4, 7)),
    "pos_bias_u": ((8,), (2, 3, 4, 8)),
    "pos_bias_v": ((2, 1, 4, 8), (2, 3, 4, 8)),
    "position_query": ((4, 5, 8), (2, 3, 4, 5, 8)),
    "log_decay": ((4, 6), (2, 3, 4, 6)),
    "key_ranges": ((1, 2), (2, 3, 5, 2)),
    "query_offset": ((), (2, 3)),
    "key_lengths": ((3,), (2, 3)),
}


def operands(full):
    """Return a call of the kernels with views, or with all that they stand for."""
    rng, given = np.random.default_rng(0), {}
    for name, (shape, repeated) in REPEATED.items():
        array = rng.standard_normal(shape)
        if name == "key_ranges":
            array = np.array([[1, 6]])
        elif OPERANDS[name].letters == "":
            array = np.full(shape, 5)
        given[name] = np.array(np.broadcast_to(array, repeated)) if full else array
    given |= {"out": np.empty((2, 3, 4, 5, 8)), "scale": 0.3, "num_threads": 2}
    return given | {"min_relative_position": -3, "window_right": 0}


def test_the_kernels_repeat_what_is_broadcast(isa):
    views, full = operands(False), operands(True)
    kernels().attention_forward(views)
    kernels().attention_forward(full)
    assert np.isfinite(views["out"]).all()
    assert_bitwise(views["out"], full["out"])


@pytest.mark.parametrize("name", [n for n in REPEATED if n != "query_offset"])
def test_the_kernels_refuse_another_length(name):
    """None of them leaves memory, whatever Python hands over."""
    given = operands(True)
    for axis in range(given[name].ndim):
        shape = list(given[name].shape)
        shape[axis] += 2
        other = np.resize(given[name], shape)
        if axis == 3 and name.startswith(("rel_", "log_decay")):
            continue  # rows of its own, and positions after the keys
        with pytest.raises(ValueError, match=r"^attention_forward: "):
            kernels().attention_forward(given | {name: other})


def test_what_is_read_is_what_was_given():
    given = dict.fromkeys(OPERANDS) | operands(False)
    given = {name: given[name] for name in OPERANDS} | {"attn_mask": np.ones(6, "f2")}
    inputs, sizes, batch = read(given)
    present = [name for name in OPERANDS if given[name] is not None]
    facts = facts_of(inputs, sizes, Numbers())
    assert [*inputs] == present and facts.copied == ["attn_mask"]
    for name in ("query", "rel_bias", "attn_mask"):
        assert inputs[name] is given[name]
    assert sizes == (4, 4, 5, 6, 8, 8, 8, True, False) and batch == (2, 3)
    assert facts.dtype == facts.out_dtype == np.float64


@pytest.mark.parametrize("arguments", [(), ({},), ([], len, False, False)])
def test_read_operands_takes_a_dict_a_function_and_flags(arguments):
    with pytest.raises(TypeError, match="expected a dict, a function and two flags"):
        _core.read_operands(*arguments)


def test_read_operands_needs_arrays():
    given = dict.fromkeys(("query", "key", "value"), 1.0)
    with pytest.raises(TypeError, match=r"query was not read as an ndarray"):
        _core.read_operands(given, lambda name, value: value, False, False)


def test_the_row_of_a_position_query_is_where_c_has_it():
    x = np.ones((1, 2, 4))
    call = as_call(x, x, x, {"rel_key": x[0, :1, :3], "position_query": x[..., :3]})
    assert prepare(call).sizes.Dp == 3
