"""Recorded attention cores as calls of relpos: how each one's conventions map to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import relpos
from relpos._catalogue.rows import Named

__all__ = ["CORES", "Call", "Case", "Core", "inputs"]

Case = dict[str, Any]
Call = tuple[Callable[..., Any], dict[str, Any]]  # of what, with which arguments


def as_found(found: Named, case: Case) -> Named:
    """Gradients that have the names and shapes of those recorded."""
    return found


class Core(NamedTuple):
    """The call of a case, and the conversion of its gradients to the recorded ones."""

    title: str
    call: Callable[[Case], Call]
    gradients: Callable[[Named, Case], Named] = as_found


def inputs(case: Case) -> dict[str, Any]:
    """Return the arguments that all schemes share."""
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


def t5_gradients(found: Named, case: Case) -> Named:
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


def bert_both_gradients(found: Named, case: Case) -> Named:
    """Both uses of the table together."""
    total = found["rel_key"] + found["rel_query"]
    return {**found, "distance_embedding": total[::-1]}


CORES = {
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
