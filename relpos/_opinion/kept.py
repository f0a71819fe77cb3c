"""Put state back after a call: modes, parameters, gradients, shared generators."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from relpos._opinion.arrays import is_module, leaves

__all__ = ["unchanged"]


@contextmanager
def unchanged(*things: Any, evaluated: bool = False) -> Iterator[None]:
    """Leave modules, layers and generators as they were; `evaluated`: without dropout.

    Of modules and layers that is the mode, parameters, buffers and gradients; of
    generators those of NumPy and torch that all functions share.
    """
    with ExitStack() as stack:
        state = np.random.get_state()  # noqa: NPY002 (not ours: functions may draw)
        stack.callback(np.random.set_state, state)
        torch: Any = sys.modules.get("torch")
        if hasattr(torch, "random"):
            stack.enter_context(torch.random.fork_rng(devices=[]))
        for thing in things:
            for part in _parts(thing):
                stack.callback(_set_mode, part, part.training)
            _keep_numbers(stack, thing)
            if evaluated and hasattr(thing, "eval") and hasattr(thing, "training"):
                thing.eval()
        yield


def _parts(thing: Any) -> list[Any]:
    """List all that has a mode of its own: a module or layer, and its parts."""
    if is_module(thing):
        return [*thing.modules()]
    found: dict[int, Any] = {}
    waiting = [thing]
    while waiting:
        part = waiting.pop()
        if hasattr(part, "training") and id(part) not in found:
            found[id(part)] = part
            waiting += leaves([*getattr(part, "__dict__", {}).values()])
    return [*found.values()]


def _set_mode(part: Any, mode: bool) -> None:
    """Put a mode back, if it is another one now."""
    if part.training != mode:
        part.training = mode


def _keep_numbers(stack: ExitStack, thing: Any) -> None:
    """Put parameters, buffers and gradients back when the stack is left."""
    if is_module(thing):
        for part in thing.modules():
            stack.callback(part._buffers.update, dict(part._buffers))
        for tensor in (*thing.parameters(), *thing.buffers()):
            if hasattr(tensor, "materialize"):  # it has no numbers before the call
                continue
            stack.callback(_refill, tensor, tensor.detach().clone())
    elif hasattr(thing, "named_parameters"):
        for _, parameter in thing.named_parameters():
            stack.callback(setattr, parameter, "grad", parameter.grad)
            kept = parameter.data.copy()
            stack.callback(parameter.data.__setitem__, ..., kept)


def _refill(tensor: Any, kept: Any) -> None:
    """Give a tensor its numbers back, if they are others now."""
    torch = sys.modules["torch"]
    if not torch.equal(tensor, kept):
        with torch.no_grad():
            tensor.copy_(kept)
