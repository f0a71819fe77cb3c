"""Encodings and biases on tensors: relpos's numbers, with autograd."""

from __future__ import annotations

import numpy as np
import pytest

import relpos

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from torch.autograd import gradcheck  # noqa: E402
from torch_calls import calls  # noqa: E402

import relpos.torch  # noqa: E402

CALLS = calls()
SMOOTH = {label: call for label, call in CALLS.items() if call.wanted}


@pytest.fixture(params=CALLS)
def call(request):
    return CALLS[request.param]


@pytest.fixture(params=SMOOTH)
def smooth(request):
    return SMOOTH[request.param]


def run(call, tensors):
    return getattr(relpos.torch, call.name)(**tensors, **call.settings)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_numbers_are_those_of_relpos(call, dtype):
    tensors = call.tensors(getattr(torch, dtype))
    arrays = {name: x.detach().numpy() for name, x in tensors.items()}
    out = run(call, tensors)
    want = getattr(relpos, call.name)(**arrays, **call.settings)
    assert out.detach().numpy().dtype == want.dtype
    np.testing.assert_array_equal(out.detach().numpy(), want)


def test_gradients(smooth):
    tensors = smooth.tensors()
    names = smooth.wanted

    def function(*wanted):
        return run(smooth, tensors | dict(zip(names, wanted, strict=True)))

    assert gradcheck(function, [tensors[name] for name in names])


def test_a_gradient_does_not_depend_on_which_others_are_wanted(smooth):
    tensors = smooth.tensors()
    weight = torch.linspace(-1, 1, run(smooth, tensors).numel(), dtype=torch.float64)
    (run(smooth, tensors).flatten() @ weight).backward()
    for name in smooth.wanted:
        alone = smooth.tensors(grad=False)
        alone[name].requires_grad_()
        (run(smooth, alone).flatten() @ weight).backward()
        torch.testing.assert_close(
            alone[name].grad, tensors[name].grad, rtol=1e-14, atol=1e-14
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(smooth, dtype):
    half = smooth.tensors(dtype)
    single = {
        name: x.detach().float().requires_grad_(x.requires_grad)
        if x.is_floating_point()
        else x
        for name, x in half.items()
    }
    out, want = run(smooth, half), run(smooth, single)
    assert out.dtype == dtype
    assert torch.equal(out, want.to(dtype))
    grad = torch.ones_like(out)
    out.backward(grad), want.backward(grad.float())
    for name in smooth.wanted:
        assert half[name].grad.dtype == dtype
        assert torch.equal(half[name].grad, single[name].grad.to(dtype))


def test_autocast_and_the_number_of_threads(monkeypatch):
    numbers = []
    rotate = relpos.torch._encodings._ROTARY.forward
    monkeypatch.setattr(
        relpos.torch._encodings._ROTARY,
        "forward",
        lambda **call: numbers.append(relpos.get_num_threads()) or rotate(**call),
    )
    x = torch.ones(2, 4, requires_grad=True)
    with torch.autocast("cpu"):
        out = relpos.torch.apply_rotary(x)
        assert out.dtype == torch.bfloat16
        assert relpos.torch.apply_rotary(x.double()).dtype == torch.float64
    out.sum().backward()
    assert x.grad.dtype == torch.float32
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        relpos.torch.apply_rotary(x)
    finally:
        torch.set_num_threads(before)
    assert numbers == [before, before, 3]


def test_any_layout(smooth):
    tensors = smooth.tensors(grad=False)
    want = run(smooth, tensors)
    strided, negated = {}, {}
    for name, x in tensors.items():
        wide = torch.stack([x, x], -1)
        strided[name] = wide[..., 0]
        negated[name] = x
        if x.is_floating_point():
            negated[name] = torch.complex(torch.zeros_like(x), -x).conj().imag
            assert negated[name].is_neg()
    assert torch.equal(run(smooth, strided), want)
    assert torch.equal(run(smooth, negated), want)


def test_meta_tensors_have_the_shape(call):
    want = run(call, call.tensors())
    tensors = {
        name: x.detach().to("meta").requires_grad_(x.requires_grad)
        for name, x in call.tensors().items()
    }
    out = run(call, tensors)
    assert out.is_meta and (out.shape, out.dtype) == (want.shape, want.dtype)
    if call.wanted:
        out.sum().backward()
        assert tensors[call.wanted[0]].grad.shape == tensors[call.wanted[0]].shape


def test_what_has_no_derivative_says_so(smooth):
    name = smooth.wanted[0]
    tensors = smooth.tensors(grad=False)
    x = tensors[name]
    words = f"relpos.torch.{smooth.name}: has no forward-mode"
    with pytest.raises(NotImplementedError, match=words):
        torch.func.jvp(lambda x: run(smooth, tensors | {name: x}), (x,), (x,))
    out = run(smooth, tensors | {name: x.clone().requires_grad_()})
    weight = torch.ones_like(out).requires_grad_()
    grad = torch.autograd.grad(out, list(_leaves(out)), weight, create_graph=True)
    with pytest.raises(NotImplementedError, match="gradients of their own"):
        grad[0].sum().backward()


def _leaves(out):
    """The leaves that a graph of one function ends in."""
    for node, _ in out.grad_fn.next_functions:
        if node is not None:
            yield node.variable


@pytest.mark.parametrize(
    "label, name",
    [("rotary", "magnitude"), ("sinusoidal_of", "inv_freq"), ("mrope", "inv_freq")],
)
def test_an_operand_without_gradient_may_not_require_one(label, name):
    tensors = CALLS[label].tensors()
    tensors[name].requires_grad_()
    with pytest.raises(ValueError, match=rf"{name}: requires a gradient, which "):
        run(CALLS[label], tensors)


def test_wrong_arguments_are_named():
    x = torch.ones(2, 3)
    with pytest.raises(TypeError, match="x: got an array of dtype float32; expected a"):
        relpos.torch.apply_rotary(x.numpy())
    with pytest.raises(ValueError, match="x: got D = 3"):
        relpos.torch.apply_rotary(x)
    with pytest.raises(TypeError, match="positions: got float; expected an integer"):
        relpos.torch.sinusoidal(2.5, 4)
    with pytest.raises(IndexError, match="positions: position 2 is"):
        relpos.torch.learned(x, 4)
    with pytest.raises(TypeError, match="table: got dtype int64"):
        relpos.torch.learned(torch.arange(4).reshape(2, 2), 1)


def test_what_stands_for_tensors():
    assert torch.equal(
        relpos.torch.alibi_bias(3, 5), torch.from_numpy(relpos.alibi_bias(3, 5))
    )
    assert torch.equal(
        relpos.torch.sinusoidal(5, 4), relpos.torch.sinusoidal(torch.arange(5), 4)
    )
    assert relpos.torch.sinusoidal(5, 4, dtype=torch.bfloat16).dtype == torch.bfloat16
    x = torch.ones(2, 4)
    twice = relpos.torch.apply_rotary(x, magnitude=2)
    assert torch.equal(twice, 2 * relpos.torch.apply_rotary(x))
    slopes = relpos.torch.alibi_slopes(6, max_exponent=4, dtype=torch.float64)
    np.testing.assert_array_equal(
        slopes, relpos.alibi_slopes(6, max_exponent=4, dtype=np.float64)
    )
    assert torch.equal(
        relpos.torch.grid_labels((2, 3)), torch.from_numpy(relpos.grid_labels((2, 3)))
    )
    scaling = ("linear", 4.0)
    np.testing.assert_array_equal(
        relpos.torch.rotary_frequencies(6, base=50.0, scaling=scaling),
        relpos.rotary_frequencies(6, base=50.0, scaling=scaling),
    )
