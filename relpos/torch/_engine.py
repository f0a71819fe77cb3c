"""One call of attention on tensors, forward and backward, as calls of relpos.

A call is its tensors, in the order of `Setting.names`, and its setting: all else. The
seed of dropout is one of the tensors, so that a compiled graph can make it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch

from relpos._attention import functional
from relpos._attention.attention import DEFAULTS
from relpos._attention.fire_network import NAMES
from relpos._attention.operands import OPERANDS, READ_SHORT, TABLES, Call
from relpos._attention.problem import fold_rows
from relpos._checks import quiet
from relpos._core import bfloat16, read_tensors
from relpos._settings import kernels
from relpos.torch._functions import over_items
from relpos.torch._tensors import array_of, in_tensor_words, tensor_of

#: Results of `functional.forward`, in the order of the tensors of `forward`.
RESULTS = ("out", "lse", "row_max", "row_sum", "weights")

#: What the backward is given besides the tensors of the call.
_GIVEN = ("grad_out", "grad_lse", "out", "row_max", "row_sum")

#: Numbers of 16 bits to which the kernels round as they write.
_SHORT = {torch.bfloat16: bfloat16, torch.float16: np.dtype(np.float16)}
#: Tensors that count for the dtype of the result.
TYPED = {n for n, row in OPERANDS.items() if row.promotes} | {*NAMES}


@dataclass(slots=True)
class Setting:
    """Arguments of a call except its tensors, which `names` lists."""

    names: tuple[str, ...]
    values: dict[str, Any]  # of the other arguments of `relpos.attention`
    more: dict[str, Any] | None = None  # what only FIRE or a graph has
    lse: bool = True  # is asked for
    kept: bool = True  # results, for a backward
    looks: bool = False  # at the numbers of the mask, which are those of its caller
    dtype: torch.dtype = torch.float32  # of the result, once it is rounded
    made: tuple[Any, ...] | None = None  # results that C made already

    name: ClassVar[str] = "attention"

    # ---- what `Gradients` asks of a function -----------------------------------------

    def run_backward(
        self, wanted: Sequence[bool], *tensors: Any
    ) -> tuple[torch.Tensor, ...]:
        return backward(self, wanted, tensors[:3], tensors[3:6], tensors[6:])

    def vmap_backward(
        self, call: Any, info: Any, in_dims: Any, wanted: Sequence[bool], *tensors: Any
    ) -> Any:
        """Return the gradients by a `call` for all items, and where their axis is."""
        found = over_items(
            lambda given: call(wanted, *given),
            *(self.names, tensors, in_dims[1:], info.batch_size, wanted),
        )
        return found, 0


def _named(setting: Setting, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    return dict(zip(map(shown, setting.names), tensors, strict=True))


@partial(in_tensor_words, tensors_of=_named)
def forward(setting: Setting, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """out, lse, row_max, row_sum; weights if asked for.

    lse is None where it is not asked for. So are row_max and row_sum where nothing is
    kept for a backward. Where out is rounded and kept, the last is what it was before.
    """
    made = _forward_directly(setting, tensors)
    if made is not None:
        return made
    found = functional.forward(
        _call(setting, tensors),
        looks=setting.looks,
        lse=setting.lse,
        kept=setting.kept,
        rounds_to=_SHORT.get(setting.dtype),
    )
    out = tensor_of(found.pop("out"))
    results = {name: torch.from_numpy(array) for name, array in found.items()}
    more = (results[name] for name in ("weights", "kept") if name in results)
    return out, *map(results.get, RESULTS[1:4]), *more


def backward(
    setting: Setting,
    wanted: Sequence[bool],
    grads: Sequence[torch.Tensor | None],
    kept: Sequence[torch.Tensor],
    tensors: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """Gradients of the `wanted` tensors, each of its tensor's dtype.

    `grads` are those of out, lse and weights, `kept` are out, row_max and row_sum. A
    compiled program has a gradient of the weights, of zeros, where no loss uses them.
    """
    if (
        grads[2] is not None and array_of("grad_weights", grads[2]).any()
    ):  # nan is not 0
        raise NotImplementedError(
            "relpos.torch.attention: its weights have no gradient; expected a loss of "
            "out and lse alone (weights.detach() is a constant in it)"
        )
    if grads[0] is None and grads[1] is None:
        return tuple(
            torch.zeros_like(tensor, memory_format=torch.contiguous_format)
            for tensor in itertools.compress(tensors, wanted)
        )
    names = [*itertools.compress(setting.names, wanted)]
    made = backward_directly(setting, wanted, grads, (*kept, *tensors), False)
    if made is not None:
        return tuple(x for x in made if x is not None)
    given = read_tensors(_GIVEN, (*grads[:2], *kept), _array_of)
    found = functional.gradients(_call(setting, tensors), given, names)
    dtypes = (tensor.dtype for tensor in itertools.compress(tensors, wanted))
    return tuple(map(tensor_of, (found[name] for name in names), dtypes))


def results_of(arrays: Sequence[Any], kept: bool) -> tuple[Any, ...]:
    """Return the results of `forward` from arrays of C; some are for a backward."""
    out = tensor_of(arrays[0])
    rest = [*map(torch.from_numpy, arrays[1:])]
    wide = [rest.pop(0)] if kept and out.dtype in _SHORT else []
    lse = rest.pop(0) if len(rest) % 2 else None
    return out, lse, *(rest or (None, None)), *wide


def _forward_directly(
    setting: Setting, tensors: Sequence[torch.Tensor]
) -> tuple[Any, ...] | None:
    """Return the results of a call that is read in C, None of another one."""
    if setting.more is not None:
        return None
    given = {**setting.values, **dict(zip(setting.names, tensors, strict=True))}
    given["return_lse"] = setting.lse
    threads = torch.get_num_threads()
    found = kernels().attend((), given, threads, False, setting.kept, False)
    if found is None:
        return None
    out, *rest = results = results_of(found[0], setting.kept)
    if out.dtype not in _SHORT or out.dtype == setting.dtype:
        return results
    return (rest[3], *rest[:3]) if setting.kept else None  # to be rounded once


def backward_directly(
    setting: Setting,
    wanted: Sequence[bool],
    grads: Sequence[torch.Tensor | None],
    saved: Sequence[torch.Tensor],
    follows: bool = True,
) -> list[torch.Tensor | None] | None:
    """Return the gradients of a call that is read in C, None of another one.

    `saved` are out, row_max and row_sum, and the tensors of the call, whose order of
    axes in memory gradients have if `follows`; those of an operator are contiguous.
    """
    if setting.more is not None:
        return None
    if saved[0].dim() > 2 and saved[0].shape[-3] == 0:  # no head writes the keys' zeros
        return None
    made = kernels().attend_backward(
        setting.names,
        (*saved,),
        (*wanted,),
        (*grads,),
        setting.values,
        torch.get_num_threads(),
        follows,
    )
    if made is None:
        return None
    if "buckets" in setting.names:
        _fold_tables(made, made.pop(), setting.names, saved[3:])
    tensors = zip(made, saved[3:], strict=True)
    return [x if x is None else tensor_of(x, tensor.dtype) for x, tensor in tensors]


@quiet
def _fold_tables(
    made: list[Any], rows: Any, names: Sequence[str], tensors: Sequence[torch.Tensor]
) -> None:
    """Add up gradients of the rows that buckets list to those of their tables."""
    for n, (name, tensor) in enumerate(zip(names, tensors, strict=True)):
        if name not in TABLES or made[n] is None:
            continue
        table, gradient = TABLES[name], made[n]
        columns = gradient if table.axes == 3 else gradient[..., None]
        folded = fold_rows(columns, rows, tensor.shape[table.row_axis])
        made[n] = folded.astype(gradient.dtype).reshape(tensor.shape)


def _call(setting: Setting, tensors: Sequence[torch.Tensor]) -> Call:
    """Return the call as relpos takes it."""
    call: Call = DEFAULTS | setting.values | (setting.more or {})
    call |= read_tensors(setting.names, tensors, _array_of)
    if call["num_threads"] is None:
        call["num_threads"] = torch.get_num_threads()
    if "rng" in setting.names:
        call["rng"] = int(call["rng"])
    return call


def _array_of(name: str, tensor: torch.Tensor) -> Any:
    return array_of(shown(name), tensor, name in READ_SHORT)


def shown(name: str) -> str:
    """Return the name of an argument as its caller knows it."""
    return name.removeprefix("edge_")
