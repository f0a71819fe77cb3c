"""Recorded cores of newer models by their recipes: queries of positions, caps, axes."""

from __future__ import annotations

from typing import Any

import numpy as np

import relpos
from relpos import recipes
from relpos._catalogue.rows import Array, Named
from relpos._demo.cores import Call, Case, Core, inputs

__all__ = ["CORES"]


def attend(case: Case, keywords: dict[str, Any]) -> Call:
    """Return a call of attention with recorded inputs and a recipe's keywords."""
    return relpos.attention, {**inputs(case), **keywords}


# ---- queries of positions, and what changes scores -----------------------------------


def inkling(case: Case) -> Call:
    """Curves over the distance, mixed by a query of positions 5 wide."""
    keywords = recipes.inkling(case["proj"], case["query"].shape[-1])
    return attend(case, {**keywords, "position_query": case["position_query"]})


def gemma2(case: Case) -> Call:
    """Two query heads of one key head; both are recorded after rotation."""
    keywords = recipes.gemma2(query_pre_attn_scalar=3.0, attn_logit_softcapping=5.0)
    return attend(case, keywords)


def zipformer_parameters(case: Case) -> tuple[Any, ...]:
    """The projection, of one head here, and the lengths."""
    length = case["query"].shape[-2]
    return case["linear_pos"], 1, length, length


def zipformer(case: Case) -> Call:
    """Positions meet a third, narrower query; values are narrower, too."""
    keywords = recipes.zipformer(*zipformer_parameters(case))
    return attend(case, {**keywords, "position_query": case["position_query"]})


def zipformer_gradients(found: Named, case: Case) -> Named:
    """Through the encoding of positions to its projection."""
    return {**found, **recipes.zipformer(*zipformer_parameters(case)).backward(found)}


def wavlm_parameters(case: Case) -> list[Array]:
    """Return the stored parameters, and the columns of the input for this head."""
    gate = [f"gru_rel_pos_{name}" for name in ("const", "linear_weight", "linear_bias")]
    return [case[name] for name in (*gate, "rel_attn_embed", "hidden_states")]


def wavlm(case: Case) -> Call:
    """Buckets up to a distance of 12, where the recorded model's end."""
    return attend(case, recipes.wavlm(*wavlm_parameters(case), max_distance=12))


def wavlm_gradients(found: Named, case: Case) -> Named:
    """Through the gate."""
    recipe = recipes.wavlm(*wavlm_parameters(case), max_distance=12)
    return {**found, **recipe.backward(found)}


# ---- audio under a cap ---------------------------------------------------------------

GEMMA_3N: dict[str, Any] = {"context_left": 5, "context_right": 2, "logit_cap": 2.0}
GEMMA_4: dict[str, Any] = {
    "chunk_size": 4,
    "context_left": 5,
    "context_right": 0,
    "logit_cap": 5.0,
}


def gemma3n_audio(case: Case) -> Call:
    """The recipe scales the query; padding is hidden."""
    given = (case[name] for name in ("per_dim_scale", "pos_proj", "query"))
    return attend(case, recipes.gemma3n_audio(*given, **GEMMA_3N))


def gemma3n_audio_gradients(found: Named, case: Case) -> Named:
    """Back through the scale and the projection of positions."""
    given = (case[name] for name in ("per_dim_scale", "pos_proj", "query"))
    return {**found, **recipes.gemma3n_audio(*given, **GEMMA_3N).backward(found)}


def gemma4_audio(case: Case) -> Call:
    """Keys as projected: the recipe knows their scale."""
    given = (case[name] for name in ("per_dim_scale", "relative_k_proj", "query"))
    return attend(case, recipes.gemma4_audio(*given, **GEMMA_4))


def gemma4_audio_gradients(found: Named, case: Case) -> Named:
    """Back through the scale and the projection of positions."""
    given = (case[name] for name in ("per_dim_scale", "relative_k_proj", "query"))
    return {**found, **recipes.gemma4_audio(*given, **GEMMA_4).backward(found)}


# ---- tables by distance --------------------------------------------------------------


def vits(case: Case) -> Call:
    """Tables for keys and values."""
    return attend(case, recipes.vits(case["emb_rel_k"], case["emb_rel_v"]))


def vits_gradients(found: Named, case: Case) -> Named:
    """Back to upstream's names and shapes."""
    names = {"emb_rel_k": "rel_key", "emb_rel_v": "rel_value"}
    tables = {own: found[name].reshape(case[own].shape) for own, name in names.items()}
    return {**found, **tables}


def wav2vec2_bert(case: Case) -> Call:
    """Further back than ahead."""
    reach = {"left_max_position_embeddings": 4, "right_max_position_embeddings": 2}
    return attend(case, recipes.wav2vec2_bert(case["distance_embedding"], **reach))


def enformer_parameters(case: Case) -> tuple[Any, ...]:
    """Return the stored parameters, and the length."""
    stored = (case[name] for name in ("rel_content_bias", "rel_pos_bias", "to_rel_k"))
    return *stored, case["query"].shape[-2]


def enformer(case: Case) -> Call:
    """Features of the distance, projected; values are wider than keys."""
    return attend(case, recipes.enformer(*enformer_parameters(case)))


def enformer_gradients(found: Named, case: Case) -> Named:
    """Through the projection of features."""
    return {**found, **recipes.enformer(*enformer_parameters(case)).backward(found)}


# ---- biases by bucket ----------------------------------------------------------------


def mpnet(case: Case) -> Call:
    """32 buckets up to a distance of 128."""
    return attend(case, recipes.mpnet(case["weight"]))


def longt5_local(case: Case) -> Call:
    """Keys up to 3 away; buckets up to a distance of 6, where the model's end."""
    return attend(case, recipes.longt5_local(case["weight"], 3, max_distance=6))


def bucket_gradients(found: Named, case: Case) -> Named:
    """Back to (bucket, head)."""
    return {**found, "weight": found["rel_bias"].T}


def layoutlmv3(case: Case) -> Call:
    """Three biases: by order and by both coordinates on the page."""
    names = ("rel_pos_bias", "rel_pos_x_bias", "rel_pos_y_bias", "position_ids", "bbox")
    given: list[Any] = [*(case[name] for name in names), case["query"].shape[-1]]
    far = {"max_rel_pos": 12, "max_rel_2d_pos": 40}
    return attend(case, recipes.layoutlmv3(*given, **far))


# ---- images --------------------------------------------------------------------------


def sam(case: Case) -> Call:
    """Windows of 2 x 2 patches, a table for each of their axes."""
    return attend(case, recipes.sam(case["rel_pos_h"], case["rel_pos_w"], (2, 2)))


def norms(x: Array) -> Any:
    """The length of each query or key."""
    return np.linalg.norm(x, axis=-1, keepdims=True)


def gates(case: Case) -> Any:
    """Return how far the table, the output of the model's network, opens each bias."""
    return 1 / (1 + np.exp(-case["relative_position_bias_table"]))


def swin_v2(case: Case) -> Call:
    """Cosines times a factor of the head, in windows of 2 x 2 patches."""
    unit = {name: case[name] / norms(case[name]) for name in ("query", "key")}
    unit["query"] *= np.exp(case["logit_scale"])
    keywords = recipes.swin(16 * gates(case), (2, 2))
    return attend(case, {**keywords, **unit, "scale": 1.0})


def swin_v2_gradients(found: Named, case: Case) -> Named:
    """Back through the cosines and the gates."""
    gate = gates(case)
    slope = 16 * gate * (1 - gate)
    back = {**found, "relative_position_bias_table": slope * found["rel_bias"].T}
    for name, factor in (("query", np.exp(case["logit_scale"])), ("key", 1.0)):
        unit, grad = case[name] / norms(case[name]), factor * found[name]
        along = np.sum(unit * grad, axis=-1, keepdims=True)
        back[name] = (grad - along * unit) / norms(case[name])
        if name == "query":
            back["logit_scale"] = along.sum((0, 2), keepdims=True)[0]
    return back


CORES = {
    "inkling": Core("Inkling, position query", inkling),
    "gemma2": Core("Gemma 2, soft cap", gemma2),
    "gemma3n_audio": Core("Gemma 3n audio", gemma3n_audio, gemma3n_audio_gradients),
    "gemma4_audio": Core("Gemma 4 audio", gemma4_audio, gemma4_audio_gradients),
    "wavlm": Core("WavLM, gated bias", wavlm, wavlm_gradients),
    "vits": Core("VITS, keys and values", vits, vits_gradients),
    "zipformer": Core("Zipformer", zipformer, zipformer_gradients),
    "wav2vec2_bert": Core("wav2vec2-BERT", wav2vec2_bert),
    "enformer": Core("Enformer", enformer, enformer_gradients),
    "mpnet": Core("MPNet, 32 buckets", mpnet, bucket_gradients),
    "longt5_local": Core("LongT5, local", longt5_local, bucket_gradients),
    "layoutlmv3": Core("LayoutLMv3, on a page", layoutlmv3),
    "sam": Core("SAM, two axes", sam),
    "swin_v2": Core("Swin V2, cosines", swin_v2, swin_v2_gradients),
}
