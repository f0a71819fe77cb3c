"""Tensors of torch as arrays, and checks of them.

torch is not imported here: who has a tensor has imported it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from relpos._foreign import expected_instead
from relpos._words import words_for_tensors

P = ParamSpec("P")
R = TypeVar("R")


def is_tensor(value: object) -> bool:
    """Return True for a tensor, one of a subclass included."""
    # Without torch, or while it is being imported, no value is a tensor: () has no
    # instances.
    return isinstance(value, getattr(sys.modules.get("torch"), "Tensor", ()))


def check_kind(tensor: object, name: str | None = None) -> None:
    """Raise for a tensor that is not what is in its memory; take everything else."""
    expected = expected_instead(type(tensor))
    if expected is not None:
        subject = "" if name is None else f"{name}: "
        raise TypeError(f"{subject}got a {type(tensor).__name__}; expected {expected}")


def check_stored(name: str, tensor: Any) -> None:
    """Raise for a tensor whose numbers are not those in its memory, on any device."""
    check_kind(tensor, name)
    if tensor.is_nested:
        raise TypeError(
            f"{name}: got a nested tensor; expected a dense one (pass "
            "tensor.to_padded_tensor(0.0))"
        )
    check_dense(name, tensor)
    if tensor.is_quantized:
        raise TypeError(
            f"{name}: got a quantized tensor of {tensor.dtype}; expected one that is "
            "not (pass tensor.dequantize())"
        )


def check_strided(name: str, tensor: Any) -> None:
    """Raise for a tensor whose memory is no strided array of this machine's."""
    if tensor.device.type != "cpu":
        raise TypeError(
            f"{name}: got a tensor on device {str(tensor.device)!r}; expected one on "
            "the CPU (pass tensor.cpu())"
        )
    check_stored(name, tensor)
    if sys.modules["torch"]._C._functorch.is_legacy_batchedtensor(tensor):
        raise TypeError(
            f"{name}: got a tensor of torch.autograd's own batches (is_grads_batched, "
            "vectorize=True); expected those of torch.func: jacrev, or vmap of vjp"
        )
    if tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point:
        check_float_dtype(name, tensor.dtype, "a tensor of ")


def check_dense(name: str, tensor: Any) -> None:
    """Raise for a sparse tensor, or one of another layout."""
    if tensor.layout != sys.modules["torch"].strided:
        raise TypeError(
            f"{name}: got a tensor of layout {tensor.layout}; expected a dense one "
            "(pass tensor.to_dense())"
        )


def check_storage(name: str, tensor: Any) -> None:
    """Raise for a tensor whose memory was given back, of which a view stays."""
    if not tensor.untyped_storage().nbytes() and tensor.numel():
        raise ValueError(
            f"{name}: got a tensor whose storage was resized to 0 bytes; expected "
            "one that has its numbers"
        )


def check_float_dtype(name: str, dtype: object, got: str = "") -> None:
    """Raise unless a dtype is one of those that numbers have here."""
    torch = sys.modules["torch"]
    if dtype not in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        raise TypeError(
            f"{name}: got {got}{dtype}; expected bfloat16, float16, float32 or float64"
        )


def check_devices(tensors: Mapping[str, Any]) -> None:
    """Raise unless all tensors, by name, are on the device of the first of them.

    A number of the CPU goes with tensors of any device, as in torch.
    """
    devices = {
        name: x.device
        for name, x in tensors.items()
        if is_tensor(x) and (x.dim() or x.device.type != "cpu")
    }
    if not devices:
        return
    first, expected = next(iter(devices.items()))
    for name, device in devices.items():
        if device != expected:
            raise TypeError(
                f"{name}: got a tensor on device {str(device)!r}; expected one on "
                f"{str(expected)!r}, as {first}"
            )


def of_tensor(name: str, value: Any) -> Any:
    """Return a tensor, on any device, as an array; return others as given.

    Numbers of a dtype that NumPy does not have, such as bfloat16, become float32.
    """
    if not is_tensor(value):
        return value
    check_stored(name, value)
    # torch conjugates and negates by a flag, which NumPy does not know.
    tensor = value.detach().cpu().resolve_conj().resolve_neg()
    try:
        return tensor.numpy()
    except TypeError:
        return tensor.float().numpy()


# ---- words of errors -----------------------------------------------------------------


def in_tensor_words(
    function: Callable[P, R],
    tensors_of: Callable[P, Mapping[str, Any]] | None = None,
) -> Callable[P, R]:
    """Reword the errors of a function of arrays for its caller's tensors.

    `tensors_of` returns them by name: an array may have another dtype than its tensor.
    """

    @functools.wraps(function)
    def worded(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*args, **keywords)
        except TypeError as error:
            tensors = tensors_of(*args, **keywords) if tensors_of is not None else {}
            dtypes = {n: x.dtype for n, x in tensors.items() if is_tensor(x)}
            words = words_for_tensors(error, dtypes)
            if words is None:
                raise
            raise TypeError(words) from None

    return worded
