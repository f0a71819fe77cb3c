"""The state of a traced program, and calls that tracing has to see whole."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch.autograd import forward_ad

from relpos import _foreign
from relpos.torch._onnx import check_tracer

Function = TypeVar("Function", bound=Callable[..., object])

#: Types of most tensors.
PLAIN = torch.Tensor, torch.nn.Parameter
#: Methods of a Function that both of its forms share.
_DERIVATIVES = "backward", "jvp"


def constant_result(function: Function) -> Function:
    """Mark as ``torch.compiler.assume_constant_result``, which loads the compiler."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def uncompiled(function: Function) -> Function:
    """Let a compiled program call a function as it is, outside of its graph."""

    @functools.wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        if torch.compiler.is_compiling():
            return torch.compiler.disable(function)(*args, **keywords)
        return function(*args, **keywords)

    return call  # type: ignore[return-value]


def is_traced(tensors: Sequence[torch.Tensor]) -> bool:
    """Return True for a call that is traced, or on tensors without numbers."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return True
    for tensor in tensors:  # noqa: SIM110 - any() takes twice the time
        if type(tensor) not in PLAIN or tensor.is_meta:
            return True
    return False


def is_transformed() -> bool:
    """Return True inside of `torch.func`, whose tensors hide the types of others."""
    active = not torch.compiler.is_compiling()
    return active and torch._C._are_functorch_transforms_active()


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as it was before `torch.func` took it, at every level."""
    functorch = torch._C._functorch
    while not torch.compiler.is_compiling():
        if not functorch.is_functorch_wrapped_tensor(tensor):
            break
        tensor = functorch.get_unwrapped(tensor)
    return tensor


@constant_result
def expected_instead(kind: type) -> str | None:
    """Say what to pass instead of tensors of a class; None where they are read."""
    return _foreign.expected_instead(kind)


@constant_result
def is_causal_bias(kind: type) -> bool:
    """Return True for PyTorch's CausalBias and for classes that are made of it."""
    return _foreign.CAUSAL_BIAS in _foreign.names_of(kind)


def is_batched(tensor: torch.Tensor) -> bool:
    """Return True for a tensor that `torch.vmap` takes apart, at any level."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


def is_fake(tensor: torch.Tensor) -> bool:
    """Return True for a tensor of a shape alone, as `torch.export` passes them."""
    kind = type(unwrapped(tensor))
    return "torch._subclasses.fake_tensor.FakeTensor" in _foreign.names_of(kind)


def requires_grad(tensor: torch.Tensor) -> bool:
    """Return True for a tensor with a gradient, at any level of `torch.func`."""
    functorch = torch._C._functorch
    # A wrapped tensor may require a gradient at an inner level alone.
    while not (tensor.requires_grad or torch.compiler.is_compiling()):
        if not functorch.is_functorch_wrapped_tensor(tensor):
            break
        tensor = functorch.get_unwrapped(tensor)
    return tensor.requires_grad


@constant_result
def is_differentiated() -> bool:
    """Return True where a compiler is inside of `torch.func.grad`, `vjp` or `jvp`.

    torch differentiates no operator there that Python defines, or silently to zero.
    """
    from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

    kinds = {each.key().name for each in retrieve_all_functorch_interpreters()}
    return bool(kinds & {"Grad", "Jvp"})


def is_dual(tensors: Sequence[torch.Tensor]) -> bool:
    """Return True where forward mode gives one of the tensors a tangent."""
    # outside of forward mode, level -1, no tensor is asked
    return forward_ad._current_level >= 0 and any(
        forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors
    )


def apply(function: Any, *args: Any) -> Any:
    """Call a Function with as little of autograd as the call needs.

    Where no result can require a gradient, `function.alone` is called.
    torch.func, forward mode, dispatch modes, jit.trace and compilers need all of it.
    """
    if not is_plain():
        check_tracer(args[0].name)  # of a function, or of an attention's setting
        return function.apply(*args)
    # A record takes time, and is made only if a backward can ask for it.
    if torch.is_grad_enabled():
        for x in args:
            if isinstance(x, torch.Tensor) and x.requires_grad:
                return record(function, *args)
    return function.alone(*args)


def is_plain() -> bool:
    """Return True where nothing but autograd, which may record it, follows a call."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._get_tracing_state() is not None
    )


def record(function: Any, *args: Any) -> Any:
    """Call a Function that autograd alone has to know."""
    # `apply` of the C++ base class: Python's, which overrides it, binds defaults first
    return super(torch.autograd.Function, _without_setup_context(function)).apply(*args)


@functools.cache
def _without_setup_context(function: Any) -> Any:
    """Return a Function in the form that keeps its context in `forward`.

    torch.func does not take it. In each call of the other form torch binds default
    arguments: in Python, which `apply` avoids, and from torch 2.15 on in C++ as well.
    """

    def forward(ctx: Any, *args: Any) -> Any:
        output = function.forward(*args)
        function.setup_context(ctx, args, output)
        return function.returned(output)

    # backward and jvp read the context that `setup_context` has made, in both forms.
    members = {name: staticmethod(getattr(function, name)) for name in _DERIVATIVES}
    members["forward"] = staticmethod(forward)
    return type(function.__name__, (torch.autograd.Function,), members)


def not_compiled(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"relpos.torch.{name}: torch.func.grad, vjp and jvp are not compiled with it; "
        "expected them around torch.compile, or without fullgraph=True"
    )
