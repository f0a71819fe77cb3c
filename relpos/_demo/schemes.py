"""Step 6: the schemes, one row each: error of output and gradients, time and memory.

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

import numpy as np

import relpos
from relpos import reference
from relpos._demo import biases, fire, neighbours, numpy_forms, rotary
from relpos._demo.measure import Measurement, measure
from relpos._demo.report import Report
from relpos._demo.rows import (
    ATTENTION,
    EXACT,
    GRADIENT_SIZE,
    LARGE,
    PAIRS,
    ROUNDING,
    SMALL,
    Array,
    Gradients,
    Inputs,
    Named,
    Row,
    both_sides,
    encoding_of,
    errors,
    gradient_errors,
    heads_of,
    of_attention,
    relative_error,
    rows_of,
)

__all__ = ["ROWS", "schemes"]

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


def schemes(report: Report) -> None:
    """Both tables, and the form that stores a vector for each pair."""
    report.begin("Each scheme: errors, time and memory beside NumPy")
    accuracy(report)
    speed(report)
    vector_per_pair(report)


def accuracy(report: Report) -> None:
    """Errors of outputs and gradients."""
    sizes = "L = {length}, {heads} heads, D = {dim}"
    report.say(
        "error: norm of the difference to relpos.reference over the norm of that,"
    )
    report.say(f"and the limit it must keep; {sizes.format(**SMALL)}.")
    report.say("gradients: the largest such error among those of all inputs;")
    report.say(f"{sizes.format(**GRADIENT_SIZE)}.")
    kinds = ("output", "gradients")
    rows = []
    for row in ROWS:
        report.progress(f"checking {row.name}")
        limits = [row.limits, row.gradients.limits if row.gradients else {}]
        found = [errors(row), gradient_errors(row)]
        cells = []
        for kind, gaps, bounds in zip(kinds, found, limits, strict=True):
            for dtype in (np.float32, np.float64):
                if dtype not in bounds:
                    cells.append("-")
                    continue
                gap, limit = gaps[dtype], bounds[dtype]
                name = f"{row.name}, {kind}, error in {dtype.__name__}"
                report.check(name, gap, limit, in_table=True)
                cells.append(f"{gap:.1e} <= {limit:.0e}")
        rows.append([row.name, *cells])
    names = [f"{kind} {bits}" for kind in kinds for bits in ("float32", "float64")]
    report.table(["", *names], rows)


def speed(report: Report) -> None:
    """Time and memory, each form in a process of its own."""
    report.say("time: the fastest of up to five runs; memory: beyond input and output;")
    report.say("gradients: forward and backward together.")
    report.say("float32, L = {length}, {heads} heads, D = {dim}.".format(**LARGE))
    header = ["", "time: relpos", "NumPy", "gradients"]
    header += ["memory: relpos", "NumPy", "gradients"]
    rows = []
    for row in ROWS:
        report.progress(f"measuring {row.name}")
        forms = {
            form: measure(row.name, form)
            for form in ("relpos", "numpy", "gradients")
            if getattr(row, form) is not None
        }
        check_memory(report, row, forms)
        found = [forms.get(form) for form in ("relpos", "numpy", "gradients")]
        rows.append(
            [
                row.name,
                *(f"{form.seconds * 1e3:.1f} ms" if form else "-" for form in found),
                *(form.memory_text() if form else "-" for form in found),
            ]
        )
    report.table(header, rows)


def check_memory(report: Report, row: Row, forms: dict[str, Measurement]) -> None:
    """No attention of relpos may need what a form that stores scores must have.

    Forward that is one head's at least, backward the scores and their gradients of all
    heads.
    """
    one_head = LARGE["length"] ** 2 * np.dtype(np.float32).itemsize
    limits = {
        "relpos": ("one head's scores", one_head),
        "gradients": ("all scores and their gradients", 2 * LARGE["heads"] * one_head),
    }
    for form, (stored, limit) in limits.items():
        used = forms[form].memory if form in forms else None
        if used is not None and row.limits is ATTENTION:
            report.check(
                f"{row.name}, {form}: extra MB, beside those of {stored}",
                used / 1e6,
                limit / 1e6,
                in_table=True,
            )


def vector_per_pair(report: Report) -> None:
    """Runs the L x L x d form where it fits, and computes it for the large size."""
    inputs = PAIRS_ROW.inputs(np.float32, **PAIRS)
    gap = relative_error(PAIRS_ROW.relpos(**inputs), numpy_forms.pairs(**inputs))
    form = measure(PAIRS_ROW.name, "numpy")
    times = LARGE["heads"] * (LARGE["length"] / PAIRS["length"]) ** 2
    bytes_each = np.dtype(np.float32).itemsize * LARGE["dim"]
    report.say(
        f"With a vector for each pair (L x L x d): L = {PAIRS['length']}, one head, "
        f"{form.seconds * 1e3:.0f} ms and {form.memory_text()};"
    )
    report.say(
        f"computed for the size above: {form.seconds * times:.1f} s and "
        f"{LARGE['heads'] * LARGE['length'] ** 2 * bytes_each / 1e9:.1f} GB."
    )
    report.check("Shaw keys against that form", gap, 2 * ATTENTION[np.float32])
