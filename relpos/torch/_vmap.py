"""`vmap` of a function of tensors: one call for all items where it can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


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
        return torch.stack([call(*self.item(i)) for i in range(self.size)])

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
        items = [call(grads[i], *self.item(i)) for i in range(self.size)]
        return [torch.stack(parts) for parts in zip(*items, strict=True)]

    def leads(self, wanted: Sequence[bool] = ()) -> bool:
        """Whether all that is batched, or wanted, takes a leading axis."""
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

    def item(self, index: int) -> list[Any]:
        """Return the arguments of one item."""
        operands = [
            arg if dim is None else arg.select(dim, index)
            for arg, dim in zip(self.args, self.in_dims, strict=False)
        ]
        return [*operands, *self.args[len(operands) :]]


def moved(tensor: Tensor, dim: int | None, size: int) -> Tensor:
    """Return a tensor with the axis of the batch first."""
    if dim is None:
        return tensor.expand(size, *tensor.shape)
    return tensor.movedim(dim, 0)
