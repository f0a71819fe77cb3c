"""Steps 4 and 5: recorded attention of public implementations, repeated with relpos.

A file of relpos/data has what entered an upstream attention core (projected query,
key and value, tables as upstream stores them, the mask as `allowed`) and its context,
all in float64, and names the upstream. Some files also have a gradient `d_context` and
the gradients `d_*` that follow from it. cores.py has the conventions of each.

A file whose name starts with ``layer_`` has one call of an upstream module, forward and
backward: parameters `w_*`, inputs `in_*`, the output `out_out`, its gradient `ct_out`,
and the gradients `grad_w_*` and `grad_in_*` that follow from it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from importlib.resources import as_file, files
from typing import Any

import numpy as np

import relpos
from relpos import nn
from relpos._catalogue.rows import Array, Limits, Named, cast
from relpos._demo.cores import CORES, Case
from relpos._demo.report import TEXTS, Report

Gaps = tuple[float, float | None]  # of output and gradients

# Recorded values carry the rounding of their makers, and of the tables they computed.
OUTPUT_FLOAT64 = 1e-12
LAYER_OUTPUTS: Limits = {np.float64: 1e-12, np.float32: 3e-6}  # projections round, too
DRAWS = 4
GRADIENTS: Limits = {np.float64: 1e-10, np.float32: 6e-6}


def load(name: str) -> Case:
    """Return the arrays of a case, and `source`: upstream, commit, object."""
    with as_file(files("relpos") / "data" / f"{name}.npz") as path, np.load(path) as f:
        case: Case = {key: f[key] for key in f.files}
    # The source is stored as text, since an array has no dictionaries.
    case["source"] = json.loads(str(case["source"]))
    return case


def differences(name: str, case: Case, dtype: type) -> Gaps:
    known, core = cast(case, dtype), CORES[name]
    result = core.run(known)
    # Errors of outputs are absolute, those of gradients relative to the largest.
    gap = float(np.abs(result.out - case["context"]).max())
    if "d_context" not in case:
        return gap, None
    gradients = core.backward(result, known)
    expected = {name[2:]: x for name, x in case.items() if name.startswith("d_")}
    # That is the gradient that came in, not one to compare.
    del expected["context"]
    return gap, float(np.max([largest(gradients[n], x) for n, x in expected.items()]))


def limit(name: str, case: Case, dtype: type) -> float:
    """Return the largest error that rounding explains in the output of a case.

    In float32 each step from an input to the output rounds by at most u = 2**-24 of
    its result: n = D + Lk + 4 steps for the input, a score of D terms, its scale, the
    exponential, the division and a sum over Lk keys; n = 4 for the input, the cosine,
    the product and the sum of a rotation. To first order each error is one of the
    inputs, and n errors of random sign amount to one of sqrt(n) u [1]_. The limit is
    the largest change of the float64 output in four draws of such errors of the inputs.
    Drawn errors have their full size, u, where roundings average u / sqrt(3) at most:
    an output beyond the limit is off by sqrt(3) times the extreme of its distribution.

    References
    ----------
    .. [1] Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis",
       SIAM Journal on Scientific Computing 41, 2019
    """
    if dtype is np.float64:
        return OUTPUT_FLOAT64
    rng = np.random.default_rng(0)
    # A rotation has no query, and no sums.
    sums = (case["query"].shape[-1], case["key"].shape[-2]) if "query" in case else ()
    size = float(np.sqrt(sum(sums) + 4)) * 2.0**-24

    def moved(x: Any) -> Any:
        # Integers and masks have no rounding.
        if getattr(x, "dtype", None) != np.float64:
            return x
        return x * (1 + size * rng.choice([-1, 1], x.shape))

    exact = CORES[name].run(case).out
    changed = [{key: moved(x) for key, x in case.items()} for _ in range(DRAWS)]
    outputs = [CORES[name].run(each).out for each in changed]
    return float(np.max([np.abs(out - exact).max() for out in outputs]))


def largest(got: Array, expected: Array) -> float:
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def recorded(report: Report) -> None:
    report.begin("recorded")
    report.say("stored")
    report.say("picture")
    report.picture("attention", maps=with_and_without())
    report.covers(count=len(CORES))
    repeat(report, "scheme", [*CORES], differences, "context", limit)


def repeat(
    report: Report,
    heading: str,
    names: Sequence[str],
    gaps: Callable[[str, Case, type], Gaps],
    output: str,
    output_limit: Callable[[str, Case, type], float],
) -> dict[str, list[float | None]]:
    """Add a table of recorded cases and return the gaps of each column.

    The gap of a column that comes nearest to its limit is checked.
    """
    columns: dict[str, list[tuple[float | None, float]]] = {}
    rows = []
    for name in names:
        title = TEXTS["cases"][name]
        report.progress(f"repeating {title}")
        case = load(name)
        pairs = {dtype: gaps(name, case, dtype) for dtype in GRADIENTS}
        cells = []
        for number, kind in enumerate(("output", "gradients")):
            for dtype, pair in pairs.items():
                gap = pair[number]
                # Limits of gradients are the same for all cases.
                most = GRADIENTS[dtype] if number else output_limit(name, case, dtype)
                column = columns.setdefault(f"{kind} {dtype.__name__}", [])
                column.append((gap, most))
                cells.append("-" if gap is None else f"{gap:.1e}")
        shape = " x ".join(map(str, case[output].shape))
        rows.append([title, origin(case), shape, *cells])
    header = [heading, "upstream and commit", "shape of output", *columns]
    report.table("table", header, rows)
    for name, column in columns.items():
        known_gaps = [(gap, most) for gap, most in column if gap is not None]
        kind, dtype_name = name.split()
        what = f"worst of these, {kind} in {dtype_name}"
        # One check for each column: the case that is nearest to its limit.
        report.check(what, *max(known_gaps, key=nearness))
    return {name: [gap for gap, _ in column] for name, column in columns.items()}


def nearness(pair: tuple[float, float]) -> float:
    """Return a gap over its limit; NaN is beyond every limit."""
    gap, allowed = pair
    return float("inf") if math.isnan(gap) else gap / allowed


def origin(case: Case) -> str:
    source = case["source"]
    # A source without a commit has "n/a" in its place.
    commit = source["commit"].removesuffix("n/a")[:8]
    return f"{source['upstream']} {commit}".rstrip()


def with_and_without() -> dict[str, Array]:
    """Return the weights of a head of the recorded Transformer-XL, by a title."""
    case = load("transformer_xl_memory")
    common: dict[str, Any] = {name: case[name] for name in ("query", "key", "value")}
    # The 16 keys before the queries are the memory.
    common.update(is_causal=True, query_offset=16, return_weights=True)
    terms = {name: case[name] for name in ("rel_key", "pos_bias_u", "pos_bias_v")}
    with_terms: Any = relpos.transformer_xl_attention(**common, **terms)
    without: Any = relpos.attention(**common)
    weights = with_terms.weights[0, 0], without.weights[0, 0]
    return dict(zip(("with the relative terms", "without them"), weights, strict=True))


# ---- layers --------------------------------------------------------------------------

HEADS = 3  # of all recorded layers

Run = tuple[nn.Module, Array, Named]  # the layer, its output, gradients of its inputs


def loaded(layer: nn.Module, state: Named) -> Any:
    layer.load_state_dict(state)
    return layer.eval()


def music(case: Case, state: dict[str, Array], dtype: type) -> Run:
    """Run the class of the article."""
    x, length = case["in_x"], len(state["Er"])
    width = x.shape[-1]
    layer = nn.RelativeGlobalAttention(width, HEADS, length, dtype=dtype)
    out = loaded(layer, state)(x)
    return layer, out, {"x": layer.backward(case["ct_out"])}


def shaw(case: Case, state: dict[str, Array], dtype: type) -> Run:
    """Run one table for keys and values; its gradient is the sum of both uses."""
    x, table = case["in_x"], state["rel_key.weight"]
    shape = x.shape[-1], HEADS, len(table) // 2
    layer: Any = nn.ShawAttention(*shape, dtype=dtype)
    out = loaded(layer, state | {"rel_value.weight": table})(x)
    grad = layer.backward(case["ct_out"])
    # Both tables have the one array of the upstream, so their gradients are summed.
    layer.rel_key.weight.add_grad(layer.rel_value.weight.grad)
    return layer, out, {"x": grad}


def transformer_xl(case: Case, state: dict[str, Array], dtype: type) -> Run:
    """Run with 12 tokens of memory; the mask shows equally many keys to each token."""
    x, (heads, size) = case["in_w"], case["in_r_w_bias"].shape
    # Biases are inputs of this upstream, and the module gets none of its own.
    layer = nn.RelPartialLearnableMultiHeadAttn(
        heads, x.shape[-1], size, 0.0, r_r_bias=0, r_w_bias=0, dtype=dtype
    )
    biases = case["in_r_w_bias"], case["in_r_r_bias"]
    out = loaded(layer, state)(
        x, case["in_r"], *biases, attn_mask=case["in_attn_mask"], mems=case["in_mems"]
    )
    gradients = layer.backward(case["ct_out"])._asdict()
    return layer, out, {name: x for name, x in gradients.items() if x is not None}


def conformer(case: Case, state: dict[str, Array], dtype: type) -> Run:
    """Run in both directions, with padding."""
    x = case["in_x"]
    layer = nn.ConformerRelPositionAttention(x.shape[-1], HEADS, dtype=dtype)
    # The mask of the upstream is by key, and the same for all queries.
    mask = np.broadcast_to(case["in_mask"] != 0, (*x.shape[:2], x.shape[1]))
    out = loaded(layer, state)(x, x, x, case["in_pos_emb"], mask=mask)
    gradients = layer.backward(case["ct_out"])
    inputs = {
        # The input is query, key and value.
        "x": gradients.query + gradients.key + gradients.value,
        "pos_emb": gradients.pos_emb,
    }
    return layer, out, inputs


LAYERS: dict[str, Callable[[Case, dict[str, Array], type], Run]] = {
    "layer_music": music,
    "layer_shaw": shaw,
    "layer_transformer_xl": transformer_xl,
    "layer_conformer": conformer,
}
#: Parts of a layer by their names upstream.
RENAMED = {
    "layer_shaw": {
        "linear_query": "q_proj",
        "linear_keys": "k_proj",
        "linear_values": "v_proj",
        "final_linear": "out_proj",
        "relative_positions_embeddings": "rel_key",
    }
}


def parameters(case: Case, prefix: str, renamed: dict[str, str]) -> dict[str, Array]:
    """Return the arrays whose names start with `prefix`, by the names of relpos.nn."""
    arrays = {}
    for name, array in case.items():
        if name.startswith(prefix):
            # The part is what comes before the first dot; the name of its parameter
            # stays.
            part, dot, rest = name.removeprefix(prefix).partition(".")
            arrays[renamed.get(part, part) + dot + rest] = array
    return arrays


def layer_differences(name: str, case: Case, dtype: type) -> tuple[float, float]:
    known, renamed = cast(case, dtype), RENAMED.get(name, {})
    state = parameters(known, "w_", renamed)
    layer, out, inputs = LAYERS[name](known, state, dtype)
    gradients: dict[str, Any] = {name: x.grad for name, x in layer.named_parameters()}
    expected = parameters(case, "grad_w_", renamed)
    gaps = [largest(inputs[n], x) for n, x in parameters(case, "grad_in_", {}).items()]
    gaps += [largest(*pair) for pair in by_part(gradients, expected)]
    return largest(out, case["out_out"]), float(np.max(gaps))


def by_part(gradients: Named, expected: Named) -> list[tuple[Array, Array]]:
    """Return the gradients of each part, weight and bias together.

    The bias of the keys adds the same to all scores of a query, so its own gradient is
    0 but for rounding.
    """
    parts: dict[str, list[str]] = {}
    for name in expected:
        part = name.removesuffix(".bias").removesuffix(".weight")
        parts.setdefault(part, []).append(name)

    def joined(gradients: Named, names: list[str]) -> Array:
        return np.concatenate([gradients[name].ravel() for name in names])

    return [
        (joined(gradients, each), joined(expected, each)) for each in parts.values()
    ]


def layer_limit(name: str, case: Any, dtype: Any) -> float:
    """Return the largest error that the outputs of a layer may have, one for all."""
    return LAYER_OUTPUTS[dtype]


def layers(report: Report) -> None:
    report.begin("layers")
    report.say("stored")
    report.covers(count=len(LAYERS))
    titles = [TEXTS["cases"][name] for name in LAYERS]
    errors: dict[str, list[float | None]] = {}  # filled before the picture is drawn
    report.picture("layers", rows=titles, series=errors, unit="error")
    errors |= repeat(
        report,
        "layer of relpos.nn",
        [*LAYERS],
        layer_differences,
        "out_out",
        layer_limit,
    )
