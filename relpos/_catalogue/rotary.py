"""RoPE as a row of the table: queries and keys are turned, then attended to."""

from __future__ import annotations

from typing import Any

import relpos
from relpos import reference
from relpos._catalogue import numpy_forms
from relpos._catalogue.row import Array, Gradients, Named, Row, arguments_of

__all__ = ["ROWS"]


def attention(query: Array, key: Array, value: Array) -> Any:
    """By relpos."""
    return relpos.attention(relpos.apply_rotary(query), relpos.apply_rotary(key), value)


def by_definition(query: Array, key: Array, value: Array) -> Any:
    """By relpos.reference."""
    turned = reference.apply_rotary(query), reference.apply_rotary(key)
    return reference.attention(*turned, value)


def in_numpy(query: Array, key: Array, value: Array) -> Array:
    """As programs without relpos have it."""
    turned = numpy_forms.rotary(query), numpy_forms.rotary(key)
    return numpy_forms.attention(*turned, value)


def turned_back(gradients: Any, inverse: Any) -> Named:
    """Gradients of what was turned, back to what it was turned from."""
    return {
        "query": inverse(gradients.query, inverse=True),
        "key": inverse(gradients.key, inverse=True),
        "value": gradients.value,
    }


def backward(grad_out: Array, query: Array, key: Array, value: Array) -> Named:
    """By relpos: the adjoint of turning is turning back."""
    turned = relpos.apply_rotary(query), relpos.apply_rotary(key)
    result: Any = relpos.attention(*turned, value, return_context=True)
    return turned_back(result.context.backward(grad_out), relpos.apply_rotary)


def backward_by_definition(
    grad_out: Array, query: Array, key: Array, value: Array
) -> Named:
    """By relpos.reference."""
    turned = reference.apply_rotary(query), reference.apply_rotary(key)
    found = reference.attention_backward(grad_out, *turned, value)
    return turned_back(found, reference.apply_rotary)


ROWS = [
    Row(
        "rotary",
        "RoPE",
        arguments_of("rotary"),
        attention,
        in_numpy,
        by_definition,
        gradients=Gradients(backward, backward_by_definition),
    )
]
