"""relpos.compare: parameters that have other names on the other side."""

from __future__ import annotations

import numpy as np
import pytest

import relpos
from relpos import nn

MODEL = 4
NAMES = {"first.weight": "a.weight", "first.bias": "a.bias", "last.weight": "b.weight"}


class Two(nn.Module):
    """Two products one after the other, by names of one's own."""

    def __init__(self, first, last, seed, width=MODEL, **more):
        super().__init__()
        self.names = first, last
        layers = (
            nn.Linear(MODEL, width, rng=seed, dtype=np.float64),
            nn.Linear(width, MODEL, bias=False, rng=seed + 1, dtype=np.float64),
        )
        for name, layer in zip(self.names, layers, strict=True):
            setattr(self, name, layer)
        for name, array in more.items():
            setattr(self, name, nn.Parameter(array))

    def __call__(self, x):
        first, last = (getattr(self, name) for name in self.names)
        return last(first(x))

    def backward(self, grad_out):
        first, last = (getattr(self, name) for name in self.names)
        return first.backward(last.backward(grad_out))


def tokens():
    return np.random.default_rng(0).standard_normal((3, MODEL))


def verdicts(comparison):
    return {row.name: row.verdict for row in comparison.rows}


def test_names_pair_weights_and_gradients():
    reference, mine = Two("first", "last", 0), Two("a", "b", 5)
    comparison = relpos.compare(reference, mine, tokens(), weights=NAMES)
    names = ["output", "grad x", *(f"grad {name}" for name in NAMES)]
    assert [row.name for row in comparison.rows] == names
    assert comparison.same and comparison.notes == ()
    for old, new in NAMES.items():  # copied into mine, and left there
        assert np.array_equal(reference.state_dict()[old], mine.state_dict()[new])


def test_a_wrong_gradient_has_the_name_of_the_reference():
    class Wrong(Two):
        def backward(self, grad_out):
            grad = super().backward(grad_out)
            self.b.weight.grad[...] *= 2.0
            return grad

    comparison = relpos.compare(
        Two("first", "last", 0), Wrong("a", "b", 5), tokens(), weights=NAMES
    )
    assert [name for name, said in verdicts(comparison).items() if said != "same"] == [
        "grad last.weight"
    ]


def test_names_that_both_have_need_no_pair():
    names = {"first.weight": "a.weight", "first.bias": "a.bias"}
    sides = Two("first", "last", 0), Two("a", "last", 5)
    comparison = relpos.compare(*sides, tokens(), weights=names)
    assert comparison.same and "grad last.weight" in verdicts(comparison)


def test_names_that_are_exchanged():
    names = {"first.weight": "last.weight", "last.weight": "first.weight"}
    reference = Two("first", "last", 0)
    reference.first.bias = None

    class Exchanged(Two):
        def __init__(self):
            super().__init__("first", "last", 5)
            self.first.bias = None
            self.names = "last", "first"

    comparison = relpos.compare(reference, Exchanged(), tokens(), weights=names)
    assert comparison.same and len(comparison.rows) == 4


def test_without_names_the_note_shows_them():
    sides = Two("first", "last", 0), Two("a", "b", 5)
    comparison = relpos.compare(*sides, tokens())
    assert verdicts(comparison) == {"output": "differs", "grad x": "differs"}
    (note,) = comparison.notes
    shown = note.partition("weights=")[2]
    assert "the parameters of mine have other names" in note
    assert eval(shown) == NAMES  # as it is to be copied
    assert relpos.compare(*sides, tokens(), weights=eval(shown)).same
    assert note in repr(comparison) and "no gradient" not in repr(comparison)


def test_names_of_a_few_ask_for_the_others():
    few = {"first.weight": "a.weight"}
    sides = Two("first", "last", 0), Two("a", "b", 5)
    comparison = relpos.compare(*sides, tokens(), weights=few)
    assert verdicts(comparison)["grad first.weight"] != "no gradient"
    assert eval(comparison.notes[0].partition("weights=")[2]) == NAMES


def test_parameters_without_a_partner_are_named():
    sides = Two("first", "last", 0, width=3), Two("a", "b", 5)
    (note,) = relpos.compare(*sides, tokens()).notes
    assert note.endswith(
        "without a partner of the same shape: first.weight, first.bias, last.weight, "
        "a.weight, a.bias, b.weight"
    )


def test_a_name_of_mine_that_is_another_of_the_reference():
    """The reference's "b" is mine's "c", and mine has a "b" of its own."""

    def side(first, last):
        return Two(first, last, 0)

    names = {"b.weight": "c.weight", "a.weight": "b.weight", "a.bias": "b.bias"}
    comparison = relpos.compare(side("a", "b"), side("b", "c"), tokens(), weights=names)
    assert comparison.same and len(comparison.rows) == 5
    few = {"b.weight": "c.weight"}
    comparison = relpos.compare(side("a", "b"), side("b", "c"), tokens(), weights=few)
    assert eval(comparison.notes[0].partition("weights=")[2]) == names


@pytest.mark.parametrize(
    ("error", "message", "weights"),
    [
        (ValueError, "^weights: got 'x', which the reference does", {"x": "a.bias"}),
        (ValueError, "^weights: got 'y', which mine does not", {"first.bias": "y"}),
        (
            ValueError,
            "^weights: got 'a.weight' of mine for several names",
            {"first.weight": "a.weight", "last.weight": "a.weight"},
        ),
        (
            ValueError,
            r"^weights: got 'first.bias' of shape .4,. for 'b.weight' of shape .4, 4.;",
            {"first.bias": "b.weight"},
        ),
        (TypeError, "^weights: got names and arrays", {**NAMES, "z": np.ones(3)}),
        (TypeError, "^weights: got set; expected a mapping", {"first.bias"}),
    ],
)
def test_names_that_are_wrong(error, message, weights):
    mine = Two("a", "b", 5)
    before = mine.state_dict()
    with pytest.raises(error, match=message):
        relpos.compare(Two("first", "last", 0), mine, tokens(), weights=weights)
    assert all(np.array_equal(x, before[n]) for n, x in mine.state_dict().items())


def test_equal_names_of_other_shapes_are_refused():
    sides = Two("first", "last", 0, u=np.ones(2)), Two("a", "b", 5, u=np.ones(3))
    with pytest.raises(ValueError, match=r"'u' of shape \(2,\) for 'u' of shape \(3,"):
        relpos.compare(*sides, tokens(), weights=NAMES)


def test_a_function_has_no_names():
    with pytest.raises(TypeError, match="mine has no load_state_dict"):
        relpos.compare(Two("first", "last", 0), np.sin, tokens(), weights=NAMES)


@pytest.mark.torch
def test_modules_and_layers():
    torch = pytest.importorskip("torch")

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(MODEL, MODEL)
            self.b = torch.nn.Linear(MODEL, MODEL, bias=False)

        def forward(self, x):
            return self.b(self.a(x))

    layer, module = Two("first", "last", 0), Module().double()
    comparison = relpos.compare(layer, module, tokens(), weights=NAMES)
    assert comparison.same and len(comparison.rows) == 5
    back = {new: old for old, new in NAMES.items()}
    again = relpos.compare(Module().double(), layer, tokens(), weights=back)
    assert again.same and [row.name for row in again.rows][2:] == [
        f"grad {name}" for name in back
    ]
    note = relpos.compare(Module().double(), layer, tokens()).notes[0]
    assert eval(note.partition("weights=")[2]) == back
