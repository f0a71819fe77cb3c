"""Rows of the schemes whose positions are biases by offset, or buckets of offsets."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

import relpos
from relpos import recipes, reference
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

__all__ = ["ROWS"]

BUCKETS = 32  # of T5 and of this DeBERTa: rows of their tables


def with_parameters(**shapes: str) -> Callable[..., Inputs]:
    """Query, key and value, and parameters: "H" a positive number for each head."""

    def inputs(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
        rng = np.random.default_rng(heads)
        drawn = {
            "H": lambda: rng.random(heads),
            "buckets x H": lambda: rng.standard_normal((BUCKETS, heads)),
            "buckets x D": lambda: rng.standard_normal((BUCKETS, dim)),
        }
        parameters = {n: drawn[shape]().astype(dtype) for n, shape in shapes.items()}
        return heads_of()(dtype, heads, length, dim) | parameters

    return inputs


def attention_backward(module: ModuleType, grad_out: Array, **inputs: Any) -> Named:
    """Gradients of all inputs of one call, by relpos or by its definitions."""
    if module is reference:
        return present(reference.attention_backward(grad_out, **inputs))
    result: Any = relpos.attention(**inputs, return_context=True)
    return present(result.context.backward(grad_out))


# ---- biases: parameters -> rel_bias -> attention -------------------------------------


def with_bias(module: ModuleType, name: str) -> Callable[..., Any]:
    """Attention with the bias `name` of its parameters.

    T5 leaves the scale of the scores to its query; here all have the usual one.
    """

    def run(query: Array, key: Array, value: Array, **parameters: Array) -> Any:
        bias = getattr(module, name)(*parameters.values(), key.shape[-2])
        return module.attention(query, key, value, rel_bias=bias)

    return run


def bias_backward(
    module: ModuleType, name: str, fold: Callable[..., Named]
) -> Callable[..., Named]:
    """Gradients of query, key and value, and of the parameters by `fold`."""

    def run(
        grad_out: Array, query: Array, key: Array, value: Array, **parameters: Array
    ) -> Named:
        bias = getattr(module, name)(*parameters.values(), key.shape[-2])
        tokens = {"query": query, "key": key, "value": value}
        found = attention_backward(module, grad_out, **tokens, rel_bias=bias)
        folded = fold(module, found["rel_bias"], **parameters)
        return {n: found[n] for n in tokens} | dict(folded)

    return run


def fold_alibi(module: ModuleType, grad_bias: Array, slopes: Array) -> Named:
    """Gradient of the slopes."""
    return {"slopes": module.alibi_bias_backward(grad_bias)}


def fold_t5(module: ModuleType, grad_bias: Array, weight: Array) -> Named:
    """Gradient of the weights."""
    return {"weight": module.t5_bias_backward(grad_bias, len(weight))}


def fold_kerple(module: ModuleType, grad_bias: Array, r1: Array, r2: Array) -> Named:
    """Gradients of r1 and r2."""
    both = module.kerple_bias_backward(grad_bias, r1, r2)
    return dict(zip(("r1", "r2"), both, strict=True))


def bias_row(
    scheme: str, title: str, in_numpy: Any, fold: Callable[..., Named], **shapes: str
) -> Row:
    """A row of attention with the bias of a scheme."""
    name = f"{scheme}_bias"
    backward, wanted = (bias_backward(m, name, fold) for m in (relpos, reference))
    return Row(
        scheme,
        title,
        with_parameters(**shapes),
        with_bias(relpos, name),
        in_numpy,
        with_bias(reference, name),
        gradients=Gradients(backward, wanted),
    )


# ---- DeBERTa: tables by buckets, a recipe --------------------------------------------


def deberta(module: ModuleType) -> Callable[..., Any]:
    """Both terms of disentangled attention."""

    def run(pos_key: Array, pos_query: Array, **tokens: Array) -> Any:
        return module.attention(**tokens, **recipes.deberta(pos_key, pos_query))

    return run


def deberta_backward(module: ModuleType) -> Callable[..., Named]:
    """Gradients of query, key, value and both tables."""

    def run(
        grad_out: Array, pos_key: Array, pos_query: Array, **tokens: Array
    ) -> Named:
        keywords = recipes.deberta(pos_key, pos_query)
        found = dict(attention_backward(module, grad_out, **tokens, **keywords))
        tables = {"pos_key": "rel_key", "pos_query": "rel_query"}
        return {n: found[n] for n in tokens} | {n: found[tables[n]] for n in tables}

    return run


ROWS = [
    bias_row("alibi", "ALiBi", numpy_forms.alibi, fold_alibi, slopes="H"),
    bias_row(
        "t5",
        f"T5, {BUCKETS} buckets",
        numpy_forms.t5,
        fold_t5,
        weight="buckets x H",
    ),
    bias_row(
        "kerple",
        "KERPLE, logarithmic",
        numpy_forms.kerple,
        fold_kerple,
        r1="H",
        r2="H",
    ),
    Row(
        "deberta",
        f"DeBERTa, {BUCKETS} rows",
        with_parameters(pos_key="buckets x D", pos_query="buckets x D"),
        deberta(relpos),
        numpy_forms.deberta,
        deberta(reference),
        gradients=Gradients(deberta_backward(relpos), deberta_backward(reference)),
    ),
]
