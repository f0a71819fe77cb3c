"""compare and diagnose: functions that work in place, and state that stays."""

from __future__ import annotations

import collections
import copy
from typing import NamedTuple

import numpy as np
import pytest

import relpos
from relpos import nn

LENGTH, DIM = 7, 4


class Pair(NamedTuple):
    first: object
    second: object


def arrays(count=3):
    return [*np.random.default_rng(0).standard_normal((count, 2, LENGTH, DIM))]


def attend(query, key, value):
    return relpos.attention(query, key, value, return_context=True)


def in_place(query, key, value):
    """Return right results and overwrite the inputs."""
    result = attend(query.copy(), key.copy(), value.copy())
    for x in (query, key, value):
        x[...] = np.nan
    return result


def in_place_outputs(query, key, value):
    np.multiply(query, DIM**-0.5, out=query)
    scores = query @ key.swapaxes(-1, -2)
    key[...] = 0.0
    powers = np.exp(scores)
    out = powers / powers.sum(axis=-1, keepdims=True) @ value
    value *= 2.0
    return out


def kept(values):
    return copy.deepcopy([np.asarray(x) for x in values])


def unchanged(values, before):
    return all(map(np.array_equal, values, before))


@pytest.mark.parametrize("sides", [(attend, in_place), (in_place, attend)])
def test_arrays_of_compare(sides):
    inputs = arrays()
    before = kept(inputs)
    found = relpos.compare(*sides, *inputs)
    assert found.same and unchanged(inputs, before)


@pytest.mark.parametrize("views", [False, True])
def test_arrays_of_diagnose(views):
    inputs = arrays()
    if views:
        inputs = [np.asfortranarray(x)[..., ::-1, :] for x in inputs]
    before = kept(inputs)
    found = relpos.diagnose(in_place_outputs, *inputs)
    assert (found.kind, unchanged(inputs, before)) == ("same", True), found


def test_a_table_that_mine_changes_is_read_before():
    q, k, v, table = arrays(4)
    table = table[0]

    def mine(query, key, value):
        out = relpos.attention(query, key, value, rel_key=table)
        table[...] = 0.0
        return out

    assert relpos.diagnose(mine, q, k, v, rel_key=table).kind == "same"
    mask = np.ones((LENGTH, LENGTH), bool)

    def hiding(query, key, value):
        out = relpos.attention(query, key, value, attn_mask=mask)
        mask[:, 1:] = False
        return out

    assert relpos.diagnose(hiding, q, k, v, attn_mask=mask).kind == "same"


@pytest.mark.parametrize("pack", [list, tuple, lambda x: Pair(*x), lambda x: {"a": x}])
def test_what_is_inside_of_structures(pack):
    first, second = arrays(2)
    inputs = pack([first, second])
    before = kept([first, second])

    def added(x):
        x = [*x["a"]] if isinstance(x, dict) else x
        x[0][...] += x[1]
        return x[0]

    found = relpos.compare(added, lambda x: added(x) + 0.0, inputs)
    assert found.same and unchanged([first, second], before)


def test_one_buffer_for_all_results():
    """Results are read before the other side runs, and gradients too."""
    buffer = np.empty(3)

    def into(factor):
        return lambda x: np.multiply(x, factor, out=buffer)

    comparison = relpos.compare(into(2.0), into(3.0), np.ones(3))
    assert comparison.rows[0].error == 1.0 and not comparison.same

    class Wrong:
        """The same layer, with its gradient changed after the fact."""

        def __init__(self, layer):
            self.layer = layer
            self.named_parameters = layer.named_parameters
            self.zero_grad = layer.zero_grad

        def __call__(self, x):
            return self.layer(x)

        def backward(self, grad_out):
            grad = self.layer.backward(grad_out)
            self.layer.weight.grad *= 2.0
            return grad

    layer = nn.Linear(4, 3, rng=0, dtype=np.float64)
    comparison = relpos.compare(layer, Wrong(layer), np.ones((2, 4)))
    assert [row.name for row in comparison.rows if row.verdict == "differs"] == [
        "grad weight"
    ]


def test_layers_are_left_as_they_were():
    block = nn.Sequential(nn.Linear(4, 4, rng=0), nn.Dropout(0.5, rng=1))
    block.train()
    x = np.ones((2, 4), np.float32)
    block.backward(np.ones_like(block(x)))
    state, generator = block.state_dict(), np.random.get_state()[1].copy()  # noqa: NPY002
    gradients = {name: p.grad.copy() for name, p in block.named_parameters()}

    def with_random_numbers(x):
        np.random.random(3)  # noqa: NPY002
        for p in block.parameters():
            p.data[...] = 0.0
        return x

    relpos.compare(block, block, x)
    relpos.compare(block, with_random_numbers, x)
    assert all(part.training for part in (block, *block))
    assert np.array_equal(np.random.get_state()[1], generator)  # noqa: NPY002
    for name, p in block.named_parameters():
        assert np.array_equal(p.data, state[name])
        assert np.array_equal(p.grad, gradients[name])


def test_weights_stay_the_callers():
    weights = nn.Linear(4, 3, rng=0).state_dict()
    before = {name: x.copy() for name, x in weights.items()}

    class Greedy(nn.Linear):
        def load_state_dict(self, state_dict, strict=True):
            found = super().load_state_dict(state_dict, strict)
            for x in state_dict.values():
                x[...] = 0.0
            return found

    sides = Greedy(4, 3, rng=1), Greedy(4, 3, rng=2)
    assert relpos.compare(*sides, np.ones((2, 4), np.float32), weights=weights).same
    assert all(np.array_equal(x, before[name]) for name, x in weights.items())


def test_what_cannot_be_copied_is_refused():
    class Single:
        def __deepcopy__(self, memo):
            raise RuntimeError("there is only one")

    with pytest.raises(TypeError, match=r"^inputs: got .*Single.*there is only one"):
        relpos.compare(np.sin, np.sin, Single())


@pytest.mark.torch
class TestTensors:
    """The same for tensors and modules."""

    def inputs(self, requires_grad=False):
        torch = pytest.importorskip("torch")
        return [torch.from_numpy(x).requires_grad_(requires_grad) for x in arrays()]

    @staticmethod
    def right(query, key, value):
        return (query * DIM**-0.5 @ key.mT).softmax(-1) @ value

    @staticmethod
    def in_place(query, key, value):
        query *= DIM**-0.5
        weights = (query @ key.mT).softmax(-1)
        result = weights @ value.clone()
        value.zero_()
        return result

    @pytest.mark.parametrize("requires_grad", [False, True])
    @pytest.mark.parametrize("swap", [False, True])
    def test_forward_and_gradients(self, swap, requires_grad):
        inputs = self.inputs(requires_grad)
        before = kept([x.detach() for x in inputs])
        sides = [self.in_place, self.right][:: -1 if swap else 1]
        found = relpos.compare(*sides, *inputs)
        assert found.same and len(found.rows) == 4
        assert relpos.diagnose(self.in_place, *inputs).kind == "same"
        assert unchanged([x.detach() for x in inputs], before)
        assert all(x.grad is None for x in inputs)

    def test_arrays_for_tensors_and_tensors_for_arrays(self):
        inputs, tensors = arrays(), self.inputs()
        before = kept(inputs)
        assert relpos.compare(self.in_place, self.right, *inputs).same
        assert relpos.diagnose(self.in_place, *inputs).kind == "same"
        assert unchanged(inputs, before)
        assert relpos.compare(in_place, attend, *tensors).same
        assert relpos.diagnose(in_place_outputs, *tensors).kind == "same"
        assert unchanged(tensors, before)

    def test_a_module_is_left_as_it_was(self):
        torch = pytest.importorskip("torch")

        class Counting(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(DIM))
                self.register_buffer("calls", torch.zeros(()))
                self.register_buffer("last", None)

            def forward(self, x):
                self.calls += 1
                self.last = x.detach()
                x *= self.weight * torch.rand(()).clamp(1, 1)
                return x

        module = Counting().train()
        (x,) = self.inputs()[:1]
        module(x.clone()).sum().backward()
        grad, last = module.weight.grad.clone(), module.last
        state = torch.random.get_rng_state()
        found = relpos.compare(module, lambda x: x * 1.0, x)
        assert found.rows[0].verdict == found.rows[1].verdict == "same"
        module.forward, forward = lambda q, k: forward(q) @ k.mT, module.forward
        assert relpos.diagnose(module, x, x, scale=1.0).kind == "same"
        with pytest.raises(ZeroDivisionError):
            relpos.compare(module, lambda q, k: 1 // 0, x, x)
        assert module.training and module.calls == 1 and module.last is last
        assert torch.equal(module.weight.grad, grad)
        assert torch.equal(torch.random.get_rng_state(), state)

    def test_a_module_whose_parameters_come_with_the_call(self):
        torch = pytest.importorskip("torch")
        module = torch.nn.LazyLinear(3, dtype=torch.float64)
        assert relpos.compare(module, module, arrays(1)[0]).same

    def test_results_of_models_inside_of_inputs(self):
        """Tensors that are no leaves, in a dictionary of a class of its own."""
        torch = pytest.importorskip("torch")

        class Output(collections.OrderedDict):
            pass

        own = Output(hidden=torch.ones(3, requires_grad=True) * 2.0)

        def mine(output):
            output["hidden"] *= 3.0
            return output["hidden"]

        assert relpos.compare(mine, lambda output: output["hidden"] * 3.0, own).same
        assert own["hidden"].tolist() == [2.0] * 3

    def test_16_bits_of_parameters_count(self):
        torch = pytest.importorskip("torch")

        class Wide(torch.nn.Module):
            def __init__(self, factor):
                super().__init__()
                self.weight = torch.nn.Parameter(torch.ones(4).bfloat16())
                self.factor = factor

            def forward(self, x):
                return x.float() * self.weight.float() * self.factor

        x = torch.linspace(0.5, 1.0, 4)
        assert relpos.compare(Wide(1.0), Wide(1.005), x).same
        assert not relpos.compare(Wide(1.0), Wide(1.02), x).same
        q, k = arrays(2)
        coarse = Wide(1.0)
        coarse.forward = lambda q, k: q @ k.mT * DIM**-0.5 * 1.005
        assert relpos.diagnose(coarse, q, k).kind == "same"
