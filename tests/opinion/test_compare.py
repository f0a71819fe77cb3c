"""relpos.compare: kinds of implementations, rows, verdicts and errors."""

from __future__ import annotations

import numpy as np
import pytest

import relpos
from relpos import nn
from relpos._text import html_table

LENGTH, MODEL, HEADS = 6, 8, 2


def layer(seed=0, dtype=np.float64):
    made = nn.RelativeGlobalAttention(MODEL, HEADS, LENGTH, rng=seed, dtype=dtype)
    return made.eval()


def tokens(dtype=np.float64):
    return np.random.default_rng(1).standard_normal((2, LENGTH, MODEL)).astype(dtype)


def verdicts(comparison):
    return {row.name: row.verdict for row in comparison.rows}


def test_a_layer_and_itself_with_the_same_weights():
    x, weights = tokens(), layer(0).state_dict()
    comparison = relpos.compare(layer(1), layer(2), x, weights=weights)
    assert comparison.same and comparison.notes == ()
    assert verdicts(comparison)["output"] == verdicts(comparison)["grad x"] == "same"
    parameters = [name for name, _ in layer().named_parameters()]
    assert {f"grad {name}" for name in parameters} < verdicts(comparison).keys()
    assert not relpos.compare(layer(1), layer(2), x).same


def test_errors_are_those_of_the_arrays():
    x = np.array([3.0, -4.0])
    comparison = relpos.compare(lambda x: 2 * x, lambda x: 2 * x + [0.0, 0.5], x)
    (row,) = comparison.rows
    assert (row.shape, row.largest, row.error, row.relative) == ((2,), 8.0, 0.5, 0.0625)
    assert row.verdict == "differs" and not comparison.same
    assert comparison.limit == 256 * 2.0**-52
    near = relpos.compare(lambda x: x, lambda x: x * (1 + 100 * 2.0**-52), x)
    assert near.same and near.rows[0].error > 0


def test_a_mapping_of_results_as_models_of_transformers_return():
    comparison = relpos.compare(lambda x: {"a": x, "b": None}, lambda x: x, np.ones(3))
    assert comparison.same and verdicts(comparison) == {"output": "same"}


def test_float32_has_a_limit_of_its_own():
    x = tokens(np.float32)
    rough, exact = layer(0, np.float32), layer(0, np.float64)
    comparison = relpos.compare(exact, rough, x, weights=exact.state_dict())
    assert comparison.limit == 256 * 2.0**-23 and comparison.same
    assert 1e-9 < comparison.rows[0].relative < 1e-5


def test_the_gradient_of_a_keys_bias_is_noise():
    comparison = relpos.compare(
        layer(1), layer(1), tokens(), weights=layer(0).state_dict()
    )
    row = next(row for row in comparison.rows if row.name == "grad key.bias")
    assert row.verdict in ("same", "noise") and row.largest < 1e-13

    class Noisy:
        def __init__(self):
            self.layer = layer(1)

        def __call__(self, x):
            return self.layer(x)

        def backward(self, grad_out):
            grad = self.layer.backward(grad_out)
            self.layer.key.bias.grad[...] *= -1.3
            return grad

        def __getattr__(self, name):
            return getattr(self.layer, name)

    comparison = relpos.compare(layer(1), Noisy(), tokens())
    row = next(row for row in comparison.rows if row.name == "grad key.bias")
    assert row.verdict == "noise" and row.relative > 1 and comparison.same
    broken = Noisy()
    broken.backward = lambda grad: broken.layer.backward(grad) * 1.01
    assert verdicts(relpos.compare(layer(1), broken, tokens()))["grad x"] == "differs"


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_not_finite_is_no_noise(wrong):
    x, zero = np.ones(3), np.zeros(3)
    comparison = relpos.compare(lambda x: zero, lambda x: zero + wrong, x)
    assert not comparison.same and comparison.rows[0].verdict == "differs"
    assert not relpos.compare(lambda x: zero - np.inf, lambda x: zero + wrong, x).same


def test_functions_have_gradients_by_their_context():
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 2, 5, 4))
    table = rng.standard_normal((9, 4))

    def mine(query, key, value, rel_key):
        return relpos.attention(query, key, value, rel_key=rel_key, return_context=True)

    def shaw(query, key, value, rel_key):
        return relpos.shaw_attention(query, key, value, rel_key, return_context=True)

    comparison = relpos.compare(shaw, mine, q, k, v, table)
    names = ["output", "grad query", "grad key", "grad value", "grad rel_key"]
    assert [row.name for row in comparison.rows] == names
    assert comparison.same
    assert relpos.compare(relpos.shaw_attention, mine, q, k, v, table) == comparison

    def reversed_table(query, key, value, rel_key):
        return mine(query, key, value, rel_key[::-1])

    assert not relpos.compare(shaw, reversed_table, q, k, v, table).same


def test_without_gradients_outputs_alone():
    comparison = relpos.compare(layer(), lambda x: layer()(x), tokens())
    assert [row.name for row in comparison.rows] == ["output"]
    assert comparison.notes == (
        "mine has no gradients: it is a function of arrays alone",
    )
    assert comparison.same


@pytest.mark.parametrize("reversed_sides", [False, True])
def test_a_module_without_backward_has_outputs_alone(reversed_sides):
    class Forward(nn.Module):
        def __init__(self):
            self.inner = layer()

        def __call__(self, x):
            return self.inner(x)

    sides = (layer(), Forward())[:: -1 if reversed_sides else 1]
    comparison = relpos.compare(*sides, tokens())
    assert [row.name for row in comparison.rows] == ["output"] and comparison.same
    name = "the reference" if reversed_sides else "mine"
    assert comparison.notes[0] == (
        f"{name} has no gradients: the class Forward has no method `backward`"
    )


def test_several_results_and_nan():
    x = np.arange(3.0)
    comparison = relpos.compare(lambda x: (x, 2 * x), lambda x: (x, 3 * x, x), x)
    assert verdicts(comparison) == {"output[0]": "same", "output[1]": "differs"}
    assert comparison.notes[0].startswith("mine has 3 results and the reference 2")
    bad = np.array([0.0, np.nan, 2.0])
    comparison = relpos.compare(lambda x: bad, lambda x: bad, x)
    assert verdicts(comparison) == {"output": "nan"} and not comparison.same
    assert "nan on both sides: output (limit" in repr(comparison)
    other = np.array([0.0, np.nan, 3.0])
    comparison = relpos.compare(lambda x: bad, lambda x: other, x)
    assert verdicts(comparison) == {"output": "differs"}
    assert not relpos.compare(lambda x: x, lambda x: bad, x).same
    assert not relpos.compare(lambda x: 0 * x, lambda x: x, x).same


def test_layers_run_without_dropout_and_are_put_back():
    made = nn.Dropout(0.5, rng=0)
    comparison = relpos.compare(made, lambda x: x, np.ones(50, np.float32))
    assert comparison.same and made.training


def test_it_shows_itself_as_a_table():
    comparison = relpos.compare(layer(0), layer(1), tokens())
    lines = repr(comparison).splitlines()
    assert lines[0].split()[::5] == ["what", "verdict"]
    assert lines[1].startswith("output") and lines[1].endswith("differs")
    assert lines[-1].startswith("differ: output, grad x")
    assert lines[-1].endswith("(limit 5.7e-14 of the largest entry)")
    assert comparison._repr_html_().count("<tr>") == 1 + len(comparison.rows)
    assert html_table(["what"], []).splitlines()[0] == "<table>"
    same = relpos.compare(layer(0), layer(0), tokens())
    assert repr(same).splitlines()[-1].startswith("nothing differs (limit")


def test_the_picture():
    figure = pytest.importorskip("matplotlib.figure").Figure()
    comparison = relpos.compare(layer(0), layer(1), tokens())
    ax = relpos.plot.compare(comparison, ax=figure.subplots())
    assert len(ax.patches) == len(comparison.rows)
    assert [bar.get_width() for bar in ax.patches[:1]] == [comparison.rows[0].relative]
    assert ax.get_xscale() == "log"
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names == [row.name for row in comparison.rows]


@pytest.mark.parametrize(
    ("error", "message", "sides", "weights"),
    [
        (TypeError, "^reference: got int", (3, np.sin), None),
        (TypeError, "^mine: got str", (np.sin, "x"), None),
        (TypeError, "^weights: given, but reference", (np.sin, np.sin), {}),
        (TypeError, "^weights: got list", (np.sin, np.sin), []),
        (TypeError, "^mine: returned no array", (np.sin, lambda x: None), None),
        (ValueError, "^mine: output has shape", (np.sin, lambda x: x[:1]), None),
        (ZeroDivisionError, "by zero", (np.sin, lambda x: 1 // 0), None),
    ],
)
def test_errors_name_the_side(error, message, sides, weights):
    with pytest.raises(error, match=message):
        relpos.compare(*sides, np.ones(3), weights=weights)


def test_inputs_are_needed():
    with pytest.raises(TypeError, match="needs what both are called with"):
        relpos.compare(np.sin, np.sin)


@pytest.mark.torch
def test_a_module_of_torch_and_a_layer():
    torch = pytest.importorskip("torch")

    class Attention(torch.nn.Module):
        """The article's layer, written apart."""

        def __init__(self, mistaken=False):
            super().__init__()
            for name in ("key", "query", "value"):
                setattr(self, name, torch.nn.Linear(MODEL, MODEL))
            self.Er = torch.nn.Parameter(torch.randn(LENGTH, MODEL // HEADS))
            self.dropout = torch.nn.Dropout(0.3)
            self.mistaken = mistaken

        def forward(self, x):
            heads = [
                f(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
                for f in (self.query, self.key, self.value)
            ]
            q, k, v = heads
            at = torch.arange(LENGTH)
            r = at - at[:, None]
            rows = torch.einsum("bhid,ijd->bhij", q, self.Er[r.clip(max=0) - 1])
            if self.mistaken:
                rows = rows * 1.001
            s = (q @ k.mT + rows) / (MODEL // HEADS) ** 0.5
            out = s.masked_fill(r > 0, -torch.inf).softmax(-1) @ v
            return self.dropout(out.transpose(1, 2).flatten(-2))

    weights = {n: x for n, x in layer(0).state_dict().items() if n != "mask"}
    module, x = Attention().double(), tokens()
    ours = nn.RelativeGlobalAttention(MODEL, HEADS, LENGTH, rng=1, dtype=np.float64)
    comparison = relpos.compare(module, ours, x, weights=weights)
    assert comparison.same and module.training and module.dropout.training
    assert len(comparison.rows) == 9
    assert verdicts(comparison)["grad key.bias"] in ("same", "noise")
    wrong = relpos.compare(
        module, Attention(mistaken=True).double(), x, weights=weights
    )
    assert verdicts(wrong)["grad Er"] == "differs"
    assert all(p.grad is None for p in module.parameters())


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["arrays", "tensors"])
def test_functions_of_tensors_and_of_arrays(kind):
    torch = pytest.importorskip("torch")
    q, k, v = np.random.default_rng(0).standard_normal((3, 2, 5, 4))
    inputs = (
        [torch.from_numpy(x) for x in (q, k, v)] if kind == "tensors" else (q, k, v)
    )

    def mine(query, key, value):
        return relpos.attention(query, key, value, return_context=True)

    attend = torch.nn.functional.scaled_dot_product_attention
    for sides in ((attend, mine), (mine, attend)):
        comparison = relpos.compare(*sides, *inputs)
        assert comparison.same and len(comparison.rows) == 4


@pytest.mark.torch
def test_complex_results_are_refused():
    torch = pytest.importorskip("torch")
    x = torch.arange(1.0, 4.0)
    with pytest.raises(TypeError, match="reference: got an array of dtype complex64"):
        relpos.compare(lambda x: torch.complex(x, x), lambda x: x, x)


@pytest.mark.torch
@pytest.mark.parametrize("inference", [False, True])
def test_a_gradient_that_is_cut_off_differs(inference):
    torch = pytest.importorskip("torch")
    q, k, v = torch.randn(3, 2, 5, 4, dtype=torch.float64)

    def own(q, k, v):
        return torch.softmax(q @ k.mT, -1) @ v

    with torch.inference_mode(inference):
        comparison = relpos.compare(own, lambda q, k, v: own(q, k.detach(), v), q, k, v)
    assert verdicts(comparison)["grad k"] == "differs"
    assert verdicts(comparison)["grad q"] == verdicts(comparison)["grad v"] == "same"


KERAS = "query, value, key"  # another order of arguments
PAIRS = {
    KERAS: lambda f: lambda q, v, k, **more: f(q, k, v, **more),
    "one for all three": lambda f: lambda x, **more: f(x, x, x, **more),
    "several": lambda f: lambda *qkv, rel_key=None, **more: f(*qkv, **more),
}


@pytest.mark.torch
@pytest.mark.parametrize("name", PAIRS)
def test_gradients_are_of_the_arrays_that_were_given(name):
    torch = pytest.importorskip("torch")
    count = 1 if name == "one for all three" else 3
    inputs = np.random.default_rng(0).standard_normal((count, 2, 5, 4))
    make = PAIRS[name]

    def mine(*args, return_context=False):
        return make(relpos.attention)(*args, return_context=return_context)

    own = make(lambda q, k, v: torch.softmax(q @ k.mT / 2, -1) @ v)
    comparison = relpos.compare(own, mine, *map(torch.tensor, inputs))
    assert [*verdicts(comparison).values()] == ["same"] * (1 + count)


def test_an_operand_made_of_an_input_has_no_gradient_of_it():
    def doubled(query, key, value, return_context=False):
        return relpos.attention(2 * query, key, value, return_context=return_context)

    x = np.random.default_rng(0).standard_normal((3, 2, 5, 4))
    comparison = relpos.compare(doubled, doubled, *x)
    assert [*verdicts(comparison)] == ["output", "grad key", "grad value"]


@pytest.mark.torch
def test_an_error_leaves_both_as_they_were():
    torch = pytest.importorskip("torch")
    first, x = torch.nn.Linear(4, 3), torch.ones(2, 4)
    before, ones = first.weight.clone(), {"weight": np.ones((3, 4)), "bias": np.ones(3)}
    with pytest.raises(ValueError, match=r"(?s)weights: .*Unexpected key"):
        relpos.compare(first, torch.nn.Sequential(first), x, weights=ones)
    assert torch.equal(first.weight, before)
    with pytest.raises(ValueError, match="has shape"):
        other = torch.nn.Linear(4, 3)
        other.register_forward_hook(lambda module, x, out: out[:1])
        relpos.compare(first, other, x, weights=ones)
    assert torch.equal(first.weight, before)


def test_equal_names_and_other_numbers_are_noted():
    def layer(seed, dtype=np.float64):
        return relpos.nn.RelativeGlobalAttention(8, 2, max_len=9, rng=seed, dtype=dtype)

    x = np.random.default_rng(0).standard_normal((2, 9, 8))
    reference, mine = layer(0), layer(1)
    (note,) = relpos.compare(reference, mine, x).notes
    assert note.startswith("'Er', 'query.weight'") and "other numbers" in note
    assert "weights=reference.state_dict()" in note
    comparison = relpos.compare(reference, mine, x, weights=reference.state_dict())
    assert comparison.same and not comparison.notes
    assert not relpos.compare(reference, layer(0), x).notes
    one = layer(0)
    one.key.weight.data[0, 0] += 0.5
    (note,) = relpos.compare(reference, one, x).notes
    assert note.startswith("'key.weight': ")
    rough = relpos.compare(reference, layer(0, np.float32), x.astype(np.float32))
    assert not rough.notes  # rounding is no other number


def test_equal_names_are_noted_beside_other_names():
    class Named(relpos.nn.Module):
        def __init__(self, name, seed):
            super().__init__()
            self.proj = relpos.nn.Linear(4, 3, rng=seed, dtype=np.float64)
            setattr(self, name, relpos.nn.Linear(3, 3, rng=seed, dtype=np.float64))
            self.name = name

        def __call__(self, x):
            return getattr(self, self.name)(self.proj(x))

        def backward(self, grad_out):
            return self.proj.backward(getattr(self, self.name).backward(grad_out))

    x = np.random.default_rng(0).standard_normal((2, 4))
    reference, mine = Named("last", 0), Named("out", 1)
    notes = relpos.compare(reference, mine, x).notes
    assert any("other names" in note for note in notes)
    assert any(note.startswith("'proj.weight', 'proj.bias'") for note in notes)
    names = {"last.weight": "out.weight", "last.bias": "out.bias"}
    assert relpos.compare(reference, mine, x, weights=names).same


@pytest.mark.torch
def test_equal_names_of_modules_are_noted():
    torch = pytest.importorskip("torch")
    reference, mine = (torch.nn.Linear(4, 3).double() for _ in range(2))
    x = torch.randn(2, 4).double()
    (note,) = relpos.compare(reference, mine, x).notes
    assert note.startswith("'weight', 'bias': ")
    comparison = relpos.compare(reference, mine, x, weights=reference.state_dict())
    assert comparison.same and not comparison.notes
