"""Arrays of other libraries as NumPy's, without loading those libraries."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from relpos._checks import Array, as_array, kind_of

__all__ = [
    "REFUSALS",
    "as_numpy",
    "as_tensor",
    "called",
    "is_module",
    "is_tensor",
    "rounding_of",
]

#: What functions of tensors raise where they are given arrays, and the other way round.
REFUSALS = (TypeError, ValueError, AttributeError)

#: Distance from 1 to the next number, of what NumPy itself does not know.
_EPSILON = {"bfloat16": 2.0**-7}


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
        if rounding_of(value) == _EPSILON["bfloat16"]:
            value = value.float()
        array: Array = value.numpy()
        return array
    array = as_array(name, value)
    if array.dtype.name in _EPSILON:
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


def rounding_of(value: Any) -> float:
    """Distance from 1 to the next number in the dtype of an array or a tensor."""
    dtype = getattr(value, "dtype", np.dtype(np.float64))
    name = str(dtype).rsplit(".", maxsplit=1)[-1]
    if name in _EPSILON:
        return _EPSILON[name]
    try:
        return float(np.finfo(name).eps)
    except (TypeError, ValueError):  # integers round nothing
        return float(np.finfo(np.float64).eps)


def called(function: Any, inputs: tuple[Any, ...]) -> Any:
    """What a function returns of inputs as they came; of others where it refuses."""
    tensors = "torch" in sys.modules and tuple(map(as_tensor, inputs))
    if is_module(function):
        return function(*(tensors or inputs))
    other = tuple(as_numpy("input", x) for x in inputs)
    if not any(map(is_tensor, inputs)):
        other = tensors or ()
    try:
        return function(*inputs)
    except REFUSALS:
        if not other:
            raise
        try:
            return function(*other)
        except REFUSALS:
            pass
        raise
