"""What each row of the catalogue is in eager torch, by the name of the row."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from relpos._check.eager import attention, constant

__all__ = ["FORMS"]

Tensor = Any


def tensor(array: Any) -> Tensor:
    """A tensor of float64."""
    return sys.modules["torch"].tensor(np.asarray(array, np.float64))


# ---- encodings -----------------------------------------------------------------------


def sinusoidal(positions: int, dim: int, layout: str) -> Tensor:
    """Sines and cosines of n / 10000^(2c / dim)."""
    exponents = tensor(np.arange(0, dim, 2)) / dim
    angles = tensor(np.arange(positions))[:, None] * 10000.0**-exponents
    parts = [angles.sin(), angles.cos()]
    torch = sys.modules["torch"]
    if layout == "concat":
        return torch.cat(parts, -1)
    return torch.stack(parts, -1).flatten(-2)


def index(length: int, dim: int) -> Tensor:
    """n in every column."""
    return tensor(np.arange(length))[:, None].expand(length, dim)


def normalized_index(length: int, dim: int) -> Tensor:
    """n / (length - 1) in every column."""
    return index(length, dim) / max(length - 1, 1)


def learned(table: Tensor, positions: Any) -> Tensor:
    """Rows of a table."""
    return table[sys.modules["torch"].from_numpy(positions)]


def convolution(x: Tensor, weight: Tensor, bias: Tensor, grid: tuple[int, int]) -> Any:
    """Tokens plus a depthwise convolution over their grid."""
    channels = x.shape[-1]
    cells = x.T.reshape(1, channels, *grid)
    conv = sys.modules["torch"].nn.functional.conv2d
    around = weight.shape[-1] // 2
    moved = conv(cells, weight[:, None], bias, padding=around, groups=channels)
    return x + moved.reshape(channels, -1).T


def turned(x: Tensor) -> Tensor:
    """Rotary: halves of the columns turned by n / 10000^(2c / D)."""
    length, dim = x.shape[-2:]
    frequencies = 10000.0 ** (-tensor(np.arange(0, dim, 2)) / dim)
    angles = tensor(np.arange(length))[:, None] * frequencies
    a, b = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return sys.modules["torch"].cat([a * cos - b * sin, b * cos + a * sin], -1)


def rotary(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Queries and keys turned, then attention."""
    return attention(turned(query), turned(key), value)


# ---- schemes -------------------------------------------------------------------------


def music(rel_key: Tensor, **tokens: Tensor) -> Tensor:
    """Causal, the last row that of distance 0."""
    first = 1 - rel_key.shape[-2]
    return attention(
        **tokens, rel_key=rel_key, is_causal=True, min_relative_position=first
    )


def distances(length: int) -> Any:
    """Relative positions of a centred table."""
    return np.arange(1 - length, length)


def alibi(slopes: Tensor, **tokens: Tensor) -> Tensor:
    """A slope times the distance."""
    r = constant(slopes, distances(tokens["key"].shape[-2]))
    return attention(**tokens, rel_bias=-slopes[:, None] * r.abs())


def t5(weight: Tensor, **tokens: Tensor) -> Tensor:
    """A weight for each bucket: half of them exact, then as the logarithm to 128."""
    r = distances(tokens["key"].shape[-2])
    half, far = weight.shape[0] // 2, 128
    exact, n = half // 2, np.abs(r)
    log = np.log(np.maximum(n, 1) / exact) / math.log(far / exact)
    large = np.minimum(exact + (log * (half - exact)).astype(int), half - 1)
    buckets = np.where(n < exact, n, large) + half * (r > 0)
    return attention(**tokens, rel_bias=weight.mT, buckets=buckets)


def kerple(r1: Tensor, r2: Tensor, **tokens: Tensor) -> Tensor:
    """-r1 log(1 + r2 |r|)."""
    r = constant(r1, distances(tokens["key"].shape[-2])).abs()
    bias = -r1[:, None] * (1 + r2[:, None] * r).log()
    return attention(**tokens, rel_bias=bias)


def deberta(pos_key: Tensor, pos_query: Tensor, **tokens: Tensor) -> Tensor:
    """Rows of query minus key, clipped to twice the span; three terms share a scale."""
    rows = pos_key.shape[-2]
    length, dim = tokens["key"].shape[-2:]
    labels = np.clip(-distances(length) + rows // 2, 0, rows - 1)
    return attention(
        **tokens,
        rel_key=pos_key,
        rel_query=pos_query,
        buckets=labels,
        scale=(3 * dim) ** -0.5,
    )


def fire(
    w1: Tensor,
    b1: Tensor,
    w2: Tensor,
    b2: Tensor,
    c: Tensor,
    threshold: Tensor,
    **tokens: Tensor,
) -> Tensor:
    """A network of the logarithm of the distance beside that of the position."""
    length = tokens["query"].shape[-2]
    i = constant(c, np.arange(length))[:, None]
    reach = sys.modules["torch"].maximum(i, threshold.abs())
    x = (1 + (c * (i - i.mT).abs()).abs()).log() / (
        (1 + (c * reach).abs()).log() + 1e-6
    )
    hidden = (x[..., None] * w1 + b1).relu()
    bias = (hidden @ w2.mT).permute(2, 0, 1) + b2[:, None, None]
    return attention(**tokens, bias=bias)


def graph(indptr: Any, indices: Any, labels: Any, **inputs: Tensor) -> Tensor:
    """All pairs, those without an edge hidden."""
    length = inputs["key"].shape[-2]
    seen = np.zeros((len(indptr) - 1, length), bool)
    of_pairs = np.zeros(seen.shape, int)
    queries = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    seen[queries, indices] = True
    of_pairs[queries, indices] = labels
    return attention(**inputs, seen=seen, labels=of_pairs)


causal = partial(attention, is_causal=True)

FORMS: dict[str, Callable[..., Tensor]] = {
    "sinusoidal, interleaved": sinusoidal,
    "sinusoidal, concat": sinusoidal,
    "naive: index": index,
    "naive: normalized index": normalized_index,
    "learned table": learned,
    "NoPE (no positions)": attention,
    "NoPE, causal": causal,
    "attention sinks": attention,
    "capped scores (Gemma 2)": partial(attention, softcap=50.0),
    "RoPE": rotary,
    "Shaw, keys": attention,
    "Shaw, keys and values": attention,
    "Music Transformer, causal": music,
    "Transformer-XL, both ways": attention,
    "position query (Inkling)": attention,
    "BERT, keys and queries": attention,
    "rel_bias per head": attention,
    "Forgetting Transformer": causal,
    "two axes of a grid (SAM)": attention,
    "ALiBi": alibi,
    "T5, 32 buckets": t5,
    "KERPLE, logarithmic": kerple,
    "DeBERTa, 32 rows": deberta,
    "labelled graph, 16 edges a query": graph,
    "convolutional, 3 x 3": convolution,
    "FIRE, width 32": fire,
}
