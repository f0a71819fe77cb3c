"""Step 5: recorded layers of public implementations, repeated with relpos.nn.

A file of relpos/data whose name starts with ``layer_`` has one call of an upstream
module in float64, forward and backward, under the names of upstream: parameters `w_*`,
inputs `in_*`, the output `out_out`, its gradient `ct_out`, and the gradients `grad_w_*`
and `grad_in_*` that follow from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from relpos import nn
from relpos._catalogue.rows import Array, Limits, Named, cast
from relpos._demo.recorded import Case, largest, repeat
from relpos._demo.report import TEXTS, Report

__all__ = ["LAYERS", "layers"]

HEADS = 3  # of all recorded layers
OUTPUTS: Limits = {np.float64: 1e-12, np.float32: 3e-6}  # projections round as well

Run = tuple[nn.Module, Array, Named]  # the layer, its output, gradients of its inputs


def loaded(layer: nn.Module, state: Named) -> Any:
    """Return the layer with upstream's parameters; strict, and without dropout."""
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
    layer.rel_key.weight.add_grad(layer.rel_value.weight.grad)
    return layer, out, {"x": grad}


def transformer_xl(case: Case, state: dict[str, Array], dtype: type) -> Run:
    """Run with 12 tokens of memory; the mask shows equally many keys to each token."""
    x, (heads, size) = case["in_w"], case["in_r_w_bias"].shape
    layer = nn.RelPartialLearnableMultiHeadAttn(
        heads, x.shape[-1], size, 0.0, r_r_bias=0, r_w_bias=0, dtype=dtype
    )
    biases = case["in_r_w_bias"], case["in_r_r_bias"]
    out = loaded(layer, state)(
        x, case["in_r"], *biases, attn_mask=case["in_attn_mask"], mems=case["in_mems"]
    )
    found = layer.backward(case["ct_out"])._asdict()
    return layer, out, {name: x for name, x in found.items() if x is not None}


def conformer(case: Case, state: dict[str, Array], dtype: type) -> Run:
    """Run in both directions, with padding."""
    x = case["in_x"]
    layer = nn.ConformerRelPositionAttention(x.shape[-1], HEADS, dtype=dtype)
    mask = np.broadcast_to(case["in_mask"] != 0, (*x.shape[:2], x.shape[1]))
    out = loaded(layer, state)(x, x, x, case["in_pos_emb"], mask=mask)
    found = layer.backward(case["ct_out"])
    return layer, out, {
        "x": found.query + found.key + found.value,
        "pos_emb": found.pos_emb,
    }  # fmt: skip


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
    found = {}
    for name, array in case.items():
        if name.startswith(prefix):
            part, dot, rest = name.removeprefix(prefix).partition(".")
            found[renamed.get(part, part) + dot + rest] = array
    return found


def differences(name: str, case: Case, dtype: type) -> tuple[float, float]:
    """Return the largest differences to the recorded output and gradients."""
    known, renamed = cast(case, dtype), RENAMED.get(name, {})
    state = parameters(known, "w_", renamed)
    layer, out, inputs = LAYERS[name](known, state, dtype)
    found: dict[str, Any] = {name: x.grad for name, x in layer.named_parameters()}
    wanted = parameters(case, "grad_w_", renamed)
    gaps = [largest(inputs[n], x) for n, x in parameters(case, "grad_in_", {}).items()]
    gaps += [largest(*pair) for pair in by_part(found, wanted)]
    return largest(out, case["out_out"]), float(np.max(gaps))


def limit(name: str, case: Case, dtype: type) -> float:
    """Return the largest error of an output over its largest number, of any layer."""
    return OUTPUTS[dtype]


def by_part(found: Named, wanted: Named) -> list[tuple[Array, Array]]:
    """Return the gradients of each part, weight and bias together.

    The bias of the keys adds the same to all scores of a query, so its own gradient is
    0 but for rounding.
    """
    parts: dict[str, list[str]] = {}
    for name in wanted:
        part = name.removesuffix(".bias").removesuffix(".weight")
        parts.setdefault(part, []).append(name)

    def joined(gradients: Named, names: list[str]) -> Array:
        return np.concatenate([gradients[name].ravel() for name in names])

    return [(joined(found, each), joined(wanted, each)) for each in parts.values()]


def layers(report: Report) -> None:
    """Compare every layer in float64 and float32."""
    report.begin("layers")
    report.say("stored")
    report.covers(count=len(LAYERS))
    titles = [TEXTS["cases"][name] for name in LAYERS]
    errors: dict[str, list[float | None]] = {}  # filled before the picture is drawn
    report.picture("layers", rows=titles, series=errors, unit="error")
    heading = "layer of relpos.nn"
    errors |= repeat(report, heading, [*LAYERS], differences, "out_out", limit)
