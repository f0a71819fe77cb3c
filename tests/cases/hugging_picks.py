"""Small models of transformers whose queries attend to keys that an indexer picks."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

import torch
import transformers
from hugging_models import WIDTH, Case, padded

PICKS = 3  # keys of a query
SETTINGS = {
    "vocab_size": 12,
    "hidden_size": WIDTH,
    "intermediate_size": 16,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_shared_experts": 1,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 12,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 6,
    "v_head_dim": 5,
    "index_topk": PICKS,
    "index_head_dim": 8,
    "index_n_heads": 2,
    "max_position_embeddings": 64,
    "mlp_layer_types": ["dense", "sparse"],
    "pad_token_id": 0,
    "eos_token_id": None,
    "bos_token_id": None,
}
#: The second layer takes the picks of the first one.
TAKES_OVER = {"indexer_types": ["full", "shared"]}
#: Turned by three kinds of positions, each by some of the columns.
OF_PICTURES: dict[str, Any] = {
    "qk_rope_head_dim": 8,
    "index_head_dim": 12,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e4,
        "mrope_section": [2, 1, 1],
    },
}
#: Folder and class of each model, and what else its configuration needs.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "A.X K2": ("axk2.AXK2ForCausalLM", {"gated_norm_rank": 4}),
    "DeepSeek V3.2": ("deepseek_v32.DeepseekV32ForCausalLM", {}),
    "dots3": ("dots3_note.Dots3NoteForCausalLM", {}),
    "GLM-DSA": ("glm_moe_dsa.GlmMoeDsaForCausalLM", TAKES_OVER),
    "HY V4": ("hy_v4.HYV4ForCausalLM", TAKES_OVER),
    "HY V4 VL": ("hy_v4_vl.HYV4VLTextModel", TAKES_OVER | OF_PICTURES),
    "Mistral Large 4": ("mistral_large4.MistralLarge4TextModel", TAKES_OVER),
}


#: A model whose queries pick blocks of two keys, for each of two groups of heads.
BLOCKS: dict[str, Any] = {
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "dense_intermediate_size": 16,
    "shared_intermediate_size": 16,
    "num_local_experts": 4,
    "rotary_dim": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    "index_topk_blocks": 2,
    "index_block_size": 2,
    "layer_types": ["full_attention", "minimax_m3_sparse"],
}
OF_BLOCKS: dict[str, tuple[str, dict[str, Any]]] = {
    "MiniMax M3": ("minimax_m3_vl.MiniMaxM3VLForCausalLM", BLOCKS),
}


def text(model: Any, embeds: Any, left: bool = False) -> Any:
    """Logits, or what they are made of, and the tokens that are not padding."""
    mask = padded(embeds.shape[1], left, len(embeds))
    out = model(inputs_embeds=embeds, attention_mask=mask.long(), use_cache=False)
    return out[0], mask


def kind_of(name: str) -> type[torch.nn.Module] | None:
    """Return the class of a model, None where transformers does not have it."""
    folder, kind = (MODELS | OF_BLOCKS)[name][0].split(".")
    try:
        home = import_module(
            f".models.{folder}.modeling_{folder}", transformers.__name__
        )
    except ModuleNotFoundError:
        return None
    found: type[torch.nn.Module] | None = getattr(home, kind, None)
    return found


def case_of(name: str, side: str = "right", **more: Any) -> Case:
    """Return a model with padding on a side."""
    call = partial(text, left=side == "left")
    settings = (MODELS | OF_BLOCKS)[name][1]
    return Case(kind_of(name), SETTINGS | settings | more, call)


#: The names of the models that transformers has.
NAMES = [name for name in MODELS if kind_of(name)]
NAMES_OF_BLOCKS = [name for name in OF_BLOCKS if kind_of(name)]
