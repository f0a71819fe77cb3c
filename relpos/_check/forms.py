"""Rows of the catalogue in eager torch, as models write them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from relpos import reference
from relpos._catalogue.row import Row
from relpos._check.eager import attention

__all__ = ["form_of"]

Tensor = Any


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
    cells = x.T.reshape(1, channels, *grid)
    conv = sys.modules["torch"].nn.functional.conv2d
    around = weight.shape[-1] // 2
    moved = conv(cells, weight[:, None], bias, padding=around, groups=channels)
    return x + moved.reshape(channels, -1).T


OWN: dict[str, Callable[..., Tensor]] = {
    **dict.fromkeys(("attention", "shaw_attention"), attention),
    "transformer_xl_attention": attention,
    "relative_global_attention": music,
    "graph_attention": graph,
    "fire_attention": fire,
    "conv_encoding": convolution,
    "apply_rotary": rotated,
}
#: The definitions, but for these functions.
EAGER: Any = SimpleNamespace(**{**vars(reference), **OWN})


def form_of(row: Row) -> Callable[..., Tensor] | None:
    """Return the definition of a row with functions of eager torch, if it has any."""
    call = partial(row.reference)
    if call.args:  # the module of a row that is composed of calls
        return partial(call.func, EAGER)
    form = OWN.get(call.func.__name__)
    return partial(form, **call.keywords) if form else None
