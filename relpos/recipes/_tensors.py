"""Recipes on tensors of torch: what is read of them, computed, and returned for them.

Numbers are computed by the functions of `relpos.reference._xp`, so that autograd
differentiates them. Integers and positions have no gradient. They are read as arrays,
and what is made of them stays an array until the recipe returns.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from numbers import Number
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np

from relpos import _checks
from relpos._checks import kind_of
from relpos._tensors import (
    check_dense,
    check_devices,
    check_float_dtype,
    check_kind,
    check_storage,
    check_strided,
    in_tensor_words,
    is_tensor,
)
from relpos._words import NO_TENSOR
from relpos.nn._inputs import product
from relpos.reference._xp import namespace

P = ParamSpec("P")
R = TypeVar("R")


class Tensor(Protocol):
    """A tensor to those who check types, also where torch is absent."""

    def numel(self) -> int: ...
    def element_size(self) -> int: ...


AnyTensor = TypeVar("AnyTensor", bound=Tensor)


def on_tensors(recipe: Callable[P, R]) -> Callable[P, R]:
    """Let a recipe take tensors for its arrays: it returns tensors in their place.

    Its arrays are the arguments of type ArrayLike, which are all of one kind. A dtype
    of torch asks for a tensor, too.
    """
    parameters = signature(recipe)
    # Annotations are texts, because each file of recipes imports `annotations`.
    arrays = [
        name
        for name, parameter in parameters.parameters.items()
        if "ArrayLike" in parameter.annotation
    ]
    compute = in_tensor_words(recipe, _only_keywords)

    def run(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            arguments: dict[str, Any] = parameters.bind(*args, **keywords).arguments
        except TypeError:
            return recipe(*args, **keywords)  # whose error names it
        # Only ArrayLike arguments may be tensors; a tensor as a length or a flag is
        # refused.
        for name, value in arguments.items():
            if name not in arrays and is_tensor(value):
                raise TypeError(f"{name}: got {NO_TENSOR}")
        tensors = {name: arguments[name] for name in arrays if name in arguments}
        check_kinds(tensors)
        if _is_dtype(arguments.get("dtype")):
            # The functions inside know dtypes by NumPy's names.
            arguments["dtype"] = str(arguments["dtype"]).removeprefix("torch.")
        # Integers are computed as arrays and go to the device of the first tensor.
        devices = [x.device for x in tensors.values() if is_tensor(x)]
        device = devices[0] if devices else "cpu"
        result: R = _in_tensors(compute(**arguments), device)  # type: ignore[call-arg]
        return result

    @wraps(recipe)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        # Without a tensor there is nothing to do, and torch need not be there.
        if not any(is_tensor(x) or _is_dtype(x) for x in (*args, *keywords.values())):
            return recipe(*args, **keywords)
        compiler = sys.modules["torch"].compiler
        if compiler.is_compiling():  # it would trace what NumPy computes
            return compiler.disable(run)(*args, **keywords)  # type: ignore[no-any-return]
        return run(*args, **keywords)

    return call


def _only_keywords(*_: Any, **keywords: Any) -> dict[str, Any]:
    """Return the named arguments of a call."""
    return keywords


def _is_dtype(value: object) -> bool:
    kind = type(value)
    return (kind.__module__, kind.__name__) == ("torch", "dtype")


def _in_tensors(result: Any, device: Any) -> Any:
    """Return a result with tensors for its arrays; a dict stays the one that it is."""
    if isinstance(result, np.ndarray):
        # a copy: torch takes no array that is reversed or read-only
        ordered = np.array(result, order="C")
        return sys.modules["torch"].from_numpy(ordered).to(device)
    if isinstance(result, tuple):
        return tuple(_in_tensors(x, device) for x in result)
    if isinstance(result, dict):
        for name, value in result.items():
            result[name] = _in_tensors(value, device)
    return result


# ---- checks --------------------------------------------------------------------------


def check_kinds(values: Mapping[str, Any]) -> None:
    """Raise unless all arrays, by name, are tensors if one is; numbers go with both."""
    tensors = [name for name, value in values.items() if is_tensor(value)]
    for name, value in values.items():
        if tensors and not (is_tensor(value) or isinstance(value, Number | None)):
            raise TypeError(
                f"{name}: got {kind_of(value)}; expected a tensor, as {tensors[0]} is"
            )
    for name in tensors:
        _check_numbers(name, values[name])
    check_devices(values)


def _check_numbers(name: str, tensor: Any) -> None:
    """Raise for a tensor that relpos.torch does not take."""
    check_kind(tensor, name)
    # A meta tensor has no memory to check.
    if tensor.is_meta:
        check_dense(name, tensor)
        return
    check_strided(name, tensor)
    torch = sys.modules["torch"]
    # Tensors that wrap others, of a subclass or of a transform such as vmap, show no
    # memory of their own.
    is_plain = type(tensor).__torch_dispatch__ is torch.Tensor.__torch_dispatch__
    if is_plain and not torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        check_storage(name, tensor)


def as_floating(name: str, value: object) -> Any:
    """Return an array of floating numbers, or a tensor of them as it is."""
    if not is_tensor(value):
        return _checks.as_floating(name, value)
    tensor: Any = value
    check_float_dtype(name, tensor.dtype, "a tensor of dtype ")
    return tensor


def as_plain(name: str, value: Any) -> Any:
    """Return a tensor that has no gradient as an array; return others as they are."""
    if not is_tensor(value):
        return value
    check_strided(name, value)
    if value.requires_grad:
        raise ValueError(
            f"{name}: requires a gradient, which a recipe does not have; expected a "
            f"tensor without ({name}.detach())"
        )
    try:
        # A view that conjugates or negates is resolved first, as NumPy reads the
        # memory.
        return value.resolve_conj().resolve_neg().numpy()
    except (RuntimeError, TypeError) as error:  # of bfloat16, of vmap
        raise TypeError(
            f"{name}: got a tensor of {value.dtype} whose numbers cannot be read "
            f"({error}); expected one whose numbers NumPy can read"
        ) from None


# ---- functions of arrays and of tensors ----------------------------------------------


def doubles(x: Any) -> Any:
    """Return numbers in float64."""
    xp = namespace(x)
    return xp.asarray(x, dtype=xp.float64)


def singles_or_doubles(x: Any, *parameters: Any) -> Any:
    """Return numbers in float64 if some of the parameters are, else in float32."""
    xp = namespace(*parameters)
    is_double = any(parameter.dtype.itemsize == 8 for parameter in parameters)
    return xp.asarray(x, dtype=xp.float64 if is_double else xp.float32)


def like(x: Any, parameter: Any) -> Any:
    """Return numbers in the dtype of a parameter."""
    if is_tensor(parameter):
        return x.to(parameter.dtype)
    return _checks.like(x, parameter)


def in_common_dtype(x: Any, *parameters: Any) -> Any:
    """Return numbers in the dtype to which those of the parameters promote."""
    if not is_tensor(x):
        # Each kind of array has its own rules of promotion, and the result follows
        # those.
        return _checks.rounded(x, _checks.common_dtype(*parameters))
    dtype = parameters[0].dtype
    for parameter in parameters[1:]:
        dtype = namespace(x).promote_types(dtype, parameter.dtype)
    return x.to(dtype)


def transposed(table: Any) -> Any:
    """Return the view with all axes reversed."""
    if is_tensor(table):
        return table.permute(*reversed(range(table.ndim)))
    return table.T


def multiplied(a: Any, b: Any) -> Any:
    """Return the product of two matrices of one dtype."""
    return a @ b if is_tensor(a) else product(a, b)


def softplus(x: Any) -> Any:
    """Return log(1 + e^x)."""
    xp = namespace(x)
    if xp is np:
        return np.logaddexp(0, x)
    return -xp.nn.functional.logsigmoid(-x)  # torch's softplus is x itself beyond 20


def logistic(x: Any) -> Any:
    """Return 1 / (1 + e^-x)."""
    xp = namespace(x)
    return 1 / (1 + np.exp(-x)) if xp is np else xp.sigmoid(x)
