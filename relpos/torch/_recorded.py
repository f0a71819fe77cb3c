"""Calls of attention that C reads, runs, and gives to autograd as a node.

The node is a Function of torch whose forward is in C. It uses names of torch that are
not public. They are looked up and tried once, when this module is imported. Where one
of them is missing or behaves in another way, `RECORD` is None, and Python prepares and
records the calls: `attend` of _attend.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from relpos._core import keep_call
from relpos._settings import kernels
from relpos.torch._attend import backward_of
from relpos.torch._engine import ResultGradients, Setting
from relpos.torch._tensors import in_bare_thread
from relpos.torch._tracing import is_plain

#: Records a call that has run: called with what the backward needs to know of it, its
#: results, and its tensors.
Record: TypeAlias = Callable[..., Any]

#: Arguments of the node before the tensors: the call, and its results.
_OTHERS = 2


def _backward(ctx: Any, grad_out: Any, grad_lse: Any = None) -> Any:
    """Return the gradients of all arguments of the node, as Python makes them."""
    names, values = ctx.call
    gradients = backward_of(
        Setting(names, values),
        ctx.needs_input_grad[_OTHERS:],
        ResultGradients(grad_out, grad_lse),
        ctx.saved_tensors,
    )
    return *[None] * _OTHERS, *gradients


def _apply(ctx: Any, grad_out: Any, grad_lse: Any = None) -> Any:
    """Return the gradients of all arguments of the node, by C where it makes them."""
    if is_plain() and not torch.is_grad_enabled():
        threads = torch.get_num_threads()
        gradients = kernels().attend_gradients(ctx, grad_out, grad_lse, threads)
        if gradients is not None:
            return gradients
    return _backward(ctx, grad_out, grad_lse)


def _new_node() -> Any:
    """Return the Function, which has the name of the one that Python records."""
    members = {"forward": keep_call, "backward": staticmethod(_backward)}
    node: Any = type("Attend", (torch.autograd.Function,), members)
    # what torch calls first looks for other methods, which takes a microsecond
    vars(node)["_backward_cls"].apply = _apply
    return node


def _try_out(node: Any) -> Record:
    """Return what records a call as a node; raise where a call is not recorded well.

    The node's backward is called as the engine of autograd calls it, and not by the
    engine, which looks for all devices when it starts: an import that did this would
    keep forked processes from using them.
    """
    # `apply` of the C++ base class: Python's binds defaults first
    record: Record = super(torch.autograd.Function, node).apply
    query, key, value = (
        torch.tensor([rows], dtype=torch.float64, device="cpu", requires_grad=True)
        for rows in ([[0.0]], [[0.0], [1.0]], [[1.0], [2.0]])
    )
    settings = {"return_lse": True, "scale": 1.0}
    result = kernels().attend_tensors((query, key, value), settings, 1, record)
    if result is None:
        raise NotImplementedError("C does not read tensors of this PyTorch")
    out, lse = result
    with torch.no_grad():
        gradients = out.grad_fn.apply(torch.ones_like(out), None)
    numbers = [x.tolist() for x in (out, *gradients[_OTHERS:])]
    # both keys have the weight 0.5
    if numbers != [[[[1.5]]], [[[0.25]]], [[[0.0], [0.0]]], [[[0.5], [0.5]]]]:
        raise RuntimeError(f"out and gradients of a first call are {numbers}")
    if out.grad_fn is not lse.grad_fn or len(out.grad_fn.saved_tensors) != 6:
        raise RuntimeError("a first call was recorded as another node")
    return record


def _recorder() -> tuple[Record | None, str]:
    """Return what records a call, or None and the reason."""
    try:
        # modes of the caller, such as inference mode, are not those of all calls
        return in_bare_thread(lambda: _try_out(_new_node())), ""
    except Exception as error:  # noqa: BLE001 - names that are not public may do anything
        return None, f"{type(error).__name__}: {error}"


#: What records a call that C has run; None, and the reason, where Python does it all.
RECORD, REASON = _recorder()
