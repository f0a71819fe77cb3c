"""Small models whose attention takes the keys that an indexer picks."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import hugging_families as families
import torch
import transformers
from hugging_models import TEXT, Case

#: Of each model its family, with the begin of its names, and the name of its indexer.
FAMILIES = {
    "deepseek v3.2": ("deepseek_v32.DeepseekV32", "DeepseekV32Indexer"),
    "a.x k2": ("axk2.AXK2", "AXK2Indexer"),
    "glm-dsa": ("glm_moe_dsa.GlmMoeDsa", "GlmMoeDsaIndexer"),
    "dots3": ("dots3_note.Dots3NoteText", "Dots3NoteTextIndexer"),
    "hy v4": ("hy_v4.HYV4", "HYV4Indexer"),
    "hy v4 vl": ("hy_v4_vl.HYV4VLText", "HYV4VLIndexer"),
    "mistral large 4": ("mistral_large4.MistralLarge4Text", "MistralLarge4TextIndexer"),
}
if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 24):
    del FAMILIES["hy v4 vl"]
#: With so many heads no score is 0 because all of its products are negative.
SETTINGS: dict[str, Any] = {
    **TEXT,
    "vocab_size": 12,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 12,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 6,
    "qk_nope_head_dim": 6,
    "qk_head_dim": 12,
    "v_head_dim": 5,
    "head_dim": 6,
    "index_topk": 3,
    "index_n_heads": 24,
    "index_head_dim": 10,
    "max_position_embeddings": 64,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100.0},
}


def kind_of(name: str, what: str) -> type[torch.nn.Module]:
    """Return a class of one of the models."""
    prefix = FAMILIES[name][0].split(".")[1]
    kind: type[torch.nn.Module] = getattr(_home_of(name), f"{prefix}{what}")
    return kind


def _home_of(name: str) -> Any:
    """Return the module of one of the models."""
    folder = FAMILIES[name][0].split(".")[0]
    return import_module(f"transformers.models.{folder}.modeling_{folder}")


#: What generates, where it is another class than the text model's own.
GENERATING = {
    "dots3": "Dots3NoteForCausalLM",
    "hy v4 vl": "HYV4VLForConditionalGeneration",
    "mistral large 4": "MistralLarge4ForConditionalGeneration",
}
#: The part for pictures, which has nothing to do here.
PICTURES = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "patch_size": 8,
}


def generating(name: str) -> tuple[type[torch.nn.Module], dict[str, Any]]:
    """Return the class of one of the models that generates, and its settings."""
    settings = settings_of(name)
    if name not in GENERATING:
        return kind_of(name, "ForCausalLM"), settings
    kind: Any = getattr(_home_of(name), GENERATING[name])
    if "ForCausalLM" in GENERATING[name]:
        return kind, settings
    vision = dict(PICTURES)
    if name == "hy v4 vl":
        vision["out_hidden_size"] = settings["hidden_size"]
    return kind, {"text_config": settings, "vision_config": vision}


def settings_of(name: str) -> dict[str, Any]:
    """Return the settings of one of the models."""
    rotations = SETTINGS["rope_parameters"]
    if name == "hy v4 vl":
        rotations = {**rotations, "mrope_section": [1, 1, 1]}
    return {**SETTINGS, "rope_parameters": rotations}


CASES = {
    name: Case(
        kind_of(name, "Model"), settings_of(name), families.text, in_float64=False
    )
    for name in FAMILIES
}
MODEL_OF = {indexer: name for name, (_, indexer) in FAMILIES.items()}
