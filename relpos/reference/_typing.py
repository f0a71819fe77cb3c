"""Names for the array types of the definitions, and what `help` shows of them."""

import inspect
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

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
