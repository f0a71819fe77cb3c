"""Rows of the catalogue in eager torch with autograd, as models write them.

The formula of `attention` uses methods of tensors, so that this file can be imported
without torch. Integers are NumPy's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from relpos import reference
from relpos._catalogue.rows import Row
from relpos._checks import Array

Tensor = Any


def indices(like: Tensor, array: Any) -> Tensor:
    """NumPy integers as a tensor for indexing."""
    # new_tensor needs no import of torch, and keeps the device.
    return like.new_tensor(np.asarray(array)).long()


def rows_of(
    r: Array, first: int | None, buckets: Array | None, labels: Any, count: int
) -> list[Array]:
    """The row for each pair of a table of so many, once for each array of labels."""
    if labels is not None:
        several = labels if isinstance(labels, tuple) else (labels,)
        return [np.maximum(label, 0) for label in several]
    entries = count if buckets is None else len(buckets)
    first = -(entries // 2) if first is None else first
    row = np.clip(r - first, 0, entries - 1)
    return [row if buckets is None else np.asarray(buckets)[row]]


def looked_up(by_row: Tensor, rows: list[Array]) -> Tensor:
    """Gather scores of rows (..., H, Lq, R) for each pair (..., H, Lq, Lk)."""
    # gather wants an index with all axes of the scores, and has to have one for each
    # head.
    return sum(by_row.gather(-1, expanded(by_row, row)) for row in rows)


def expanded(like: Tensor, row: Array) -> Tensor:
    """An index of pairs for all heads."""
    return indices(like, row).expand(*like.shape[:-2], *row.shape)


def products(
    query: Tensor,
    key: Tensor,
    rows: Callable[[int], list[Array]],
    scale: float,
    rel_key: Tensor = None,
    rel_query: Tensor = None,
    pos_bias_u: Tensor = 0.0,
    pos_bias_v: Tensor = 0.0,
    position_query: Tensor = None,
) -> Tensor:
    """scale . [(q + u) k + (q + v) A + k C], or (e + v) A for a position query e."""
    scores = (query + pos_bias_u) @ key.mT
    unscaled = 0.0
    if rel_key is not None:
        asking = query if position_query is None else position_query
        by_row = (asking + pos_bias_v) @ rel_key.mT
        term = looked_up(by_row, rows(rel_key.shape[-2]))
        if position_query is None:
            scores = scores + term
        else:
            unscaled = term
    if rel_query is not None:
        # The row of a pair is given for (query, key), and these scores are (key, row):
        # both are transposed, and the term is transposed back.
        of_keys = [row.T for row in rows(rel_query.shape[-2])]
        scores = scores + looked_up(key @ rel_query.mT, of_keys).mT
    return scale * scores + unscaled


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    visible: Array | None = None,
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
    """Attention of one length, (..., H, L, D); `bias` and `visible` are of pairs."""
    r = np.arange(key.shape[-2]) - np.arange(query.shape[-2])[:, None]
    rows = partial(rows_of, r, min_relative_position, buckets, labels)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = products(query, key, rows, scale, **tables)
    # The order is that of the formula: the cap comes before all that is added, and the
    # mask is last.
    if softcap is not None:
        scores = softcap * (scores / softcap).tanh()
    if rel_bias is not None:
        by_row = rel_bias[..., None, :].expand(*scores.shape[:-1], -1)
        scores = scores + looked_up(by_row, rows(rel_bias.shape[-1]))
    if bias is not None:
        scores = scores + bias
    if log_decay is not None:
        # The sum of the decays between two positions is a difference of sums from the
        # first.
        total = log_decay.cumsum(-1)
        scores = scores + total[..., :, None] - total[..., None, :]
    hidden = (r > 0) if is_causal else np.zeros(r.shape, bool)
    hidden = hidden if visible is None else hidden | ~visible
    scores = scores.masked_fill(indices(scores, hidden).bool(), -float("inf"))
    weights = softmax(scores, sinks)
    out = weights @ value
    if rel_value is not None:
        for row in rows(rel_value.shape[-2]):
            # The weights of each row of the table are summed first, so that its values
            # are multiplied once.
            sums = weights.new_zeros(*weights.shape[:-1], rel_value.shape[-2])
            index = expanded(weights, row)
            out = out + sums.scatter_add(-1, index, weights) @ rel_value
    return out


def softmax(scores: Tensor, sinks: Tensor) -> Tensor:
    """Weights of the keys; the sum includes the sinks (H,)."""
    if sinks is None:
        return scores.softmax(-1)
    # The largest score cancels in the quotient, and so needs no gradient.
    top = scores.detach().amax(-1, keepdim=True)
    parts = (scores - top).exp()
    return parts / (parts.sum(-1, keepdim=True) + (sinks[:, None, None] - top).exp())


# ---- rows ----------------------------------------------------------------------------


def rotated(x: Tensor) -> Tensor:
    """Rotate columns c and c + D / 2 by n / 10000^(2c / D)."""
    length, dim = x.shape[-2:]
    exponents = np.arange(0, dim, 2) / dim
    angles = x.new_tensor(np.arange(length)[:, None] * 10000.0**-exponents)
    a, b = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return sys.modules["torch"].cat([a * cos - b * sin, b * cos + a * sin], -1)


def music(rel_key: Tensor, **tokens: Tensor) -> Tensor:
    """Attend to the past; the last row of the table is that of distance 0."""
    first = 1 - rel_key.shape[-2]
    return attention(
        **tokens, rel_key=rel_key, is_causal=True, min_relative_position=first
    )


def fire(query: Tensor, key: Tensor, value: Tensor, **network: Tensor) -> Tensor:
    """Add the network's output to the scores."""
    bias = reference.fire_bias(**network, query_length=query.shape[-2])
    return attention(query, key, value, bias=bias)


def graph(indptr: Any, indices: Any, labels: Any, **inputs: Tensor) -> Tensor:
    """Attend to all pairs; hide those without an edge."""
    length = inputs["key"].shape[-2]
    visible = np.zeros((len(indptr) - 1, length), bool)
    of_pairs = np.zeros(visible.shape, int)
    queries = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    visible[queries, indices] = True
    of_pairs[queries, indices] = labels
    return attention(**inputs, visible=visible, labels=of_pairs)


def convolution(x: Tensor, weight: Tensor, bias: Tensor, grid: tuple[int, int]) -> Any:
    """Add a depthwise convolution over the grid to the tokens."""
    channels = x.shape[-1]
    # conv2d takes (1, channels, rows, columns), and tokens are (L, channels), row by
    # row.
    cells = x.T.reshape(1, channels, *grid)
    conv = sys.modules["torch"].nn.functional.conv2d
    around = weight.shape[-1] // 2
    moved = conv(cells, weight[:, None], bias, padding=around, groups=channels)
    return x + moved.reshape(channels, -1).T


OWN: dict[str, Callable[..., Tensor]] = {
    "attention": attention,
    "shaw_attention": attention,
    "transformer_xl_attention": attention,
    "relative_global_attention": music,
    "graph_attention": graph,
    "fire_attention": fire,
    "conv_encoding": convolution,
    "apply_rotary": rotated,
}
#: The definitions, but for these functions.
EAGER: Any = SimpleNamespace(**(vars(reference) | OWN))


def form_of(row: Row) -> Callable[..., Tensor] | None:
    """Return the definition of a row with functions of eager torch, if it has any."""
    # A partial of a partial is one partial, so that `func` and `args` are there in any
    # case.
    call = partial(row.reference)
    if call.args:  # the module of a row that is composed of calls
        return partial(call.func, EAGER)
    form = OWN.get(call.func.__name__)
    return partial(form, **call.keywords) if form else None
