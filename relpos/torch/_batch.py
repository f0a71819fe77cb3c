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

#: Operands with batch axes, and how many others they have at most.
AXES = {name: row.axes for name, row in ROWS.items() if name != "sinks"}

Dims = Sequence[int | None]


def loops(
    names: Sequence[str], dims: Dims, wanted: Sequence[bool] | None = None
) -> bool:
    """Whether a call for each item is needed: by what is batched, or differentiated."""
    wanted = wanted or [False] * len(names)
    asked = zip(names, dims, wanted, strict=True)
    return "rng" in names or any(
        name not in AXES and (dim is not None or want) for name, dim, want in asked
    )


def rank_of(names: Sequence[str], tensors: Sequence[torch.Tensor], dims: Dims) -> int:
    """Most batch axes of any operand, the new one apart."""
    return max(
        tensor.dim() - (dim is not None) - AXES[name]
        for name, tensor, dim in zip(names, tensors, dims, strict=True)
        if name in AXES
    )


def leading(tensor: torch.Tensor, dim: int | None, size: int) -> torch.Tensor:
    """View `tensor` with the new batch axis first, repeated where it has none."""
    if dim is None:
        return tensor.expand(size, *tensor.shape)
    return tensor.movedim(dim, 0)


def aligned(
    names: Sequence[str],
    tensors: Sequence[torch.Tensor],
    dims: Dims,
    size: int,
    wanted: Sequence[bool] | None = None,
) -> list[torch.Tensor]:
    """Operands of the one call; those that are differentiated are repeated as well."""
    rank = rank_of(names, tensors, dims)
    wanted = wanted or [False] * len(names)
    operands = []
    for name, tensor, dim, want in zip(names, tensors, dims, wanted, strict=True):
        if dim is not None or want:
            tensor = leading(tensor, dim, size)
            lacking = rank + AXES[name] - (tensor.dim() - 1)
            tensor = tensor[(slice(None), *[None] * lacking)]
        operands.append(tensor)
    return operands


def each(
    call: Callable[..., Sequence[torch.Tensor]],
    size: int,
    tensors: Sequence[torch.Tensor | None],
    dims: Dims,
) -> list[torch.Tensor]:
    """Results of a call for each item, stacked."""
    items = [
        call(
            *(
                tensor if tensor is None or dim is None else tensor.select(dim, item)
                for tensor, dim in zip(tensors, dims, strict=True)
            )
        )
        for item in range(size)
    ]
    return [torch.stack(results) for results in zip(*items, strict=True)]


def one(tensors: Sequence[Any], dims: Dims, size: int) -> list[Any]:
    """Gradients and results, which have every batch axis, with the new one first."""
    return [
        tensor if tensor is None else leading(tensor, dim, size)
        for tensor, dim in zip(tensors, dims, strict=True)
    ]


def unaligned(
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
