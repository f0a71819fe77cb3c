"""Types of arrays, and functions of NumPy for arrays and for tensors of torch.

A definition takes its arguments by `as_float64` and calls functions as ``xp.exp``. If
no argument is a tensor, `xp` is NumPy itself. Else it is `Torch`, whose functions have
the names and arguments of NumPy's, so that autograd differentiates the definition, also
more than once. torch is not imported here: the caller of a tensor has imported it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from relpos._tensors import check_kind, is_tensor

ArrayLike = npt.ArrayLike
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Rng = int | np.random.Generator | None

Function = TypeVar("Function", bound=Callable[..., object])


def names_alone(function: Function) -> Function:
    """Let `help` show names and defaults: with types they are too many to read."""
    signature = inspect.signature(function)
    names = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    function.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=names, return_annotation=inspect.Signature.empty
    )
    return function


def namespace(*arrays: Any) -> Any:
    """Return NumPy, or its functions on tensors if one of the arguments is a tensor."""
    # The first tensor decides on the device, where arrays among the arguments are then
    # copied.
    tensors = [*filter(is_tensor, arrays)]
    for tensor in tensors:
        check_kind(tensor)
    return Torch(tensors[0].device) if tensors else np


def as_float64(*arrays: Any) -> list[Any]:
    """Return the namespace of the arguments and each of them in float64, None as None.

    A float64 tensor stays the tensor that it is, so that its gradient is found.
    """
    xp = namespace(*arrays)
    return [xp, *(x if x is None else xp.asarray(x, dtype=xp.float64) for x in arrays)]


def _plain_dtype(x: Any) -> type:
    """Return the bool, int64 or float64 that holds an array as NumPy computes with it.

    NumPy compares int64 and uint64 as float64; here numbers beyond int64 alone are it.
    """
    if x.dtype.kind == "b":
        return np.bool_
    is_integer = x.dtype.kind in "iu"
    # Only values that int64 cannot hold make float64 of uint64, so that small ones stay
    # exact.
    if x.dtype == np.uint64 and np.any(x > np.iinfo(np.int64).max):
        is_integer = False
    return np.int64 if is_integer else np.float64


def as_index(x: Any) -> Ints:
    """Return integers as int64, since torch takes uint8 for a mask."""
    array = as_plain(x)
    return array.astype(_plain_dtype(array))


def as_plain(x: Any, dtype: Any = None) -> Any:
    """Return x as an array of NumPy, a tensor only if its memory has its numbers."""
    check_kind(x)
    return np.asarray(x, dtype=dtype)


def constant(x: Floats) -> Floats:
    """Return x as a number that has no gradient."""
    return x.detach() if hasattr(x, "detach") else x


def expm_times(skew: Floats, x: Floats) -> Floats:
    """Return exp(S)·x for skew matrices S (..., D, D) and vectors x (..., D).

    exp(S) is V·exp(-iλ)·V* with V, λ of the Hermitian iS. The gradient of V is not
    finite where two λ are equal, so that tensors take torch's matrix exponential.
    """
    if not isinstance(skew, np.ndarray):
        # torch.einsum reads tensors alone, and the caller has imported torch.
        torch = sys.modules["torch"]
        product: Floats = torch.einsum("...de,...e->...d", torch.matrix_exp(skew), x)
        return product
    # iS is Hermitian, so that eigh gives real λ and a unitary V.
    values, vectors = np.linalg.eigh(1j * skew)
    # From right to left: V* x, then the phases, then V. The result is real but for
    # rounding.
    along = np.einsum("...de,...d->...e", vectors.conj(), x)
    rotated = np.einsum("...de,...e->...d", vectors, np.exp(-1j * values) * along)
    return rotated.real


class Torch:
    """Functions of torch by the names and arguments that they have in NumPy.

    Functions that agree are torch's own: exp, einsum, sum, cumsum, stack and others.
    """

    def __init__(self, device: Any) -> None:
        self.torch = sys.modules["torch"]
        self.device = device
        # These four have other names in torch.
        self.bool_ = self.torch.bool
        self.broadcast_arrays = self.torch.broadcast_tensors
        self.take_along_axis = self.torch.take_along_dim
        self.repeat = self.torch.repeat_interleave

    def __getattr__(self, name: str) -> Any:
        return getattr(self.torch, name)

    def asarray(self, x: Any, dtype: Any = None) -> Any:
        """Return a tensor of the dtype: by default of bool, int64 or float64.

        torch reads and computes with few of NumPy's dtypes, and in native order alone.
        """
        torch = self.torch
        if isinstance(x, torch.Tensor) and x.dtype == torch.uint64:
            x = x.cpu().numpy()  # torch has no minimum or maximum of it
        if not isinstance(x, torch.Tensor):
            # a copy: torch warns of arrays that are not writable
            array: Any = np.array(x, dtype=_plain_dtype(np.asarray(x)), order="C")
            x = torch.as_tensor(array, device=self.device)
        check_kind(x)
        # The definitions compute in float64 and count in int64, whatever the width was.
        if dtype is None and x.dtype != torch.bool:
            dtype = torch.float64 if x.is_floating_point() else torch.int64
        return x.to(dtype or x.dtype)

    def arange(self, *limits: int) -> Any:
        return self.torch.arange(*limits, device=self.device)

    def zeros(self, shape: tuple[int, ...]) -> Any:
        return self.torch.zeros(shape, dtype=self.float64, device=self.device)

    def ones(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        kind = dtype or self.float64
        return self.torch.ones(shape, dtype=kind, device=self.device)

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        return self.torch.where(*map(self.asarray, (condition, x, y)))

    def maximum(self, x: Any, y: Any) -> Any:
        return self.torch.maximum(self.asarray(x), self.asarray(y))

    def minimum(self, x: Any, y: Any) -> Any:
        return self.torch.minimum(self.asarray(x), self.asarray(y))

    def max(self, x: Any, axis: int, keepdims: bool, initial: float) -> Any:
        shape = list(x.shape)
        shape[axis] = 1  # next to x, since an axis may be empty
        whole = self.torch.cat([x, x.new_full(shape, initial)], axis)
        return whole.amax(axis, keepdims)

    def take(self, x: Any, index: Any, axis: int) -> Any:
        return x.index_select(axis, self.asarray(index))

    def logaddexp(self, x: Any, y: Any) -> Any:
        """log(e^x + e^y), whose derivatives are finite where x, y or both are -inf."""
        x, y = self.asarray(x), self.asarray(y)
        # A constant maximum: it has no part in the result, so the derivative does not
        # see it.
        top = self.torch.maximum(x, y).detach()
        # Where both are -inf the difference from the maximum would be NaN.
        top = self.where(top == -np.inf, 0.0, top)
        total = (x - top).exp() + (y - top).exp()
        nothing = total == 0
        # The inner choice keeps the logarithm away from 0, whose derivative is
        # infinite: a derivative of infinity times 0 is NaN, whatever the outer choice
        # selects.
        return self.where(nothing, -np.inf, top + self.where(nothing, 1.0, total).log())
