"""Recorded cores of published models, and the recipes that repeat them.

Queries and keys of models that rotate them were recorded after the rotation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import relpos
from relpos import recipes
from relpos._catalogue.rows import Array, Named
from relpos._demo.cores import ROTARY, Case, Core, by_bucket

__all__ = ["CORES"]


def take(case: Case, *names: str) -> list[Any]:
    """Return stored arrays, the parameters of a recipe."""
    return [case[name] for name in names]


def length(case: Case) -> int:
    """Return the number of queries."""
    return int(case["query"].shape[-2])


def packed(case: Case) -> dict[str, Any]:
    """Return the range of keys of each document; positions start again with each."""
    ranges = relpos.segment_ranges(np.cumsum(case["position_ids"] == 0, axis=-1))
    return {"key_ranges": ranges, "is_causal": True, "enable_gqa": True}


def forgetting(case: Case) -> dict[str, Any]:
    """Return the decay of each query head; two of these share a key head."""
    return {"log_decay": case["log_decay"], "is_causal": True, "enable_gqa": True}


def layoutlmv3(case: Case) -> Any:
    """Return three biases: by order, and by both coordinates on the page."""
    tables = take(case, "rel_pos_bias", "rel_pos_x_bias", "rel_pos_y_bias")
    given = [*tables, *take(case, "position_ids", "bbox"), case["query"].shape[-1]]
    far: dict[str, Any] = {"max_rel_pos": 12, "max_rel_2d_pos": 40}
    return recipes.layoutlmv3(*given, **far)


def vits_gradients(found: Named, case: Case) -> Named:
    """Return the gradients of both tables in their stored shapes."""
    names = {"emb_rel_k": "rel_key", "emb_rel_v": "rel_value"}
    return {own: found[name].reshape(case[own].shape) for own, name in names.items()}


# ---- Swin V2: cosines of queries and keys, and a bias between 0 and 16 ---------------


def norms(x: Array) -> Any:
    """Return the length of each query or key."""
    return np.linalg.norm(x, axis=-1, keepdims=True)


def gates(case: Case) -> Any:
    """Return the share of 16 that each bias has, from the output of the network."""
    return 1 / (1 + np.exp(-case["relative_position_bias_table"]))


def swin_v2(case: Case) -> dict[str, Any]:
    """Return unit queries times the factor of a head, unit keys, and the bias."""
    unit = {name: case[name] / norms(case[name]) for name in ("query", "key")}
    unit["query"] *= np.exp(case["logit_scale"])
    return {**recipes.swin(16 * gates(case), (2, 2)), **unit, "scale": 1.0}


def swin_v2_gradients(found: Named, case: Case) -> Named:
    """Return the gradients of what enters the cosines and the gates."""
    gate = gates(case)
    slope = 16 * gate * (1 - gate)
    back = {"relative_position_bias_table": slope * found["rel_bias"].T}
    for name, factor in (("query", np.exp(case["logit_scale"])), ("key", 1.0)):
        unit, grad = case[name] / norms(case[name]), factor * found[name]
        along = np.sum(unit * grad, axis=-1, keepdims=True)
        back[name] = (grad - along * unit) / norms(case[name])
        if name == "query":
            back["logit_scale"] = along.sum((0, 2), keepdims=True)[0]
    return back


GATE = [f"gru_rel_pos_{name}" for name in ("const", "linear_weight", "linear_bias")]
GEMMA_3N: dict[str, Any] = {"context_left": 5, "context_right": 2, "logit_cap": 2.0}
GEMMA_4: dict[str, Any] = {
    "chunk_size": 4, "context_left": 5, "context_right": 0, "logit_cap": 5.0
}  # fmt: skip
WAV2VEC2: dict[str, Any] = {
    "left_max_position_embeddings": 4, "right_max_position_embeddings": 2
}  # fmt: skip

CORES = {
    "umt5": Core(
        lambda c: recipes.umt5(c["weight"], max_distance=12), by_bucket("weight")
    ),
    "beit": Core(lambda c: recipes.beit(c["relative_position_bias_table"], (3, 3))),
    "parakeet": Core(
        lambda c: recipes.parakeet(
            c["bias_u"], c["bias_v"], c["relative_k_proj"], length(c)
        )
    ),
    "recurrent_gemma": Core(
        lambda c: recipes.recurrent_gemma(int(c["attention_window_size"]))
    ),
    "gpt_oss": Core(lambda c: recipes.gpt_oss(c["sinks"])),
    "forgetting": Core(forgetting),
    "llama4": Core(
        lambda c: recipes.llama4(
            length(c), attention_chunk_size=int(c["attention_chunk_size"])
        )
    ),
    "packed": Core(packed),
    **ROTARY,
    "inkling": Core(lambda c: recipes.inkling(c["proj"], c["query"].shape[-1])),
    "gemma2": Core(
        lambda c: recipes.gemma2(query_pre_attn_scalar=3.0, attn_logit_softcapping=5.0)
    ),
    "gemma3n_audio": Core(
        lambda c: recipes.gemma3n_audio(
            *take(c, "per_dim_scale", "pos_proj", "query"), **GEMMA_3N
        )
    ),
    "gemma4_audio": Core(
        lambda c: recipes.gemma4_audio(
            *take(c, "per_dim_scale", "relative_k_proj", "query"), **GEMMA_4
        )
    ),
    "wavlm": Core(
        lambda c: recipes.wavlm(
            *take(c, *GATE, "rel_attn_embed", "hidden_states"), max_distance=12
        )
    ),
    "vits": Core(
        lambda c: recipes.vits(c["emb_rel_k"], c["emb_rel_v"]), vits_gradients
    ),
    "zipformer": Core(
        lambda c: recipes.zipformer(c["linear_pos"], 1, length(c), length(c))
    ),
    "wav2vec2_bert": Core(
        lambda c: recipes.wav2vec2_bert(c["distance_embedding"], **WAV2VEC2)
    ),
    "enformer": Core(
        lambda c: recipes.enformer(
            c["rel_content_bias"], c["rel_pos_bias"], c["to_rel_k"], length(c)
        )
    ),
    "mpnet": Core(lambda c: recipes.mpnet(c["weight"]), by_bucket("weight")),
    "longt5_local": Core(
        lambda c: recipes.longt5_local(c["weight"], 3, max_distance=6),
        by_bucket("weight"),
    ),
    "layoutlmv3": Core(layoutlmv3),
    "sam": Core(lambda c: recipes.sam(c["rel_pos_h"], c["rel_pos_w"], (2, 2))),
    "swin_v2": Core(swin_v2, swin_v2_gradients),
}
