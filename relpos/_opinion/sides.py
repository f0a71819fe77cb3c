"""One side of a comparison: a module of torch, a layer of relpos or a function."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from relpos._checks import Array, kind_of
from relpos._opinion.arrays import (
    REFUSALS,
    as_numpy,
    as_tensor,
    copied,
    is_module,
    is_tensor,
)

__all__ = ["Gradients", "Side", "largest", "load", "names_of_inputs", "side_of"]

Gradients = dict[str, Array]


class Side(Protocol):
    """What is run: forward once, then backward once if it has gradients."""

    outputs: list[Any]  # as they came
    results: list[Array]  # copies of them, made at once: one may be written again

    def backward(self, grad_out: Array) -> Gradients | None:
        """Gradients by name, those of input n as "n"; None where there are none."""
        ...


def side_of(name: str, thing: Any, inputs: Sequence[Any]) -> Side:
    """`thing` run forward, on copies of the inputs."""
    side = _run(thing, inputs)
    if not side.outputs:
        raise TypeError(f"{name}: returned no array; expected an array or a tensor")
    side.results = [np.array(as_numpy(name, x)) for x in side.outputs]
    return side


def _run(thing: Any, inputs: Sequence[Any]) -> Side:
    """By what it is; a function is tried with the inputs as they came."""
    if is_module(thing):
        return OfTensors(thing, inputs)
    if hasattr(thing, "backward"):
        return OfLayer(thing, inputs)
    kinds: list[Any] = [OfArrays]
    if "torch" in sys.modules:
        kinds.insert(0 if any(map(is_tensor, inputs)) else 1, OfTensors)
    try:
        return kinds[0](thing, inputs)  # type: ignore[no-any-return]
    except REFUSALS:
        if len(kinds) == 1:
            raise
        try:
            return kinds[1](thing, inputs)  # type: ignore[no-any-return]
        except REFUSALS:
            pass
        raise


def load(name: str, thing: Any, weights: Mapping[str, Any] | None) -> None:
    """Load the weights, if there are any, by the names of a state_dict."""
    if not callable(thing):
        raise TypeError(
            f"{name}: got {kind_of(thing)}; expected a torch module, a layer of "
            "relpos.nn or a function"
        )
    if weights is None:
        return
    if not isinstance(weights, Mapping):
        raise TypeError(
            f"weights: got {kind_of(weights)}; expected a mapping of names to arrays"
        )
    if not hasattr(thing, "load_state_dict"):
        raise TypeError(
            f"weights: given, but {name} has no load_state_dict; expected two that do"
        )
    arrays = {key: as_numpy(f"weights[{key!r}]", x) for key, x in weights.items()}
    if is_module(thing):
        thing.load_state_dict({key: as_tensor(x) for key, x in arrays.items()})
    else:
        thing.load_state_dict({key: x.copy() for key, x in arrays.items()})


def _results(results: Any) -> list[Any]:
    """What a call returned, one by one, without what is missing."""
    if isinstance(results, Mapping):  # such as the outputs of transformers' models
        results = [*results.values()]
    several = results if isinstance(results, tuple | list) else [results]
    return [x for x in several if hasattr(x, "dtype")]


class OfTensors:
    """A module of torch, or a function of tensors: gradients by autograd."""

    results: list[Array]

    def __init__(self, thing: Any, inputs: Sequence[Any]) -> None:
        torch = sys.modules["torch"]
        self.inputs = [
            x.detach().requires_grad_(x.is_floating_point()) if is_tensor(x) else x
            for x in map(as_tensor, copied([*inputs]))
        ]
        self.parameters = {}
        if hasattr(thing, "named_parameters"):
            every = thing.named_parameters()
            self.parameters = {name: p for name, p in every if p.requires_grad}
        with torch.enable_grad():
            # a leaf refuses to be changed in place, a copy of it does not
            given = (x.clone() if is_tensor(x) else x for x in self.inputs)
            self.outputs = _results(thing(*given))

    def backward(self, grad_out: Array) -> Gradients | None:
        torch = sys.modules["torch"]
        out = self.outputs[0]
        if not getattr(out, "requires_grad", False):
            return None
        named = {str(at): x for at, x in enumerate(self.inputs) if is_tensor(x)}
        named = {n: x for n, x in (named | self.parameters).items() if x.requires_grad}
        grad = as_tensor(grad_out).to(out.dtype)
        found = torch.autograd.grad(out, [*named.values()], grad, allow_unused=True)
        pairs = zip(named, found, strict=True)
        return {name: as_numpy(name, x) for name, x in pairs if x is not None}


class OfLayer:
    """A layer of relpos, or what has a `backward` like one."""

    results: list[Array]

    def __init__(self, layer: Any, inputs: Sequence[Any]) -> None:
        self.layer = layer
        own = copied([*inputs])
        arrays = (as_numpy("input", x) if is_tensor(x) else x for x in own)
        self.outputs = _results(layer(*arrays))

    def backward(self, grad_out: Array) -> Gradients | None:
        if hasattr(self.layer, "zero_grad"):
            self.layer.zero_grad()
        grad = grad_out.astype(self.outputs[0].dtype)
        of_inputs = self.layer.backward(grad)
        if not isinstance(of_inputs, tuple | list):
            of_inputs = (of_inputs,)
        found = {str(at): x for at, x in enumerate(of_inputs) if x is not None}
        if hasattr(self.layer, "named_parameters"):
            every = self.layer.named_parameters()
            found |= {name: p.grad for name, p in every if p.grad is not None}
        return {name: np.array(as_numpy(name, x)) for name, x in found.items()}


class OfArrays:
    """A function of arrays: with gradients if it can return relpos's context."""

    results: list[Array]

    def __init__(self, function: Any, inputs: Sequence[Any]) -> None:
        own = copied([*inputs])
        arrays = [as_numpy("input", x) if is_tensor(x) else x for x in own]
        asked = {"return_context": True} if gives_context(function) else {}
        result = function(*arrays, **asked)
        self.context = getattr(result, "context", None)
        self.outputs = _results(result)
        self.names = names_of_inputs(function, len(inputs))

    def backward(self, grad_out: Array) -> Gradients | None:
        if self.context is None:
            return None
        grad = grad_out.astype(self.outputs[0].dtype)
        gradients = self.context.backward(grad)._asdict()
        found = {name: x for name, x in gradients.items() if x is not None}
        for at, name in enumerate(self.names):
            usual = ("query", "key", "value")[at] if at < 3 else ""
            own = name if name in found else usual
            if own in found:
                found[str(at)] = found.pop(own)
        return found


def gives_context(function: Any) -> bool:
    """Whether a function returns its context where it is asked to, as `attention`."""
    try:
        return "return_context" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def names_of_inputs(thing: Any, count: int) -> list[str]:
    """What a function, or the forward of a module, calls its inputs."""
    call = thing.forward if hasattr(thing, "forward") else thing
    try:
        parameters = [*inspect.signature(call).parameters.values()]
    except (TypeError, ValueError):
        parameters = []
    names = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
    names += [f"input[{at}]" for at in range(len(names), count)]
    return names[:count]


def largest(array: Array) -> float:
    """The largest size of a finite entry, 0 of none."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
