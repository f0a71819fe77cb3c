"""DeBERTa's tables: its embeddings of positions, projected by weights of a layer."""

from __future__ import annotations

import numpy as np

from relpos._checks import Array, as_floating, as_int, as_real, quiet, rounded
from relpos.recipes._model import Model
from relpos.recipes._tables import Keywords, projected
from relpos.recipes.sequences import deberta

#: What is projected for a term, where the layer has projections for positions alone.
_OWN = {
    "deberta": {"c2p": "pos_proj", "p2c": "pos_q_proj"},
    "deberta-v2": {"c2p": "pos_key_proj", "p2c": "pos_query_proj"},
}
_SHARED = {"c2p": "key_proj", "p2c": "query_proj"}


def deberta_of(model: Model) -> Keywords:
    """The recipe of DeBERTa, version 1, 2 or 3."""
    kind = model.config["model_type"]
    if model.setting("talking_head", False):
        raise ValueError("config: talking_head is set; expected a model without it")
    types = model.setting("pos_att_type", None) or []
    types = types.split("|") if isinstance(types, str) else list(types)
    if not {*types} <= {*_SHARED}:
        raise ValueError(f"config: pos_att_type is {types}; expected c2p, p2c or both")
    if not types or not model.setting("relative_attention", False):
        return _without_tables(model, len(types))
    shared = kind == "deberta-v2" and model.setting("share_att_key", False)
    names = _SHARED if shared else _OWN[kind]
    rows, reach = _embeddings(model)
    tables = {term: _project(model, names[term], rows) for term in types}
    return deberta(tables.get("c2p"), tables.get("p2c"), max_position=reach)


def _without_tables(model: Model, types: int) -> Keywords:
    """Terms that are named count in the scale, though without relative attention."""
    if not types:
        return {}
    head_dim = model.setting("hidden_size") // model.setting("num_attention_heads")
    return {"scale": ((1 + types) * head_dim) ** -0.5}


@quiet
def _embeddings(model: Model) -> tuple[Array, int | None]:
    """The embeddings, normalised where the model does, and the reach of its buckets."""
    rows = as_floating("rel_embeddings", model.weight(r"rel_embeddings\.weight"))
    reach = model.setting("max_relative_positions", -1)
    if reach < 1:
        reach = model.setting("max_position_embeddings")
    norms = model.setting("norm_rel_ebd", None) or "none"
    if "layer_norm" in norms.lower():
        weight, bias = (
            model.weight(rf"encoder\.LayerNorm\.{part}") for part in ("weight", "bias")
        )
        eps = as_real("config: layer_norm_eps", model.setting("layer_norm_eps"))
        x = rows.astype(np.float64)
        x -= x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
        rows = rounded(x * weight + bias, rows.dtype.newbyteorder("="))
    buckets = model.setting("position_buckets", -1)
    has_buckets = model.config["model_type"] == "deberta-v2" and buckets > 0
    return rows, reach if has_buckets else None


@quiet
def _project(model: Model, name: str, rows: Array) -> Array:
    """A table of each head, (H, rows, D)."""
    heads = as_int(
        "config: num_attention_heads", model.setting("num_attention_heads"), 1
    )
    weight = as_floating(name, model.weight(rf"attention\.self\.{name}\.weight"))
    table = projected(weight, rows, heads)
    ending = rf"attention\.self\.{name}\.bias"
    if model.has(ending):
        bias = as_floating(name, model.weight(ending))
        table = table + bias.reshape(heads, 1, -1)
    return table
