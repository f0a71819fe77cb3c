"""The row of FIRE, whose bias is a network of the distance and the query's position."""

from __future__ import annotations

from typing import Any

import numpy as np

import relpos
from relpos import reference
from relpos._catalogue import numpy_forms
from relpos._catalogue.row import (
    Array,
    Gradients,
    Inputs,
    Named,
    Row,
    heads_of,
    present,
)
from relpos._catalogue.schemes import FIRE_WIDTH

__all__ = ["ROWS"]


def inputs(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
    """Query, key and value, and the parameters; units switch between x = 0 and 1."""
    rng = np.random.default_rng(heads)
    w1 = rng.standard_normal(FIRE_WIDTH)
    drawn = {
        "w1": w1,
        "b1": -w1 * rng.random(FIRE_WIDTH),
        "w2": rng.standard_normal((heads, FIRE_WIDTH)),
        "b2": rng.standard_normal(heads),
        "c": np.array(0.1),
        "threshold": np.array(length / 4 + 0.5),
    }
    parameters = {name: x.astype(dtype) for name, x in drawn.items()}
    return heads_of()(dtype, heads, length, dim) | parameters


def shifting(gradients: Named) -> Named:
    """Without b2, which moves all scores of a row: its gradient is a rounding error."""
    return {name: x for name, x in gradients.items() if name != "b2"}


def backward(grad_out: Array, **given: Any) -> Named:
    """Gradients of tokens and network by relpos."""
    result: Any = relpos.fire_attention(**given, return_context=True)
    return shifting(present(result.context.backward(grad_out)))


def wanted(
    grad_out: Array, query: Array, key: Array, value: Array, **parameters: Any
) -> Named:
    """The same by definition: those of the mask, and of the parameters through it."""
    bias = reference.fire_bias(**parameters, query_length=query.shape[-2])
    found = reference.attention_backward(grad_out, query, key, value, bias)
    tokens = {"query": found.query, "key": found.key, "value": found.value}
    assert found.attn_mask is not None
    network = reference.fire_bias_backward(found.attn_mask, **parameters)
    return shifting(tokens | network)


ROWS = [
    Row(
        "fire_attention",
        f"FIRE, width {FIRE_WIDTH}",
        inputs,
        relpos.fire_attention,
        numpy_forms.fire,
        reference.fire_attention,
        gradients=Gradients(backward, wanted),
    )
]
