"""Bad calls, one row each: what is raised, and that the message helps.

A message starts with the argument's name, says what came and what was wanted. Good
arguments are in `call`; a row names what to change.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from bad_biases import BIASES, GOOD as GOOD_BIASES
from bad_decay import DECAY, NAMED
from bad_kinds import DV, EMPTY, KINDS, VALUES, D, H, L, Tensor, ones
from bad_labels import GOOD as GOOD_LABELS, LABELS
from bad_shapes import OUTSIDE, SCHEMES, SHAPES
from bad_softmax import SOFTMAX

import relpos


def call(changes, function="attention"):
    """Call `relpos.<function>` with good arguments but for the changes."""
    good = {
        "query": np.ones((3, H, L, D)),
        "key": np.ones((3, H, L, D)),
        "value": np.ones((3, H, L, DV)),
    }
    if function in ("relative_global_attention", "transformer_xl_attention"):
        good["rel_key"] = np.ones((2 * L - 1, D))
    if function == "transformer_xl_attention":
        good |= {"pos_bias_u": np.ones(D), "pos_bias_v": np.ones(D)}
    if function == "merge_attention":
        good = {name: np.ones((H, L, DV)) for name in ("out_a", "out_b")}
        good |= {name: np.ones((H, L)) for name in ("lse_a", "lse_b")}
    arguments = {k: v for k, v in (good | changes).items() if v is not EMPTY}
    return getattr(relpos, function)(**arguments)


ATTENTION = [
    *((name, TypeError, {name: value}, pattern) for name, value, pattern in KINDS),
    *((name, ValueError, {name: value}, pattern) for name, value, pattern in VALUES),
    *((name, ValueError, changes, pattern) for name, changes, pattern in SHAPES),
    *((name, IndexError, changes, pattern) for name, changes, pattern in OUTSIDE),
    *SOFTMAX,
]


@pytest.mark.parametrize("name, error, changes, pattern", ATTENTION)
def test_attention(name, error, changes, pattern):
    with pytest.raises(error, match=rf"^{name}: .*({pattern})"):
        call(changes)


@pytest.mark.parametrize("error, changes, pattern", DECAY)
def test_log_decay(error, changes, pattern):
    with pytest.raises(error, match=rf"^log_decay: .*({pattern})"):
        call(changes)


@pytest.mark.parametrize("error, name, labels, pattern", LABELS)
def test_a_tuple_of_labels(error, name, labels, pattern):
    with pytest.raises(error, match=rf"^{name}: .*({pattern})"):
        call({"labels": labels, "rel_bias": ones(3)})


@pytest.mark.parametrize("other", [{"buckets": [0]}, {"min_relative_position": 0}])
def test_a_tuple_of_labels_beside_another_origin(other):
    with pytest.raises(ValueError, match=r"^labels: given together with .* one of the"):
        call({"labels": (GOOD_LABELS, GOOD_LABELS), "rel_bias": ones(3), **other})


@pytest.mark.parametrize("error, changes, pattern", NAMED)
def test_others_name_log_decay(error, changes, pattern):
    with pytest.raises(error, match=rf"^{pattern}"):
        call(changes)


@pytest.mark.parametrize("function, error, changes, pattern", SCHEMES)
def test_other_functions(function, error, changes, pattern):
    with pytest.raises(error, match=pattern):
        call(changes, function)


@pytest.mark.parametrize("function, error, changes, pattern", BIASES)
def test_biases_and_recipes(function, error, changes, pattern):
    """The first argument of the row is the one that the message names."""
    called = getattr(relpos, function, None) or getattr(relpos.recipes, function)
    name = next(iter(changes))
    with pytest.raises(error, match=rf"^{name}: .*({pattern})"):
        called(**GOOD_BIASES[function] | changes)


@pytest.mark.parametrize("function", GOOD_BIASES)
def test_good_arguments_of_biases_are_good(function):
    called = getattr(relpos, function, None) or getattr(relpos.recipes, function)
    called(**GOOD_BIASES[function])


def test_scale_has_to_fit_the_dtype():
    single = {
        name: ones(H, L, D, dtype=np.float32) for name in ("query", "key", "value")
    }
    with pytest.raises(ValueError, match=r"^scale: got 1e\+200, too large for float32"):
        call({**single, "scale": 1e200})


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
