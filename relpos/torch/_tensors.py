"""Tensors as arrays and back, and the one rule of dtypes.

A result has the common dtype of the floating tensors that it is made of, by torch's
promotion; that of attention is the dtype of query, key and value, unless another
tensor is one of float64. bfloat16 and float16 are computed in float32. Under
``torch.autocast("cpu")`` it has autocast's dtype instead, unless one of them is
float64: no tensor is rounded before the computation, only the result. A gradient has
the dtype of its tensor.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch

from relpos._checks import Array
from relpos._core import bfloat16, know_tensors
from relpos._tensors import (
    check_dense as check_dense,
    check_devices as check_devices,
    check_float_dtype as check_float_dtype,
    check_storage,
    check_strided,
    in_tensor_words as in_tensor_words,
)
from relpos.torch._tracing import (
    PLAIN,
    expected_instead,
    is_traced,
    is_transformed,
    unwrapped,
)

know_tensors(torch.Tensor, torch.nn.Parameter)

Result = TypeVar("Result")

#: Dtypes that are computed in another one: NumPy lacks bfloat16, and converts float16
#: some 20 times more slowly than torch.
_WIDENED = {torch.bfloat16: np.float32, torch.float16: np.float32}
#: Dtypes of the numbers of an operand.
_FLOATS = {*_WIDENED, torch.float32, torch.float64}


def array_of(name: str, value: Any, short: bool = False) -> Any:
    """View a tensor as an array; other values are returned as they are.

    bfloat16 and float16 are copied to float32, unless they may stay `short`, and so is
    what torch has not negated or conjugated yet. Any other array shares the memory of
    the tensor, which the kernels only read.
    """
    if not isinstance(value, torch.Tensor):
        return value
    # Tensor.numpy() refuses a tensor that requires a gradient.
    if value.requires_grad:
        value = value.detach()
    try:
        check_storage(name, value)
        if value.dtype in _WIDENED and value.is_cpu:  # copy_ takes any device
            if short and _is_stored(value):
                return _words(value)
            return _widened(value)
        return value.numpy()
    except (RuntimeError, TypeError):  # most tensors need none of what follows
        check_tensor(name, value)
        return value.resolve_conj().resolve_neg().numpy()


def _is_stored(tensor: torch.Tensor) -> bool:
    """Return True where the memory of a tensor holds its numbers themselves."""
    return (
        tensor.layout is torch.strided
        and not tensor.is_neg()
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def _words(tensor: torch.Tensor) -> Array:
    """View a tensor of 16 bits as an array, of the core's bfloat16 or of float16."""
    # NumPy has no bfloat16, so that the words pass as integers.
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(bfloat16)
    return tensor.numpy()


def _widened(tensor: torch.Tensor) -> Array:
    """Convert a tensor in memory of NumPy's, which has pages of 2 MB if it is large.

    Page faults of torch's own memory would take most of the time of a decode.
    """
    array = np.empty(tensor.shape, _WIDENED[tensor.dtype])
    torch.from_numpy(array).copy_(tensor.resolve_neg())  # else copy_ drops the sign
    return array


def check_tensor(name: str, tensor: torch.Tensor) -> None:
    """Raise for a tensor whose memory is no strided array of this machine's."""
    check_kinds({name: tensor})
    check_strided(name, tensor)


def check_kinds(tensors: Mapping[str, object]) -> None:
    """Raise for a tensor that is not what is in its memory, by name.

    Such are nested tensors, whose items have lengths of their own, and some subclasses.
    """
    # tensors of torch.func are plain themselves, whatever they are made of
    looks_inside = is_transformed()
    for name, tensor in tensors.items():
        if looks_inside or type(tensor) not in PLAIN:  # few are, and take longer
            if not isinstance(tensor, torch.Tensor):
                continue
            check_type(name, type(unwrapped(tensor)))
        if tensor.is_nested:  # type: ignore[attr-defined]
            raise TypeError(
                f"{name}: got a nested tensor; expected a padded one (pass "
                "tensor.to_padded_tensor(0.0), its padding hidden by key_lengths or a "
                "mask)"
            )


def check_type(name: str, kind: type) -> None:
    """Raise for a subclass of Tensor whose memory is not its meaning."""
    if kind in PLAIN:
        return
    expected = expected_instead(kind)
    if expected is not None:
        raise TypeError(f"{name}: got a {kind.__name__}; expected {expected}")


def is_for_torch(tensor: object) -> bool:
    """Return True for an operand with which torch's own operators may compute.

    They keep every derivative, and take the tensors of `torch.func`. A traced call goes
    by the operators of relpos, and what is no strided tensor of floats on the CPU has
    the errors of a function of arrays.
    """
    if not isinstance(tensor, torch.Tensor) or is_traced([tensor]):
        return False
    if torch._C._get_tracing_state() is not None:
        return False
    stored = unwrapped(tensor)
    return (
        type(stored) in PLAIN
        and stored.is_cpu
        and stored.dtype in _FLOATS
        and stored.layout is torch.strided
        and not stored.is_nested
        # a storage may have been given back, which torch does not see
        and (stored.untyped_storage().nbytes() > 0 or not stored.numel())
    )


def tensor_of(array: Array, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Give an array as a tensor of `dtype`, without a copy where it has that."""
    if array.dtype == bfloat16:
        # torch does not know the core's dtype, but views words of 16 bits as its own.
        tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    else:
        tensor = torch.from_numpy(array)
    return tensor if dtype is None or tensor.dtype is dtype else tensor.to(dtype)


def as_tensor(made: Any, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Give what C made, a tensor or an array, as a tensor of `dtype`."""
    tensor: torch.Tensor = made if type(made) is torch.Tensor else tensor_of(made)
    # `to` takes a microsecond also where there is nothing to do
    return tensor if dtype is None or tensor.dtype is dtype else tensor.to(dtype)


def result_dtype(tensors: Iterable[object]) -> torch.dtype:
    """Return the dtype of a result outside of autocast, float32 if none is floating."""
    dtypes = [x.dtype for x in tensors if isinstance(x, torch.Tensor)]
    floating = [dtype for dtype in dtypes if dtype.is_floating_point]
    return functools.reduce(torch.promote_types, floating or [torch.float32])


def under_autocast(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of a result that has this one outside of autocast."""
    # float64 is left out, as torch's own autocast does.
    if dtype is not torch.float64 and torch.is_autocast_enabled("cpu"):
        return torch.get_autocast_dtype("cpu")
    return dtype


def without_modes(array: Array) -> torch.Tensor:
    """Share an array as ``torch.from_numpy``, under none of the caller's modes.

    Inference mode, fake tensors and torch.func would mark a tensor that a cache keeps
    for later calls.
    """
    return in_bare_thread(lambda: torch.from_numpy(array))


def in_bare_thread(function: Callable[[], Result]) -> Result:
    """Call a function in a thread of its own, where none of the caller's modes are."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(function).result()
