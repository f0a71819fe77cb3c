"""Base of the modules: weights from arrays, checks, heads apart and together."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar, NoReturn, TypedDict, TypeVar

import numpy as np
import torch
from torch import Tensor

from relpos._checks import as_int as as_int_of_arrays
from relpos._twins import twin
from relpos.nn._inputs import as_settings, check_shape as check_axes
from relpos.torch._functions import check_tensors
from relpos.torch._tensors import in_tensor_words

#: As that of `relpos._checks`, in words about tensors.
as_int = in_tensor_words(as_int_of_arrays)

Module = TypeVar("Module", bound=type[torch.nn.Module])


class Options(TypedDict):
    """Keywords with which torch makes the parameters of a module."""

    device: Any
    dtype: Any


class Layer(torch.nn.Module):
    """Base of the modules, which take a state of arrays from `relpos.nn`, too."""

    def _set_up(
        self, device: Any, dtype: Any, **arguments: Any
    ) -> tuple[SimpleNamespace, Options]:
        """Return the other arguments of a constructor, checked, and the options.

        It has to come before the first assignment of a parameter or of a module.
        """
        super().__init__()
        return as_settings(arguments), {"device": device, "dtype": dtype}

    def __prepare_scriptable__(self) -> NoReturn:
        """Refuse `torch.jit.script`, which knows no keyword-only arguments."""
        raise NotImplementedError(
            f"{type(self).__name__}: got torch.jit.script, which cannot compile it; "
            "expected torch.compile or torch.export"
        )

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any
    ) -> None:
        # the children read this same mapping next, so that their arrays are changed too
        for name, value in state_dict.items():
            if name.startswith(prefix) and isinstance(value, np.ndarray):
                state_dict[name] = torch.tensor(value)
        super()._load_from_state_dict(state_dict, prefix, *args)


class AttentionLayer(Layer):
    """Base of the modules that attend: they project inputs to heads and join these."""

    num_heads: int
    #: The layers that project query, key and value.
    _projections: ClassVar[tuple[str, ...]] = ("q_proj", "k_proj", "v_proj")

    def _project(self, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = (
            split_heads(getattr(self, name)(x), self.num_heads)
            for name, x in zip(self._projections, inputs, strict=True)
        )
        return query, key, value


def check_shape(name: str, tensor: Any, shape: tuple[int | str, ...]) -> None:
    """Raise unless the axes are those of `shape`: an int is fixed and a word free."""
    check_tensors({name: tensor})
    check_axes(name, tensor, shape)


def as_zero_one(name: str, mask: Tensor) -> Tensor:
    """Return a mask of True/False or 1/0 as booleans.

    Other values are an error, except where there are none to ask for.
    """
    if mask.dtype == torch.bool:
        return mask
    # the values of a tensor that is traced or on the meta device are not known
    flags = mask.bool()
    if has_values(mask) and not torch.equal(flags.to(mask.dtype), mask):
        raise ValueError(
            f"{name}: has values other than 0 and 1; expected a mask, not scores to add"
        )
    return flags


def has_values(x: Tensor) -> bool:
    return not (x.is_meta or torch.compiler.is_compiling())


def some_rows(table: Tensor) -> Tensor:
    """Return a table with a row also where there are no keys, as attention wants."""
    return table if table.shape[-2] else torch.nn.functional.pad(table, (0, 0, 0, 1))


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """View (..., L, H * D) as (..., H, L, D)."""
    return x.unflatten(-1, (num_heads, -1)).transpose(-2, -3)


def join_heads(x: Tensor) -> Tensor:
    """(..., H, L, D) -> (..., L, H * D), the opposite of `split_heads`."""
    return x.transpose(-2, -3).flatten(-2)


def normal_parameter(
    shape: tuple[int, ...], std: float, device: Any, dtype: Any
) -> torch.nn.Parameter:
    start = torch.empty(shape, device=device, dtype=dtype)
    return torch.nn.Parameter(start.normal_(std=std))


def uniform_parameter(
    shape: tuple[int, ...], low: float, high: float, device: Any, dtype: Any
) -> torch.nn.Parameter:
    start = torch.empty(shape, device=device, dtype=dtype)
    return torch.nn.Parameter(start.uniform_(low, high))


def xavier_parameter(
    shape: tuple[int, ...], device: Any, dtype: Any
) -> torch.nn.Parameter:
    """Return a parameter from the uniform distribution of Glorot and Bengio."""
    # The last two axes are those of one table, also where each head has its own.
    bound = (6.0 / (shape[-1] + shape[-2])) ** 0.5
    return uniform_parameter(shape, -bound, bound, device, dtype)


def layer_twin(original: type) -> Callable[[Module], Module]:
    """Complete the docstring of a module by that of the layer of `relpos.nn`."""
    words = {"Linear": "torch.nn.Linear", "LayerNorm": "torch.nn.LayerNorm"}
    words["Parameter"] = "torch.nn.Parameter"
    titles = "", "Parameters", "Attributes", "Raises", "Notes", "References"
    return twin(original, words, titles)
