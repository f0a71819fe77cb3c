"""Encodings and biases on tensors: relpos's numbers, with autograd and its kin."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from inductor import (  # noqa: F401
    NEEDS_COMPILER,
    NEEDS_WHOLE_GRAPH,
    compile_afresh,
)
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad, gradcheck
from torch.func import grad, jacrev, vmap
from torch_calls import calls

import relpos
import relpos.torch
from relpos._catalogue.supported import NO, SUPPORTED
from relpos.torch import _biases, _encodings, _indexer, _scores, _tensors
from relpos.torch._functions import TensorFunction

CALLS = calls()
SMOOTH = {label: call for label, call in CALLS.items() if call.wanted}
#: Those whose gradients are the kernels' own, which have no further derivative.
ONCE = {x for x in SMOOTH if SUPPORTED[SMOOTH[x].name].second_derivatives == NO}
FUNCTIONS = sorted({call.name for call in CALLS.values()})


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

    def function(*leaves):
        return run(smooth, tensors | dict(zip(names, leaves, strict=True)))

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_gradients_under_autocast_have_the_precision_of_their_tensors(dtype):
    """Whichever other operands are trained."""
    x = torch.randn(4, 8, dtype=dtype)
    weight, bias, frequencies = torch.randn(8, 3), torch.randn(8), torch.rand(4)
    grad = torch.randn(4, 8).to(torch.bfloat16)
    functions = (
        (relpos.torch.apply_rotary, {"inv_freq": frequencies}),
        (relpos.torch.conv_encoding, {"weight": weight, "bias": bias}),
    )
    for function, others in functions:
        leaf = x.clone().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            out = function(leaf, **others)
        out.backward(grad)
        single = x.float().clone().requires_grad_()
        function(single, **others).backward(grad.float())
        assert not torch.equal(single.grad, single.grad.bfloat16().float())
        assert leaf.grad.dtype == dtype
        assert torch.equal(leaf.grad, single.grad.to(dtype))
        leaf.grad = None
        for other in others.values():
            other.requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            out = function(leaf, **others)
        out.backward(grad)
        torch.testing.assert_close(
            leaf.grad, single.grad.to(dtype), rtol=1e-3, atol=1e-5
        )


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


@pytest.mark.parametrize("label", sorted(ONCE))
def test_what_has_no_derivative_says_so(label):
    smooth = SMOOTH[label]
    name = smooth.wanted[0]
    tensors = smooth.tensors(grad=False)
    x = tensors[name]
    words = f"relpos.torch.{smooth.name}: has no forward-mode"
    with pytest.raises(NotImplementedError, match=words):
        torch.func.jvp(lambda x: run(smooth, tensors | {name: x}), (x,), (x,))
    out = run(smooth, tensors | {name: x.clone().requires_grad_()})
    assert out.grad_fn.name().endswith("Backward")
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
    ("label", "name"),
    [("rotary", "magnitude"), ("sinusoidal_of", "inv_freq"), ("mrope", "inv_freq")],
)
def test_an_operand_without_gradient_may_not_require_one(label, name):
    tensors = CALLS[label].tensors()
    tensors[name].requires_grad_()
    words = rf"{name}: requires a gradient, which "
    with pytest.raises(ValueError, match=words):
        run(CALLS[label], tensors)
    many = torch.stack([tensors[name], tensors[name]])
    with pytest.raises(ValueError, match=words):
        vmap(lambda x: run(CALLS[label], tensors | {name: x}))(many)
    with pytest.raises(ValueError, match=words):
        grad(vmap(lambda x: run(CALLS[label], tensors | {name: x})))(many.detach())


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("apply_rotary", {"base": 9.0}),
        ("apply_rotary", {"offset": 1}),
        ("apply_rotary", {"rotary_dim": 2}),
        ("alibi_bias", {"length": 3}),
    ],
)
def test_a_setting_is_a_number_and_stays_as_it_was(name, setting):
    function, x = getattr(relpos.torch, name), torch.ones(3, 4, requires_grad=True)
    ((name, number),) = setting.items()
    with pytest.raises(TypeError, match=f"^{name}: got a tensor; expected none"):
        function(x, **{name: torch.tensor(number)})
    array = np.array(number)
    loss = function(x, **{name: array}).sum()
    (want,) = torch.autograd.grad(loss, x, retain_graph=True)
    array[...] = 4
    assert torch.equal(torch.autograd.grad(loss, x)[0], want)


def test_wrong_arguments_are_named():
    x = torch.ones(2, 3)
    with pytest.raises(TypeError, match="x: got an array of dtype float32; expected a"):
        relpos.torch.apply_rotary(x.numpy())
    with pytest.raises(ValueError, match="x: got D = 3"):
        relpos.torch.apply_rotary(x)
    with pytest.raises(TypeError, match="positions: got float; expected an integer"):
        relpos.torch.sinusoidal(2.5, 4)
    words = "positions: got list; expected an integer or a tensor"
    with pytest.raises(TypeError, match=words):
        relpos.torch.learned(x, [0, 1])
    with pytest.raises(TypeError, match="magnitude: got bool; expected a real number"):
        relpos.torch.apply_rotary(torch.ones(2, 4), magnitude=True)
    with pytest.raises(TypeError, match=r"grid: got int; expected \(rows, columns\)"):
        relpos.torch.conv_encoding(x, torch.ones(3, 3), grid=5)
    for function in relpos.torch.grid_labels, relpos.torch.rotary_frequencies:
        with pytest.raises(TypeError, match="got a tensor; expected none"):
            function(torch.tensor([1, 2]))
    with pytest.raises(IndexError, match="positions: position 2 is"):
        relpos.torch.learned(x, 4)
    with pytest.raises(TypeError, match=r"table: got a tensor of dtype torch\.int64"):
        relpos.torch.learned(torch.arange(4).reshape(2, 2), 1)


def test_positions_of_bfloat16_are_refused_as_those_of_arrays():
    positions = torch.arange(4).to(torch.bfloat16)
    inv_freq = torch.ones(4)
    calls = {
        "apply_rotary": lambda: relpos.torch.apply_rotary(torch.ones(4, 8), positions),
        "sinusoidal": lambda: relpos.torch.sinusoidal(positions, 8),
        "xpos_magnitude": lambda: relpos.torch.xpos_magnitude(positions, 8),
        "mrope_angles": lambda: relpos.torch.mrope_angles(
            positions.expand(3, 4), inv_freq, (2, 1, 1)
        ),
    }
    words = r"^positions: got a tensor of dtype torch\.bfloat16, which rounds integers"
    for call in calls.values():
        with pytest.raises(TypeError, match=words):
            call()
    with pytest.raises(TypeError, match=r"^coordinates: .* torch\.bfloat16, which"):
        relpos.torch.axial_angles(positions.reshape(2, 2), inv_freq)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_of_a_table_of_16_bits_the_rows_that_are_used_are_converted(dtype, monkeypatch):
    def refused(tensor):
        raise AssertionError("the whole table was converted")

    monkeypatch.setattr(_tensors, "_widened", refused)
    table = torch.randn(2, 5, 3).to(dtype).requires_grad_()
    rows = relpos.torch.learned(table, torch.tensor([4, 0, 4]))
    assert rows.dtype == dtype and torch.equal(rows, table[:, [4, 0, 4]])
    monkeypatch.undo()
    rows.sum().backward()
    assert table.grad.dtype == dtype
    assert table.grad[0, :, 0].tolist() == [1, 0, 0, 0, 2]


def test_what_stands_for_tensors():
    assert torch.equal(
        relpos.torch.alibi_bias(3, 5), torch.from_numpy(relpos.alibi_bias(3, 5))
    )
    assert torch.equal(
        relpos.torch.sinusoidal(5, 4), relpos.torch.sinusoidal(torch.arange(5), 4)
    )
    assert relpos.torch.sinusoidal(5, 4, dtype=torch.bfloat16).dtype == torch.bfloat16
    x = torch.ones(2, 4)
    angles = relpos.torch.mrope_angles(torch.ones(3, 2), torch.ones(4), 4)
    assert torch.equal(angles, torch.ones(2, 4, dtype=torch.float64))
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


# ---- under vmap and torch.func -------------------------------------------------------


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
        inputs = {n: many[n] if n in chosen else tensors[n] for n in many}
        dims = {n: min(tensors[n].dim(), 1) if n in chosen else None for n in inputs}
        out = vmap(partial(run, CALLS[label]), in_dims=(dims,))(inputs)
        for i in range(3):
            item = {
                n: x if dims[n] is None else x.select(dims[n], i)
                for n, x in inputs.items()
            }
            close(out[i], run(CALLS[label], item))


@pytest.mark.parametrize("label", SMOOTH)
def test_gradients_by_item(label):
    tensors = CALLS[label].tensors(grad=False)
    many = {n: x.movedim(min(x.dim() - 1, 1), 0) for n, x in batches(tensors).items()}
    weight = torch.linspace(
        -1, 1, run(CALLS[label], tensors).numel(), dtype=torch.float64
    )
    for name in CALLS[label].wanted:

        def loss(value, rest, name=name):
            return run(CALLS[label], {**rest, name: value}).flatten() @ weight

        for dims in (0, None):
            rest = dict(many if dims == 0 else tensors)
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


def with_table(a):
    x = a[None, None]
    return relpos.torch.attention(x, x, x, rel_key=a)


OF_FEW_AXES = {
    "apply_rotary": relpos.torch.apply_rotary,
    "axial_angles": lambda a: relpos.torch.axial_angles(a, torch.ones(3)),
    "conv_encoding": lambda a: relpos.torch.conv_encoding(a, torch.ones(4, 3)),
    "learned": lambda a: relpos.torch.learned(a, torch.tensor([0, 2, 1])),
    "alibi_bias": lambda a: relpos.torch.alibi_bias(a[0], 3),
    "kerple_bias": lambda a: relpos.torch.kerple_bias(a, a[None], 3),
    "attention": lambda a: relpos.torch.attention(a[None], a[None], a[None], sinks=a),
    "rel_key": with_table,
}


@pytest.mark.parametrize("label", OF_FEW_AXES)
def test_an_item_is_refused_as_it_is_alone(label):
    """The axis of the items is never taken for one of positions, rows or heads."""
    call, x = OF_FEW_AXES[label], torch.ones(2, 4)
    with pytest.raises(ValueError, match="shape") as alone:
        call(x[0])
    with pytest.raises(ValueError, match="shape") as mapped:
        vmap(call)(x)
    assert str(mapped.value) == str(alone.value)
    with pytest.raises(ValueError, match=r"^vmap: got no items; expected one or more"):
        vmap(call)(x[:0])


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
        out = run(CALLS[label], tensors)
        wanted = [isinstance(x, torch.Tensor) and x.requires_grad for x in args]
        operands = [x.detach() if isinstance(x, torch.Tensor) else x for x in args]
        back = (wanted[: len(function.operands)], out.detach(), *operands)
        torch.library.opcheck(function._backward_op, back, test_utils=tests[:2])


def _operator(name):
    for module in (_biases, _encodings, _indexer, _scores):
        for value in vars(module).values():
            if isinstance(value, TensorFunction) and value.name == name:
                return value
    raise AssertionError(name)


def _args(label, tensors):
    """Return the arguments that the operator of a call receives, in order."""
    function = _operator(CALLS[label].name)
    seen = []
    op, function._op = function._op, lambda *args: seen.append(args) or args[0]
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.compiler, "is_compiling", lambda: True)
            run(CALLS[label], tensors)
    finally:
        function._op = op
    return seen[0]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_compiled_is_eager(name):
    labels = [label for label, call in CALLS.items() if call.name == name]

    def function(inputs):
        return [run(CALLS[label], inputs[label]) for label in labels]

    _hold(torch.compile(function, backend="aot_eager", fullgraph=True), labels)


def _hold(compiled, labels):
    eager = {label: CALLS[label].tensors() for label in labels}
    traced = {label: CALLS[label].tensors() for label in labels}
    outs = compiled(traced)
    for label, out in zip(labels, outs, strict=True):
        want = run(CALLS[label], eager[label])
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


@pytest.mark.parametrize("name", sorted({call.name for call in SMOOTH.values()}))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_compiled_is_eager_under_autocast(name, dtype):
    """Around the compiled call, and inside of it; the backward is outside."""
    call = next(call for call in SMOOTH.values() if call.name == name)

    def inside(inputs):
        with torch.autocast("cpu", torch.bfloat16):
            return run(call, inputs)

    def around(inputs):
        with torch.autocast("cpu", torch.bfloat16):
            return traced(inputs)

    traced = torch.compile(
        lambda inputs: run(call, inputs), backend="aot_eager", fullgraph=True
    )
    within = torch.compile(inside, backend="aot_eager", fullgraph=True)
    single = {
        n: x.detach().float() if x.is_floating_point() else x
        for n, x in call.tensors(dtype).items()
    }
    want = run(call, single).to(torch.bfloat16)  # rounded once
    grad = torch.randn(want.shape).to(torch.bfloat16)
    gradients = []
    for function in inside, around, within:
        inputs = call.tensors(dtype)
        out = function(inputs)
        assert out.dtype == torch.bfloat16 and torch.equal(out, want)
        out.backward(grad)
        gradients.append([inputs[name].grad for name in call.wanted])
        assert {x.dtype for x in gradients[-1]} == {dtype}
    for found in gradients[1:]:
        assert all(map(torch.equal, found, gradients[0]))


@pytest.mark.parametrize("label", ["rotary", "conv", "t5", "sinusoidal"])
def test_vmap_while_compiling(label):
    tensors = CALLS[label].tensors(grad=False)
    many = {n: x.movedim(min(x.dim() - 1, 1), 0) for n, x in batches(tensors).items()}
    mapped = vmap(partial(run, CALLS[label]))
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
        want = run(CALLS[label], CALLS[label].tensors(grad=False))
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            tensors = CALLS[label].tensors(grad=False)
            out = run(
                CALLS[label], {n: mode.from_tensor(x) for n, x in tensors.items()}
            )
        assert type(out).__name__ == "FakeTensor"
        assert (out.shape, out.dtype) == (want.shape, want.dtype)


@NEEDS_WHOLE_GRAPH
def test_what_is_not_compiled_says_so():
    slopes = torch.ones(2, dtype=torch.float64)

    def function(slopes):
        return relpos.torch.kerple_bias(slopes, slopes, 3).square().sum()

    words = "kerple_bias: torch.func.grad, vjp and jvp are not compiled"
    with pytest.raises(Exception, match=words):
        torch.compile(grad(function), backend="aot_eager", fullgraph=True)(slopes)
    torch.compiler.reset()
    broken = torch.compile(grad(function), backend="aot_eager")
    assert torch.equal(broken(slopes), grad(function)(slopes))
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(slopes, torch.ones_like(slopes))
        with pytest.raises(Exception, match="kerple_bias: has no forward-mode"):
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
