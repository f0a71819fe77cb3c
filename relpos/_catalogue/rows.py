"""The schemes, one row each, in the order of the tables that show them.

To add a scheme, add a `Row` to `ROWS`. One that is a single call of attention needs
nothing else:

    Row(
        "Shaw, keys",
        heads_of("rel_key", rows=lambda length: 2 * CLIP + 1),  # the inputs
        relpos.shaw_attention,       # all three are called with these inputs by name
        numpy_forms.shaw,            # None: nobody writes it in NumPy
        reference.shaw_attention,
        gradients=of_attention(relpos.shaw_attention),
    )

One that is composed of several calls (say a rotation, then attention) brings functions
of its own, written in a file of its family beside this one: the composed forward, the
same of `relpos.reference`, and a backward `(grad_out, **inputs)` that returns gradients
by the names of the inputs, from `context.backward` and the chain rule:

    gradients=by_differences(rotary_backward, rotary_reference)

compares it with differences of the composed reference, on a few numbers, to 1e-10;
`Gradients(rotary_backward, rotary_reference_backward)` with a backward composed of the
reference's own, to 1e-14. Inputs that are no floating arrays have no gradient and are
passed on as they are.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import relpos
from relpos import reference
from relpos._catalogue import biases, fire, neighbours, numpy_forms, rotary
from relpos._catalogue.row import (
    EXACT,
    ROUNDING,
    Array,
    Gradients,
    Inputs,
    Named,
    Row,
    both_sides,
    encoding_of,
    heads_of,
    of_attention,
    rows_of,
)

__all__ = ["PAIRS_ROW", "ROWS"]

CLIP = 16  # Shaw's k of the base model
CAUSAL = partial(relpos.attention, is_causal=True)


def causal_table(inputs: Inputs) -> dict[str, Any]:
    """What the Music Transformer's scheme sets: E_r ends at distance 0."""
    return {"is_causal": True, "min_relative_position": 1 - len(inputs["rel_key"])}


def learned_backward(grad_out: Array, table: Array, positions: Array) -> Named:
    """Gradient of the table by relpos."""
    return {"table": relpos.learned_backward(grad_out, positions, len(table))}


def learned_reference(grad_out: Array, table: Array, positions: Array) -> Named:
    """Gradient of the table by definition."""
    return {"table": reference.learned_backward(grad_out, positions, len(table))}


ROWS = [
    Row(
        "sinusoidal, interleaved",
        encoding_of("positions", layout="interleaved"),
        relpos.sinusoidal,
        numpy_forms.sinusoidal,
        reference.sinusoidal,
        ROUNDING,
    ),
    Row(
        "sinusoidal, concat",
        encoding_of("positions", layout="concat"),
        relpos.sinusoidal,
        numpy_forms.sinusoidal,
        reference.sinusoidal,
        ROUNDING,
    ),
    Row(
        "naive: index",
        encoding_of(),
        relpos.index_encoding,
        numpy_forms.index,
        reference.index_encoding,
        EXACT,
    ),
    Row(
        "naive: normalized index",
        encoding_of(),
        relpos.normalized_index_encoding,
        numpy_forms.normalized_index,
        reference.normalized_index_encoding,
        ROUNDING,
    ),
    Row(
        "learned table",
        rows_of,
        relpos.learned,
        numpy_forms.learned,
        reference.learned,
        EXACT,
        Gradients(learned_backward, learned_reference, EXACT),
    ),
    Row(
        "NoPE (no positions)",
        heads_of(),
        relpos.attention,
        numpy_forms.attention,
        reference.attention,
        gradients=of_attention(relpos.attention),
    ),
    Row(
        "NoPE, causal",
        heads_of(),
        CAUSAL,
        partial(numpy_forms.attention, is_causal=True),
        partial(reference.attention, is_causal=True),
        gradients=of_attention(CAUSAL, lambda inputs: {"is_causal": True}),
    ),
    Row(
        "RoPE",
        heads_of(),
        rotary.attention,
        rotary.in_numpy,
        rotary.by_definition,
        gradients=rotary.GRADIENTS,
    ),
    Row(
        "Shaw, keys",
        heads_of("rel_key", rows=lambda length: 2 * CLIP + 1),
        relpos.shaw_attention,
        numpy_forms.shaw,
        reference.shaw_attention,
        gradients=of_attention(relpos.shaw_attention),
    ),
    Row(
        "Shaw, keys and values",
        heads_of("rel_key", "rel_value", rows=lambda length: 2 * CLIP + 1),
        relpos.shaw_attention,
        numpy_forms.shaw,
        reference.shaw_attention,
        gradients=of_attention(relpos.shaw_attention),
    ),
    Row(
        "Music Transformer, causal",
        heads_of("rel_key", rows=lambda length: length),
        relpos.relative_global_attention,
        numpy_forms.music,
        reference.relative_global_attention,
        gradients=of_attention(relpos.relative_global_attention, causal_table),
    ),
    Row(
        "Transformer-XL, both ways",
        heads_of("rel_key", "pos_bias_u", "pos_bias_v", rows=both_sides),
        relpos.transformer_xl_attention,
        numpy_forms.transformer_xl,
        reference.transformer_xl_attention,
        gradients=of_attention(relpos.transformer_xl_attention),
    ),
    Row(
        "BERT, keys and queries",
        heads_of("rel_key", "rel_query", rows=both_sides),
        relpos.attention,
        numpy_forms.keys_and_queries,
        reference.attention,
        gradients=of_attention(relpos.attention),
    ),
    Row(
        "rel_bias per head",
        heads_of("rel_bias", rows=both_sides),
        relpos.attention,
        numpy_forms.relative_bias,
        reference.attention,
        gradients=of_attention(relpos.attention),
    ),
    *biases.ROWS,
    *neighbours.ROWS,
    *fire.ROWS,
]
PAIRS_ROW = Row(
    "Shaw, keys, L x L x d",
    heads_of("rel_key", rows=lambda length: 2 * CLIP + 1),
    relpos.shaw_attention,
    numpy_forms.pairs,
    reference.shaw_attention,
)
