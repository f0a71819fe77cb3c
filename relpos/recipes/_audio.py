"""What the audio encoders of Gemma 3n and Gemma 4 share."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from relpos._checks import POSITION_LIMIT, Array, as_floating, as_int
from relpos._encodings.sinusoidal import sinusoidal
from relpos.recipes._tables import (
    as_grad,
    as_shaped,
    check_rows,
    like,
    projected_backward,
)


class Layer(NamedTuple):
    """The parameters and the query as given, and the encoding of the distances."""

    scale: Array
    weight: Array
    query: Array
    rows: Array


def context(left: object, right: object, least: int) -> tuple[int, int]:
    """Return the farthest keys behind and ahead that the model has a place for."""
    behind = as_int("context_left", left, least, POSITION_LIMIT)
    return behind - 1, as_int("context_right", right, 0, POSITION_LIMIT)


def checked(
    scale: object, name: str, weight: object, query: object, ends: tuple[int, int]
) -> Layer:
    """Check the parameters and encode the distances from ends[0] down to ends[1]."""
    q = as_floating("query", query)
    if q.ndim < 3 or not q.shape[-1]:
        raise ValueError(
            f"query: got shape {q.shape}; expected (..., H, L, D), D at least 1"
        )
    columns = as_shaped("per_dim_scale", scale, q.shape[-1])
    projection = as_shaped(name, weight, q.shape[-3] * q.shape[-1], "E")
    width = projection.shape[1]
    if width % 2 or not width:
        raise ValueError(
            f"{name}: got shape {projection.shape}; expected an even E, sines and "
            "cosines"
        )
    check_rows("context_left", ends[0] - ends[1] + 1, projection)
    count = width // 2
    waves = np.exp(-math.log(10000.0) / max(count - 1, 1) * np.arange(count))
    distances = np.arange(ends[0], ends[1] - 1, -1)
    rows = sinusoidal(
        distances, width, inv_freq=waves, layout="concat", dtype=np.float64
    )
    return Layer(columns, projection, q, rows)


def scaled(layer: Layer) -> Array:
    """Return the query times softplus of the scale of each column."""
    factor = np.logaddexp(0, layer.scale.astype(np.float64))
    return like(layer.query * factor, layer.query)


def backward(
    layer: Layer, grad_query: object, grad_rel_key: object, factor: float
) -> tuple[Array, Array, Array]:
    q, scale = layer.query, layer.scale.astype(np.float64)
    grad = as_grad("grad_query", grad_query, q.shape)
    shape = (q.shape[-3], len(layer.rows), q.shape[-1])
    table = as_grad("grad_rel_key", grad_rel_key, shape)
    met = (grad * q).sum(axis=tuple(range(q.ndim - 1)))
    return (
        like(met / (1 + np.exp(-scale)), layer.scale),
        projected_backward(factor * table, layer.rows, layer.weight),
        like(grad * np.logaddexp(0, scale), q),
    )
