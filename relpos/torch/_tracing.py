"""What is known while a program is traced, and where tracing has to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch.autograd import forward_ad

Function = TypeVar("Function", bound=Callable[..., object])

_PLAIN = {torch.Tensor, torch.nn.Parameter}


def constant_result(function: Function) -> Function:
    """As ``torch.compiler.assume_constant_result``, which loads the whole compiler."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def is_traced(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether a call is looked at, not computed: by a compiler, or without numbers."""
    return (
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack() > 0
        or any(tensor.is_meta or type(tensor) not in _PLAIN for tensor in tensors)
    )


@constant_result
def is_differentiated() -> bool:
    """Whether a compiler is inside of `torch.func.grad`, `vjp` or `jvp`.

    torch differentiates no operator there that Python defines, or silently to zero.
    """
    from torch._functorch.pyfunctorch import retrieve_all_functorch_interpreters

    kinds = {each.key().name for each in retrieve_all_functorch_interpreters()}
    return bool(kinds & {"Grad", "Jvp"})


def is_dual(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether one of the tensors has a tangent."""
    return forward_ad._current_level >= 0 and any(
        forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors
    )


def apply(function: Any, *args: Any) -> Any:
    """``function.apply``, without its check of defaults: a tenth of a small call."""
    if torch._C._are_functorch_transforms_active():
        return function.apply(*args)
    return super(torch.autograd.Function, function).apply(*args)


def not_compiled(name: str) -> NotImplementedError:
    """Return the error of a derivative inside of a compiled program."""
    return NotImplementedError(
        f"relpos.torch.{name}: torch.func.grad, vjp and jvp are not compiled with it; "
        "expected them around torch.compile, or without fullgraph=True"
    )
