"""The formula of `attention` in eager expressions of torch, with autograd.

Written with methods of tensors, so that this file can be read where there is no torch.
What is integer is NumPy's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relpos._checks import Array

__all__ = ["attention", "constant", "indices"]

Tensor = Any


def constant(like: Tensor, array: Any) -> Tensor:
    """Numbers of NumPy as a tensor of the dtype of another."""
    return like.new_tensor(np.asarray(array, np.float64))


def indices(like: Tensor, array: Any) -> Tensor:
    """Integers of NumPy as a tensor that can be an index."""
    return like.new_tensor(np.asarray(array)).long()


def relative(query: Tensor, key: Tensor) -> Array:
    """Key minus query, of lengths that are the same."""
    return np.arange(key.shape[-2]) - np.arange(query.shape[-2])[:, None]


def rows_of(
    r: Array, count: int, first: int | None, buckets: Array | None, labels: Any
) -> list[Array]:
    """The rows that each pair has of a table."""
    if labels is not None:
        several = labels if isinstance(labels, tuple) else (labels,)
        return [np.maximum(label, 0) for label in several]
    entries = count if buckets is None else len(buckets)
    first = -(entries // 2) if first is None else first
    row = np.clip(r - first, 0, entries - 1)
    return [row if buckets is None else np.asarray(buckets)[row]]


def looked_up(by_row: Tensor, rows: list[Array]) -> Tensor:
    """Of a number for each query and row (..., H, Lq, R), that of each pair."""
    batch = by_row.shape[:-2]
    found = (by_row.gather(-1, _wide(by_row, row, batch)) for row in rows)
    return sum(found)


def _wide(like: Tensor, row: Array, batch: Any) -> Tensor:
    """An index of pairs for all heads."""
    return indices(like, row).expand(*batch, *row.shape)


def products(
    query: Tensor,
    key: Tensor,
    r: Array,
    scale: float,
    placing: tuple[Any, ...],
    rel_key: Tensor = None,
    rel_query: Tensor = None,
    pos_bias_u: Tensor = 0.0,
    pos_bias_v: Tensor = 0.0,
    position_query: Tensor = None,
) -> Tensor:
    """scale . [(q + u) k + (q + v) A + k C], or the position query's (e + v) A."""
    scores = (query + pos_bias_u) @ key.mT
    own = 0.0
    if rel_key is not None:
        rows = rows_of(r, rel_key.shape[-2], *placing)
        asking = query if position_query is None else position_query
        term = looked_up((asking + pos_bias_v) @ rel_key.mT, rows)
        if position_query is None:
            scores = scores + term
        else:
            own = term
    if rel_query is not None:
        rows = [row.T for row in rows_of(r, rel_query.shape[-2], *placing)]
        scores = scores + looked_up(key @ rel_query.mT, rows).mT
    return scale * scores + own


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    seen: Array | None = None,
    bias: Tensor = None,
    rel_bias: Tensor = None,
    rel_value: Tensor = None,
    softcap: float | None = None,
    sinks: Tensor = None,
    log_decay: Tensor = None,
    min_relative_position: int | None = None,
    buckets: Array | None = None,
    labels: Any = None,
    **tables: Tensor,
) -> Tensor:
    """Outputs (..., H, L, D) of one length; `bias` is of pairs, and `seen` of them."""
    r = relative(query, key)
    placing = (min_relative_position, buckets, labels)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = products(query, key, r, scale, placing, **tables)
    if softcap is not None:
        scores = softcap * (scores / softcap).tanh()
    if rel_bias is not None:
        rows = rows_of(r, rel_bias.shape[-1], *placing)
        by_row = rel_bias[..., None, :].expand(*scores.shape[:-1], -1)
        scores = scores + looked_up(by_row, rows)
    if bias is not None:
        scores = scores + bias
    if log_decay is not None:
        total = log_decay.cumsum(-1)
        scores = scores + total[..., :, None] - total[..., None, :]
    hidden = (r > 0) if is_causal else np.zeros(r.shape, bool)
    hidden = hidden if seen is None else hidden | ~seen
    scores = scores.masked_fill(indices(scores, hidden).bool(), -float("inf"))
    weights = softmax(scores, sinks)
    out = weights @ value
    if rel_value is not None:
        for row in rows_of(r, rel_value.shape[-2], *placing):
            sums = weights.new_zeros(*weights.shape[:-1], rel_value.shape[-2])
            index = _wide(weights, row, weights.shape[:-2])
            out = out + sums.scatter_add(-1, index, weights) @ rel_value
    return out


def softmax(scores: Tensor, sinks: Tensor) -> Tensor:
    """Weights of the keys; sinks (H,) take part in the sum."""
    if sinks is None:
        return scores.softmax(-1)
    top = scores.detach().amax(-1, keepdim=True)
    parts = (scores - top).exp()
    return parts / (parts.sum(-1, keepdim=True) + (sinks[:, None, None] - top).exp())
