"""The table of the operands of `attention`, and what has to have every one of them."""

from __future__ import annotations

import importlib
import inspect
import re

import numpy as np
import pytest
from tolerances import assert_bitwise

import relpos
import relpos._attention.attention as of_attention
from relpos import _core, reference
from relpos._attention import keywords
from relpos._attention.attention import as_call
from relpos._attention.fire_network import NAMES as FIRE
from relpos._attention.operands import LABELS, OPERANDS, PICKS, read, shows_shapes
from relpos._attention.problem import prepare
from relpos._attention.rules import Numbers, facts_of
from relpos._settings import kernels

ARRAYS = {name: operand for name, operand in OPERANDS.items() if operand.letters}
#: Other arrays that C takes: outputs, FIRE's tables, and gradients that come in.
MADE = {"out", "kept", "lse", "row_max", "row_sum", "weights", "grad_out", "grad_lse"}
MADE |= {name for name in _core.operands if "fire" in name}
MADE |= {*LABELS}


@pytest.mark.parametrize("name", ARRAYS)
def test_an_operand_has_the_same_roles_in_both_directions_and_a_gradient(name):
    """The gradient has its shape; operands of integers have none."""
    letters, forward, backward, numbers, _ = _core.operands[name]
    is_required = name in ("query", "key", "value")
    assert forward == backward == ("required" if is_required else "optional")
    of_gradient = _core.operands.get(f"grad_{name}")
    if numbers in ("labels", "int64", "bool"):
        assert of_gradient is None
    else:
        assert of_gradient[:3] == (letters, "", "output")


def test_operands_that_say_the_dtype_of_a_result_come_before_labels():
    names = [name for name in _core.operands if name in OPERANDS]
    promoting = [name for name in names if OPERANDS[name].promotes]
    assert names.index(promoting[-1]) < names.index("labels")


def test_c_has_no_other_operands():
    gradients = {f"grad_{name}" for name in ARRAYS if ARRAYS[name].has_gradient}
    assert set(_core.operands) == {*ARRAYS, *PICKS, *gradients, *MADE}


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("value", "(..., Hk, Lk, Dv)"),
        ("attn_mask", "something that broadcasts to (..., H, Lq, Lk)"),
        ("rel_key", "(R, D), (H, R, D) or (..., H, R, D)"),
        ("rel_value", "(R, Dv), (H, R, Dv) or (..., H, R, Dv)"),
        ("rel_bias", "(R,), (H, R) or (..., H, R)"),
        ("pos_bias_v", "(D,), (H, D) or (..., H, D)"),
        ("position_query", "(..., H, Lq, Dp)"),
        ("sinks", "(H,) or (..., H, Lq)"),
        ("log_decay", "(..., H, Lk)"),
        ("labels", "(..., Lq, Lk)"),
        ("key_ranges", "(..., Lq, 2)"),
        ("key_blocks", "(..., G, ceil(Lq / bq), ceil(Lk / bk))"),
        ("key_lengths", "an integer or integers of the batch shape (...)"),
    ],
)
def test_letters_and_axes_say_the_shape_that_messages_show(name, shown):
    assert OPERANDS[name].shown == shown


@pytest.mark.parametrize("name", ARRAYS)
def test_the_docstring_lists_an_operand_with_its_shape(name):
    lines = inspect.getdoc(relpos.attention).split("\n")
    (line,) = [x for x in lines if re.match(rf"(\w+, )*{name}\b.* : array_like", x)]
    assert OPERANDS[name].shown.removeprefix("something that ") in line


def test_a_shape_that_is_written_out_stays():
    def function():
        """.

        rel_key : array_like, (2k+1, D)
        rel_key, sinks : array_like
        rel_key, rel_query : array_like of int, optional
        """

    lines = [line.strip() for line in shows_shapes(function).__doc__.split("\n")]
    assert lines[2:5] == [
        "rel_key : array_like, (2k+1, D)",
        "rel_key, sinks : array_like",
        "rel_key, rel_query : array_like of int, (R, D), (H, R, D) or (..., H, R, D), "
        "optional",
    ]


def typed(*tables):
    """Return the names of tables of keywords."""
    return {name for table in tables for name in table.__annotations__}


def test_signatures_and_keywords_have_every_operand():
    """They are written out for editors and checkers, and this compares them."""
    positional = {"query", "key", "value"}
    own = {"attn_mask"}  # of the signature of `attention` alone
    names = {*OPERANDS}
    assert names <= {*inspect.signature(relpos.attention).parameters}
    assert names <= {*inspect.signature(reference.attention).parameters}
    assert names - positional <= typed(keywords.ScoresKeywords)
    assert names - positional - own <= typed(keywords.AttentionKeywords)


@pytest.mark.torch
def test_signatures_and_keywords_of_tensors_have_every_operand():
    pytest.importorskip("torch")
    torch = importlib.import_module("relpos.torch")
    of_tensors = importlib.import_module("relpos.torch._keywords")
    positional, names = {"query", "key", "value"}, {*OPERANDS}
    assert names <= {*inspect.signature(torch.attention).parameters}
    assert names - positional <= typed(of_tensors.ScoresKeywords)
    assert names - positional - {"attn_mask"} <= typed(of_tensors.AttentionKeywords)


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

BATCH, ROWS = (2, 3), 7
LENGTHS = {"H": 4, "K": 4, "q": 5, "k": 6, "t": 6, "D": 8, "V": 8, "P": 8, "2": 2}
LENGTHS |= {"h": 4, "x": 3, "y": 2}  # blocks of 2 queries and 3 keys
#: Shapes that are repeated to those of all batch items and heads; others are these.
GIVEN = {
    "query": (3, 4, 5, 8),
    "key": (2, 1, 4, 6, 8),
    "value": (4, 6, 8),
    "attn_mask": (5, 1),
    "rel_key": (7, 8),
    "rel_query": (1, 7, 8),
    "rel_bias": (7,),
    "pos_bias_u": (8,),
    "pos_bias_v": (2, 1, 4, 8),
    "position_query": (4, 5, 8),
    "sinks": (3, 4, 1),
    "log_decay": (4, 6),
    "key_ranges": (1, 2),
    "key_blocks": (4, 3, 2),
    "query_offset": (),
    "key_lengths": (3,),
}
FULL = {
    name: (*BATCH, *row.shape(LENGTHS, ROWS))
    for name, row in OPERANDS.items()
    if name != "labels"  # which take the place of positions
}


def operands(full):
    """Return a call of the kernels with views, or with all that they stand for."""
    rng, given = np.random.default_rng(0), {}
    for name, repeated in FULL.items():
        shape = GIVEN.get(name, repeated)
        array = rng.standard_normal(shape)
        if name == "key_ranges":
            array = np.array([[1, 6]])
        elif name == "key_blocks":
            array = np.ones(shape, bool)
        elif OPERANDS[name].letters == "":
            array = np.full(shape, 5)
        given[name] = np.array(np.broadcast_to(array, repeated)) if full else array
    given |= {"out": np.empty((2, 3, 4, 5, 8)), "scale": 0.3, "num_threads": 2}
    given |= {"block_queries": 2, "block_keys": 3}
    return given | {"min_relative_position": -3, "window_right": 0}


def test_the_kernels_repeat_what_is_broadcast(isa):
    views, full = operands(False), operands(True)
    kernels().attention_forward(views)
    kernels().attention_forward(full)
    assert np.isfinite(views["out"]).all()
    assert_bitwise(views["out"], full["out"])


@pytest.mark.parametrize("name", [n for n in FULL if n != "query_offset"])
def test_the_kernels_refuse_another_length(name):
    """None of them leaves memory, whatever Python hands over."""
    given = operands(True)
    letters = OPERANDS[name].letters.replace("1", "").rjust(given[name].ndim)
    for axis, letter in enumerate(letters):
        shape = list(given[name].shape)
        shape[axis] += 2
        other = np.resize(given[name], shape)
        if letter == "t" or letter not in {" ", *LENGTHS}:
            continue  # positions after the keys, and rows of its own
        with pytest.raises(ValueError, match=r"^attention_forward: "):
            kernels().attention_forward(given | {name: other})


def test_what_is_read_is_what_was_given():
    given = dict.fromkeys(OPERANDS) | operands(False)
    given = {name: given[name] for name in OPERANDS} | {"attn_mask": np.ones(6, "f2")}
    inputs, sizes, batch = read(given)
    present = [name for name in OPERANDS if given[name] is not None]
    facts = facts_of(inputs, sizes, Numbers(block_size=(2, 3)))
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
