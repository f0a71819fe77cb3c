"""Names of schemes: every one is accepted by every public argument that names a scheme.

The names of one scheme give the same result, and the same error where that scheme is
refused. What layers store and show is one of these names.
"""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest

import relpos
from relpos import data, nn, plot, recipes, reference
from relpos._schemes import SCHEMES
from relpos.nn import multihead

#: Names of arguments that name a scheme.
ARGUMENTS = {"scheme", "schemes", "position"}
MODULES = {
    "": relpos,
    "data.": data,
    "nn.": nn,
    "plot.": plot,
    "recipes.": recipes,
    "reference.": reference,
}
QUERY, KEY = np.random.default_rng(0).standard_normal((2, 1, 4, 6))
#: Operands that `diagnose` asks for, which add nothing to the scores.
NETWORK = {"w1": [1.0], "b1": [0.0], "w2": [[0.0]], "b2": [0.0]}
XL = {"rel_key": np.zeros((7, 6)), "pos_bias_u": None, "pos_bias_v": None}
OPERANDS = {
    "fire_attention": {**NETWORK, "c": 1.0, "threshold": 1.0},
    "relative_global_attention": {"rel_key": XL["rel_key"], "is_causal": False},
    "transformer_xl_attention": XL,
}


def plan(name):
    return relpos.plan(1, 2, 9, 9, 4, scheme=name, is_causal=True)


def diagnose(name):
    called = [scheme.name for scheme in SCHEMES if name in scheme.names]
    given = OPERANDS.get(*called or [name], {})
    mine = relpos.scores(QUERY, KEY)
    return relpos.diagnose(mine, QUERY, KEY, scheme=name, **given)


def figure():
    return pytest.importorskip("matplotlib.figure").Figure()


def costs(name):
    ax = plot.costs_over_length(name, [4, 8], ax=figure().subplots())
    return [line.get_ydata().tolist() for line in ax.lines]


def fingerprint(name):
    ax = plot.fingerprint(name, 4, ax=figure().subplots())
    return ax.images[0].get_array().filled(9).tolist()


def fingerprints(name):
    (ax,) = plot.fingerprints({"title": name}, 4, figure=figure())
    return ax.images[0].get_array().filled(9).tolist()


def layer_of(make):
    def described(name):
        layer = make(8, 2, position=name, rng=0, is_causal=True)
        return pickle.dumps(layer), repr(layer), [*layer.state_dict()]

    return described


CALLS = {
    ("diagnose", "scheme"): diagnose,
    ("nn.MultiheadAttention", "position"): layer_of(nn.MultiheadAttention),
    ("nn.TransformerLayer", "position"): layer_of(nn.TransformerLayer),
    ("plan", "scheme"): plan,
    ("plot.costs_over_length", "schemes"): costs,
    ("plot.fingerprint", "scheme"): fingerprint,
    ("plot.fingerprints", "schemes"): fingerprints,
}
#: How many of the schemes each of them has, where not all.
TAKEN = {"diagnose": 17, "nn": 8, "plot.fingerprint": 10}


def outcome(call, name):
    """Return the result and True, or the error with another name, and False."""
    try:
        return str(call(name)), True
    except ValueError as error:
        assert repr(name) in str(error)
        return str(error).replace(repr(name), "NAME"), False


def test_every_argument_that_names_a_scheme_is_tried():
    found = set()
    for prefix, module in MODULES.items():
        for name in {*module.__all__, *dir(module)} - {"sharded", "torch"}:
            value = getattr(module, name)
            if callable(value) and not isinstance(value, np.ufunc) and name[0] != "_":
                taken = inspect.signature(value).parameters
                found |= {(prefix + name, each) for each in ARGUMENTS & {*taken}}
    assert found == {*CALLS}


@pytest.mark.parametrize("argument", CALLS, ids=".".join)
def test_the_names_of_a_scheme_mean_the_same(argument):
    found = {s.name: {outcome(CALLS[argument], n) for n in s.names} for s in SCHEMES}
    assert [name for name, results in found.items() if len(results) > 1] == []
    taken = [name for name, ((_, is_taken),) in found.items() if is_taken]
    counts = [n for start, n in TAKEN.items() if argument[0].startswith(start)]
    assert len(taken) == (counts or [len(SCHEMES)])[0], taken


@pytest.mark.parametrize("position", multihead.SCHEMES)
def test_layers_store_and_show_one_name(position):
    for name in next(s.names for s in SCHEMES if position in s.names):
        layer = nn.MultiheadAttention(8, 2, position=name, is_causal=True)
        assert layer._settings["position"] == position
        assert f"position={position!r}" in repr(layer)


@pytest.mark.parametrize("argument", CALLS, ids=".".join)
def test_what_no_scheme_is_called(argument):
    with pytest.raises(ValueError, match=r"^schemes?(\['title'\])?: |^position: "):
        CALLS[argument]("waltz")


def test_a_layer_without_decay_is_not_called_xpos():
    for make in (nn.MultiheadAttention, nn.TransformerLayer):
        with pytest.raises(ValueError, match=r"^position: got 'xpos'; expected one of"):
            make(8, 2, position="xpos")
    with pytest.raises(ValueError, match=r"^scheme: got 'xpos'; expected one of"):
        fingerprint("xpos")
    assert plan("xpos") == plan("rotary")
