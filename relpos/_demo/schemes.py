"""Step 5: the schemes, one row each: error, time and memory. To add one, add a row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

import relpos
from relpos import reference
from relpos._demo import numpy_forms
from relpos._demo.measure import Measurement, measure
from relpos._demo.report import Report

__all__ = ["ROWS", "Row", "schemes"]

Array = npt.NDArray[Any]
Inputs = dict[str, Any]

CLIP = 16  # Shaw's k of the base model
SMALL = {"heads": 2, "length": 256, "dim": 64}  # errors: the reference is L x L x d
LARGE = {"heads": 4, "length": 2048, "dim": 64}  # time and memory
PAIRS = {"heads": 1, "length": 512, "dim": 64}  # the L x L x d form

# Errors relative to the norm of the result. Attention: a few roundings of sums over 256
# keys, in either precision. Encodings: one rounding to the dtype; in float64 the phase
# (up to 255) has one of its own in the reference. Looking up rows rounds nothing.
ATTENTION = {np.float32: 1e-6, np.float64: 1e-14}
ROUNDING = {np.float32: 2.0**-24, np.float64: 1e-14}
EXACT = {np.float32: 0.0, np.float64: 0.0}


@dataclass(frozen=True)
class Row:
    """A scheme: its inputs, relpos's function, the NumPy form, the definition."""

    name: str
    inputs: Callable[..., Inputs]
    relpos: Callable[..., Any]
    numpy: Callable[..., Any]
    reference: Callable[..., Any]
    limits: dict[Any, float] = field(default_factory=lambda: ATTENTION)


def draw(rng: np.random.Generator, dtype: Any, *shape: int) -> Array:
    """Standard normal numbers."""
    return rng.standard_normal(shape).astype(dtype)


def heads_of(
    *tables: str, rows: Callable[[int], int] = lambda length: 0
) -> Callable[..., Inputs]:
    """Query, key and value (H, L, D) and tables of rows(L) rows for all heads."""

    def inputs(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
        rng = np.random.default_rng(length)
        names = ("query", "key", "value")
        made = {name: draw(rng, dtype, heads, length, dim) for name in names}
        for name in tables:
            shape: tuple[int, ...] = (rows(length), dim)
            if name.startswith("pos_bias"):
                shape = (dim,)
            elif name == "rel_bias":
                shape = (heads, rows(length))
            made[name] = draw(rng, dtype, *shape)
        return made

    return inputs


def both_sides(length: int) -> int:
    """Rows of a table for every relative position."""
    return 2 * length - 1


def encoding_of(count: str = "length", **options: Any) -> Callable[..., Inputs]:
    """L positions and the width of a model with these heads."""

    def inputs(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
        return {count: length, "dim": heads * dim, "dtype": dtype, **options}

    return inputs


def rows_of(dtype: Any, heads: int, length: int, dim: int) -> Inputs:
    """A learned table and shuffled positions."""
    rng = np.random.default_rng(length)
    table = draw(rng, dtype, length, heads * dim)
    return {"table": table, "positions": rng.permutation(length)}


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
    ),
    Row(
        "attention, no positions",
        heads_of(),
        relpos.attention,
        numpy_forms.attention,
        reference.attention,
    ),
    Row(
        "Shaw, keys",
        heads_of("rel_key", rows=lambda length: 2 * CLIP + 1),
        relpos.shaw_attention,
        numpy_forms.shaw,
        reference.shaw_attention,
    ),
    Row(
        "Shaw, keys and values",
        heads_of("rel_key", "rel_value", rows=lambda length: 2 * CLIP + 1),
        relpos.shaw_attention,
        numpy_forms.shaw,
        reference.shaw_attention,
    ),
    Row(
        "Music Transformer, causal",
        heads_of("rel_key", rows=lambda length: length),
        relpos.relative_global_attention,
        numpy_forms.music,
        reference.relative_global_attention,
    ),
    Row(
        "Transformer-XL, both ways",
        heads_of("rel_key", "pos_bias_u", "pos_bias_v", rows=both_sides),
        relpos.transformer_xl_attention,
        numpy_forms.transformer_xl,
        reference.transformer_xl_attention,
    ),
    Row(
        "BERT, keys and queries",
        heads_of("rel_key", "rel_query", rows=both_sides),
        relpos.attention,
        numpy_forms.keys_and_queries,
        reference.attention,
    ),
    Row(
        "rel_bias per head",
        heads_of("rel_bias", rows=both_sides),
        relpos.attention,
        numpy_forms.relative_bias,
        reference.attention,
    ),
]
PAIRS_ROW = Row(
    "Shaw, keys, L x L x d",
    heads_of("rel_key", rows=lambda length: 2 * CLIP + 1),
    relpos.shaw_attention,
    numpy_forms.pairs,
    reference.shaw_attention,
)


def errors(row: Row) -> dict[Any, float]:
    """Error relative to the norm of the definition's result, per dtype."""
    found = {}
    for dtype in row.limits:
        inputs = row.inputs(dtype, **SMALL)
        exact = {name: x for name, x in inputs.items() if name != "dtype"}
        wanted = row.reference(**exact)
        gap = np.linalg.norm(row.relpos(**inputs) - wanted)
        found[dtype] = float(gap / np.linalg.norm(wanted))
    return found


def schemes(report: Report) -> None:
    """The table, and the form that stores a vector for each pair."""
    report.begin("Each scheme: error, time and memory beside NumPy")
    sizes = "L = {length}, {heads} heads, D = {dim}"
    report.say(
        "error: norm of the difference to relpos.reference over the norm of that,"
    )
    report.say(f"and the limit it must keep; {sizes.format(**SMALL)}.")
    report.say("time: the fastest of up to five runs; memory: beyond input and output;")
    report.say(f"float32, {sizes.format(**LARGE)}.")
    header = ["", "float32", "float64", "time: relpos", "NumPy"]
    header += ["memory: relpos", "NumPy"]
    rows = []
    for row in ROWS:
        report.progress(f"measuring {row.name}")
        forms = [measure(row.name, form) for form in ("relpos", "numpy")]
        found = errors(row)
        for dtype, limit in row.limits.items():
            name = f"{row.name}, error in {dtype.__name__}"
            report.check(name, found[dtype], limit, in_table=True)
        check_memory(report, row, forms[0])
        rows.append(
            [
                row.name,
                *(f"{found[d]:.1e} <= {limit:.0e}" for d, limit in row.limits.items()),
                *(f"{form.seconds * 1e3:.1f} ms" for form in forms),
                *(form.memory_text() for form in forms),
            ]
        )
    report.table(header, rows)
    vector_per_pair(report)


def check_memory(report: Report, row: Row, measured: Measurement) -> None:
    """No attention of relpos may need as much as one head's L x L scores."""
    one_head = LARGE["length"] ** 2 * np.dtype(np.float32).itemsize
    if measured.memory is not None and row.limits is ATTENTION:
        report.check(
            f"{row.name}: extra MB, beside those of one head's scores",
            measured.memory / 1e6,
            one_head / 1e6,
            in_table=True,
        )


def vector_per_pair(report: Report) -> None:
    """Runs the L x L x d form where it fits, and computes it for the large size."""
    inputs = PAIRS_ROW.inputs(np.float32, **PAIRS)
    wanted = PAIRS_ROW.numpy(**inputs)
    gap = np.linalg.norm(PAIRS_ROW.relpos(**inputs) - wanted) / np.linalg.norm(wanted)
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
    report.check("Shaw keys against that form", float(gap), 2 * ATTENTION[np.float32])
