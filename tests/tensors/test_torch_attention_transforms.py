"""Attention on tensors under torch.func, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.func import functional_call, grad, jacrev, vjp, vmap
from torch_attention import CALLS, run, tensors_of

import relpos.torch
from relpos import _core
from relpos.torch import _engine

SIZE = 3


def given(label):
    """Every tensor of a call by name, and a function of them."""
    call = CALLS[label]
    given = tensors_of(call.inputs | call.others)
    tensors = {n: x for n, x in given.items() if isinstance(x, torch.Tensor)}
    return tensors, lambda tensors: run(label, tensors, return_lse=True)[:2]


def items_of(name, tensor):
    """Different items side by side along an axis, and that axis."""
    axis = min(tensor.dim(), 1)
    if tensor.is_floating_point():
        items = [tensor, tensor * 0.5, tensor.flip(0) if tensor.dim() else tensor + 1]
    elif name == "indptr":
        items = [tensor, tensor, torch.tensor([0, 1, 3, 5])]
    elif name == "cu_seqlens":
        items = [tensor, tensor, torch.tensor([0, 2, 2, 3], dtype=tensor.dtype)]
    else:
        items = [tensor, tensor, tensor.flip(-1)]
    return torch.stack(items, axis), axis


def item(tensors, dims, at):
    return {
        name: x if dims[name] is None else x.select(dims[name], at)
        for name, x in tensors.items()
    }


def close(got, want):
    torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-13, equal_nan=True)


def batchings(tensors):
    """All tensors batched, and each of them alone: tensors and axes by name."""
    for chosen in [[*tensors], *([name] for name in tensors)]:
        many, dims = dict(tensors), dict.fromkeys(tensors)
        for name in chosen:
            many[name], dims[name] = items_of(name, tensors[name])
        yield many, dims


@pytest.mark.parametrize("label", CALLS)
def test_vmap_of_all_tensors_and_of_each(label):
    tensors, run = given(label)
    for many, dims in batchings(tensors):
        found = vmap(run, in_dims=(dims,))(many)
        for at in range(SIZE):
            for got, want in zip(found, run(item(many, dims, at)), strict=True):
                close(got[at], want)


def loss_of(run):
    def loss(tensors):
        out, lse = run(tensors)
        seen = lse.nan_to_num(neginf=0.0)
        return (out * out).sum() + (
            seen * torch.arange(seen.numel()).view_as(seen)
        ).sum()

    return loss


@pytest.mark.parametrize("label", CALLS)
def test_gradients_by_item(label):
    tensors, run = given(label)
    names = [n for n, x in tensors.items() if x.is_floating_point()]

    def by_item(tensors):
        inputs = {name: tensors[name] for name in names}
        return grad(lambda x: loss_of(run)({**tensors, **x}))(inputs)

    for many, dims in batchings(tensors):
        found = vmap(by_item, in_dims=(dims,))(many)
        for at in range(SIZE):
            want = by_item(item(many, dims, at))
            for name in names:
                close(found[name][at], want[name])


def counting(monkeypatch):
    """Count the calls of the kernels, forward and backward."""
    counts = {"forward": 0, "backward": 0}

    def count(name, run):
        def counted(*args):
            counts[name] += 1
            return run(*args)

        monkeypatch.setattr(_engine, name, counted)

    for name in counts:
        count(name, getattr(_engine, name))
    return counts


@pytest.mark.parametrize(
    ("label", "calls"), [("plain", 1), ("tables", 1), ("decay", 1), ("fire", SIZE)]
)
def test_an_axis_takes_one_call_where_it_can(label, calls, monkeypatch):
    tensors, run = given(label)
    tensors.pop("query_offset", None)
    many, dims = next(batchings(tensors))
    counts = counting(monkeypatch)
    vmap(grad(loss_of(run)), in_dims=(dims,))(many)
    assert counts == {"forward": calls, "backward": calls}


def test_two_axes_take_one_call(monkeypatch):
    query, tables = torch.randn(2, 3, 4, 2, 5, 4), torch.randn(3, 5)
    counts = counting(monkeypatch)

    def one(query, bias):
        return relpos.torch.attention(query, query, query, rel_bias=bias)

    found = vmap(vmap(one, in_dims=(1, 0)), in_dims=(2, None))(query, tables)
    assert counts["forward"] == 1 and found.shape == (4, 3, 2, 2, 5, 4)
    for i in range(4):
        for j in range(3):
            close(found[i, j], one(query[:, j, i], tables[j]))


@pytest.mark.parametrize("label", ["biases", "fire", "dropout", "graph"])
def test_a_jacobian_is_a_loop_of_gradients(label):
    tensors, run = given(label)
    floating = {n: x for n, x in tensors.items() if x.is_floating_point()}
    found = jacrev(lambda x: run({**tensors, **x})[0].flatten()[:3])(floating)
    for at in range(3):

        def entry(x, at=at):
            return run({**tensors, **x})[0].flatten()[at]

        for name, want in grad(entry)(floating).items():
            close(found[name][at], want)


def test_vjp_and_lse_alone():
    tensors, run = given("shaw")
    lse, back = vjp(lambda x: run(x)[1], tensors)
    (found,) = back(torch.ones_like(lse))
    want = {n: x.clone().requires_grad_() for n, x in tensors.items()}
    run(want)[1].sum().backward()
    for name in ("query", "key", "rel_key"):
        close(found[name], want[name].grad)
    assert not found["value"].any()


def test_gradients_of_samples_of_a_module():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.project = torch.nn.Linear(6, 18).double()
            self.table = torch.nn.Parameter(torch.randn(5, 3).double())

        def forward(self, x):
            parts = self.project(x).unflatten(-1, (3, 2, 3)).transpose(-2, -4)
            return relpos.torch.shaw_attention(*parts.unbind(-3), self.table)

    layer, x = Layer(), torch.randn(4, 5, 6).double()
    parameters = {n: p.detach() for n, p in layer.named_parameters()}

    def loss(parameters, x):
        return functional_call(layer, parameters, (x,)).square().sum()

    found = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for at in range(4):
        for name, want in grad(loss)(parameters, x[at]).items():
            close(found[name][at], want)


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_dropout_of_items(randomness):
    x = torch.zeros(1, 8, 8)
    eye = torch.eye(8)[None].expand(SIZE, 1, 8, 8)
    found = vmap(
        lambda value: relpos.torch.attention(x, x, value, dropout_p=0.5),
        randomness=randomness,
    )(eye)
    same = torch.equal(found[0], found[1])
    assert same == (randomness == "same") and not found.all()


# ---- checkpoints, dropout, threads, devices -----------------------------------------


def test_checkpoint_drops_the_same_again():
    tensors, _ = given("shaw")

    def call(query, table):
        given = {**tensors, "query": query, "rel_key": table}
        return relpos.torch.attention(**given, dropout_p=0.5)

    found = []
    for through in (False, True):
        torch.manual_seed(3)
        inputs = [tensors[n].clone().requires_grad_() for n in ("query", "rel_key")]
        if through:
            out = torch.utils.checkpoint.checkpoint(call, *inputs, use_reentrant=False)
        else:
            out = call(*inputs)
        out.square().sum().backward()
        found.append([out.detach(), *(x.grad for x in inputs)])
    for plain, again in zip(*found, strict=True):
        assert torch.equal(plain, again)


def test_seeds():
    x = torch.randn(1, 32, 8)

    def call(**options):
        return relpos.torch.attention(x, x, x, dropout_p=0.5, **options)

    torch.manual_seed(1)
    first, second = call(), call()
    torch.manual_seed(1)
    assert torch.equal(call(), first) and not torch.equal(first, second)
    generators = [torch.Generator().manual_seed(5) for _ in range(2)]
    assert torch.equal(call(rng=generators[0]), call(rng=generators[1]))
    assert torch.equal(call(rng=7), call(rng=torch.tensor(7)))
    array = x.numpy()
    want = relpos.attention(array, array, array, dropout_p=0.5, rng=7)
    assert torch.equal(call(rng=7), torch.from_numpy(want))
    for rng in (1.5, torch.tensor([1]), torch.tensor(1.0), torch.tensor(True), "seed"):
        with pytest.raises(TypeError, match="rng: got"):
            call(rng=rng)


THREADS = """
import os, torch
del torch._C.__file__  # so that PyTorch's threads, whose number it sets, run no call
import relpos.torch
torch.set_num_threads(1)  # so that PyTorch starts none as it makes tensors
leaf = torch.randn(1, 8, 256, 64, requires_grad=True)
x = grad_out = torch.ones(1, 8, 256, 64)

def started(run):
    before = len(os.listdir("/proc/self/task"))
    run()
    return len(os.listdir("/proc/self/task")) - before

class Calls(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return started(lambda: relpos.torch.attention(x, x, x))

def forward(**settings):
    return relpos.torch.attention(leaf, x, x, **settings)

def backward():  # one gradient, that torch does not add to another by its threads
    torch.autograd.grad(out, leaf, grad_out, retain_graph=True)

def dropped():  # which Python prepares
    forward(dropout_p=0.5)

out = forward()
assert started(backward) == started(dropped) == 0
for n, run in enumerate((forward, backward, dropped), 2):
    torch.set_num_threads(n)
    assert started(run) == 1, n
loader = torch.utils.data.DataLoader(
    Calls(), num_workers=1, batch_size=2, multiprocessing_context="fork"
)
assert next(iter(loader)).tolist() == [0, 0], "a worker has one thread"
"""


def test_threads_are_those_of_torch(child):
    if not Path("/proc/self/task").is_dir():
        pytest.skip("threads are counted where the system lists them")
    child(THREADS)


@pytest.mark.parametrize("name", ["query", "rel_key", "labels", "key_lengths"])
def test_what_is_no_tensor_of_the_cpu(name):
    tensors = {"query": torch.ones(1, 2, 4), "key": torch.ones(1, 2, 4)}
    tensors["value"] = tensors["key"]
    call = relpos.torch.attention
    with pytest.raises(TypeError, match=f"{name}: got a tensor of layout"):
        call(**tensors | {name: torch.ones(2, 4).to_sparse()})
    if name != "key_lengths":
        with pytest.raises(TypeError, match=f"{name}: got .*; expected a tensor"):
            call(**tensors | {name: [[1.0]]})


@pytest.mark.parametrize("name", ["scale", "softcap", "is_causal", "dropout_p"])
def test_what_has_no_gradient_is_no_tensor(name):
    x = torch.ones(1, 2, 4)
    with pytest.raises(TypeError, match=f"{name}: got Tensor; expected no tensor"):
        relpos.torch.attention(x, x, x, **{name: torch.tensor(0.5)})


@pytest.mark.parametrize(
    "name", ["is_causal", "dropout_p", "enable_gqa", "beyond", "return_weights"]
)
def test_none_is_no_flag_and_no_choice(name):
    x = torch.ones(1, 2, 4)
    with pytest.raises(TypeError, match=f"^{name}: got NoneType; expected"):
        relpos.torch.attention(x, x, x, **{name: None})


def _sparse(edges):
    matrix = pytest.importorskip("scipy.sparse").csr_matrix(np.eye(3)[edges])
    return {"edges": matrix}, matrix.indices


def _one_number():
    numbers = np.ones(1)
    return {"scale": numbers[0, ...]}, numbers


def _named(name, value, **others):
    """Keywords of a call, and the one of them that the test changes."""
    return {name: value, **others}, value


#: Functions that return keywords and what is changed of them after the call.
CHANGED = {
    "a list of lengths": lambda: _named("key_lengths", [2, 3]),
    "lengths": lambda: _named("key_lengths", np.array([2, 3])),
    "offsets": lambda: _named("query_offset", [1, 2], is_causal=True),
    "window": lambda: _named("window", [1, 1]),
    "scale": _one_number,
    "graph": lambda: _sparse([1, 1, 2]),
}


@pytest.mark.parametrize("label", CHANGED)
def test_what_is_changed_after_a_call_is_no_matter(label):
    given, changed = CHANGED[label]()
    x = torch.randn(2, 1, 3, 4, requires_grad=True)
    name = "graph_attention" if label == "graph" else "attention"
    loss = getattr(relpos.torch, name)(x, x, x, **given).square().sum()
    (want,) = torch.autograd.grad(loss, x, retain_graph=True)
    changed[0] = 0
    assert torch.equal(torch.autograd.grad(loss, x)[0], want)


def test_errors_are_those_of_arrays():
    x = torch.ones(1, 2, 4)
    with pytest.raises(TypeError, match="query: got NoneType; expected a tensor"):
        relpos.torch.attention(None, x, x)
    with pytest.raises(ValueError, match=r"key: shape \(1, 2, 3\) does not match"):
        relpos.torch.attention(x, x[..., :3], x)
    with pytest.raises(TypeError, match="labels: got list; expected a tensor"):
        relpos.torch.graph_attention(x, x, x, edges=torch.ones(2, 0), labels=[1])
    with pytest.raises(TypeError, match=r"^out: got an unexpected"):
        relpos.torch.fire_attention(x, x, x, x, x, x, x, 1.0, 1.0, out=x)


def test_batches_of_autograd_itself_are_told_of_those_of_func():
    x = torch.randn(2, 5, 4, requires_grad=True)
    out = relpos.torch.attention(x, x, x)
    with pytest.raises(TypeError, match=r"grad_out: .*is_grads_batched.*jacrev"):
        torch.autograd.grad(out, x, torch.ones(3, 2, 5, 4), is_grads_batched=True)


def test_a_default_device_is_not_that_of_the_seed():
    x = torch.randn(2, 5, 4)
    with torch.device("meta"):
        for rng in (None, 3):
            out = relpos.torch.attention(x, x, x, dropout_p=0.5, rng=rng)
            assert out.device == x.device


# ---- a call that raises leaves the generator of its dropout as it was ----------------

X = torch.linspace(-1, 1, 80).reshape(1, 2, 5, 8)
WRONG = [
    {"attn_mask": torch.ones(3, 3, dtype=torch.bool)},
    {"num_threads": 0},
    {"scale": "one"},
]


def dropped(rng, **wrong):
    return relpos.torch.attention(X, X, X, dropout_p=0.5, rng=rng, **wrong)


@pytest.fixture(params=["its own", "of torch"])
def rng(request):
    """A generator, and what is passed for it."""
    if request.param == "its own":
        generator = torch.Generator().manual_seed(3)
        return generator, generator
    return torch.default_generator, None


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: next(iter(wrong)))
def test_a_wrong_argument(rng, wrong):
    generator, given = rng
    before = generator.get_state()
    with pytest.raises((TypeError, ValueError)):
        dropped(given, **wrong)
    assert torch.equal(generator.get_state(), before)
    out = dropped(given)
    assert not torch.equal(generator.get_state(), before)
    generator.set_state(before)
    assert torch.equal(dropped(given), out)


def test_a_failing_allocation(rng):
    generator, given = rng
    before = generator.get_state()
    _core.fail_at(1, False)
    try:
        with pytest.raises(MemoryError):
            dropped(given)
    finally:
        _core.fail_at(0, False)
    assert torch.equal(generator.get_state(), before)
