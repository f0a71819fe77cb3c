"""The keys that an indexer picks for each query, on tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import relpos
from relpos._checks import POSITION_LIMIT, as_int
from relpos._twins import TENSORS, twin
from relpos.torch._functions import TensorFunction

__all__ = ["indexer_top_k"]


def _shape(
    query: Tensor, key: Tensor, weights: Tensor, k: int, **rules: Any
) -> tuple[int, ...]:
    """Return the shape of the result of operands that fit."""
    # what each operand has behind the batch axes
    axes = {"key_ranges": 2, "attn_mask": 2, "query_offset": 0, "key_lengths": 0}
    batches = [query.shape[:-3], key.shape[:-2], weights.shape[:-2]]
    for name, count in axes.items():
        if rules[name] is not None:
            batches.append(rules[name].shape[: max(0, rules[name].dim() - count)])
    batch = torch.broadcast_shapes(*batches)
    return *batch, query.shape[-2], min(k, key.shape[-2])


_INDEXER = TensorFunction(
    "indexer_top_k",
    "Tensor query, Tensor key, Tensor weights, Tensor? query_offset, "
    "Tensor? key_ranges, Tensor? key_lengths, Tensor? attn_mask, SymInt k, "
    "bool is_causal, int? num_threads",
    relpos.indexer_top_k,
    _shape,
    dtype=torch.int32,
    leads={
        "query": 3,
        "key": 1,
        "weights": 1,
        "query_offset": 3,
        "key_ranges": 1,
        "key_lengths": 3,
        "attn_mask": 1,
    },
    short="key",
)


def _as_tensor(name: str, value: Tensor | int | None) -> Tensor | None:
    """Return an integer of all batch items as a tensor."""
    if value is None or isinstance(value, Tensor):
        return value
    return torch.tensor(as_int(name, value, 1 - POSITION_LIMIT, POSITION_LIMIT - 1))


@twin(relpos.indexer_top_k, TENSORS)
def indexer_top_k(
    query: Tensor,
    key: Tensor,
    weights: Tensor,
    k: int,
    *,
    is_causal: bool = False,
    query_offset: Tensor | int | None = None,
    key_ranges: Tensor | None = None,
    key_lengths: Tensor | int | None = None,
    attn_mask: Tensor | None = None,
    num_threads: int | None = None,
) -> Tensor:
    """Pick the keys of the k largest scores of an indexer, for each query.

    Parameters
    ----------
    query, key, weights, k : as in `relpos.indexer_top_k`
        Rows (..., Hi, Lq, D), (..., Lk, D), factors (..., Hi, Lq), and how many keys.
    is_causal, query_offset, key_ranges, key_lengths : as in `relpos.indexer_top_k`
        Which keys a query sees.
    attn_mask : as in `relpos.indexer_top_k`
        Of bool, or numbers that are added.
    num_threads : int, optional
        Default `torch.get_num_threads()`, at each call.

    Returns
    -------
    Tensor of int32, (..., Lq, min(k, Lk))
        The keys of each query by falling score, and among equal scores by their number.
        Keys whose score is NaN come after all others. Where a query sees fewer keys,
        -1 follows. It has no gradient.

    Raises
    ------
    ValueError
        A tensor requires a gradient: pass ``query.detach()``.

    Examples
    --------
    >>> import torch
    >>> import relpos.torch
    >>> key = torch.tensor([[3.0], [4.0], [2.0]])
    >>> weights = torch.ones(1, 3)
    >>> relpos.torch.indexer_top_k(key[None], key, weights, 2, is_causal=True)
    tensor([[ 0, -1],
            [ 1,  0],
            [ 1,  0]], dtype=torch.int32)
    """
    return _INDEXER(
        query=query,
        key=key,
        weights=weights,
        query_offset=_as_tensor("query_offset", query_offset),
        key_ranges=key_ranges,
        key_lengths=_as_tensor("key_lengths", key_lengths),
        attn_mask=attn_mask,
        k=k,
        is_causal=is_causal,
        num_threads=num_threads,
    )
