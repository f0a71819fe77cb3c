"""Projections of query, key and value by one weight, and the way back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from relpos._checks import Array
from relpos.nn._inputs import split_heads
from relpos.nn.linear import affine, affine_gradients
from relpos.nn.parameter import Parameter


class Part(NamedTuple):
    """An input, and which of query, key and value it becomes: the first, and past last.

    The fewer parts, the larger the products.
    """

    x: Array
    first: int
    last: int


def project(
    parts: list[Part], weight: Parameter, bias: Parameter | None, num_heads: int
) -> list[Array]:
    """Return query, key and value in heads, by one product for each part."""
    found: list[Array] = []
    width = weight.data.shape[1]
    for x, first, last in parts:
        rows = slice(first * width, last * width)
        added = None if bias is None else bias.data[rows]
        packed = affine(x, weight.data[rows], added)
        found += np.split(packed, last - first, axis=-1)
    return [split_heads(x, num_heads) for x in found]


def project_back(
    parts: list[Part], weight: Parameter, bias: Parameter | None, grads: list[Array]
) -> list[Array]:
    """Add the gradients of weight and bias, and return that of the input of each part.

    grads: those of query, key and value in heads.
    """
    width, num_heads = weight.data.shape[1], grads[0].shape[-3]
    grad_weight, grad_bias = (
        np.empty_like(weight.data),
        np.empty_like(weight.data[:, 0]),
    )
    found = []
    for x, first, last in parts:
        packed = np.empty((*x.shape[:-1], (last - first) * width), x.dtype)
        pieces = np.split(packed, last - first, axis=-1)
        for piece, grad in zip(pieces, grads[first:last], strict=True):
            split_heads(piece, num_heads)[...] = grad
        rows = slice(first * width, last * width)
        grad_x, grad_weight[rows], grad_bias[rows] = affine_gradients(
            packed, x, weight.data[rows]
        )
        found.append(grad_x)
    weight.add_grad(grad_weight)
    if bias is not None:
        bias.add_grad(grad_bias)
    return found
