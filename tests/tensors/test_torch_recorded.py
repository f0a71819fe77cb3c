"""Calls that C runs whole, as nodes of autograd, and the fallback to Python."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch
from many_threads import at_once

import relpos
import relpos.torch
from relpos import __main__, _core
from relpos._settings import kernels, use_isa
from relpos.torch import _recorded

needs_table = pytest.mark.skipif(
    not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"),
    reason="this torch has no table of DLPack",
)


def tokens(*shape, dtype=torch.float32, seed=0):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw).to(dtype)


def leaves(*shape, **options):
    """Return query, key and value, different and each with a gradient."""
    return [tokens(*shape, seed=n, **options).requires_grad_() for n in range(3)]


@needs_table
def test_calls_of_this_torch_are_recorded_in_c():
    assert _recorded.RECORD is not None, _recorded.REASON
    assert _recorded.REASON == ""
    q, k, v = leaves(1, 2, 3, 4)
    with torch.no_grad():
        given = (q, k, v), {"num_threads": 1}
        assert kernels().attend_tensors(*given, 1, None).grad_fn is None
    out = relpos.torch.attention(q, k, v)
    assert out.grad_fn.name() == "AttendBackward"
    dropped = relpos.torch.attention(q, k, v, dropout_p=0.5)  # in Python
    assert dropped.grad_fn.name() == "AttendBackward"
    assert len(out.grad_fn.saved_tensors) == len(dropped.grad_fn.saved_tensors) - 1


@needs_table
@pytest.mark.skipif(len(_core.by_isa) == 1, reason="one instruction set")
def test_a_backward_has_the_instruction_set_of_its_own_time():
    q, k, v = leaves(2, 2, 40, 64)
    arrays = [x.detach().numpy() for x in (q, k, v)]
    grad_out = tokens(2, 2, 40, 64, seed=3)
    found = {}
    for isa in ("base", _core.isa):
        out = relpos.torch.attention(q, k, v)
        context = relpos.attention(*arrays, return_context=True).context
        with use_isa(isa):
            found[isa] = torch.autograd.grad(out, (q, k, v), grad_out)
            wanted = context.backward(grad_out.numpy())
        for gradient, name in zip(found[isa], ("query", "key", "value"), strict=True):
            assert np.array_equal(gradient.numpy(), getattr(wanted, name))
    assert not all(map(torch.equal, *found.values()))


@needs_table
@pytest.mark.parametrize("with_lse", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_call_is_the_same_bits_as_that_of_python(with_lse, dtype, monkeypatch):
    """Whichever results a loss uses, and whichever tensors need a gradient."""
    q, k, v = leaves(2, 2, 5, 4, dtype=dtype)
    bias = tokens(2, 9, dtype=dtype).requires_grad_()

    def gradients(needed):
        inputs = [x.detach().requires_grad_(x is needed) for x in (q, k, v)]
        table = bias.detach().requires_grad_(needed is bias)
        result = relpos.torch.attention(*inputs, rel_bias=table, return_lse=with_lse)
        out, lse = (result.out, result.lse) if with_lse else (result, None)
        losses = [out.sum()]
        if with_lse:
            losses += [lse.square().sum(), out.sum() + lse.sum()]
        (leaf,) = (x for x in (*inputs, table) if x.requires_grad)
        each = [torch.autograd.grad(x, leaf, retain_graph=True) for x in losses]
        return [out, *(gradient for (gradient,) in each)]

    for needed in (q, k, v, bias):
        mine = gradients(needed)
        with monkeypatch.context() as patch:
            patch.setattr("relpos.torch._attention.RECORD", None)
            wanted = gradients(needed)
        for one, other in zip(mine, wanted, strict=True):
            assert one.dtype is other.dtype is dtype and torch.equal(one, other)


def test_hooks_of_a_node_are_called():
    q, k, v = leaves(2, 3, 4)
    out = relpos.torch.attention(q, k, v)
    seen = []
    out.grad_fn.register_prehook(lambda grads: seen.append(len(grads)))
    out.grad_fn.register_hook(lambda made, grads: seen.append(made[-1]))
    q.register_hook(lambda grad: 2 * grad)
    doubled, value = torch.autograd.grad(out.sum(), (q, v))
    assert len(seen) == 2 and seen[1] is value
    (single,) = torch.autograd.grad(relpos.torch.attention(k, k, v).sum(), v)
    assert single.shape == value.shape
    plain = q.detach().requires_grad_()
    (wanted,) = torch.autograd.grad(relpos.torch.attention(plain, k, v).sum(), plain)
    assert torch.equal(doubled, 2 * wanted)


@needs_table
def test_results_that_go_do_not_wait_for_the_collector():
    gc.collect()
    before = _core.live_blocks()
    gc.disable()
    try:
        for with_lse in (False, True):
            q, k, v = leaves(2, 3, 4)
            result = relpos.torch.attention(q, k, v, return_lse=with_lse)
            del result
            assert _core.live_blocks() == before
            relpos.torch.attention(q, k, v).sum().backward()
            del q, k, v
            assert _core.live_blocks() == before
    finally:
        gc.enable()


@needs_table
@pytest.mark.parametrize("failing", range(1, 12))
def test_a_failing_allocation_of_a_recorded_call(failing):
    """Either direction raises MemoryError, or Python does the work: nothing leaks."""
    q, k, v = leaves(2, 3, 5, 4, dtype=torch.bfloat16)
    wanted = torch.autograd.grad(relpos.torch.attention(q, k, v).sum(), (q, k, v))
    gc.collect()
    before = _core.live_blocks()

    def attempt():
        _core.fail_at(failing, True)
        try:
            out = relpos.torch.attention(q, k, v)
            return torch.autograd.grad(out.sum(), (q, k, v))
        except MemoryError:
            return None
        finally:
            _core.fail_at(0, False)

    found = attempt()
    assert found is None or all(map(torch.equal, found, wanted))
    del found
    gc.collect()
    assert _core.live_blocks() == before


def test_threads_record_at_the_same_time():
    """The bits are those of one thread, forward and backward."""
    grad_out = tokens(2, 3, 5, 4, seed=9)

    def gradients():
        q, k, v = leaves(2, 3, 5, 4)
        table = tokens(9, 4, seed=4).requires_grad_()
        found = []
        for _ in range(20):
            out = relpos.torch.attention(q, k, v, rel_key=table, num_threads=1)
            found += torch.autograd.grad(out, (q, k, v, table), grad_out)
        return [x.numpy().tobytes() for x in (out.detach(), *found)]

    wanted = gradients()

    def work(place, barrier):
        barrier.wait()
        assert gradients() == wanted

    at_once(work, 8)


@needs_table
def test_many_mixed_calls_leave_nothing():
    q, k, v = leaves(1, 2, 16, 8)
    table, bias = tokens(33, 8).requires_grad_(), tokens(2, 31).requires_grad_()

    def calls():
        relpos.torch.attention(q, k, v, rel_key=table, is_causal=True).sum().backward()
        out, lse, _ = relpos.torch.attention(q, k, v, rel_bias=bias, return_lse=True)
        (out.sum() + lse.sum()).backward()
        with torch.no_grad():
            relpos.torch.attention(q, k, v)
        with pytest.raises(ValueError, match="value"):
            relpos.torch.attention(q, k, v[:, :, :3])
        for x in (q, k, v, table, bias):
            x.grad = None

    calls()
    gc.collect()
    blocks, objects = _core.live_blocks(), len(gc.get_objects())
    for _ in range(50):
        calls()
    gc.collect()
    assert _core.live_blocks() == blocks
    assert len(gc.get_objects()) < objects + 50


def test_the_functions_refuse_what_is_no_call():
    x = tokens(1, 2, 4)
    with pytest.raises(TypeError, match="attend_tensors: expected"):
        kernels().attend_tensors((x, x, x), {}, 1)
    with pytest.raises(TypeError, match="attend_gradients: expected"):
        kernels().attend_gradients(None, None, None)
    with pytest.raises(AttributeError, match="call"):
        kernels().attend_gradients(object(), None, None, 1)
    for results in (None, (), (1, 2, 3)):
        with pytest.raises(TypeError, match="keep_call: expected"):
            _core.keep_call(None, None, results)

    class Context:
        needs_input_grad, saved_tensors = (), ()

    for call in (None, (), (("query",), {}), ((), None)):
        Context.call = call
        with pytest.raises(TypeError, match="attend_gradients: expected the context"):
            kernels().attend_gradients(Context, None, None, 1)


# ---- a torch of which a private name is missing, or behaves otherwise ----------------

#: What is changed before relpos.torch is imported, and words of the reason.
CHANGES = {
    "no class of a backward": (
        "torch.autograd.function.FunctionMeta.__init__ = type.__init__",
        "KeyError: '_backward_cls'",
    ),
    "no tensors are saved": ("keep('to_save', ())", "the context of a call"),
    "no table of tensors": (
        "know = _core.know_tensors; _core.know_tensors = lambda *_: know(int, int)",
        "C does not read tensors",
    ),
}
BROKEN = """
import torch
from relpos import _core

def keep(name, value):
    original = _core.keep_call

    def changed(context, *rest):
        result = original(context, *rest)
        setattr(context, name, value)
        return result

    _core.keep_call = staticmethod(changed)

{change}
import relpos.torch
from relpos import __main__
from relpos.torch import _recorded

assert _recorded.RECORD is None
assert {reason!r} in _recorded.REASON, _recorded.REASON
__main__.main(["info"])
x = torch.linspace(-1, 1, 120).view(2, 3, 5, 4).requires_grad_()
if {has_backward}:
    out = relpos.torch.attention(x, x, x)
    out.square().sum().backward()
    print(out.tolist(), x.grad.tolist())
"""


@needs_table
@pytest.mark.parametrize("name", CHANGES)
def test_python_takes_the_place_of_what_torch_lacks(name, child):
    change, reason = CHANGES[name]
    has_backward = "class" not in name  # which torch itself needs
    done = child(BROKEN.format(change=change, reason=reason, has_backward=has_backward))
    assert "torch calls:   prepared in Python" in done.stdout
    if has_backward:
        x = torch.linspace(-1, 1, 120).view(2, 3, 5, 4).requires_grad_()
        out = relpos.torch.attention(x, x, x)
        out.square().sum().backward()
        assert f"\n{out.tolist()} {x.grad.tolist()}\n" in done.stdout


@needs_table
def test_modes_of_the_import_change_nothing(child):
    child("""
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
with torch.inference_mode(), torch.device("meta"), FakeTensorMode():
    import relpos.torch
from relpos.torch import _recorded
assert _recorded.RECORD is not None, _recorded.REASON
""")


@needs_table
def test_an_import_does_not_start_the_engine_of_autograd(child):
    """The engine looks for devices, which a forked process could not use then."""
    child("""
import torch
def fail(*args, **keywords):
    raise AssertionError("the engine was started")
assert torch.autograd._engine_run_backward
torch.autograd._engine_run_backward = fail
import relpos.torch
from relpos.torch import _recorded
assert _recorded.RECORD is not None, _recorded.REASON
""")


@needs_table
def test_the_command_info_says_that_c_runs_the_calls(capsys):
    __main__.main(["info"])
    assert "\ntorch calls:   whole in C\n" in capsys.readouterr().out
