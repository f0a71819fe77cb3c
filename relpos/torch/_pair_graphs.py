"""Graphs of the operators that a function of pairs calls, made quicker.

PyTorch's indexing by several tensors takes five times as long as an `index_select` of
the elements, and each gradient of an indexed tensor fills an array of its size.
"""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

INDICES = torch.int8, torch.int16, torch.int32, torch.int64
#: Number of elements that int32 counts.
_MOST_ELEMENTS = 2**31 - 1


def improve(graph: Any, last: Any, copies: Sequence[Tensor]) -> list[int]:
    """Replace operators of a graph by quicker ones; return the numbers of totals.

    Parameters
    ----------
    graph : torch.fx.Graph
        Operators of one call.
    last : torch.fx.Node
        Its last input, behind which those for totals are put.
    copies : sequence of Tensor
        The captured tensors of which the graph of a backward returns the gradients.
    """
    if any(_changes_memory(node) for node in graph.nodes):
        return []
    _leave_out_sums(graph)
    totals = _add_in_place(graph, last, copies)
    graph.eliminate_dead_code()
    _index_by_elements(graph)
    return totals


def forget_text(module: Any) -> None:
    """Remove the Python text of a graph, which PyTorch keeps for tracebacks for ever.

    A training would gather the texts of all its calls.
    """
    name = module.forward.__code__.co_filename
    linecache.cache.pop(name, None)
    # a private name: a PyTorch without it keeps no text, or keeps it elsewhere
    loader = getattr(torch.fx.graph_module, "_loader", None)
    getattr(loader, "eval_cache", {}).pop(name, None)


def is_constant(node: Any) -> bool:
    """Return True for a number in the text of a function, which nobody can change."""
    return all(
        getattr(user.target, "_opname", "") == "lift_fresh_copy" for user in node.users
    )


def _changes_memory(node: Any) -> bool:
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def _leave_out_sums(graph: Any) -> None:
    """Leave out sums over axes of one number, each of which would copy a block."""
    for node in [*graph.nodes]:
        if node.target is not torch.ops.aten.sum.dim_IntList or len(node.args) != 3:
            continue
        summed, axes, keeps = node.args
        value = summed.meta.get("val")
        if not (keeps and axes and isinstance(value, Tensor) and not node.kwargs):
            continue
        # sums of integers and of bool are int64
        is_same = node.meta["val"].dtype is value.dtype
        if is_same and all(value.shape[axis] == 1 for axis in axes):
            node.replace_all_uses_with(summed)
            graph.erase_node(node)


def _add_in_place(graph: Any, last: Any, copies: Sequence[Tensor]) -> list[int]:
    """Let gradients of what is indexed be added to their totals where they are made.

    Otherwise each block would fill an array of the size of the captured tensor. Inputs
    for totals are put behind `last`. Returned are the numbers of the totals.
    """
    totals = []
    (output,) = [node for node in graph.nodes if node.op == "output"]
    results = output.args[0]
    for place, copy in enumerate(copies):
        made = results[1 + place]
        if getattr(made, "target", None) is not torch.ops.aten.index_put.default:
            continue
        zeros, indices, values, *adds = made.args
        is_zeros = zeros.target is torch.ops.aten.new_zeros.default
        is_alone = len(made.users) == len(zeros.users) == 1 and results.count(made) == 1
        value = values.meta.get("val")
        if not (is_zeros and is_alone and adds == [True] and not made.kwargs):
            continue
        if value is None or value.dtype != copy.dtype or copy.dtype.itemsize == 2:
            continue
        with graph.inserting_after(last):
            last = graph.placeholder(f"total_{place}")
        with graph.inserting_before(made):
            target = torch.ops.aten.index_put_.default
            graph.call_function(target, (last, indices, values, True))
        results = [*results[: 1 + place], None, *results[2 + place :]]
        totals.append(place)
    output.args = (results,)
    return totals


# ---- indexing ------------------------------------------------------------------------


def _index_by_elements(graph: Any) -> None:
    """Replace PyTorch's operators of indexing by the functions below."""
    for node in [*graph.nodes]:
        if node.target is torch.ops.aten.index.Tensor:
            node.target = _indexed
        elif node.target is torch.ops.aten.index_put_.default:
            total, indices, values, accumulates = node.args
            assert accumulates  # `_add_in_place` wrote it
            node.target, node.args = _add_indexed, (total, indices, values)


def _indexed(tensor: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Return ``tensor[indices]``."""
    elements = _elements(tensor, indices)
    if elements is None:
        return torch.ops.aten.index(tensor, indices)
    return tensor.view(-1).index_select(0, elements.reshape(-1)).view(elements.shape)


def _add_indexed(
    total: Tensor, indices: Sequence[Tensor | None], values: Tensor
) -> None:
    """Add values to ``total[indices]``, to one element as often as it is named."""
    elements = _elements(total, indices)
    if elements is None:
        torch.ops.aten.index_put_(total, indices, values, True)
        return
    values = values.expand(elements.shape).reshape(-1)
    total.view(-1).index_add_(0, elements.reshape(-1), values)


def _elements(tensor: Tensor, indices: Sequence[Tensor | None]) -> Tensor | None:
    """Return the numbers of the elements that are indexed, in the order of memory.

    None says that PyTorch's own operator is to be called: of a negative index, of one
    that is out of bounds, of one that leaves out an axis, and of other tensors than
    contiguous ones whose elements int32 counts.
    """
    count = tensor.numel()
    if len(indices) != tensor.dim() or not tensor.is_contiguous():
        return None
    if not 0 < count <= _MOST_ELEMENTS:
        return None
    elements = None
    for index, size, step in zip(indices, tensor.shape, tensor.stride(), strict=True):
        if index is None or index.dtype not in INDICES or not index.numel():
            return None
        low, high = index.aminmax()
        if low < 0 or high >= size:
            return None
        own = index.to(torch.int32) * step if step != 1 else index.to(torch.int32)
        elements = own if elements is None else elements + own
    return elements
