"""The argument `rng`: what every function that has one takes and refuses."""

from __future__ import annotations

import inspect
from contextlib import suppress

import numpy as np
import pytest
from good_layers import GOOD_LAYERS
from scheme_calls import ATTENTIONS, inputs_of

import relpos
from relpos import nn, reference

X = np.ones((1, 3, 4))
DROPPED = {"query": X, "key": X, "value": X, "dropout_p": 0.5}
SIZES = {"length": 3, "dim": 2}


def takes_rng(function):
    return "rng" in inspect.signature(function).parameters


#: Arguments of every public function that has an rng, or hands one on.
RANDOM = [
    *((getattr(relpos, name), inputs_of(name)) for name in ATTENTIONS),
    (relpos.attention, DROPPED),
    (relpos.scores, {"query": X, "key": X}),
    (relpos.random_encoding, SIZES),
    (reference.attention, DROPPED),
    (reference.attention_backward, DROPPED | {"grad_out": X}),
    (reference.random_encoding, SIZES),
    *((getattr(nn, name), made) for name, (made, _) in GOOD_LAYERS.items()),
]
RANDOM = [(function, given) for function, given in RANDOM if takes_rng(function)]
NAMES = [f"{f.__module__.removeprefix('relpos.')}.{f.__name__}" for f, _ in RANDOM]
#: These take an int alone, as two calls need the same: test_functional.py.
SEEDED = {relpos.attention_forward, relpos.attention_backward}
KINDS = [
    np.ones((1, 2)).view(np.matrix),  # in default_rng this ends the process
    np.array([1, 2]),
    [1, 2],
    "seed",
    0.5,
    True,
    np.timedelta64(1, "s"),
    np.random.RandomState(0),
    np.random.SeedSequence(0),
    np.random.PCG64(0),
    np.random.Generator,
]


def test_every_function_with_an_rng_is_here():
    has_one = set()
    for module in (relpos, nn, reference):
        for name in module.__all__:
            function = getattr(module, name)
            if callable(function) and not inspect.isabstract(function):
                with suppress(ValueError):  # a class without a signature
                    has_one |= {function} if takes_rng(function) else set()
    assert has_one <= {function for function, _ in RANDOM} | SEEDED


@pytest.mark.parametrize(("function", "arguments"), RANDOM, ids=NAMES)
@pytest.mark.parametrize("rng", KINDS, ids=lambda value: type(value).__name__)
def test_another_kind_is_refused(function, arguments, rng):
    with pytest.raises(TypeError, match=r"^rng: got .*; expected an int"):
        function(**arguments, rng=rng)


@pytest.mark.parametrize(("function", "arguments"), RANDOM, ids=NAMES)
@pytest.mark.parametrize("rng", [-1, np.int8(-1)])
def test_a_negative_seed_is_refused(function, arguments, rng):
    with pytest.raises(ValueError, match=r"^rng: got -1; expected an integer of at "):
        function(**arguments, rng=rng)


@pytest.mark.parametrize(("function", "arguments"), RANDOM, ids=NAMES)
@pytest.mark.parametrize("make", [lambda: 7, lambda: np.uint64(7), lambda: 2**200])
def test_a_seed_is_that_generator(function, arguments, make):
    """An int seed, and the Generator that it seeds, draw the same."""
    seeded = function(**arguments, rng=make())
    drawn = function(**arguments, rng=np.random.default_rng(make()))
    if isinstance(seeded, nn.Module):
        first, second = seeded.state_dict(), drawn.state_dict()
        assert all(np.array_equal(first[name], second[name]) for name in first)
    else:
        for one, other in zip(seeded, drawn, strict=True):
            assert one is other is None or np.array_equal(one, other)


@pytest.mark.parametrize(("function", "arguments"), RANDOM, ids=NAMES)
def test_none_is_a_new_generator(function, arguments):
    function(**arguments, rng=None)
