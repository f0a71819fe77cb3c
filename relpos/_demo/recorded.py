"""Step 4: attention cores of public implementations, recorded, and relpos's beside.

A file of relpos/data holds what entered an upstream attention core (projected query,
key and value, tables as upstream stores them, the mask as `allowed`) and its context,
all in float64, and names the upstream; some hold a gradient `d_context` that was sent
back and the gradients `d_*` that came of it. How each one's conventions map to relpos's
is what the functions below say.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import as_file, files
from typing import Any, NamedTuple

import numpy as np

import relpos
from relpos._catalogue.row import Array, Limits, Named, cast, present
from relpos._demo.report import Report

__all__ = ["CASES", "Case", "beside", "largest", "load", "recorded"]

Case = dict[str, Any]
Call = tuple[Callable[..., Any], dict[str, Any]]  # of what, with which arguments
Gaps = tuple[float, float | None]  # of output and gradients

# Recorded values carry the rounding of their makers; float32 inputs that of the cast.
OUTPUTS: Limits = {np.float64: 1e-12, np.float32: 2e-6}
GRADIENTS: Limits = {np.float64: 1e-10, np.float32: 6e-6}


def load(name: str) -> Case:
    """The arrays of one recorded case, and `source`: upstream, commit, object."""
    with as_file(files("relpos") / "data" / f"{name}.npz") as path, np.load(path) as f:
        case: Case = {key: f[key] for key in f.files}
    case["source"] = json.loads(str(case["source"]))
    return case


def inputs(case: Case) -> dict[str, Any]:
    """What all schemes share."""
    shared = {name: case[name] for name in ("query", "key", "value")}
    return {**shared, "attn_mask": case.get("allowed")}


def transformer_xl(case: Case) -> Call:
    """Projected R ascending from -(Lk - 1); queries are the last of the keys."""
    terms = {name: case[name] for name in ("rel_key", "pos_bias_u", "pos_bias_v")}
    is_causal = case["rel_key"].shape[-2] == case["key"].shape[-2]
    settings = {**inputs(case), **terms, "is_causal": is_causal}
    return relpos.transformer_xl_attention, settings


def music(case: Case) -> Call:
    """One E_r for all heads, its last row at distance 0."""
    settings = {**inputs(case), "rel_key": case["rel_key"]}
    return relpos.relative_global_attention, settings


def shaw(case: Case) -> Call:
    """Tables for keys and values; this upstream expects a scaled query."""
    tables = {name: case[name] for name in ("rel_key", "rel_value")}
    return relpos.shaw_attention, {**inputs(case), **tables, "scale": 1.0}


def shaw_tied(case: Case) -> Call:
    """One table serves keys and values."""
    tables = dict.fromkeys(("rel_key", "rel_value"), case["rel_key"])
    return relpos.shaw_attention, {**inputs(case), **tables}


def t5(case: Case) -> Call:
    """One bias per bucket and head, stored (bucket, head); scores are not scaled."""
    bias = {"rel_bias": case["relative_attention_bias"].T, "buckets": case["buckets"]}
    return relpos.attention, {**inputs(case), **bias, "scale": 1.0}


def t5_gradients(found: Named) -> Named:
    """Back to (bucket, head)."""
    return {**found, "relative_attention_bias": found["rel_bias"].T}


def bert(case: Case) -> Call:
    """The table counts query minus key: turned round, it counts key minus query."""
    table = case["distance_embedding"][::-1]
    return relpos.attention, {**inputs(case), "rel_key": table}


def bert_both(case: Case) -> Call:
    """The same table for keys and for queries."""
    function, settings = bert(case)
    return function, {**settings, "rel_query": settings["rel_key"]}


def bert_both_gradients(found: Named) -> Named:
    """Both uses of the table together."""
    total = found["rel_key"] + found["rel_query"]
    return {**found, "distance_embedding": total[::-1]}


class Core(NamedTuple):
    """How a case is called, and how gradients of the call become those recorded."""

    title: str
    call: Callable[[Case], Call]
    gradients: Callable[[Named], Named] = dict


CASES = {
    "transformer_xl_memory": Core("Transformer-XL, 16 of memory", transformer_xl),
    "transformer_xl_same_length": Core("Transformer-XL, same_length", transformer_xl),
    "music_article": Core("Music Transformer", music),
    "music_padded": Core("Music Transformer, padded", music),
    "shaw_keys_values": Core("Shaw, keys and values", shaw),
    "shaw_tied_causal": Core("Shaw, one table, causal", shaw_tied),
    "shaw_tied_wide": Core("Shaw, one table, k > L", shaw_tied),
    "conformer": Core("Conformer, both directions", transformer_xl),
    "conformer_cache": Core("Conformer, 5 cached keys", transformer_xl),
    "t5_encoder": Core("T5 encoder, 32 buckets", t5, t5_gradients),
    "t5_decoder": Core("T5 decoder, 32 buckets", t5),
    "bert_relative_key": Core("BERT relative_key", bert),
    "bert_relative_key_query": Core(
        "BERT relative_key_query", bert_both, bert_both_gradients
    ),
}


def differences(name: str, case: Case, dtype: type) -> Gaps:
    """Largest difference to the recorded context, and to any recorded gradient."""
    known, core = cast(case, dtype), CASES[name]
    function, settings = core.call(known)
    result = function(**settings, return_context=True)
    gap = float(np.abs(result.out - case["context"]).max())
    if "d_context" not in case:
        return gap, None
    gradients = present(result.context.backward(known["d_context"]))
    found = core.gradients(gradients)
    wanted = {name[2:]: x for name, x in case.items() if name.startswith("d_")}
    del wanted["context"]
    return gap, float(np.max([largest(found[n], x) for n, x in wanted.items()]))


def largest(got: Array, wanted: Array) -> float:
    """Largest difference over the largest number that is wanted."""
    return float(np.abs(got - wanted).max() / np.abs(wanted).max())


def recorded(report: Report) -> None:
    """Every core in float64 and float32."""
    report.begin("Recorded attention cores of public implementations, and relpos's")
    report.say("largest difference to the recorded output, and to the recorded")
    report.say("gradients over the largest number of each ('-': none in the file):")
    titles = {name: core.title for name, core in CASES.items()}
    beside(report, "scheme", titles, differences, "context", OUTPUTS)


def beside(
    report: Report,
    heading: str,
    titles: dict[str, str],
    gaps: Callable[[str, Case, type], Gaps],
    output: str,
    outputs: Limits,
) -> None:
    """A table of recorded cases, a line each, and a check of each column's worst."""
    kinds = {"output": outputs, "gradients": GRADIENTS}
    found: dict[tuple[str, Any], list[float]] = {}
    rows = []
    for name, title in titles.items():
        case = load(name)
        pairs = {dtype: gaps(name, case, dtype) for dtype in outputs}
        cells = []
        for place, kind in enumerate(kinds):
            for dtype, pair in pairs.items():
                gap = pair[place]
                cells.append("-" if gap is None else f"{gap:.1e}")
                found.setdefault((kind, dtype), [])
                found[kind, dtype] += [] if gap is None else [gap]
        shape = " x ".join(map(str, case[output].shape))
        rows.append([title, origin(case), shape, *cells])
    names = [f"{kind} {dtype.__name__}" for kind, dtype in found]
    report.table([heading, "upstream and commit", "shape of output", *names], rows)
    for (kind, dtype), each in found.items():
        name = f"largest of these, {kind} in {dtype.__name__}"
        report.check(name, float(np.max(each)), kinds[kind][dtype])


def origin(case: Case) -> str:
    """Who computed a case: the upstream and its commit."""
    source = case["source"]
    commit = source["commit"].removesuffix("n/a")[:8]
    return f"{source['upstream']} {commit}".rstrip()
