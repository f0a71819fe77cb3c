"""Values of other libraries as arrays, copies of inputs, and state put back.

No library is loaded here: a value can only be a tensor where torch is loaded already.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar

import numpy as np

from relpos._checks import Array, as_array, kind_of
from relpos._tensors import check_kind, is_tensor, of_tensor

Kind = TypeVar("Kind")
Result = TypeVar("Result")

#: Errors of functions of tensors that are given arrays, and the other way round.
REFUSALS = (TypeError, ValueError, AttributeError)


def is_module(value: object) -> bool:
    torch: Any = sys.modules.get("torch")
    return hasattr(torch, "nn") and isinstance(value, torch.nn.Module)


def as_numpy(name: str, value: Any) -> Array:
    """Return an array, or a tensor as one; bfloat16 becomes float32, which holds it."""
    if is_tensor(value):
        array: Array = of_tensor(name, value)
    else:
        array = as_array(name, value)
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"{name}: got {kind_of(array)}; expected numbers, as an array or a tensor"
        )
    return array


def as_arrays(inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs of a call with tensors as arrays."""
    return [as_numpy("input", x) if is_tensor(x) else x for x in inputs]


def as_tensor(value: Any) -> Any:
    """Return a tensor of a copy of an array; hand other values on."""
    torch = sys.modules["torch"]
    # from_numpy shares memory, and a function that works in place would change the
    # array.
    return torch.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value


def copied(value: Any, name: str = "inputs") -> Any:
    """Copy a value with all that is inside of it; `name` is that of its argument.

    A copy of a tensor that requires a gradient requires one and is no leaf: such a
    tensor may be changed in place.
    """
    if is_tensor(value):
        check_kind(value, name)
        duplicate = value.detach().clone()
        return duplicate.requires_grad_().clone() if value.requires_grad else duplicate
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        # A named tuple takes its fields one by one, not as one sequence.
        return type(value)(*map(copied, value))
    # A subclass may have another constructor: it is left to deepcopy below.
    if type(value) in (list, tuple):
        return type(value)(map(copied, value))
    if isinstance(value, dict):  # and what is derived from it, as results of models
        duplicate = copy.copy(value)
        for key, x in value.items():
            duplicate[key] = copied(x, str(key))
        return duplicate
    if hasattr(value, "clone_state"):  # a generator of torch
        return value.clone_state()
    try:
        return copy.deepcopy(value)
    except Exception as error:
        raise TypeError(
            f"inputs: got {kind_of(value)}, of which no copy can be made ({error}); "
            "expected arrays, tensors, or lists, tuples and dictionaries of them"
        ) from error


def spread(array: Array, shape: tuple[int, ...]) -> Array:
    """Broadcast an array, which is returned where it has the shape."""
    return array if array.shape == shape else np.broadcast_to(array, shape)


def leaves(value: Any) -> list[Any]:
    """List the items of lists, tuples and dictionaries, one by one."""
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        return [x for item in value for x in leaves(item)]
    return [value]


def largest(array: Array, where: Any = True) -> float:
    """Return the largest size of a finite entry; 0 where there is none."""
    counts = np.isfinite(array) & where
    return float(np.abs(array).max(initial=0.0, where=counts))


def zeros_and_ones(mask: Array) -> bool:
    """Return True if a floating mask holds zeros, ones and no other numbers."""
    # Zeros alone add nothing, and the softmax takes away what ones alone add.
    ones = mask == 1
    some = mask.dtype.kind == "f" and ones.any() and not ones.all()
    return bool(some and (ones | (mask == 0)).all())


def added_mask(name: str, value: Any) -> str | None:
    """Return a sentence about a floating mask of zeros and ones; None for others.

    A mask of zeros alone, or of ones alone, changes no weights and is none of these.
    """
    if not zeros_and_ones(as_numpy(name, value)):
        return None
    return (
        f"{name}: got a floating mask of zeros and ones, which is added to the scores "
        "and hides nothing; expected a boolean mask, or a mask of 0 and -inf, to hide "
        "keys"
    )


def called(function: Any, inputs: tuple[Any, ...]) -> Any:
    """Call a function with copies of inputs; with others where it refuses these."""
    tensors = "torch" in sys.modules and [*map(as_tensor, inputs)]
    # The inputs come first as they are, then as the other kind. A function says by one
    # of `REFUSALS` that it does not take them.
    kinds: list[Any] = [inputs, tensors] if tensors else [inputs]
    if is_module(function):
        # A module takes tensors alone, and they are the last kind.
        kinds = kinds[-1:]
    elif any(map(is_tensor, inputs)):
        kinds[1] = [as_numpy("input", x) for x in inputs]
    return first_accepted(lambda arguments: function(*copied(arguments)), kinds)


def first_accepted(call: Callable[[Kind], Result], kinds: Sequence[Kind]) -> Result:
    """Return the first result of a call that is no refusal; raise the first refusal."""
    try:
        return call(kinds[0])
    except REFUSALS:
        # The error that is raised in the end is the first one: later ones are about
        # inputs that the caller did not pass.
        for kind in kinds[1:]:
            with suppress(*REFUSALS):
                return call(kind)
        raise


# ---- state ---------------------------------------------------------------------------


@contextmanager
def unchanged(*things: Any, evaluated: bool = False) -> Iterator[None]:
    """Leave modules, layers and generators as they were; `evaluated`: without dropout.

    Of modules and layers that is the mode, parameters, buffers and gradients; of
    generators those of NumPy and torch that all functions share.
    """
    with ExitStack() as stack:
        state = np.random.get_state()  # noqa: NPY002 (functions may use it)
        stack.callback(np.random.set_state, state)
        torch: Any = sys.modules.get("torch")
        if hasattr(torch, "random"):
            # No other devices are asked for: everything runs on the CPU.
            stack.enter_context(torch.random.fork_rng(devices=[]))
        # Modes are noted before `eval` is called, which changes those of all parts.
        for thing in things:
            for part in _parts(thing):
                stack.callback(_set_mode, part, part.training)
            _keep_numbers(stack, thing)
            if evaluated and hasattr(thing, "eval") and hasattr(thing, "training"):
                thing.eval()
        yield


def _parts(thing: Any) -> list[Any]:
    """List everything that has a mode: a module or layer, and its parts."""
    if is_module(thing):
        return [*thing.modules()]
    # Parts are found by the attributes of each other. They are told apart by id, since
    # one part may be reached in several ways.
    parts: dict[int, Any] = {}
    waiting = [thing]
    while waiting:
        part = waiting.pop()
        if hasattr(part, "training") and id(part) not in parts:
            parts[id(part)] = part
            waiting += leaves([*getattr(part, "__dict__", {}).values()])
    return [*parts.values()]


def _set_mode(part: Any, mode: bool) -> None:
    """Put a mode back, unless it is the present one."""
    if part.training != mode:
        part.training = mode


def _keep_numbers(stack: ExitStack, thing: Any) -> None:
    """Put parameters, buffers and gradients back when the stack is left."""
    if is_module(thing):
        for part in thing.modules():
            # A call may put another tensor in the place of a buffer, or change its
            # numbers: both are put back.
            stack.callback(part._buffers.update, dict(part._buffers))
        for tensor in (*thing.parameters(), *thing.buffers()):
            if hasattr(tensor, "materialize"):  # it has no numbers before the call
                continue
            stack.callback(_refill, tensor, tensor.detach().clone())
    elif hasattr(thing, "named_parameters"):
        for _, parameter in thing.named_parameters():
            stack.callback(setattr, parameter, "grad", parameter.grad)
            numbers = parameter.data.copy()
            stack.callback(parameter.data.__setitem__, ..., numbers)


def _refill(tensor: Any, numbers: Any) -> None:
    """Give a tensor its numbers back, unless it has them."""
    torch = sys.modules["torch"]
    if not torch.equal(tensor, numbers):
        with torch.no_grad():
            tensor.copy_(numbers)
