"""How each scheme is computed and checked, in the order of the tables that show it.

To add a scheme, name it in `schemes.SCHEMES` and add a `Row` to `ROWS`. One that is a
single call of attention needs nothing else:

    Row(
        "shaw_keys",                 # its name in SCHEMES
        "Shaw, keys",                # its title in tables
        arguments_of("shaw_keys"),   # the inputs: tokens and the scheme's operands
        relpos.shaw_attention,       # all three are called with these inputs by name
        numpy_forms.shaw,            # None: nobody writes it in NumPy
        reference.shaw_attention,
        gradients=of_attention(relpos.shaw_attention),
    )

which `one_call` writes in one line.

One that is composed of several calls (say a rotation, then attention), or whose
parameters are no operands of attention (say slopes, of which a bias is made), brings
functions of its own, written in a file of its family beside this one: the forward, the
same of `relpos.reference`, and a backward `(grad_out, **inputs)` that returns gradients
by the names of the inputs, from `context.backward` and the chain rule:

    gradients=by_differences(rotary_backward, rotary_reference)

compares it with differences of the composed reference, on a few numbers, to 1e-10;
`Gradients(rotary_backward, rotary_reference_backward)` with a backward composed of the
reference's own, to 1e-14. Inputs that are no floating arrays have no gradient and are
passed on as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import relpos
from relpos import reference
from relpos._catalogue import biases, fire, grids, neighbours, numpy_forms, rotary
from relpos._catalogue.row import (
    EXACT,
    ROUNDING,
    Array,
    Gradients,
    Inputs,
    Named,
    Row,
    arguments_of,
    encoding_of,
    heads_of,
    of_attention,
    rows_of,
)
from relpos._catalogue.schemes import Scheme, scheme_called

__all__ = ["PAIRS_ROW", "ROWS"]

CAUSAL = partial(relpos.attention, is_causal=True)


def causal_table(inputs: Inputs) -> dict[str, Any]:
    """What the Music Transformer's scheme sets: E_r ends at distance 0."""
    return {"is_causal": True, "min_relative_position": 1 - len(inputs["rel_key"])}


def call_of(room: Any, scheme: Scheme) -> Callable[..., Any]:
    """The function of a scheme that is one call, in relpos or in relpos.reference."""
    function: Callable[..., Any] = getattr(room, scheme.call)
    return partial(function, **dict(scheme.settings)) if scheme.settings else function


def one_call(scheme: str, title: str, in_numpy: Callable[..., Any]) -> Row:
    """The row of a scheme that is one call with its operands."""
    known = scheme_called(scheme)
    function = call_of(relpos, known)
    return Row(
        scheme,
        title,
        arguments_of(scheme),
        function,
        in_numpy,
        call_of(reference, known),
        gradients=of_attention(function, lambda inputs: dict(known.settings)),
    )


def learned_backward(grad_out: Array, table: Array, positions: Array) -> Named:
    """Gradient of the table by relpos."""
    return {"table": relpos.learned_backward(grad_out, positions, len(table))}


def learned_reference(grad_out: Array, table: Array, positions: Array) -> Named:
    """Gradient of the table by definition."""
    return {"table": reference.learned_backward(grad_out, positions, len(table))}


ROWS = [
    Row(
        "sinusoidal",
        "sinusoidal, interleaved",
        encoding_of("positions", layout="interleaved"),
        relpos.sinusoidal,
        numpy_forms.sinusoidal,
        reference.sinusoidal,
        ROUNDING,
    ),
    Row(
        "sinusoidal",
        "sinusoidal, concat",
        encoding_of("positions", layout="concat"),
        relpos.sinusoidal,
        numpy_forms.sinusoidal,
        reference.sinusoidal,
        ROUNDING,
    ),
    Row(
        "naive",
        "naive: index",
        encoding_of(),
        relpos.index_encoding,
        numpy_forms.index,
        reference.index_encoding,
        EXACT,
    ),
    Row(
        "naive",
        "naive: normalized index",
        encoding_of(),
        relpos.normalized_index_encoding,
        numpy_forms.normalized_index,
        reference.normalized_index_encoding,
        ROUNDING,
    ),
    Row(
        "learned",
        "learned table",
        rows_of,
        relpos.learned,
        numpy_forms.learned,
        reference.learned,
        EXACT,
        Gradients(learned_backward, learned_reference, EXACT),
    ),
    one_call("attention", "NoPE (no positions)", numpy_forms.attention),
    Row(
        "attention",
        "NoPE, causal",
        heads_of(),
        CAUSAL,
        partial(numpy_forms.attention, is_causal=True),
        partial(reference.attention, is_causal=True),
        gradients=of_attention(CAUSAL, lambda inputs: {"is_causal": True}),
    ),
    one_call("sinks", "attention sinks", numpy_forms.sinks),
    one_call("softcap", "capped scores (Gemma 2)", numpy_forms.softcap),
    *rotary.ROWS,
    one_call("shaw_keys", "Shaw, keys", numpy_forms.shaw),
    one_call("shaw_attention", "Shaw, keys and values", numpy_forms.shaw),
    Row(
        "relative_global_attention",
        "Music Transformer, causal",
        arguments_of("relative_global_attention", is_causal=True),
        relpos.relative_global_attention,
        numpy_forms.music,
        reference.relative_global_attention,
        gradients=of_attention(relpos.relative_global_attention, causal_table),
    ),
    one_call(
        "transformer_xl_attention",
        "Transformer-XL, both ways",
        numpy_forms.transformer_xl,
    ),
    one_call("position_query", "position query (Inkling)", numpy_forms.position_query),
    one_call("bert", "BERT, keys and queries", numpy_forms.keys_and_queries),
    one_call("rel_bias", "rel_bias per head", numpy_forms.relative_bias),
    one_call("forgetting", "Forgetting Transformer", numpy_forms.forgetting),
    *grids.ROWS,
    *biases.ROWS,
    *neighbours.ROWS,
    *fire.ROWS,
]
PAIRS_ROW = one_call("shaw_keys", "Shaw, keys, L x L x d", numpy_forms.pairs)
