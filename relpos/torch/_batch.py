"""Calls under `torch.vmap`: one call with a leading batch axis, or one for each item.

Every operand but a few has batch axes, which broadcast, so that a new one comes first.
As it has to be aligned with the others', the axes that an operand lacks are put in
behind it. What has no batch axes at all (sinks, buckets, FIRE's parameters, a graph)
takes a call for each item, and so does dropout, whose pattern is drawn for a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from relpos._attention.operands import ROWS

#: Gradients and results before the operands of a backward: they have all batch axes.
OTHERS = 6

#: Operands with batch axes, and how many others they have at most.
AXES = {name: row.axes for name, row in ROWS.items() if name != "sinks"}

Dims = Sequence[int | None]


def forward(
    call: Callable[[Sequence[torch.Tensor]], Sequence[torch.Tensor]],
    names: Sequence[str],
    tensors: Sequence[torch.Tensor],
    dims: Dims,
    size: int,
) -> Sequence[torch.Tensor]:
    """Results with a leading axis, of a call of operands or of `size` calls."""
    if _loops(names, dims):
        return _each(call, size, tensors, dims)
    return call(_aligned(names, tensors, dims, size, [False] * len(names)))


def backward(
    call: Callable[[Sequence[Any]], Sequence[torch.Tensor]],
    names: Sequence[str],
    wanted: Sequence[bool],
    tensors: Sequence[Any],
    dims: Dims,
    size: int,
) -> Sequence[torch.Tensor]:
    """Gradients with a leading axis; `tensors` are `OTHERS` others, then operands."""
    operands, own = tensors[OTHERS:], dims[OTHERS:]
    if _loops(names, own, wanted):
        return _each(call, size, tensors, dims)
    rows = [
        tensor if tensor is None else _leading(tensor, dim, size)
        for tensor, dim in zip(tensors[:OTHERS], dims[:OTHERS], strict=True)
    ]
    grads = call([*rows, *_aligned(names, operands, own, size, wanted)])
    return _unaligned(grads, operands, own, wanted)


def _loops(names: Sequence[str], dims: Dims, wanted: Sequence[bool] = ()) -> bool:
    """Whether a call for each item is needed: by what is batched, or differentiated."""
    wanted = wanted or [False] * len(names)
    asked = zip(names, dims, wanted, strict=True)
    return "rng" in names or any(
        name not in AXES and (dim is not None or want) for name, dim, want in asked
    )


def _leading(tensor: torch.Tensor, dim: int | None, size: int) -> torch.Tensor:
    """View `tensor` with the new batch axis first, repeated where it has none."""
    if dim is None:
        return tensor.expand(size, *tensor.shape)
    return tensor.movedim(dim, 0)


def _aligned(
    names: Sequence[str],
    tensors: Sequence[torch.Tensor],
    dims: Dims,
    size: int,
    wanted: Sequence[bool],
) -> list[torch.Tensor]:
    """Operands of the one call; those that are differentiated are repeated as well."""
    rank = max(  # most batch axes of any operand, the new one apart
        tensor.dim() - (dim is not None) - AXES[name]
        for name, tensor, dim in zip(names, tensors, dims, strict=True)
        if name in AXES
    )
    operands = []
    for name, tensor, dim, want in zip(names, tensors, dims, wanted, strict=True):
        if dim is not None or want:
            tensor = _leading(tensor, dim, size)
            lacking = rank + AXES[name] - (tensor.dim() - 1)
            tensor = tensor[(slice(None), *[None] * lacking)]
        operands.append(tensor)
    return operands


def _each(
    call: Callable[[Sequence[Any]], Sequence[torch.Tensor]],
    size: int,
    tensors: Sequence[torch.Tensor | None],
    dims: Dims,
) -> list[torch.Tensor]:
    """Results of a call for each item, stacked."""
    items = [
        call(
            [
                tensor if tensor is None or dim is None else tensor.select(dim, item)
                for tensor, dim in zip(tensors, dims, strict=True)
            ]
        )
        for item in range(size)
    ]
    return [torch.stack(results) for results in zip(*items, strict=True)]


def _unaligned(
    grads: Sequence[torch.Tensor],
    tensors: Sequence[torch.Tensor],
    dims: Dims,
    wanted: Sequence[bool],
) -> list[torch.Tensor]:
    """Gradients of `aligned` operands in the shapes of what was aligned."""
    shapes = [
        tensor.shape if dim is None else tensor.movedim(dim, 0).shape[1:]
        for tensor, dim, want in zip(tensors, dims, wanted, strict=True)
        if want
    ]
    return [
        grad.reshape(len(grad), *shape)
        for grad, shape in zip(grads, shapes, strict=True)
    ]
