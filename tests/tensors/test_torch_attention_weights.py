"""Weights that attention returns: any loss without them, eager and compiled."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from inductor import NEEDS_COMPILER, compile_afresh  # noqa: F401
from torch.func import grad, jacrev, vmap

import relpos.torch

REFUSED = "weights have no gradient"

COMPILED = partial(torch.compile, backend="aot_eager", fullgraph=True)
#: How a function runs: as it is, or as which compiled program.
MODES = {
    "eager": lambda function: function,
    "aot_eager": COMPILED,
    "dynamic": partial(COMPILED, dynamic=True),
}

#: Losses whose gradient by the weights is zero or none, and others.
RIGHT = {
    "out": lambda out, weights: out.square().sum(),
    "out and constants": lambda out, weights: (
        out.square().sum() * weights.detach().square().sum()
    ),
    "out and zero": lambda out, weights: out.square().sum() + 0 * weights.sum(),
}
WRONG = {
    "weights": lambda out, weights: weights.square().sum(),
    "both": lambda out, weights: out.sum() + weights.square().sum(),
    "one weight": lambda out, weights: out.sum() + weights.flatten()[-1],
    "nan": lambda out, weights: out.sum() + torch.nan * weights.sum(),
}


@pytest.fixture(params=MODES)
def mode(request):
    return MODES[request.param]


def attend(x, bias):
    out, lse, weights = relpos.torch.attention(
        x, x, x, rel_bias=bias, return_weights=True
    )
    assert lse is None
    return out, weights


def inputs(length=5):
    torch.manual_seed(0)
    x = torch.randn(2, 3, length, 4, dtype=torch.float64)
    return x.requires_grad_(), torch.randn(9, dtype=torch.float64, requires_grad=True)


def expected_gradients(loss, leaves):
    """Gradients of the loss where the weights are constants."""
    x, bias = leaves
    out = relpos.torch.attention(x, x, x, rel_bias=bias)
    weights = attend(x.detach(), bias.detach())[1]
    return torch.autograd.grad(loss(out, weights), leaves)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("name", RIGHT)
def test_a_loss_without_the_weights_has_its_gradient(name, inside, mode):
    loss = RIGHT[name]
    if inside:
        run = mode(lambda x, bias: loss(*attend(x, bias)))
    else:
        attended = mode(attend)

        def run(x, bias):
            return loss(*attended(x, bias))

    for length in (5, 7):
        given = inputs(length)
        found = torch.autograd.grad(run(*given), given)
        torch.testing.assert_close(
            found, expected_gradients(loss, given), rtol=1e-12, atol=1e-12
        )


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("name", WRONG)
def test_a_loss_of_the_weights_is_refused(name, inside, mode):
    loss, given = WRONG[name], inputs()
    if inside:
        value = mode(lambda x, bias: loss(*attend(x, bias)))(*given)
    else:
        value = loss(*mode(attend)(*given))
    with pytest.raises(NotImplementedError, match=REFUSED):
        value.backward()
    assert all(x.grad is None for x in given)


def test_weights_alone_are_returned_and_refused(mode):
    given = inputs()
    run = mode(lambda x, bias: attend(x, bias)[1])
    weights = run(*given)
    assert torch.equal(weights, attend(*given)[1]) and weights.requires_grad
    for found in torch.autograd.grad(weights, given, 0 * weights):
        assert not found.any()
    with pytest.raises(NotImplementedError, match=REFUSED):
        run(*given).sum().backward()


def check_layer(mode, average):
    """Compare training by the default call of a layer with what eager gives."""
    torch.manual_seed(0)
    layer = relpos.torch.nn.RelativeMultiheadAttention(
        16, 4, batch_first=True, position="shaw"
    )
    x = torch.linspace(-1, 1, 2 * 6 * 16).reshape(2, 6, 16).requires_grad_()
    leaves, found = [x, *layer.parameters()], []
    for run in (layer, mode(layer)):
        out, weights = run(x, x, x, average_attn_weights=average)
        assert weights.shape == ((2, 6, 6) if average else (2, 4, 6, 6))
        grads = torch.autograd.grad(out.square().sum(), leaves)
        found.append([out, weights, *grads])
        both = run(x, x, x, average_attn_weights=average)
        with pytest.raises(NotImplementedError, match=REFUSED):
            sum(each.square().sum() for each in both).backward()
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("average", [True, False])
def test_the_default_call_of_a_layer_trains(average, mode):
    check_layer(mode, average)


def test_transforms_of_torch_func(mode):
    x, bias = (each.detach() for each in inputs())
    mapped = vmap(attend, in_dims=(0, None))
    for got, want in zip(mode(mapped)(x, bias), mapped(x, bias), strict=True):
        assert torch.equal(got, want)
    leaves = x.clone().requires_grad_(), bias.clone().requires_grad_()
    run = mode(mapped)
    found = torch.autograd.grad(run(*leaves)[0].square().sum(), leaves)
    want = expected_gradients(RIGHT["out"], inputs())
    torch.testing.assert_close(found, want, rtol=1e-12, atol=1e-12)
    with pytest.raises(NotImplementedError, match=REFUSED):
        run(*leaves)[1].sum().backward()


def test_gradients_by_torch_func():
    tensors = [x.detach() for x in inputs()]
    for loss in RIGHT.values():
        found = grad(lambda *each, loss=loss: loss(*attend(*each)), (0, 1))(*tensors)
        want = expected_gradients(loss, inputs())
        torch.testing.assert_close(found, want, rtol=1e-12, atol=1e-12)
    for loss in WRONG.values():
        with pytest.raises(NotImplementedError, match=REFUSED):
            grad(lambda *each, loss=loss: loss(*attend(*each)))(*tensors)
    by_item = vmap(grad(lambda *each: attend(*each)[1][..., -1].sum()), (0, None))
    for refused in (by_item, jacrev(lambda *each: attend(*each)[1])):
        with pytest.raises(NotImplementedError, match=REFUSED):
            refused(*tensors)


def test_batches_of_autograd_itself_are_refused_too():
    given = inputs()
    weights = attend(*given)[1]
    many = torch.ones(3, *weights.shape, dtype=weights.dtype)
    with pytest.raises(TypeError, match=r"grad_weights: .*is_grads_batched"):
        torch.autograd.grad(weights, given, many, is_grads_batched=True)


@NEEDS_COMPILER
def test_inductor():
    check_layer(lambda layer: torch.compile(layer, fullgraph=True), True)


@NEEDS_COMPILER
def test_inductor_of_the_function():
    given = inputs()
    compiled = torch.compile(attend, fullgraph=True)
    with pytest.raises(NotImplementedError, match=REFUSED):
        compiled(*given)[1].sum().backward()
    found = torch.autograd.grad(compiled(*given)[0].square().sum(), given)
    want = expected_gradients(RIGHT["out"], given)
    torch.testing.assert_close(found, want, rtol=1e-12, atol=1e-12)
