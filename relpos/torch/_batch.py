"""Calls under `torch.vmap`: one call with a leading batch axis, or one for each item.

Operands of attention have batch axes, which broadcast, so that a new one comes first.
As it has to be aligned with the others', the axes that an operand lacks are put in
behind it. Operands without batch axes (sinks, buckets, FIRE's parameters, a graph) take
a call for each item, and so does dropout, whose pattern is that of a call. Of other
functions, `TensorFunction.leads` names the operands that take a leading axis.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from relpos._attention.operands import ROWS

#: Operands of attention with batch axes, and how many others they have at most.
AXES = {name: row.axes for name, row in ROWS.items() if name != "sinks"}

Dims = Sequence[int | None]


def over_items(
    call: Callable[[Sequence[Any]], Sequence[Tensor]],
    names: Sequence[str],
    axes: Mapping[str, int],
    tensors: Sequence[Any],
    dims: Dims,
    size: int,
    wanted: Sequence[bool] = (),
    *,
    repeated: bool = False,
) -> Sequence[Tensor]:
    """Return results with a leading axis, of one call or of one for each item.

    Operands called `names` are the last of `tensors`; those before them have all batch
    axes. `axes` has the operands that take a leading axis, and how many axes they have
    behind those of the batch. One call repeats the operands that are `wanted`, whose
    gradients it returns, and all of them if `repeated`.
    """
    count = len(tensors) - len(names)
    flags = wanted or [False] * len(names)
    own = [*zip(names, tensors[count:], dims[count:], flags, strict=True)]
    used = {name for name, _, dim, want in own if want or dim is not None}
    if "rng" in names or not used <= axes.keys():
        items = [call(_item(tensors, dims, index)) for index in range(size)]
        return [torch.stack(results) for results in zip(*items, strict=True)]
    rank = max(  # most batch axes of any operand, the new one apart
        tensor.dim() - (dim is not None) - axes[name]
        for name, tensor, dim, _ in own
        if name in axes and tensor is not None
    )
    led = [_moved(tensors[index], dims[index], size) for index in range(count)]
    for name, tensor, dim, _ in own:
        if name in used or (repeated and name in axes):
            tensor = _moved(tensor, dim, size)
            if tensor is not None:
                lacking = rank + axes[name] - (tensor.dim() - 1)
                tensor = tensor[(slice(None), *[None] * lacking)]
        led.append(tensor)
    found = call(led)
    if not wanted:
        return found
    shapes = [
        tensor.shape if dim is None else tensor.movedim(dim, 0).shape[1:]
        for _, tensor, dim, want in own
        if want
    ]
    return [x.reshape(size, *shape) for x, shape in zip(found, shapes, strict=True)]


def _moved(tensor: Tensor | None, dim: int | None, size: int) -> Tensor | None:
    """View a tensor with the new batch axis first, repeated where it has none."""
    if tensor is None:
        return None
    if dim is None:
        return tensor.expand(size, *tensor.shape)
    return tensor.movedim(dim, 0)


def _item(tensors: Sequence[Any], dims: Dims, index: int) -> list[Any]:
    """Return the tensors of one item."""
    return [
        tensor if tensor is None or dim is None else tensor.select(dim, index)
        for tensor, dim in zip(tensors, dims, strict=True)
    ]
