"""The ways in which an eager call is made: with an autograd Function, or without."""

from __future__ import annotations

import gc
import inspect
import weakref

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import relpos
import relpos.torch
from relpos.torch import _attend, _attention, _engine, _tracing

#: One function for each kind of operator, of one tensor.
FUNCTIONS = {
    "attention": lambda x: relpos.torch.attention(x, x, x, is_causal=True),
    "apply_rotary": lambda x: relpos.torch.apply_rotary(x),
}
DIRECT, RECORDED, WHOLE = [], ["recorded"], ["whole"]
MODIFIED = "modified by an inplace operation"


@pytest.fixture(params=FUNCTIONS)
def name(request):
    return request.param


@pytest.fixture
def function(name):
    return FUNCTIONS[name]


@pytest.fixture
def x():
    return torch.randn(2, 5, 4, dtype=torch.float64)


@pytest.fixture
def ways(monkeypatch):
    """The calls of an autograd Function, of the form that torch.func takes or not."""
    seen = []
    whole = inspect.getattr_static(torch.autograd.Function, "apply")  # of C or Python
    other, node = _tracing._without_setup_context, _attention.RECORD

    def apply(cls, *args, **kwargs):
        seen.append("whole")
        return whole.__get__(None, cls)(*args, **kwargs)

    def without(function):
        seen.append("recorded")
        return other(function)

    def record(*args):  # of a call that C runs
        seen.append("recorded")
        return node(*args)

    monkeypatch.setattr(torch.autograd.Function, "apply", classmethod(apply))
    monkeypatch.setattr(_tracing, "_without_setup_context", without)
    if node is not None:
        monkeypatch.setattr(_attention, "RECORD", record)
    return seen


def taken(ways, call, *args):
    """Return the ways that a call takes, and its result."""
    ways.clear()
    result = call(*args)
    return [*ways], result


# ---- which way is taken --------------------------------------------------------------


def test_without_a_gradient_no_function_is_made(function, x, ways):
    leaf = x.clone().requires_grad_()
    found = [taken(ways, function, x)]
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            found += [taken(ways, function, x), taken(ways, function, leaf)]
    want = function(leaf)
    for way, out in found:
        assert way == DIRECT and torch.equal(out, want)
        assert not out.requires_grad and out.grad_fn is None
    assert [out.is_inference() for _, out in found] == [False] * 3 + [True] * 2


def test_with_a_gradient_its_backward_needs_none(function, x, ways):
    leaf = x.requires_grad_()
    way, out = taken(ways, function, leaf)
    assert way == RECORDED and out.requires_grad
    back = torch.autograd.grad
    way, (first,) = taken(ways, lambda: back(out.sum(), leaf, retain_graph=True))
    assert way == DIRECT and not first.requires_grad
    again, (second,) = taken(ways, lambda: back(out.sum(), leaf, create_graph=True))
    assert torch.equal(first, second)
    assert again == (RECORDED if second.requires_grad else DIRECT)
    traced = torch.compile(function, backend="aot_eager")(leaf)
    torch.testing.assert_close(back(traced.sum(), leaf)[0], first)


def test_torch_func_sees_the_whole_function(name, function, x, ways):
    many = torch.stack([x, 2 * x])
    way, out = taken(ways, torch.func.vmap(function), many)
    assert set(way) == {"whole"} and torch.equal(out[1], function(many[1]))
    leaf = x.clone().requires_grad_()
    (want,) = torch.autograd.grad(function(leaf).square().sum(), leaf)
    by_func = torch.func.grad(lambda x: function(x).square().sum())
    way, found = taken(ways, by_func, x)
    assert set(way) == {"whole"} and torch.equal(found, want)
    out, back = torch.func.vjp(function, x)
    assert torch.equal(back(2 * out)[0], want)  # outside of the transform
    with pytest.raises(NotImplementedError, match=f"{name}: has no forward-mode"):
        torch.func.jvp(function, (x,), (x,))


def test_a_gradient_under_vmap(function, x, ways):
    leaf = x.requires_grad_()
    out = function(leaf)
    seeds = torch.randn(3, *out.shape, dtype=out.dtype)

    def back(seed):
        return torch.autograd.grad(out, leaf, seed, retain_graph=True)[0]

    way, found = taken(ways, torch.func.vmap(back), seeds)
    assert set(way) == {"whole"}
    for got, seed in zip(found, seeds, strict=True):
        torch.testing.assert_close(got, back(seed), rtol=1e-13, atol=1e-13)


def test_forward_mode_sees_the_whole_function(name, function, x, ways):
    leaf, refused = x.clone().requires_grad_(), f"{name}: has no forward-mode"
    out = function(leaf)
    with forward_ad.dual_level():
        way, found = taken(ways, function, x)
        assert way == WHOLE and torch.equal(found, out)
        with torch.no_grad(), pytest.raises(NotImplementedError, match=refused):
            function(forward_ad.make_dual(x, x))
        seed = forward_ad.make_dual(torch.ones_like(out), torch.ones_like(out))
        with pytest.raises(NotImplementedError, match=refused):
            torch.autograd.grad(out, leaf, seed)


class Watching(TorchDispatchMode):
    """A mode that notes the operators."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.seen.append(str(operator))
        return operator(*args, **(kwargs or {}))


def test_a_dispatch_mode_sees_an_operator(name, function, x, ways):
    leaf = x.clone().requires_grad_()
    for given in (x, leaf):
        with Watching() as mode:
            _, out = taken(ways, function, given)
        assert f"relpos.{name}.default" in mode.seen
        assert torch.equal(out, function(given))
        assert out.requires_grad == given.requires_grad
    with FakeTensorMode() as mode:
        fake = function(mode.from_tensor(x))
    assert type(fake).__name__ == "FakeTensor" and fake.shape == x.shape
    out = function(leaf)
    with Watching():
        way, _ = taken(ways, out.sum().backward)
    assert way == WHOLE and leaf.grad is not None


def test_what_is_no_plain_tensor_goes_by_the_operator(function, x, ways):
    class Named(torch.Tensor):
        pass

    assert function(x.to("meta")).is_meta
    leaf, plain = (x.clone().requires_grad_() for _ in range(2))
    out, want = function(leaf.as_subclass(Named)), function(plain)
    assert torch.equal(out.as_subclass(torch.Tensor), want)
    out.sum().backward(), want.sum().backward()
    assert torch.equal(leaf.grad.as_subclass(torch.Tensor), plain.grad)
    parameter = torch.nn.Parameter(x)
    assert taken(ways, function, parameter)[0] == RECORDED


def test_a_mode_of_torch_functions_changes_nothing(function, x):
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, called, types, args=(), kwargs=None):
            return called(*args, **(kwargs or {}))

    want = function(x)
    with Mode(), torch.device("meta"):
        assert torch.equal(function(x), want)
        leaf = x.requires_grad_()
        assert function(leaf).requires_grad


@pytest.mark.filterwarnings("ignore:.*torch.jit", "ignore::torch.jit.TracerWarning")
def test_a_trace_keeps_the_call(function, x):
    for given in (x, x.clone().requires_grad_()):
        traced = torch.jit.trace(function, (given,), check_trace=False)
        for length in (1, 3):
            other = torch.randn(length, *x.shape[1:], dtype=x.dtype)
            assert torch.equal(traced(other), function(other))


# ---- what autograd does in the form that it records ----------------------------------


def loss(function, leaf):
    return function(leaf * 1).square().sum()


def gradient(function, leaf):
    return torch.autograd.grad(loss(function, leaf), leaf)[0]


def test_saved_tensors_go_through_hooks(name, function, x):
    leaf, packed = x.requires_grad_(), []
    want = gradient(function, leaf)

    def pack(tensor):
        packed.append(tensor)
        return len(packed) - 1

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda index: packed[index]):
        function(leaf * 1).backward(torch.ones_like(leaf))
    if name == "attention":  # out, row_max, row_sum and the three operands
        assert sorted(x.dim() for x in packed) == [2, 2, 3, 3, 3, 3]
    with torch.autograd.graph.save_on_cpu():
        assert torch.equal(gradient(function, leaf), want)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints(reentrant, name, function, x):
    leaf, calls = x.requires_grad_(), []

    def noted(x):
        calls.append(torch.is_grad_enabled())
        return function(x)

    want = gradient(function, leaf)
    through = checkpoint(noted, leaf * 1, use_reentrant=reentrant)
    through.square().sum().backward()
    again = reentrant or name == "attention"  # a rotation keeps nothing to make anew
    assert torch.equal(leaf.grad, want) and calls == [not reentrant] + [True] * again


def test_a_change_between_forward_and_backward_is_noticed(x):
    leaf = x.requires_grad_()
    attention = FUNCTIONS["attention"]
    for index in (0, 1):
        given = leaf * 1
        changed = (given, attention(given))
        changed[index].detach().add_(1)
        with pytest.raises(RuntimeError, match=MODIFIED):
            changed[1].sum().backward()
    angles = torch.zeros(2, dtype=x.dtype)
    out = relpos.torch.apply_rotary(leaf * 1, inv_freq=angles.requires_grad_())
    angles.detach().add_(1)
    with pytest.raises(RuntimeError, match=MODIFIED):
        out.sum().backward()


def test_a_graph_is_kept_where_it_is_asked_for(x):
    leaf = x.requires_grad_()
    value = loss(FUNCTIONS["attention"], leaf)
    first = torch.autograd.grad(value, leaf, retain_graph=True)[0]
    assert torch.equal(torch.autograd.grad(value, leaf)[0], first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(value, leaf)


def test_second_derivatives_are_refused(name, function, x):
    leaf, words = x.clone().requires_grad_(), f"{name}: its gradients have no"
    (first,) = torch.autograd.grad(loss(function, leaf), leaf, create_graph=True)
    with pytest.raises(NotImplementedError, match=words):
        first.sum().backward()
    by_func = torch.func.grad(lambda x: loss(function, x))
    with pytest.raises(NotImplementedError, match=words):
        torch.func.grad(lambda x: by_func(x).sum())(x)


def test_which_results_have_gradients_and_what_the_backward_is_given(x, monkeypatch):
    setting = _engine.Setting(("query", "key", "value"), {"return_weights": True})
    leaf, calls = x.clone().requires_grad_(), []
    results = _attend.attend(setting, [leaf, x, x])
    out, lse, weights = results.out, results.lse, results.weights
    assert all(each.requires_grad for each in (out, lse, weights))
    backward = _engine.backward

    def noted(setting, needs_grad, grads, *rest):
        calls.append([needs_grad, *(grad is None for grad in grads)])
        return backward(setting, needs_grad, grads, *rest)

    monkeypatch.setattr(_engine, "backward", noted)
    lse.sum().backward(retain_graph=True)
    out.sum().backward()
    query_alone = True, False, False
    assert calls == [
        [query_alone, True, False, True],
        [query_alone, False, True, True],
    ]


@pytest.mark.parametrize("asked", [False, True])
def test_results_are_made_where_they_are_asked_for_or_kept(asked, x, monkeypatch):
    forwards, forward = [], _engine.forward

    def noted(*args):
        forwards.append(forward(*args))
        return forwards[-1]

    monkeypatch.setattr(_engine, "forward", noted)
    for query in (x, x.clone().requires_grad_()):
        setting = _engine.Setting(("query", "key", "value"), {}, with_lse=asked)
        results = _attend.attend(setting, [query, x, x])
        assert torch.equal(results.out, forwards[-1].out)
        if asked:
            assert torch.equal(results.lse, forwards[-1].lse)
        else:
            assert results.lse is None
        assert results.row_max is results.row_sum is results.weights is None
    alone, kept = forwards
    there = {name for name, each in alone._asdict().items() if each is not None}
    assert there == ({"out", "lse"} if asked else {"out"})
    there = {name for name, each in kept._asdict().items() if each is not None}
    assert there == {"out", "row_max", "row_sum"} | ({"lse"} if asked else set())
    for one, other in zip(alone, kept, strict=True):
        assert one is None or torch.equal(one, other)


def test_numbers_that_are_replaced_are_read_where_they_are(x):
    """``leaf.data = x`` frees what the forward read, and tells nobody."""
    leaf, other = x.clone().requires_grad_(), torch.randn_like(x)
    out = relpos.torch.attention(leaf, leaf, leaf)
    leaf.data = other.clone()
    out.sum().backward()
    before, after = x.numpy(), other.numpy()
    found = relpos.attention_forward(before, before, before)
    grad_out = torch.ones_like(x).numpy()
    want = relpos.attention_backward(grad_out, None, found, after, after, after)
    total = sum(torch.from_numpy(want[n]) for n in range(3))
    assert torch.allclose(leaf.grad, total, rtol=1e-14, atol=1e-15)


def test_nothing_is_kept_alive(function, x):
    """A result that its own graph keeps would wait for the collector of cycles."""
    leaf = x.requires_grad_()
    gc.disable()
    try:
        node = weakref.ref(function(leaf).grad_fn)
        assert node() is None
    finally:
        gc.enable()
