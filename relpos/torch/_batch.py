"""Calls under `torch.vmap`: one call with a leading batch axis, or one for each item.

Operands of attention have batch axes, which broadcast, so that a new one comes first.
As it has to be aligned with the others', the axes that an operand lacks are put in
behind it. Operands without batch axes (sinks, buckets, FIRE's parameters, a graph) take
a call for each item, and so does dropout, whose pattern is that of a call. Of other
functions, `TensorFunction.leads` names the operands that take a leading axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from relpos._attention.operands import ROWS

#: Gradients and results before the operands of a backward: they have all batch axes.
OTHERS = 6

#: Operands with batch axes, and how many others they have at most.
AXES = {name: row.axes for name, row in ROWS.items() if name != "sinks"}

Dims = Sequence[int | None]


def moved(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """View a tensor with the new batch axis first, repeated where it has none."""
    if dim is None:
        return tensor.expand(size, *tensor.shape)
    return tensor.movedim(dim, 0)


def item(values: Sequence[Any], dims: Dims, index: int) -> list[Any]:
    """Return the values of one item; those after `dims` have no batch axis."""
    own = [
        value if value is None or dim is None else value.select(dim, index)
        for value, dim in zip(values, dims, strict=False)
    ]
    return [*own, *values[len(own) :]]


# ---- attention -----------------------------------------------------------------------


def forward(
    call: Callable[[Sequence[Tensor]], Sequence[Tensor]],
    names: Sequence[str],
    tensors: Sequence[Tensor],
    dims: Dims,
    size: int,
) -> Sequence[Tensor]:
    """Return results with a leading axis, of one call or of one for each item."""
    if _loops(names, dims):
        return _each(call, size, tensors, dims)
    return call(_aligned(names, tensors, dims, size, [False] * len(names)))


def backward(
    call: Callable[[Sequence[Any]], Sequence[Tensor]],
    names: Sequence[str],
    wanted: Sequence[bool],
    tensors: Sequence[Any],
    dims: Dims,
    size: int,
) -> Sequence[Tensor]:
    """Return gradients with a leading axis.

    `tensors` are `OTHERS` others, then the operands.
    """
    operands, own = tensors[OTHERS:], dims[OTHERS:]
    if _loops(names, own, wanted):
        return _each(call, size, tensors, dims)
    rows = [
        tensor if tensor is None else moved(tensor, dim, size)
        for tensor, dim in zip(tensors[:OTHERS], dims[:OTHERS], strict=True)
    ]
    grads = call([*rows, *_aligned(names, operands, own, size, wanted)])
    shapes = [
        tensor.shape if dim is None else tensor.movedim(dim, 0).shape[1:]
        for tensor, dim, want in zip(operands, own, wanted, strict=True)
        if want
    ]
    return [
        grad.reshape(len(grad), *shape)
        for grad, shape in zip(grads, shapes, strict=True)
    ]


def _loops(names: Sequence[str], dims: Dims, wanted: Sequence[bool] = ()) -> bool:
    """Return True where some operand, batched or differentiated, has no batch axes."""
    wanted = wanted or [False] * len(names)
    asked = zip(names, dims, wanted, strict=True)
    return "rng" in names or any(
        name not in AXES and (dim is not None or want) for name, dim, want in asked
    )


def _aligned(
    names: Sequence[str],
    tensors: Sequence[Tensor],
    dims: Dims,
    size: int,
    wanted: Sequence[bool],
) -> list[Tensor]:
    """Return operands of one call; those that are differentiated are repeated too."""
    rank = max(  # most batch axes of any operand, the new one apart
        tensor.dim() - (dim is not None) - AXES[name]
        for name, tensor, dim in zip(names, tensors, dims, strict=True)
        if name in AXES
    )
    operands = []
    for name, tensor, dim, want in zip(names, tensors, dims, wanted, strict=True):
        if dim is not None or want:
            tensor = moved(tensor, dim, size)
            lacking = rank + AXES[name] - (tensor.dim() - 1)
            tensor = tensor[(slice(None), *[None] * lacking)]
        operands.append(tensor)
    return operands


def _each(
    call: Callable[[Sequence[Any]], Sequence[Tensor]],
    size: int,
    tensors: Sequence[Tensor | None],
    dims: Dims,
) -> list[Tensor]:
    """Return the results of a call for each item, stacked."""
    items = [call(item(tensors, dims, index)) for index in range(size)]
    return [torch.stack(results) for results in zip(*items, strict=True)]


# ---- other functions -----------------------------------------------------------------


class Batch:
    """The arguments of a function under `vmap`: one call for all items, or one each."""

    def __init__(
        self, function: Any, size: int, in_dims: Any, args: Sequence[Any]
    ) -> None:
        self.function, self.size = function, size
        # those of a setting that is a list are a list
        self.in_dims = in_dims[: len(function.operands)]
        self.args = args

    def mapped(self, call: Callable[..., Tensor]) -> Tensor:
        """Return the results of all items along the first axis."""
        if self.leads():
            return call(*self.led())
        items = (item(self.args, self.in_dims, i) for i in range(self.size))
        return torch.stack([call(*args) for args in items])

    def mapped_back(
        self,
        call: Callable[..., Sequence[Tensor]],
        wanted: Sequence[bool],
        grad: Tensor,
        dim: int | None,
    ) -> list[Tensor]:
        """Return the gradients that are wanted, of all items along the first axis."""
        grads = moved(grad, dim, self.size)
        if self.leads(wanted):
            return [*call(grads, *self.led())]
        each = (item(self.args, self.in_dims, i) for i in range(self.size))
        items = [call(one, *args) for one, args in zip(grads, each, strict=True)]
        return [torch.stack(parts) for parts in zip(*items, strict=True)]

    def leads(self, wanted: Sequence[bool] = ()) -> bool:
        """Return True where all that is batched, or wanted, takes a leading axis."""
        batched = [dim is not None for dim in self.in_dims]
        names = self.function.operands
        used = [*zip(names, batched, strict=False), *zip(names, wanted, strict=False)]
        return all(name in self.function.leads for name, use in used if use)

    def led(self) -> list[Any]:
        """Return the arguments with the axis first, of ranks that broadcast."""
        lacks, led = self.function.leads, list(self.args)
        first = self.function.operands.index(next(iter(lacks)))
        rank = self.args[first].dim() - (self.in_dims[first] is not None)
        for index, name in enumerate(self.function.operands):
            if name in lacks and led[index] is not None:
                at_front = moved(led[index], self.in_dims[index], self.size)
                ones = (1,) * (rank - lacks[name] - at_front.dim() + 1)
                led[index] = at_front.reshape(self.size, *ones, *at_front.shape[1:])
        return led
