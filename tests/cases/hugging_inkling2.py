"""Small models of Inkling 2 and Inkling 2 Loop, whose attention older versions lack."""

from __future__ import annotations

from importlib import import_module

import hugging_families as families
import torch
import transformers
from hugging_models import TEXT, Case

#: True where their attention asks the registry, with a sink for each query.
IS_KNOWN = tuple(map(int, transformers.__version__.split(".")[:2])) >= (5, 24)
FAMILIES = {
    "inkling2": "inkling2.Inkling2",
    "inkling2 loop": "inkling2_loop.Inkling2Loop",
}
SETTINGS = {
    **TEXT,
    "vocab_size": 12,
    "unpadded_vocab_size": 12,
    "swa_num_attention_heads": 4,
    "swa_num_key_value_heads": 2,
    "swa_head_dim": 6,
    "sliding_window_size": 4,
    "layer_types": ["hybrid_sliding", "hybrid"],
    "d_rel": 3,
    "rel_extent": 7,
    "log_scaling_n_floor": 4,
    "moe_intermediate_size": 16,
    "n_routed_experts": 2,
    "num_experts_per_tok": 1,
}


def kind_of(name: str, what: str) -> type[torch.nn.Module]:
    """Return a class of one of the two models."""
    folder, prefix = FAMILIES[name].split(".")
    home = f"transformers.models.{folder}.modeling_{folder}"
    kind: type[torch.nn.Module] = getattr(import_module(home), f"{prefix}{what}")
    return kind


def _cases() -> dict[str, Case]:
    found = {}
    for name in FAMILIES if IS_KNOWN else ():
        model = kind_of(name, "TextModel")
        found[name] = Case(model, SETTINGS, families.text, in_float64=False)
    return found


CASES = _cases()
