"""Step 4: attention cores of public implementations, recorded, and relpos's beside.

Each file of relpos/data holds what entered an upstream attention core (projected query,
key and value, tables as upstream stores them, the mask as `allowed`) and its context,
all in float64, and names the upstream. How each one's conventions map to relpos's is
what the functions below say.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.resources import as_file, files
from typing import Any

import numpy as np

import relpos
from relpos._demo.report import Report

__all__ = ["CASES", "load", "recorded"]

Case = dict[str, Any]

# Recorded values carry the rounding of their makers; float32 inputs that of the cast.
LIMITS = {np.float64: 1e-12, np.float32: 2e-6}


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


def transformer_xl(case: Case) -> Any:
    """Projected R ascending from -(Lk - 1); queries are the last of the keys."""
    terms = {name: case[name] for name in ("rel_key", "pos_bias_u", "pos_bias_v")}
    is_causal = case["rel_key"].shape[-2] == case["key"].shape[-2]
    return relpos.transformer_xl_attention(**inputs(case), **terms, is_causal=is_causal)


def music(case: Case) -> Any:
    """One E_r for all heads, its last row at distance 0."""
    return relpos.relative_global_attention(**inputs(case), rel_key=case["rel_key"])


def shaw(case: Case) -> Any:
    """Tables for keys and values; this upstream expects a scaled query."""
    tables = {name: case[name] for name in ("rel_key", "rel_value")}
    return relpos.shaw_attention(**inputs(case), **tables, scale=1.0)


def shaw_tied(case: Case) -> Any:
    """One table serves keys and values."""
    table = case["rel_key"]
    return relpos.shaw_attention(**inputs(case), rel_key=table, rel_value=table)


def t5(case: Case) -> Any:
    """One bias per bucket and head, stored (bucket, head); scores are not scaled."""
    return relpos.attention(
        **inputs(case),
        rel_bias=case["relative_attention_bias"].T,
        buckets=case["buckets"],
        scale=1.0,
    )


def bert(case: Case) -> Any:
    """The table counts query minus key: turned round, it counts key minus query."""
    return relpos.attention(**inputs(case), rel_key=case["distance_embedding"][::-1])


def bert_both(case: Case) -> Any:
    """The same table for keys and for queries."""
    table = case["distance_embedding"][::-1]
    return relpos.attention(**inputs(case), rel_key=table, rel_query=table)


CASES: dict[str, tuple[str, Callable[[Case], Any]]] = {
    "transformer_xl_memory": ("Transformer-XL, 16 of memory", transformer_xl),
    "transformer_xl_same_length": ("Transformer-XL, same_length", transformer_xl),
    "music_article": ("Music Transformer", music),
    "music_padded": ("Music Transformer, padded", music),
    "shaw_keys_values": ("Shaw, keys and values", shaw),
    "shaw_tied_causal": ("Shaw, one table, causal", shaw_tied),
    "shaw_tied_wide": ("Shaw, one table, k > L", shaw_tied),
    "conformer": ("Conformer, both directions", transformer_xl),
    "conformer_cache": ("Conformer, 5 cached keys", transformer_xl),
    "t5_encoder": ("T5 encoder, 32 buckets", t5),
    "t5_decoder": ("T5 decoder, 32 buckets", t5),
    "bert_relative_key": ("BERT relative_key", bert),
    "bert_relative_key_query": ("BERT relative_key_query", bert_both),
}


def difference(case: Case, run: Callable[[Case], Any], dtype: type) -> float:
    """Largest difference to the recorded context, with inputs cast to dtype."""
    cast = {
        name: x.astype(dtype) if getattr(x, "dtype", None) == np.float64 else x
        for name, x in case.items()
    }
    return float(np.abs(run(cast) - case["context"]).max())


def recorded(report: Report) -> None:
    """Every case in float64 and float32."""
    report.begin("Recorded attention cores of public implementations, and relpos's")
    rows, worst = [], dict.fromkeys(LIMITS, 0.0)
    for name, (title, run) in CASES.items():
        case = load(name)
        gaps = {dtype: difference(case, run, dtype) for dtype in LIMITS}
        worst = {dtype: np.maximum(worst[dtype], gaps[dtype]) for dtype in LIMITS}
        source = case["source"]
        commit = source["commit"].removesuffix("n/a")[:8]
        shape = " x ".join(map(str, case["context"].shape))
        rows.append(
            [title, f"{source['upstream']} {commit}".rstrip(), shape]
            + [f"{gaps[dtype]:.1e}" for dtype in LIMITS]
        )
    header = ["scheme", "upstream and commit", "B x H x L x D", "float64", "float32"]
    report.say("largest difference to the recorded output:")
    report.table(header, rows)
    for dtype, limit in LIMITS.items():
        report.check(f"largest of these in {dtype.__name__}", worst[dtype], limit)
