"""Bad calls, one row each: what is raised, and that the message helps.

A message starts with the argument's name, says what came and what was wanted. A row
names what to change in a good call.
"""

from __future__ import annotations

import inspect
import sys

import numpy as np
import pytest
from bad_attention import (
    ATTENTION,
    GOOD as GOOD_SCHEMES,
    LABELS,
    LENGTHS,
    LONGER,
    POSITION_QUERY,
    POSITIONED,
    SCHEMES,
    TOKENS,
)
from bad_biases import BIASES, GOOD as GOOD_BIASES
from bad_kinds import DV, D, H, L, Tensor, ones
from refusals import check, every_row

import relpos

GOOD = GOOD_SCHEMES | GOOD_BIASES
#: Good arguments of `attention`, and changes that are refused.
REFUSED = [
    *((TOKENS, *row) for row in ATTENTION),
    *((LONGER, *row) for row in LENGTHS),
    *((TOKENS | {"rel_bias": ones(3)}, *row) for row in LABELS),
    *((POSITIONED, *row) for row in POSITION_QUERY),
]


def call(changes):
    """Call `relpos.attention` with good arguments but for the changes."""
    return relpos.attention(**TOKENS | changes)


@pytest.mark.parametrize(("good", "changes", "error", "pattern"), REFUSED)
def test_attention(good, changes, error, pattern):
    with pytest.raises(error, match=pattern):
        relpos.attention(**good | changes)


OF_SIGNATURES = """
shaw_attention(**TOKENS, rel_keys=1) -> TypeError: …rel_keys
relative_global_attention(**TOKENS) -> TypeError: …rel_key
shaw_attention(**LONGER, rel_key=ones(3, D)) -> ValueError: query_offset: None with 4
    queries and 6 keys
"""


@every_row(OF_SIGNATURES)
def test_arguments_of_schemes(row):
    check(row, vars(relpos) | {"TOKENS": TOKENS, "LONGER": LONGER})


def function_of(name):
    return getattr(relpos, name, None) or getattr(relpos.recipes, name)


@pytest.mark.parametrize(
    ("function", "error", "changes", "pattern"), [*SCHEMES, *BIASES]
)
def test_schemes_biases_and_recipes(function, error, changes, pattern):
    """The first argument of the row is the one that the message names."""
    name = next(iter(changes))
    with pytest.raises(error, match=rf"^{name}: .*({pattern})"):
        function_of(function)(**GOOD[function] | changes)


@pytest.mark.parametrize("function", GOOD)
def test_good_arguments_are_good(function):
    """A flag may be a bool of NumPy."""
    function, good = function_of(function), GOOD[function]
    parameters = inspect.signature(function).parameters.items()
    flags = {n: np.bool_(p.default) for n, p in parameters if type(p.default) is bool}
    np.testing.assert_equal(function(**flags | good), function(**good))


def test_scale_of_head_dim_0():
    with pytest.raises(
        ValueError, match=r"^scale: None with head_dim 0; expected a num"
    ):
        call({"query": ones(H, L, 0), "key": ones(H, L, 0)})


INPUTS = {
    "query": ones(3, H, L, D),
    "key": ones(3, H, L, D),
    "value": ones(3, H, L, DV),
    "attn_mask": ones(L, L),
    "rel_key": ones(3, D),
    "rel_query": ones(3, D),
    "rel_value": ones(3, DV),
    "rel_bias": ones(3),
    "pos_bias_u": ones(D),
    "pos_bias_v": ones(D),
    "position_query": ones(3, H, L, D),
    "sinks": ones(H),
    "log_decay": ones(H, L),
}


@pytest.mark.parametrize("name", INPUTS)
def test_out_overlaps_an_input(name):
    """The last entry of `out` is the first of the input."""
    size = 3 * H * L * DV
    buffer = np.ones(size - 1 + INPUTS[name].size)
    shared = buffer[size - 1 :].reshape(INPUTS[name].shape)
    out = buffer[:size].reshape(3, H, L, DV)
    needed = {"rel_key": ones(3, D)} if name.startswith("pos") else {}
    needed |= {"is_causal": True} if name == "log_decay" else {}
    with pytest.raises(ValueError, match=rf"^out: overlaps {name} in memory; expected"):
        call({**needed, name: shared, "out": out})
    assert (buffer == 1).all()


def test_out_overlaps_labels():
    labels = np.zeros((12, L, L), np.int64)
    out = labels.view(np.float64).reshape(-1)[: 3 * H * L * DV].reshape(3, H, L, DV)
    with pytest.raises(ValueError, match=r"^out: overlaps labels in memory"):
        call({"labels": labels[:1], "rel_bias": ones(1), "out": out})


OVERLAPPING = [(0, 96, 24, 8), (96, 96, 24, 8), (192, 96, 24, 4), (192, 96, 16, 8)]


@pytest.mark.parametrize("strides", OVERLAPPING)
def test_out_overlaps_itself(strides):
    out = np.lib.stride_tricks.as_strided(np.ones(99), (3, H, L, DV), strides)
    with pytest.raises(ValueError, match=r"^out: several of its items share memory"):
        call({"out": out})


def test_torch_is_not_imported():
    before = "torch" in sys.modules
    with pytest.raises(TypeError, match=r"\.detach\(\)"):
        call({"query": Tensor()})
    assert ("torch" in sys.modules) == before


def test_a_bad_call_leaves_out_alone():
    out = np.full((3, H, L, DV), 7.0)
    with pytest.raises(ValueError, match="key_lengths"):
        call({"out": out, "key_lengths": 99})
    assert (out == 7).all()
