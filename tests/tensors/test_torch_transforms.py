"""Functions on tensors under vmap, torch.func, torch.compile and torch.export."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from inductor import NEEDS_COMPILER  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.func import grad, jacrev, vmap  # noqa: E402
from torch_calls import calls  # noqa: E402

import relpos.torch  # noqa: E402
from relpos.torch._functions import TensorFunction  # noqa: E402

CALLS = calls()
SMOOTH = [label for label, call in CALLS.items() if call.wanted]
FUNCTIONS = sorted({call.name for call in CALLS.values()})


@pytest.fixture(autouse=True)
def compile_afresh():
    """No test meets another one's compiled programs, nor leaves its own."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def run(label, tensors):
    call = CALLS[label]
    return getattr(relpos.torch, call.name)(**tensors, **call.settings)


def batches(tensors):
    """Three items of every argument, the second another one, side by side."""
    return {
        name: torch.stack([x, _other(x), x], 1 if x.dim() else 0)
        for name, x in tensors.items()
    }


def _other(x):
    if x.dtype == torch.int64:  # in range, and as ascending as it was
        return x // 2
    return x.flip(-1) if x.dim() else x * 2


def close(got, want):
    torch.testing.assert_close(got, want, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("label", CALLS)
def test_vmap_of_all_arguments_and_of_each(label):
    tensors = CALLS[label].tensors(grad=False)
    many = batches(tensors)
    for chosen in [{*tensors}, *({name} for name in tensors)]:
        given = {name: many[name] if name in chosen else tensors[name] for name in many}
        dims = {n: min(tensors[n].dim(), 1) if n in chosen else None for n in given}
        out = vmap(lambda given: run(label, given), in_dims=(dims,))(given)
        for i in range(3):
            item = {
                n: x if dims[n] is None else x.select(dims[n], i)
                for n, x in given.items()
            }
            close(out[i], run(label, item))


@pytest.mark.parametrize("label", SMOOTH)
def test_gradients_by_item(label):
    tensors = CALLS[label].tensors(grad=False)
    many = {n: x.movedim(min(x.dim() - 1, 1), 0) for n, x in batches(tensors).items()}
    weight = torch.linspace(-1, 1, run(label, tensors).numel(), dtype=torch.float64)
    for name in CALLS[label].wanted:

        def loss(value, rest, name=name):
            return run(label, {**rest, name: value}).flatten() @ weight

        for dims in (0, None):
            rest = {n: x for n, x in (many if dims == 0 else tensors).items()}
            found = vmap(grad(loss), in_dims=(0, dims))(many[name], rest)
            for i in range(3):
                item = {n: x[i] if dims == 0 else x for n, x in rest.items()}
                close(found[i], grad(loss)(many[name][i], item))


def test_where_an_axis_leads_there_is_one_call(monkeypatch):
    counted = []
    run = TensorFunction.run
    monkeypatch.setattr(
        TensorFunction, "run", lambda *args: counted.append(args[0].name) or run(*args)
    )
    x, positions = torch.ones(5, 2, 4, dtype=torch.float64), torch.ones(5, 2)
    vmap(relpos.torch.apply_rotary)(x, positions)
    assert counted == ["apply_rotary"]
    vmap(relpos.torch.apply_rotary, in_dims=(None, 0))(x[0], positions)
    assert len(counted) == 2
    vmap(relpos.torch.kerple_bias, in_dims=(0, 0, None))(x[:, 0], x[:, 1], 3)
    assert len(counted) == 3
    vmap(lambda f: relpos.torch.apply_rotary(x, inv_freq=f))(torch.ones(5, 2))
    assert len(counted) == 8


def test_jacobian():
    slopes = torch.tensor([0.5, 0.25], dtype=torch.float64)
    found = jacrev(lambda slopes: relpos.torch.alibi_bias(slopes, 2))(slopes)
    want = torch.zeros(2, 3, 2, dtype=torch.float64)
    want[[0, 0, 1, 1], [0, 2, 0, 2], [0, 0, 1, 1]] = -1
    assert torch.equal(found, want)


# ---- compiled -----------------------------------------------------------------------


@pytest.mark.parametrize("label", CALLS)
def test_operators_keep_the_rules(label):
    call = CALLS[label]
    function = _operator(call.name)
    tensors = call.tensors()
    args = _args(label, tensors)
    tests = ["test_schema", "test_faketensor", "test_autograd_registration"]
    for kind in tests:
        torch.library.opcheck(function._op, args, test_utils=kind)
    if call.wanted:
        torch.library.opcheck(
            function._op, args, test_utils="test_aot_dispatch_dynamic"
        )
        out = run(label, tensors)
        wanted = [isinstance(x, torch.Tensor) and x.requires_grad for x in args]
        operands = [x.detach() if isinstance(x, torch.Tensor) else x for x in args]
        back = (wanted[: len(function.operands)], out.detach(), *operands)
        torch.library.opcheck(function._backward_op, back, test_utils=tests[:2])


def _operator(name):
    from relpos.torch import _biases, _encodings

    for module in (_biases, _encodings):
        for value in vars(module).values():
            if isinstance(value, TensorFunction) and value.name == name:
                return value
    raise AssertionError(name)


def _args(label, tensors):
    """What the operator of a call is given, in order."""
    function = _operator(CALLS[label].name)
    seen = []
    op, function._op = function._op, lambda *args: seen.append(args) or args[0]
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.compiler, "is_compiling", lambda: True)
            run(label, tensors)
    finally:
        function._op = op
    return seen[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_is_eager(name):
    labels = [label for label, call in CALLS.items() if call.name == name]

    def function(inputs):
        return [run(label, inputs[label]) for label in labels]

    _hold(torch.compile(function, backend="aot_eager", fullgraph=True), labels)


def _hold(compiled, labels):
    eager = {label: CALLS[label].tensors() for label in labels}
    traced = {label: CALLS[label].tensors() for label in labels}
    outs = compiled(traced)
    for label, out in zip(labels, outs, strict=True):
        want = run(label, eager[label])
        assert torch.equal(out, want)
        if CALLS[label].wanted:
            want.square().sum().backward()
    smooth = [
        out for label, out in zip(labels, outs, strict=True) if CALLS[label].wanted
    ]
    if smooth:
        sum(out.square().sum() for out in smooth).backward()
    for label in labels:
        for name in CALLS[label].wanted:
            close(traced[label][name].grad, eager[label][name].grad)


@pytest.mark.parametrize("label", ["rotary", "conv", "t5", "sinusoidal"])
def test_vmap_while_compiling(label):
    tensors = CALLS[label].tensors(grad=False)
    many = {n: x.movedim(min(x.dim() - 1, 1), 0) for n, x in batches(tensors).items()}
    mapped = vmap(lambda given: run(label, given))
    compiled = torch.compile(mapped, backend="aot_eager", fullgraph=True)
    wanted = CALLS[label].wanted
    leaves = {n: x.clone().requires_grad_(n in wanted) for n, x in many.items()}
    out, want = compiled(leaves), mapped(many)
    close(out, want)


def test_gradients_of_a_batch_of_gradients():
    x, weight = torch.randn(2, 2, 3, 4, dtype=torch.float64)
    y, back = torch.func.vjp(relpos.torch.conv_encoding, x, weight[0].T)
    many = torch.stack([torch.ones_like(y), y])
    found = vmap(back)(many)
    for i in range(2):
        close([grads[i] for grads in found], [*back(many[i])])


def test_tensors_without_numbers():
    """Under a mode that looks on, no function asks for the numbers of a tensor."""
    for label in CALLS:
        want = run(label, CALLS[label].tensors(grad=False))
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            tensors = CALLS[label].tensors(grad=False)
            out = run(label, {n: mode.from_tensor(x) for n, x in tensors.items()})
        assert type(out).__name__ == "FakeTensor"
        assert (out.shape, out.dtype) == (want.shape, want.dtype)


def test_what_is_not_compiled_says_so():
    slopes = torch.ones(2, dtype=torch.float64)

    def function(slopes):
        return relpos.torch.alibi_bias(slopes, 3).square().sum()

    words = "alibi_bias: torch.func.grad, vjp and jvp are not compiled"
    with pytest.raises(Exception, match=words):
        torch.compile(grad(function), backend="aot_eager", fullgraph=True)(slopes)
    torch.compiler.reset()
    broken = torch.compile(grad(function), backend="aot_eager")
    assert torch.equal(broken(slopes), grad(function)(slopes))
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(slopes, torch.ones_like(slopes))
        with pytest.raises(Exception, match="alibi_bias: has no forward-mode"):
            compiled(dual)


def _model(x, slopes):
    """Lengths that a compiled program has as symbols, and constants."""
    length, width = x.shape[-2:]
    y = x + relpos.torch.sinusoidal(length, width, dtype=x.dtype)
    inv_freq = relpos.torch.rotary_frequencies(4, scaling=("linear", 2.0))
    y = relpos.torch.apply_rotary(y, inv_freq=inv_freq, rotary_dim=4, offset=length)
    bias = relpos.torch.alibi_bias(slopes, length)
    return y, bias + relpos.torch.alibi_bias(2, length)


def test_dynamic_shapes_and_constants():
    compiled = torch.compile(_model, backend="aot_eager", fullgraph=True, dynamic=True)
    slopes = torch.ones(2, dtype=torch.float64)
    for length in (5, 7, 11):
        x = torch.linspace(-1, 1, 2 * length * 6, dtype=torch.float64)
        x = x.reshape(2, length, 6)
        for got, want in zip(compiled(x, slopes), _model(x, slopes), strict=True):
            assert torch.equal(got, want)


@NEEDS_COMPILER
def test_inductor():
    x = torch.linspace(-1, 1, 60, dtype=torch.float64).reshape(2, 5, 6)
    compiled = torch.compile(_model, fullgraph=True)
    grads = []
    for model in (compiled, _model):
        leaf = x.clone().requires_grad_()
        slopes = torch.ones(2, dtype=torch.float64, requires_grad=True)
        y, bias = model(leaf, slopes)
        (y.square().sum() + bias.square().sum()).backward()
        grads.append((y, bias, leaf.grad, slopes.grad))
    for got, want in zip(*grads, strict=True):
        close(got, want)


def test_export():
    class Model(torch.nn.Module):
        def forward(self, x, slopes):
            return _model(x, slopes)

    x, slopes = torch.ones(2, 5, 6), torch.ones(2)
    length = torch.export.Dim("length", min=2, max=64)
    program = torch.export.export(
        Model(), (x, slopes), dynamic_shapes={"x": {1: length}, "slopes": None}
    )
    x = torch.linspace(-1, 1, 2 * 9 * 6).reshape(2, 9, 6)
    for got, want in zip(program.module()(x, slopes), _model(x, slopes), strict=True):
        assert torch.equal(got, want)


@pytest.mark.filterwarnings("ignore:.*Dynamo does not know")
def test_what_a_tracer_sees_is_the_operator_and_no_zero_tangent():
    from torch.fx.experimental.proxy_tensor import make_fx

    x, turn = torch.randn(2, 5, 4), relpos.torch.apply_rotary
    assert "relpos.apply_rotary" in make_fx(lambda x: turn(x))(x).code
    words = r"relpos\.torch\.apply_rotary: .*forward-mode"
    traced = torch.compile(turn, backend="aot_eager", fullgraph=True)
    traced(x)
    duals = torch.autograd.forward_ad
    with duals.dual_level(), pytest.raises(NotImplementedError, match=words):
        traced(duals.make_dual(x, x))
    by_jvp = torch.compile(lambda x: torch.func.jvp(turn, (x,), (x,)), backend="eager")
    with pytest.raises(NotImplementedError, match=words):
        by_jvp(x)
