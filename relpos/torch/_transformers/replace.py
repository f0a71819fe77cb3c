"""Swapping the classes of modules: the table, and who has to ask the registry."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from transformers import PreTrainedModel

from relpos.torch._transformers.registry import NAME, register

#: Class by class, the file here whose class of that name takes its place.
_FILES = {
    "transformers.models.deberta_v2.modeling_deberta_v2.DebertaV2Encoder": "deberta",
    "transformers.models.deberta_v2.modeling_deberta_v2.DisentangledSelfAttention": (
        "deberta"
    ),
    "transformers.models.gemma3n.modeling_gemma3n.Gemma3nAudioAttention": "gemma3n",
    "transformers.models.gemma4.modeling_gemma4.Gemma4AudioAttention": "gemma4",
    "transformers.models.inkling.modeling_inkling.InklingAttention": "inkling",
    "transformers.models.inkling.modeling_inkling.InklingRelativeLogits": "inkling",
    "transformers.models.mt5.modeling_mt5.MT5Attention": "t5",
    "transformers.models.t5.modeling_t5.T5Attention": "t5",
    "transformers.models.wav2vec2_conformer.modeling_wav2vec2_conformer"
    ".Wav2Vec2ConformerSelfAttention": "wav2vec2_conformer",
    "transformers.models.wavlm.modeling_wavlm.WavLMAttention": "wavlm",
}


def replace(model: torch.nn.Module) -> list[str]:
    """Swap the classes of all modules of the table, and return the modules' names."""
    register()
    swaps = []
    for name, module in model.named_modules():
        kind = type(module)
        file = _FILES.get(f"{kind.__module__}.{kind.__qualname__}")
        if file is None:
            continue
        swapped = getattr(import_module(f"{__package__}.{file}"), kind.__name__)
        if swapped.fits(module):
            swaps.append((name, module, swapped))
    if not swaps:
        raise ValueError(
            f"model: got a {type(model).__name__} without a module to replace; "
            f"expected one of {', '.join(sorted(_classes()))}"
        )
    for _, module, swapped in swaps:
        module.__class__ = swapped
        module.prepare()
    asking = {id(module) for _, module, swapped in swaps if swapped.asks}
    for owner in _owners(model, asking):
        owner.set_attn_implementation(NAME)
    return [name for name, _, swapped in swaps if swapped.attends]


def _classes() -> set[str]:
    return {name.rpartition(".")[2] for name in _FILES}


def _owners(model: torch.nn.Module, asking: set[int]) -> list[Any]:
    """The innermost models that have a module of `asking`, by id."""
    owners: dict[int, Any] = {}

    def walk(module: torch.nn.Module, owner: Any) -> None:
        owner = module if isinstance(module, PreTrainedModel) else owner
        if id(module) in asking and owner is not None:
            owners[id(owner)] = owner
        for child in module.children():
            walk(child, owner)

    walk(model, None)
    return list(owners.values())
