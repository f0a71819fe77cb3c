"""One call of attention on tensors, forward and backward, as calls of relpos.

A call is its tensors, in the order of `Setting.names`, and its setting: all else. The
seed of dropout is one of the tensors, so that a compiled graph can make it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from relpos._attention import functional
from relpos._attention.attention import DEFAULTS
from relpos._attention.fire_network import NAMES
from relpos._attention.operands import OPERANDS, READ_SHORT, Call, called
from relpos._attention.problem import Problem, prepare
from relpos._core import bfloat16, read_tensors
from relpos._settings import kernels
from relpos.torch._functions import over_items
from relpos.torch._tensors import (
    array_of,
    as_tensor,
    in_tensor_words,
    tensor_of,
    under_autocast,
)

if TYPE_CHECKING:
    from relpos.torch._keywords import SchemeValues, Values

#: What the backward of relpos reads besides the operands of the call.
_BACKWARD_INPUTS = ("grad_out", "grad_lse", "out", "row_max", "row_sum")

#: Numbers of 16 bits to which the kernels round as they write.
_SHORT = {torch.bfloat16: bfloat16, torch.float16: np.dtype(np.float16)}
#: Tensors that count for the dtype of the result.
TYPED = {n for n, row in OPERANDS.items() if row.promotes} | {*NAMES}


class Results(NamedTuple):
    """Results of a forward; None where one is neither asked for nor kept."""

    out: Tensor
    lse: Tensor | None = None
    row_max: Tensor | None = None  # with row_sum kept for a backward
    row_sum: Tensor | None = None
    weights: Tensor | None = None
    unrounded: Tensor | None = None  # out before it was rounded to 16 bits, if kept


class ResultGradients(NamedTuple):
    """Gradients of the results that may have one; None where a loss uses none."""

    out: Tensor | None
    lse: Tensor | None
    weights: Tensor | None = None


class SavedResults(NamedTuple):
    """Results that a backward reads; `out` is the one that was not rounded."""

    out: Tensor
    row_max: Tensor
    row_sum: Tensor


@dataclass(slots=True)
class Setting:
    """Arguments of a call except its tensors, which `names` lists."""

    names: tuple[str, ...]
    values: Values  # the other arguments of `relpos.attention`
    scheme_values: SchemeValues | None = None  # arguments of FIRE or of a graph alone
    with_lse: bool = True
    keeps: bool = True  # results for a backward
    looks: bool = False  # at the numbers of the mask, which are those of its caller
    rounds: bool = False  # out, if computed in float32, to the dtype of the result

    name: ClassVar[str] = "attention"

    # ---- the methods that `Gradients` calls ------------------------------------------

    def run_backward(
        self, needs_grad: Sequence[bool], *tensors: Any
    ) -> tuple[Tensor, ...]:
        # The order is that of `apply(Gradients, ...)` in _attend.py: gradients,
        # results, operands.
        grad_out, grad_lse, grad_weights, out, row_max, row_sum, *operands = tensors
        gradients = ResultGradients(grad_out, grad_lse, grad_weights)
        saved = SavedResults(out, row_max, row_sum)
        return backward(self, needs_grad, gradients, saved, operands)

    def vmap_backward(
        self,
        call: Any,
        info: Any,
        in_dims: Any,
        needs_grad: Sequence[bool],
        *tensors: Any,
    ) -> Any:
        """Return the gradients by a `call` for all items, and where their axis is."""

        def call_with(tensors: Sequence[Any]) -> Sequence[Tensor]:
            gradients: Sequence[Tensor] = call(needs_grad, *tensors)
            return gradients

        # the first of the dims is that of `needs_grad`
        gradients = over_items(
            call_with, self.names, tensors, in_dims[1:], info.batch_size, needs_grad
        )
        return gradients, 0


def _named(setting: Setting, tensors: Sequence[Tensor]) -> dict[str, Any]:
    """Return the tensors of a call by the names that its caller knows."""
    return dict(zip(map(called, setting.names), tensors, strict=True))


@partial(in_tensor_words, tensors_of=_named)
def forward(setting: Setting, tensors: Sequence[Tensor]) -> Results:
    """Return the results that a call asks for, or keeps for its backward."""
    # C reads most calls from the tensors. The others are prepared as those of arrays.
    results = _forward_directly(setting, tensors)
    if results is not None:
        return results
    arrays = functional.forward(
        _call(setting, tensors),
        looks=setting.looks,
        lse=setting.with_lse,
        kept=setting.keeps,
        rounds=setting.rounds,
        autocast=_SHORT.get(under_autocast(torch.float32)),
    )
    out = tensor_of(arrays.pop("out"))
    others = {name: torch.from_numpy(array) for name, array in arrays.items()}
    unrounded = others.pop("kept", None)
    return Results(out, unrounded=unrounded, **others)


@partial(in_tensor_words, tensors_of=_named)
def prepared(setting: Setting, tensors: Sequence[Tensor]) -> Problem:
    """Return a call with all checks of `relpos.attention` behind it."""
    return prepare(_call(setting, tensors))


def backward(
    setting: Setting,
    needs_grad: Sequence[bool],
    result_gradients: ResultGradients,
    saved: SavedResults,
    tensors: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """Return the gradients that are needed, each of its tensor's dtype."""
    _check_weights_unused(result_gradients.weights)
    grad_out, grad_lse, _ = result_gradients
    # Only the weights have a gradient. It is zero, and so are all others.
    if grad_out is None and grad_lse is None:
        return tuple(
            torch.zeros_like(tensor, memory_format=torch.contiguous_format)
            for tensor in itertools.compress(tensors, needs_grad)
        )
    direct = backward_directly(
        setting, needs_grad, (grad_out, grad_lse), (*saved, *tensors), False
    )
    if direct is not None:
        return tuple(gradient for gradient in direct if gradient is not None)
    inputs = read_tensors(_BACKWARD_INPUTS, (grad_out, grad_lse, *saved), _array_of)
    names = [*itertools.compress(setting.names, needs_grad)]
    arrays = functional.gradients(_call(setting, tensors), inputs, names)
    dtypes = [tensor.dtype for tensor in itertools.compress(tensors, needs_grad)]
    return tuple(
        tensor_of(arrays[name], dtype)
        for name, dtype in zip(names, dtypes, strict=True)
    )


def _check_weights_unused(grad_weights: Tensor | None) -> None:
    """Raise where a loss depends on the weights.

    A compiled program has a gradient of them, of zeros, where no loss uses them.
    """
    if grad_weights is None:
        return
    if array_of("grad_weights", grad_weights).any():  # nan is not 0
        raise NotImplementedError(
            "relpos.torch.attention: its weights have no gradient; expected a loss of "
            "out and lse alone (weights.detach() is a constant in it)"
        )


# ---- calls that C reads from the tensors themselves ----------------------------------


def _name_results(made: Sequence[Any], with_lse: bool, keeps: bool) -> Results:
    """Return by name the tensors, or arrays, that C lists.

    C lists what it makes and skips the rest, always in this order: out, out before it
    was rounded, lse, row_max, row_sum.
    """
    remaining = iter(made)
    out = as_tensor(next(remaining))
    # A backward reads the result before it was rounded, which C then lists too.
    is_rounded = keeps and out.dtype in _SHORT
    unrounded = as_tensor(next(remaining)) if is_rounded else None
    lse = as_tensor(next(remaining)) if with_lse else None
    if not keeps:
        return Results(out, lse)
    row_max, row_sum = map(as_tensor, remaining)
    return Results(out, lse, row_max, row_sum, None, unrounded)


def _forward_directly(setting: Setting, tensors: Sequence[Tensor]) -> Results | None:
    """Return the results of a call that is read in C, None of another one."""
    # torch.jit.trace would keep tensors that C makes as constants
    if setting.scheme_values is not None or torch._C._get_tracing_state() is not None:
        return None
    arguments: dict[str, Any] = {**setting.values}
    arguments |= zip(setting.names, tensors, strict=True)
    arguments["return_lse"] = setting.with_lse
    threads = torch.get_num_threads()
    # No arguments by position; the results are contiguous, as those of an operator.
    made = kernels().attend((), arguments, threads, True, setting.keeps, False)
    if made is None:
        return None
    results = _name_results(made, setting.with_lse, setting.keeps)
    dtype = results.out.dtype
    if dtype not in _SHORT or (setting.rounds and dtype == under_autocast(dtype)):
        return results
    # The result is to be rounded to another dtype than that of C, and only once. The
    # numbers for that are there if they are kept.
    if results.unrounded is None:
        return None
    return results._replace(out=results.unrounded, unrounded=None)


def backward_directly(
    setting: Setting,
    needs_grad: Sequence[bool],
    result_gradients: tuple[Tensor | None, Tensor | None],
    saved: Sequence[Tensor],
    follows: bool = True,
) -> list[Tensor | None] | None:
    """Return the gradients of a call that is read in C, None of another one.

    `result_gradients` are those of out and lse. `saved` are out, row_max and row_sum,
    and the tensors of the call, whose order of axes in memory gradients have if
    `follows`; those of an operator are contiguous.
    """
    if setting.scheme_values is not None:
        return None
    made = kernels().attend_backward(
        setting.names,
        tuple(saved),
        tuple(needs_grad),
        result_gradients,
        setting.values,  # type: ignore[arg-type]  # a dict of fixed keys
        torch.get_num_threads(),
        follows,
    )
    if made is None:
        return None
    return [
        None if gradient is None else as_tensor(gradient, tensor.dtype)
        for gradient, tensor in zip(made, saved[3:], strict=True)
    ]


# ---- calls that Python prepares ------------------------------------------------------


def _call(setting: Setting, tensors: Sequence[Tensor]) -> Call:
    """Return the call as relpos takes it."""
    scheme_values: Mapping[str, Any] = setting.scheme_values or {}
    call: Call = {**DEFAULTS, **setting.values, **scheme_values}
    call |= read_tensors(setting.names, tensors, _array_of)
    # The default is that of torch here, and not that of `relpos.attention`.
    if call["num_threads"] is None:
        call["num_threads"] = torch.get_num_threads()
    # The seed is a tensor here and an integer there.
    if "rng" in setting.names:
        call["rng"] = int(call["rng"])
    return call


def _array_of(name: str, tensor: Tensor) -> Any:
    return array_of(called(name), tensor, name in READ_SHORT)
