"""Arrays of other libraries as NumPy's, without loading those libraries."""

from __future__ import annotations

import copy
import sys
from typing import Any

import numpy as np

from relpos._checks import Array, as_array, kind_of

__all__ = [
    "REFUSALS",
    "as_numpy",
    "as_tensor",
    "called",
    "copied",
    "is_module",
    "is_tensor",
    "leaves",
]

#: What functions of tensors raise where they are given arrays, and the other way round.
REFUSALS = (TypeError, ValueError, AttributeError)


def _is_torch(value: object, name: str) -> bool:
    """Whether a value is of torch's class `name`, which is not asked for if absent."""
    torch = sys.modules.get("torch")
    found = getattr(torch, "Tensor", None) if name == "Tensor" else None
    if name == "Module" and torch is not None:
        found = torch.nn.Module
    return found is not None and isinstance(value, found)


def is_tensor(value: object) -> bool:
    """Whether this is a tensor of torch."""
    return _is_torch(value, "Tensor")


def is_module(value: object) -> bool:
    """Whether this is a module of torch."""
    return _is_torch(value, "Module")


def as_numpy(name: str, value: Any) -> Array:
    """An array, or a tensor as one; bfloat16 becomes float32, which holds it."""
    if is_tensor(value):
        value = value.detach().cpu().resolve_conj().resolve_neg()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
        array: Array = value.numpy()
        return array
    array = as_array(name, value)
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{name}: got {kind_of(array)}; expected numbers, as an array or a tensor"
        )
    return array


def as_tensor(value: Any) -> Any:
    """What a torch module takes for an array: a tensor of a copy."""
    torch = sys.modules["torch"]
    return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


def copied(value: Any) -> Any:
    """Copy a value with all that is inside of it.

    A copy of a tensor that requires a gradient requires one and is no leaf: such a
    tensor may be changed in place.
    """
    if is_tensor(value):
        own = value.detach().clone()
        return own.requires_grad_().clone() if value.requires_grad else own
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(copied, value))
    if type(value) in (list, tuple):
        return type(value)(map(copied, value))
    if isinstance(value, dict):  # and what is derived from it, as results of models
        own = copy.copy(value)
        for name, x in value.items():
            own[name] = copied(x)
        return own
    if hasattr(value, "clone_state"):  # a generator of torch
        return value.clone_state()
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise TypeError(
            f"inputs: got {kind_of(value)}, of which no copy can be made ({error}); "
            "expected arrays, tensors, or lists, tuples and dictionaries of them"
        ) from error


def leaves(value: Any) -> list[Any]:
    """List the items of lists, tuples and dictionaries, one by one."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        return [x for item in value for x in leaves(item)]
    return [value]


def called(function: Any, inputs: tuple[Any, ...]) -> Any:
    """Call a function with copies of inputs; with others where it refuses these."""
    tensors = "torch" in sys.modules and tuple(map(as_tensor, inputs))
    if is_module(function):
        return function(*copied(tensors or inputs))
    other = tensors or ()
    if any(map(is_tensor, inputs)):
        other = tuple(as_numpy("input", x) for x in inputs)
    try:
        return function(*copied(inputs))
    except REFUSALS:
        if not other:
            raise
        try:
            return function(*copied(other))
        except REFUSALS:
            pass
        raise
