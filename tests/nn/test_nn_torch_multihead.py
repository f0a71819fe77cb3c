"""Layers that compose models compared with those of PyTorch and of relpos.torch."""

from __future__ import annotations

import numpy as np
import pytest

from relpos import nn

torch = pytest.importorskip("torch")
from relpos.torch.nn import RelativeMultiheadAttention  # noqa: E402  (only where it is)

pytestmark = pytest.mark.torch

E, H = 12, 3
SIZES = {
    None: {},
    "shaw": {"max_relative_position": 2},
    "music": {"max_len": 9},
    "transformer_xl": {},
    "t5": {"num_buckets": 8, "max_distance": 6},
    "alibi": {},
    "rope": {"base": 100.0},
    "fire": {"width": 4, "max_distance": 3},
}
RNG = np.random.default_rng(3)
X, Y = RNG.standard_normal((2, 2, 7, E))
GRAD = RNG.standard_normal((2, 7, E))


def near(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def tensor(x):
    return torch.tensor(x, requires_grad=True)


def compare(layer, module, names, inputs, call, own_call):
    """Outputs, and gradients of inputs and of every parameter; names: own -> theirs."""
    tensors = [tensor(x) for x in inputs]
    want = call(module, *tensors)
    out = own_call(layer, *inputs)
    near(out, want.detach().numpy())
    grad = GRAD[:, : out.shape[1]]
    want.backward(torch.tensor(grad))
    grads = layer.backward(grad)
    grads = grads if isinstance(grads, tuple) else (grads,)
    for got, x in zip(grads, tensors, strict=True):
        near(got, x.grad.numpy())
    theirs = dict(module.named_parameters())
    own = dict(layer.named_parameters())
    assert {names(name) for name in own} == {*theirs}
    for name, parameter in own.items():
        near(parameter.grad, theirs[names(name)].grad.numpy())


def same(name):
    return name


def twins(position, is_causal):
    """A layer and a module of the same weights."""
    torch.manual_seed(0)
    options = {"is_causal": is_causal, "position": position, **SIZES[position]}
    module = RelativeMultiheadAttention(
        E, H, batch_first=True, dtype=torch.float64, **options
    )
    for bias in (module.in_proj_bias, module.out_proj.bias):
        torch.nn.init.normal_(bias)
    layer = nn.MultiheadAttention(E, H, dtype="float64", **options)
    layer.load_state_dict(module.state_dict())
    return layer, module


@pytest.mark.parametrize("position", SIZES)
@pytest.mark.parametrize("causal", [False, True])
def test_every_position_by_the_weights_of_the_module(position, causal):
    def call(module, x):
        return module(x, x, x, need_weights=False)[0]

    own_call = nn.MultiheadAttention.__call__
    compare(*twins(position, causal), same, [X], call, own_call)


@pytest.mark.parametrize("position", SIZES)
def test_other_keys_with_padding(position):
    hidden = torch.arange(7) >= torch.tensor([[7], [4]])

    def call(module, q, k, v):
        return module(q, k, v, hidden, need_weights=False, query_offset=2)[0]

    def own_call(layer, q, k, v):
        return layer(q, k, v, key_lengths=[7, 4], query_offset=2)

    inputs = [X[:, :5], Y, X + Y]
    compare(*twins(position, False), same, inputs, call, own_call)


def test_without_a_position_it_is_that_of_pytorch():
    module = torch.nn.MultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
    layer = nn.MultiheadAttention(E, H, dtype="float64")
    layer.load_state_dict(module.state_dict())

    def call(module, q, k, v):
        return module(q, k, v, need_weights=False)[0]

    inputs = [X[:, :5], Y, X + Y]
    compare(layer, module, same, inputs, call, nn.MultiheadAttention.__call__)


THEIRS = {
    "attention.norm": "norm1",
    "attention.layer": "self_attn",
    "feed_forward.norm": "norm2",
    "feed_forward.layer.": "",
}


def their_name(name):
    for own, theirs in THEIRS.items():
        name = name.replace(own, theirs)
    return name


@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_block_is_that_of_pytorch(pre_norm, activation):
    torch.manual_seed(0)
    bend = "relu" if activation == "relu" else torch.nn.GELU(approximate="tanh")
    module = torch.nn.TransformerEncoderLayer(
        E,
        H,
        20,
        dropout=0.0,
        activation=bend,
        batch_first=True,
        norm_first=pre_norm,
        dtype=torch.float64,
    )
    layer = nn.TransformerLayer(
        E, H, 20, activation=activation, pre_norm=pre_norm, dtype="float64"
    )
    state = module.state_dict()
    layer.load_state_dict(
        {name: state[their_name(name)] for name in layer.state_dict()}
    )
    compare(
        layer,
        module,
        their_name,
        [X],
        lambda module, x: module(x),
        nn.TransformerLayer.__call__,
    )


def test_adam_and_the_loss_with_smoothing_train_as_pytorch():
    """Ten steps of a small model, all weights the same after them."""
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(
        torch.nn.Linear(E, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 5)
    ).double()
    own = nn.Sequential(
        *(
            nn.Linear(E, 8, dtype="float64"),
            nn.LayerNorm(8, dtype="float64"),
            nn.Linear(8, 5, dtype="float64"),
        )
    )
    own.load_state_dict(theirs.state_dict())
    optimizers = (
        nn.Adam(own.parameters(), 0.1),
        torch.optim.Adam(theirs.parameters(), 0.1),
    )
    targets = np.arange(14).reshape(2, 7) % 5
    for _ in range(10):
        own.zero_grad()
        theirs.zero_grad()
        loss, grad = nn.cross_entropy(own(X), targets, label_smoothing=0.1)
        own.backward(grad)
        want = torch.nn.functional.cross_entropy(
            theirs(torch.tensor(X)).flatten(0, 1),
            torch.tensor(targets).flatten(),
            label_smoothing=0.1,
        )
        want.backward()
        near(loss, want.item())
        for optimizer in optimizers:
            optimizer.step()
    for name, array in own.state_dict().items():
        np.testing.assert_allclose(
            array, theirs.state_dict()[name].numpy(), rtol=1e-9, atol=1e-9
        )
