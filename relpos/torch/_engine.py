"""One call of attention on tensors, forward and backward, as calls of relpos.

A call is its tensors, in the order of `Setting.names`, and its setting: all else. The
seed of dropout is one of the tensors, so that a compiled graph can make it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from relpos._attention import functional
from relpos._attention.attention import DEFAULTS
from relpos._attention.edges import Edges
from relpos._attention.fire_network import NAMES, as_fire
from relpos._attention.operands import LABELS, OPERANDS
from relpos.torch._tensors import array_of, in_tensor_words, tensor_of

#: Results of `functional.forward`, in the order of the tensors of `forward`.
RESULTS = ("out", "lse", "row_max", "row_sum", "weights")
#: Names of a graph's tensors, by the fields of `Edges`.
GRAPH = {name: name for name in Edges._fields} | {"labels": "edge_labels"}


#: Tensors that count for the dtype of the result.
TYPED = {n for n, row in OPERANDS.items() if row.promotes} | {*NAMES}


@dataclass(slots=True)
class Setting:
    """Arguments of a call except its tensors, which `names` lists."""

    names: tuple[str, ...]
    values: dict[str, Any]  # of the other arguments of `relpos.attention`
    fire: dict[str, Any] | None = None  # signed, eps and FIRE's numbers
    graph: dict[str, Any] | None = None  # fields of `Edges` that are no tensors
    lse: bool = True  # is asked for
    kept: bool = True  # results, for a backward
    looks: bool = False  # at the numbers of the mask, which are those of its caller


def _named(setting: Setting, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    return dict(zip(map(shown, setting.names), tensors, strict=True))


@partial(in_tensor_words, tensors_of=_named)
def forward(setting: Setting, tensors: Sequence[torch.Tensor]) -> tuple[Any, ...]:
    """out, lse, row_max, row_sum in the computation's dtype; weights if asked for.

    Where nothing is kept for a backward, row_max and row_sum are None, and so is lse
    where it is not asked for.
    """
    found = functional.forward(
        *_call(setting, tensors),
        looks=setting.looks,
        lse=setting.kept or setting.lse,
        kept=setting.kept,
    )
    results = {name: torch.from_numpy(array) for name, array in found.items()}
    weights = (results["weights"],) if "weights" in results else ()
    return *map(results.get, RESULTS[:4]), *weights


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
    grad_weights = array_of("grad_weights", grads[2])
    if grad_weights is not None and grad_weights.any():  # nan is not zero
        raise NotImplementedError(
            "relpos.torch.attention: its weights have no gradient; expected a loss of "
            "out and lse alone (weights.detach() is a constant in it)"
        )
    if grads[0] is None and grads[1] is None:
        return tuple(
            torch.zeros_like(tensor, memory_format=torch.contiguous_format)
            for tensor in itertools.compress(tensors, wanted)
        )
    call, fire, edges = _call(setting, tensors)
    grad_out = array_of("grad_out", grads[0])
    grad_lse = array_of("grad_lse", grads[1])
    results = tuple(array_of("out", tensor) for tensor in kept)
    asked = zip(setting.names, tensors, wanted, strict=True)
    dtypes = {name: tensor.dtype for name, tensor, want in asked if want}
    found = functional.backward(
        call, grad_out, grad_lse, results, [*dtypes], fire, edges
    )
    return tuple(
        tensor_of(getattr(found, name), dtype) for name, dtype in dtypes.items()
    )


def _call(setting: Setting, tensors: Sequence[torch.Tensor]) -> tuple[Any, Any, Any]:
    """Return the call as relpos takes it, FIRE's network and the graph."""
    arrays = {
        name: array_of(shown(name), tensor)
        for name, tensor in zip(setting.names, tensors, strict=True)
    }
    values = setting.values
    if values.get("num_threads") is None:
        values = {**values, "num_threads": torch.get_num_threads()}
    if "rng" in arrays:
        arrays["rng"] = int(arrays["rng"])
    fire = edges = None
    if setting.fire is not None:
        numbers = setting.fire
        network = {name: arrays.pop(name, numbers.get(name)) for name in NAMES}
        fire = as_fire(network, numbers["signed"], numbers["eps"])
    if setting.graph is not None:
        given = {name: arrays.pop(tensor, None) for name, tensor in GRAPH.items()}
        edges = Edges(**{**given, **setting.graph})
    if next(iter(LABELS)) in arrays:
        rows = [arrays.pop(name, None) for name in LABELS]
        arrays["labels"] = tuple(row for row in rows if row is not None)
    return DEFAULTS | arrays | values, fire, edges


def shown(name: str) -> str:
    """Return the name of an argument as its caller knows it."""
    return name.removeprefix("edge_")
