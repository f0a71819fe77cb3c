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
    """Let `help` show the names and defaults of parameters without their types.

    The definitions have so many parameters that nobody could read them with types.
    """
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
    tensors = [x for x in arrays if is_tensor(x)]
    for tensor in tensors:
        check_kind(tensor)
    if not tensors:
        return np
    return Torch(tensors[0].device)


def as_float64(*arrays: Any) -> list[Any]:
    """Return the namespace of the arguments, and then each of them in float64.

    None stays None. A float64 tensor stays the same tensor, so that autograd adds the
    gradient to the caller's.
    """
    xp = namespace(*arrays)
    results = [xp]
    for x in arrays:
        results.append(None if x is None else xp.asarray(x, dtype=xp.float64))
    return results


def _plain_dtype(x: Any) -> type:
    """Return bool, int64 or float64, the one in which the definitions take an array.

    An array of uint64 is float64 only if one of its numbers does not fit int64. The sum
    of int64 and uint64 in NumPy is float64 in any case.
    """
    if x.dtype.kind == "b":
        return np.bool_
    if x.dtype.kind not in "iu":
        return np.float64
    if x.dtype == np.uint64 and np.any(x > np.iinfo(np.int64).max):
        return np.float64
    return np.int64


def as_index(x: Any) -> Ints:
    """Return integers as int64, to index with: torch takes uint8 for a mask."""
    array = as_plain(x)
    return array.astype(_plain_dtype(array))


def as_plain(x: Any, dtype: Any = None) -> Any:
    """Return x as an array of NumPy.

    A tensor is refused if its memory does not hold its numbers.
    """
    check_kind(x)
    return np.asarray(x, dtype=dtype)


def constant(x: Floats) -> Floats:
    """Return the same numbers without a gradient: autograd takes them for constants."""
    return x.detach() if hasattr(x, "detach") else x


def expm_times(skew: Floats, x: Floats) -> Floats:
    """Return exp(S)·x for skew matrices S (..., D, D) and vectors x (..., D).

    The matrix iS is Hermitian, iS = V·diag(λ)·V* with real λ, so that
    exp(S) = V·diag(exp(-iλ))·V*. The gradient of V is not finite where two λ are equal:
    tensors take torch's matrix exponential instead.
    """
    if not isinstance(skew, np.ndarray):
        torch = sys.modules["torch"]
        product: Floats = torch.einsum("...de,...e->...d", torch.matrix_exp(skew), x)
        return product
    values, vectors = np.linalg.eigh(1j * skew)
    coordinates = np.einsum("...de,...d->...e", vectors.conj(), x)  # V*·x
    coordinates = np.exp(-1j * values) * coordinates
    rotated = np.einsum("...de,...e->...d", vectors, coordinates)
    return rotated.real


class Torch:
    """Functions of torch by the names and arguments that they have in NumPy.

    Names that this class lacks are torch's own, which agree with NumPy's: exp, einsum,
    sum, cumsum, stack, float64 and others.

    Parameters
    ----------
    device : torch.device
        Of the tensors that it makes.
    """

    def __init__(self, device: Any) -> None:
        self.torch = sys.modules["torch"]
        self.device = device
        # Functions and types that torch has by another name.
        self.bool_ = self.torch.bool
        self.broadcast_arrays = self.torch.broadcast_tensors
        self.take_along_axis = self.torch.take_along_dim
        self.repeat = self.torch.repeat_interleave

    def __getattr__(self, name: str) -> Any:
        """Return what torch has by a name that this class lacks."""
        return getattr(self.torch, name)

    def asarray(self, x: Any, dtype: Any = None) -> Any:
        """Return x as a tensor of `dtype`, by default of bool, int64 or float64.

        Other numbers are converted to one of these three first, since torch reads few
        of NumPy's dtypes, and those in native byte order alone.
        """
        torch = self.torch
        # A tensor of uint64 is converted as an array is, because `_plain_dtype`
        # compares its numbers, which torch cannot do.
        if isinstance(x, torch.Tensor) and x.dtype == torch.uint64:
            x = x.cpu().numpy()
        if not isinstance(x, torch.Tensor):
            # np.array copies: torch warns of arrays that are not writable.
            array: Any = np.array(x, dtype=_plain_dtype(np.asarray(x)), order="C")
            x = torch.as_tensor(array, device=self.device)
        check_kind(x)
        if dtype is not None:
            return x.to(dtype)
        if x.dtype == torch.bool:
            return x
        return x.to(torch.float64 if x.is_floating_point() else torch.int64)

    def arange(self, *limits: int) -> Any:
        return self.torch.arange(*limits, device=self.device)

    # NumPy's new arrays are float64 by default, those of torch float32.

    def zeros(self, shape: tuple[int, ...]) -> Any:
        return self.torch.zeros(shape, dtype=self.float64, device=self.device)

    def ones(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        if dtype is None:
            dtype = self.float64
        return self.torch.ones(shape, dtype=dtype, device=self.device)

    # NumPy's functions take arrays and numbers, which not all of torch's take.

    def where(self, condition: Any, x: Any, y: Any) -> Any:
        condition = self.asarray(condition)
        return self.torch.where(condition, self.asarray(x), self.asarray(y))

    def maximum(self, x: Any, y: Any) -> Any:
        return self.torch.maximum(self.asarray(x), self.asarray(y))

    def minimum(self, x: Any, y: Any) -> Any:
        return self.torch.minimum(self.asarray(x), self.asarray(y))

    def max(self, x: Any, axis: int, keepdims: bool, initial: float) -> Any:
        # torch's maximum has no `initial` and refuses an empty axis, so that `initial`
        # becomes one more item of the axis.
        shape = list(x.shape)
        shape[axis] = 1
        with_initial = self.torch.cat([x, x.new_full(shape, initial)], axis)
        return with_initial.amax(axis, keepdims)

    def take(self, x: Any, index: Any, axis: int) -> Any:
        return x.index_select(axis, self.asarray(index))

    def logaddexp(self, x: Any, y: Any) -> Any:
        """Return log(e^x + e^y), whose derivatives are finite also where one is -inf.

        torch's own has nan there as second derivatives, or already as first ones.
        """
        x, y = self.asarray(x), self.asarray(y)
        # The larger number is subtracted before exp, and added again after log. The
        # result does not depend on it, so that it needs no gradient.
        top = self.torch.maximum(x, y).detach()
        top = self.where(top == -np.inf, 0.0, top)  # -inf - -inf would be nan
        total = (x - top).exp() + (y - top).exp()
        # Where both are -inf, the total is 0, and log of 0 has no finite derivative.
        is_empty = total == 0
        log = self.where(is_empty, 1.0, total).log()
        return self.where(is_empty, -np.inf, top + log)
