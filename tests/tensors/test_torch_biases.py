"""The biases that torch's own operators compute: numbers, derivatives, what is kept."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch_calls import calls

import relpos.torch
from relpos import reference
from relpos.torch import _biases
from relpos.torch._biases import LONGEST_KEPT

DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
CALLS = {name: call for name, call in calls().items() if name[:2] in ("al", "t5")}
CALLS = {name: call for name, call in CALLS.items() if call.wanted}
WORDS = {torch.float32: torch.int32, torch.float64: torch.int64}


def by_operator(function, x, length, **settings):
    """Return what a compiled program computes."""
    if function is relpos.torch.alibi_bias:
        return _biases._ALIBI(num_heads_or_slopes=x, length=length)
    defaults = {"num_buckets": None, "bidirectional": True, "max_distance": 128}
    return _biases._T5(weight=x, length=length, **{**defaults, **settings})


def words(x):
    """The bits of numbers, of which 0.0 and -0.0 differ; nan has one form here."""
    numbers = torch.where(x.isnan(), torch.nan, x.detach())
    return numbers.view(WORDS.get(x.dtype, torch.int16))


def drawn(*shape, dtype):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    return x.to(dtype)


@pytest.fixture(params=["alibi_bias", "t5_bias"])
def function(request):
    return getattr(relpos.torch, request.param)


@pytest.fixture(params=DTYPES)
def operand(function, request):
    """Slopes or a weight, with numbers of every kind that they may have."""
    limits = torch.finfo(request.param)
    rare = [-0.0, limits.smallest_normal / 4, limits.max]
    if function is relpos.torch.alibi_bias:
        x = drawn(7, dtype=request.param)
        x[: len(rare)] = torch.tensor(rare, dtype=x.dtype)
    else:
        x = drawn(32, 3, dtype=request.param)
        rare += [-torch.inf, torch.nan]
        x[: len(rare), 0] = torch.tensor(rare, dtype=x.dtype)
    return x


# ---- numbers -------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 2, 3, 8, 9, 200])
@pytest.mark.parametrize("autocast", [None, torch.bfloat16, torch.float16])
def test_bits_are_those_of_the_operator(function, operand, length, autocast):
    enabled = autocast is not None
    with torch.autocast("cpu", autocast, enabled=enabled):
        want = by_operator(function, operand, length)
        found = function(operand, length)
        recorded = function(operand.clone().requires_grad_(), length)
    assert found.dtype == want.dtype and found.is_contiguous()
    for bias in (found, recorded):
        assert torch.equal(words(bias), words(want))


def test_settings_of_buckets_are_kept_apart():
    weight = drawn(8, 2, dtype=torch.float32)
    for both in (True, False):
        for distance in (9, 20):
            settings = {"bidirectional": both, "max_distance": distance}
            found = relpos.torch.t5_bias(weight, 40, **settings)
            want = by_operator(relpos.torch.t5_bias, weight, 40, **settings)
            assert torch.equal(found, want)


@pytest.mark.parametrize("shape", [(8, 0), (8, 2)])
def test_no_heads_and_other_integers(shape):
    weight = torch.ones(shape)
    found = relpos.torch.t5_bias(weight, torch.ones(5).numpy().size)
    assert found.shape == (shape[1], 9)
    assert relpos.torch.alibi_bias(weight, 5).shape == (*shape, 9)


# ---- derivatives ---------------------------------------------------------------------


def functions(call):
    """A sum of cubes by relpos.torch and by the definition, and its operand."""
    tensors = call.tensors(grad=False)
    (name,) = call.wanted
    # the definition takes as many buckets as there are
    settings = {n: x for n, x in call.settings.items() if n != "num_buckets"}

    def total(module, x):
        bias = getattr(module, call.name)(**{**tensors, name: x}, **settings)
        return (bias**3).sum()

    return partial(total, relpos.torch), partial(total, reference), tensors[name]


@pytest.mark.parametrize("label", CALLS)
def test_second_derivatives_are_those_of_the_definition(label):
    function, definition, x = functions(CALLS[label])
    want = torch.autograd.functional.hessian(definition, x)
    assert want.any()
    torch.testing.assert_close(torch.autograd.functional.hessian(function, x), want)
    torch.testing.assert_close(torch.func.hessian(function)(x), want)


@pytest.mark.parametrize("label", CALLS)
def test_forward_mode_is_that_of_the_definition(label):
    function, definition, x = functions(CALLS[label])
    direction = torch.linspace(-1, 1, x.numel(), dtype=x.dtype).view_as(x)
    found = []
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, direction)
        for each in (function, definition):
            found.append(forward_ad.unpack_dual(each(dual)).tangent)
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("length", [100, 8192])
def test_gradients_are_summed_in_float64(function, length):
    """Many of float32: a sum in float32 would be off by 2e-6 of the largest."""
    x = drawn(32, 4, dtype=torch.float32).requires_grad_()
    bias = function(x, length)
    grad = drawn(*bias.shape, dtype=torch.float32)
    bias.backward(grad)
    wide = x.detach().double().requires_grad_()
    by_operator(function, wide, length).backward(grad.double())
    error = (x.grad - wide.grad).abs().max() / wide.grad.abs().max()
    assert error <= 2**-24
    operator = x.detach().clone().requires_grad_()
    by_operator(function, operator, length).backward(grad)
    torch.testing.assert_close(x.grad, operator.grad, rtol=2**-23, atol=0)


# ---- what is kept --------------------------------------------------------------------


def test_a_first_call_of_inference_leaves_no_tensor_of_inference(function):
    _biases._kept.cache_clear()
    x = drawn(8, 2, dtype=torch.float32)
    with torch.inference_mode():
        want = function(x, 5)
    leaf = x.clone().requires_grad_()
    found = function(leaf, 5)
    found.sum().backward()
    assert want.is_inference() and torch.equal(found, want)
    assert leaf.grad.abs().sum() > 0


def test_lengths_share_what_is_kept_and_few_are_kept(function):
    x, kept = torch.ones(8, 2), _biases._kept
    kept.cache_clear()
    for length in range(1, 1025):
        function(x, length)
    assert kept.cache_info().currsize == 11
    function(x, LONGEST_KEPT)
    assert kept.cache_info().currsize == 12
    function(x, LONGEST_KEPT + 1)
    assert kept.cache_info().currsize == 12
    for distance in range(10, 100):
        relpos.torch.t5_bias(x, 5, max_distance=distance)
    assert kept.cache_info().currsize == kept.cache_info().maxsize == 32


def test_a_length_of_which_nothing_is_kept(function):
    x = drawn(8, 1, dtype=torch.float32)
    length = LONGEST_KEPT + 1
    found = function(x, length)
    assert torch.equal(found, by_operator(function, x, length))


# ---- which calls ---------------------------------------------------------------------


@pytest.mark.parametrize("label", CALLS)
def test_a_traced_call_goes_by_the_operator(label):
    function, _, x = functions(CALLS[label])
    assert f"relpos.{CALLS[label].name}" in make_fx(function)(x).code
    for given in (x, x.clone().requires_grad_()):
        out = torch.compile(function, backend="aot_eager", fullgraph=True)(given)
        assert torch.equal(out, function(given))


def test_what_torch_would_read_wrongly_is_refused(function):
    freed = torch.ones(8, 2)
    freed.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="storage was resized to 0 bytes"):
        function(freed, 5)
    with pytest.raises(TypeError, match=r"layout torch\.sparse_coo"):
        function(torch.ones(8, 2).to_sparse(), 5)
    for length in (4.0, True, torch.tensor(4)):
        function(torch.ones(8, 2), 4)  # what is kept for 4 is not for its equals
        with pytest.raises(TypeError, match=r"^length: got "):
            function(torch.ones(8, 2), length)


@pytest.mark.parametrize("number", [torch.inf, torch.nan])
def test_slopes_that_are_not_finite_are_refused_also_in_batches(number):
    slopes = torch.ones(3, 2)
    slopes[1, 1] = number
    words = rf"^num_heads_or_slopes: got {number}; expected finite numbers"
    bias = partial(relpos.torch.alibi_bias, length=4)
    for call in (bias, torch.vmap(bias), torch.func.jacrev(bias)):
        with pytest.raises(ValueError, match=words):
            call(slopes)
