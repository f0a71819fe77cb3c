"""Attention on tensors while compiled, exported, or without numbers."""

from __future__ import annotations

import hashlib
import inspect

import pytest
import torch
from inductor import (  # noqa: F401
    NEEDS_COMPILER,
    NEEDS_WHOLE_GRAPH,
    compile_afresh,
)
from torch.func import grad, jvp, vmap
from torch_attention import CALLS, tensors_of

import relpos.torch
from relpos.torch import _attend

DOUBLE = torch.float64


def compiled(function, **options):
    options = {"backend": "aot_eager", "fullgraph": True, **options}
    return torch.compile(function, **options)


def function_of(label):
    """out and lse of a call as a function of its floating tensors."""
    call = CALLS[label]
    function, others = getattr(relpos.torch, call.function), tensors_of(call.others)

    def run(inputs):
        found = function(**inputs, **others, return_lse=True)
        return found.out, found.lse  # PyTorch 2.6 does not compile the slice of a tuple

    return run


def loss_of(results):
    return results[0].square().sum() + results[1].nan_to_num(neginf=0.0).sum()


@pytest.mark.parametrize("label", CALLS)
def test_compiled_is_eager(label):
    eager, traced = (tensors_of(CALLS[label].inputs, grad=True) for _ in range(2))
    function = function_of(label)
    want, got = function(eager), compiled(function)(traced)
    for x, y in zip(got, want, strict=True):
        assert torch.equal(x, y)
    loss_of(want).backward()
    loss_of(got).backward()
    for name, x in eager.items():
        torch.testing.assert_close(traced[name].grad, x.grad, rtol=1e-13, atol=1e-13)


def operands_of(label, monkeypatch):
    """Return the arguments that the operator of a call receives."""
    seen = []
    with monkeypatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        patch.setattr(
            _attend,
            "_attention",
            lambda *args: seen.append(args) or [torch.empty(0)] * 5,
        )
        function_of(label)(tensors_of(CALLS[label].inputs, grad=True))
    return seen[0]


CHECKS = "test_schema", "test_autograd_registration", "test_faketensor"


@pytest.mark.parametrize("label", CALLS)
def test_operators_keep_the_rules(label, monkeypatch):
    args = operands_of(label, monkeypatch)
    dynamic = ("test_aot_dispatch_dynamic",) if label in ("biases", "fire") else ()
    torch.library.opcheck(_attend._attention, args, test_utils=CHECKS + dynamic)
    operands = [x.detach() for x in args[0]]
    found = _attend._attention(operands, *args[1:])
    kept = (found[0], None, None, found[0], found[2], found[3], operands)
    wanted = [x.is_floating_point() for x in operands]
    torch.library.opcheck(
        _attend._attention_backward,
        (wanted, *kept, *args[1:]),
        test_utils=CHECKS + dynamic,
    )


@NEEDS_COMPILER
def test_inductor():
    inputs = [tensors_of(CALLS["biases"].inputs, grad=True) for _ in range(2)]
    function = function_of("biases")

    def loss(inputs):
        return loss_of(function(inputs))

    compiled(loss, backend="inductor")(inputs[0]).backward()
    loss(inputs[1]).backward()
    for name, x in inputs[1].items():
        compiled_gradient = inputs[0][name].grad
        torch.testing.assert_close(compiled_gradient, x.grad, rtol=1e-12, atol=1e-12)


def recorder(seen):
    """A compiler that notes each program and leaves it as it is."""
    return lambda graph, _: seen.append(graph) or graph


def test_lengths_that_are_symbols():
    def call(x, table):
        length = x.shape[-2]
        return relpos.torch.attention(
            x[..., 2:, :],
            x,
            x,
            rel_key=table,
            query_offset=length - (length - 2),
            window=(length // 2, 1),
            key_lengths=length - 1,
        )

    def memory(x, table):
        return relpos.torch.transformer_xl_attention(
            x[..., 2:, :], x, x, table[: 2 * x.shape[-2] - 3], None, None
        )

    for function in (call, memory):
        seen = []
        symbolic = compiled(function, dynamic=True, backend=recorder(seen))
        for length in (7, 9, 13):
            x = torch.randn(2, 3, length, 4, dtype=DOUBLE)
            table = torch.randn(31, 4, dtype=DOUBLE)
            assert torch.equal(symbolic(x, table), function(x, table))
        assert len(seen) == 1


def test_dropout_draws_its_seed_in_the_graph():
    def call(x):
        return relpos.torch.attention(x, x, x, dropout_p=0.5)

    traced = compiled(call)
    x = torch.randn(1, 16, 8, requires_grad=True)
    outs = []
    for function in (traced, call):
        torch.manual_seed(4)
        outs.append(function(x))
    assert torch.equal(*outs) and not torch.equal(traced(x), outs[0])
    grads = [torch.autograd.grad(out.square().sum(), x)[0] for out in outs]
    assert torch.equal(*grads)


def test_vmap_is_compiled_and_grad_around_it():
    x, bias = torch.randn(3, 2, 5, 4, dtype=DOUBLE), torch.randn(3, 9, dtype=DOUBLE)
    sinks = torch.randn(3, 2, dtype=DOUBLE)

    def call(x, bias, sinks):
        return relpos.torch.attention(x, x, x, rel_bias=bias, sinks=sinks)

    for dims in ((0, 0, None), (None, 0, 0)):
        given = [
            each if dim == 0 else each[0]
            for each, dim in zip((x, bias, sinks), dims, strict=True)
        ]
        items = vmap(call, in_dims=dims)
        assert torch.equal(compiled(items)(*given), items(*given))
        given = [each.clone().requires_grad_() for each in given]
        grads = [
            torch.autograd.grad(f(*given).square().sum(), given)
            for f in (compiled(items), items)
        ]
        for got, want in zip(*grads, strict=True):
            torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-13)


def test_autocast_is_compiled():
    x = torch.randn(1, 4, 8)
    traced = compiled(relpos.torch.attention)
    with torch.autocast("cpu", torch.bfloat16):
        assert traced(x, x, x).dtype == torch.bfloat16
        assert torch.equal(traced(x, x, x), relpos.torch.attention(x, x, x))
    half = x.half()
    assert torch.equal(
        traced(half, half, half), relpos.torch.attention(half, half, half)
    )


def test_export():
    class Model(torch.nn.Module):
        def forward(self, x, table):
            return relpos.torch.shaw_attention(x, x, x, table, is_causal=True)

    x, table = torch.randn(2, 6, 4), torch.randn(5, 4)
    shapes = {"x": {1: torch.export.Dim("length", min=2, max=64)}, "table": None}
    program = torch.export.export(Model(), (x, table), dynamic_shapes=shapes)
    targets = [str(node.target) for node in program.graph.nodes]
    assert targets.count("relpos.attention.default") == 1
    longer = torch.randn(2, 11, 4)
    assert torch.equal(program.module()(longer, table), Model()(longer, table))


@pytest.mark.parametrize("label", CALLS)
def test_tensors_without_numbers(label):
    real = tensors_of(CALLS[label].inputs, grad=True)
    call = CALLS[label]
    meta = {n: x.detach().to("meta").requires_grad_() for n, x in real.items()}
    with torch.device("meta"):
        others = tensors_of(call.others)
    found = getattr(relpos.torch, call.function)(**meta, **others, return_lse=True)
    for got, want in zip(found[:2], function_of(label)(real), strict=True):
        assert got.is_meta and (got.shape, got.dtype) == (want.shape, want.dtype)
    found[0].sum().backward()
    for name, x in meta.items():
        assert x.grad.is_meta and x.grad.shape == real[name].shape


@pytest.mark.parametrize("name", ["value", "rel_key", "labels"])
def test_some_tensors_without_numbers(name):
    tensors = tensors_of(CALLS["labels"].inputs | CALLS["labels"].others)
    tensors[name] = tensors[name].to("meta")
    with pytest.raises(TypeError, match=f"{name}: got a tensor on device 'meta'"):
        relpos.torch.attention(**tensors)
    x, frequencies = torch.ones(2, 4), torch.ones(2, device="meta")
    with pytest.raises(TypeError, match="inv_freq: got a tensor on device 'meta'"):
        relpos.torch.apply_rotary(x, inv_freq=frequencies)


def test_dropout_without_numbers():
    x = torch.ones(2, 3, 4, device="meta")
    assert relpos.torch.attention(x, x, x, dropout_p=0.5).is_meta


def test_weights_without_numbers_and_what_a_tracer_sees():
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.ones(2, 3, 4, device="meta")
    found = relpos.torch.attention(x, x, x[..., :1], return_weights=True)
    assert found.weights.shape == (2, 3, 3) and found.out.shape == (2, 3, 1)
    y = torch.randn(2, 3, 4)
    graph = make_fx(lambda y: relpos.torch.attention(y, y, y))(y)
    assert "relpos.attention" in graph.code
    other = y + 1
    want = relpos.torch.attention(other, other, other)
    assert torch.equal(graph(other), want)


@NEEDS_WHOLE_GRAPH
@pytest.mark.filterwarnings("ignore:Dynamo does not know")
def test_what_is_not_compiled_runs_as_it_is():
    x = torch.randn(2, 5, 4, dtype=DOUBLE)

    def by_query(x):
        return grad(lambda q: relpos.torch.attention(q, x, x).square().sum())(x) + 1

    with pytest.raises(Exception, match="Observed exception"):
        compiled(by_query)(x)
    torch.compiler.reset()
    assert torch.equal(compiled(by_query, fullgraph=False)(x), by_query(x))


@pytest.mark.filterwarnings("ignore:Dynamo does not know")
def test_forward_mode_is_refused_when_compiled():
    x = torch.randn(2, 5, 4)
    words = r"relpos\.torch\.attention: .*forward-mode"

    def call(x):
        return relpos.torch.attention(x, x, x)

    with pytest.raises(NotImplementedError, match=words):
        compiled(lambda x: jvp(call, (x,), (x,)), fullgraph=False)(x)
    torch.compiler.reset()  # or the frames that it gave up stay as they are
    traced = compiled(call)
    traced(x)
    with torch.autograd.forward_ad.dual_level():
        assert torch.equal(traced(x), call(x))
        with pytest.raises(NotImplementedError, match=words):
            traced(torch.autograd.forward_ad.make_dual(x, x))


@pytest.mark.filterwarnings("ignore:Error detected")
def test_second_derivatives_are_refused_when_traced(monkeypatch):
    operands, *rest = operands_of("plain", monkeypatch)
    out = _attend._attention(operands, *rest)[0]
    (first,) = torch.autograd.grad(out.sum(), operands[:1], create_graph=True)
    with pytest.raises(NotImplementedError, match="no gradients of their own"):
        first.sum().backward()
    kind = type("Tensor", (torch.Tensor,), {})  # goes by the operators
    x = torch.randn(3, 4).as_subclass(kind).requires_grad_()
    out = relpos.torch.apply_rotary(x).pow(3).sum()
    (first,) = torch.autograd.grad(out, x, create_graph=True)
    with pytest.raises(NotImplementedError, match="apply_rotary: its gradients have"):
        first.sum().backward()


SEEDED = {
    "attention": {},
    "shaw_attention": {"rel_key": torch.ones(5, 8)},
    "relative_global_attention": {"rel_key": torch.ones(5, 8)},
    "transformer_xl_attention": {"rel_key": torch.ones(9, 8)}
    | {"pos_bias_u": torch.ones(8), "pos_bias_v": torch.ones(8)},
    "fire_attention": {"w1": torch.ones(3), "b1": torch.zeros(3)}
    | {"w2": torch.ones(2, 3), "b2": torch.ones(2)}
    | {"c": torch.tensor(0.5), "threshold": torch.tensor(2.0)},
}


def test_every_function_with_a_seed_is_tried():
    functions = (getattr(relpos.torch, name) for name in relpos.torch.__all__)
    seeded = (f for f in functions if callable(f) and f.__module__.startswith("relpos"))
    names = {f.__name__ for f in seeded if "rng" in inspect.signature(f).parameters}
    assert names - {"scores"} == SEEDED.keys()  # which runs outside of the graph


@pytest.mark.parametrize("name", SEEDED)
def test_a_seed_that_is_a_tensor_is_compiled(name):
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 2, 2, 5, 8, generator=generator)

    def call(query, seed):
        function = getattr(relpos.torch, name)
        return function(query, key, value, **SEEDED[name], dropout_p=0.5, rng=seed)

    torch.compiler.reset()
    traced, found = compiled(call), []
    for seed in (7, 8):
        for kind in (torch.int64, torch.int32):
            tensor = torch.tensor(seed, dtype=kind)
            eager, leaf = (query.clone().requires_grad_() for _ in range(2))
            want, got = call(eager, tensor), traced(leaf, tensor)
            assert torch.equal(got, want) and torch.equal(want, call(eager, seed))
            want.sum().backward(), got.sum().backward()
            torch.testing.assert_close(leaf.grad, eager.grad, rtol=1e-5, atol=1e-6)
            found.append(got)
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


def test_another_backward_has_another_form():
    """A program of an earlier relpos, which torch kept on disk, is not run by this."""
    schema = torch.ops.relpos.attention_backward.default._schema
    names = ",".join(argument.name for argument in schema.arguments)
    digest = hashlib.sha256(names.encode()).hexdigest()[:12]
    assert (_attend._FORM, digest) == (4, "c16c0f317009")
