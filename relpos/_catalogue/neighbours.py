"""Rows of schemes whose tokens see neighbours only: labelled graphs, convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np

import relpos
from relpos import reference
from relpos._catalogue.row import (
    ATTENTION,
    Array,
    Gradients,
    Inputs,
    Limits,
    Named,
    Row,
    draw,
    heads_of,
    of_attention,
    present,
)

__all__ = ["ROWS"]

DEGREE, LABELS = 15, 5  # edges of each query beside its own; what they may be called
KERNEL = 3
# Nine products and their sum.
FEW_TERMS: Limits = {np.float32: 2e-7, np.float64: 4e-16}

# ---- labelled graphs -----------------------------------------------------------------


def graph_of(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
    """Each token sees itself and others at random, no one twice."""
    tables = heads_of("rel_key", "rel_value", rows=lambda length: LABELS)
    rng = np.random.default_rng(length)
    keys = [
        np.append(rng.choice(length, min(DEGREE, length - 1), replace=False), i)
        for i in range(length)
    ]
    keys = [np.unique(row) for row in keys]
    indptr = np.concatenate([[0], np.cumsum([row.size for row in keys])])
    return {
        **tables(dtype, heads, length, dim),
        "indptr": indptr,
        "indices": np.concatenate(keys),
        "labels": rng.integers(0, LABELS, indptr[-1]),
    }


def graph_numpy(
    query: Array,
    key: Array,
    value: Array,
    indptr: Array,
    indices: Array,
    labels: Array,
    rel_key: Array,
    rel_value: Array,
) -> Array:
    """One key and one value per edge gathered, then sums over each query's edges."""
    of_edge = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    first = indptr[:-1]
    keys = key[:, indices] + rel_key[labels]
    s = np.einsum("hed,hed->he", query[:, of_edge], keys)
    s *= np.asarray(query.shape[-1] ** -0.5, dtype=s.dtype)
    s -= np.maximum.reduceat(s, first, axis=1)[:, of_edge]
    np.exp(s, out=s)
    s /= np.add.reduceat(s, first, axis=1)[:, of_edge]
    values = value[:, indices] + rel_value[labels]
    values *= s[..., None]
    out: Array = np.add.reduceat(values, first, axis=1)
    return out


def graph_reference(
    grad_out: Array, indptr: Array, indices: Array, labels: Array, **inputs: Any
) -> Named:
    """Those of the dense form: absent edges masked, a label for each pair."""
    shape = inputs["query"].shape[-2], inputs["key"].shape[-2]
    mask, dense = np.zeros(shape, dtype=bool), np.full(shape, -1)
    of_edge = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    mask[of_edge, indices] = True
    dense[of_edge, indices] = labels
    return present(
        reference.attention_backward(grad_out, attn_mask=mask, labels=dense, **inputs)
    )


GRAPH = Row(
    "graph_attention",
    "labelled graph, 16 edges a query",
    graph_of,
    relpos.graph_attention,
    graph_numpy,
    reference.graph_attention,
    ATTENTION,
    Gradients(of_attention(relpos.graph_attention).relpos, graph_reference),
)

# ---- convolutions --------------------------------------------------------------------


def grid_of(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
    """Tokens of a grid as square as it can be, a kernel of 3 x 3 for each channel."""
    rng = np.random.default_rng(length)
    rows = max(n for n in range(1, length + 1) if n * n <= length and length % n == 0)
    channels = heads * dim
    return {
        "x": draw(rng, dtype, length, channels),
        "weight": draw(rng, dtype, channels, KERNEL, KERNEL),
        "bias": draw(rng, dtype, channels),
        "grid": (rows, length // rows),
    }


def conv_numpy(x: Array, weight: Array, bias: Array, grid: tuple[int, int]) -> Array:
    """The grid padded, and moved once for each tap."""
    around = KERNEL // 2
    cells = x.reshape(*grid, -1)
    padded = np.pad(cells, ((around, around), (around, around), (0, 0)))
    y = cells + bias
    for s, t in np.ndindex(KERNEL, KERNEL):
        y += padded[s : s + grid[0], t : t + grid[1]] * weight[:, s, t]
    return y.reshape(x.shape)


def conv_backward(grad_out: Array, **inputs: Any) -> Named:
    """Gradients by relpos."""
    return present(relpos.conv_encoding_backward(grad_out, **inputs))


def conv_reference(grad_out: Array, **inputs: Any) -> Named:
    """Gradients by definition."""
    found = reference.conv_encoding_backward(grad_out, **inputs)
    return {
        name: x
        for name, x in zip(("x", "weight", "bias"), found, strict=True)
        if x is not None
    }


CONVOLUTION = Row(
    "conv_encoding",
    "convolutional, 3 x 3",
    grid_of,
    relpos.conv_encoding,
    conv_numpy,
    reference.conv_encoding,
    FEW_TERMS,
    Gradients(conv_backward, conv_reference),
)

ROWS = [GRAPH, CONVOLUTION]
