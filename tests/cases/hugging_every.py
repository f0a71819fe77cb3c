"""Every model of transformers that can be built small, and its calls."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
from pathlib import Path
from typing import Any

import torch
import transformers
from hugging_names import MORE, SMALL

BATCH, LENGTH, ACROSS, WIDTH = 2, 9, 7, 32
SIDES = ("none", "ones", "right", "left")


@functools.cache
def asking() -> dict[str, frozenset[str]]:
    """The classes that ask the registry, for each file of models by its module."""
    classes = {}
    root = Path(transformers.__file__).parent / "models"
    for path in sorted(root.glob("*/modeling_*.py")):
        source = path.read_text(encoding="utf-8")
        if "ALL_ATTENTION_FUNCTIONS" in source:
            module = f"transformers.models.{path.parent.name}.{path.stem}"
            classes[module] = frozenset(
                part.name
                for part in ast.parse(source).body
                if isinstance(part, ast.ClassDef) and _asks(part)
            )
    return classes


def _asks(part: ast.ClassDef) -> bool:
    names = (node.id for node in ast.walk(part) if isinstance(node, ast.Name))
    return "ALL_ATTENTION_FUNCTIONS" in names


def model_class(name: str) -> Any:
    """The class `folder.Model`; its file is the one of the folder that defines it."""
    folder, _, model = name.rstrip("+").partition(".")
    for module in asking():
        if module.split(".")[-2] == folder:
            kind = getattr(importlib.import_module(module), model, None)
            if kind is not None and kind.__module__ == module:
                return kind
    raise LookupError(f"{name}: got no such class in {sorted(asking())}")


def settings(kind: Any) -> dict[str, Any]:
    """Small values for the fields of a class of configurations, and of those in it."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for name, value in SMALL.items():
        if name in fields:
            default = fields[name].default
            listed = isinstance(default, (list, tuple))
            if listed and not isinstance(value, (list, tuple)):
                value = type(default)([value] * len(default))
            values[name] = value
    if "kv_lora_rank" in fields and "num_key_value_heads" in fields:
        values["num_key_value_heads"] = SMALL["num_attention_heads"]
    for name, part in kind.sub_configs.items():
        if name in fields and dataclasses.is_dataclass(part):
            values[name] = settings(part)
    return {**values, **MORE.get(kind.model_type, {})}


def build(name: str, way: str) -> Any:
    """The model in evaluation mode, with random weights for which attention matters."""
    kind = model_class(name)
    given = settings(kind.config_class)
    if name.endswith("+"):
        given = {**given, "is_decoder": True, "add_cross_attention": True}
    config = kind.config_class(**given)
    config._attn_implementation = way
    torch.manual_seed(0)
    model = kind(config).eval()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            fresh = torch.randn(parameter.shape, generator=draw)
            if parameter.ndim > 1:
                parameter.copy_(2 * fresh * parameter[0].numel() ** -0.5)
            else:
                parameter.add_(fresh / 4)
    return model


def mask_of(side: str) -> Any:
    """The mask of two texts, the second padded by three, or None."""
    if side == "none":
        return None
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    if side != "ones":
        mask[1, slice(0, 3) if side == "left" else slice(LENGTH - 3, None)] = 0
    return mask


def call_of(model: Any, side: str, across: bool) -> dict[str, Any] | None:
    """The arguments of a call, or None where the model takes no mask."""
    draw = torch.Generator().manual_seed(1)
    names = inspect.signature(model.forward).parameters
    ids = torch.randint(3, 90, (BATCH, LENGTH), generator=draw)
    inputs = {
        "input_ids": ids,
        "pixel_values": torch.randn(BATCH, 3, 16, 16, generator=draw),
        "input_values": torch.randn(BATCH, 39, generator=draw),
        "input_features": torch.randn(BATCH, 16, LENGTH, generator=draw),
        "boxes": torch.randint(0, 1000, (BATCH, LENGTH, 4), generator=draw).sort()[0],
    }
    if "aspect_ratio_ids" in names:  # pictures in tiles
        inputs["pixel_values"] = inputs["pixel_values"][:, None, None]
        inputs["aspect_ratio_ids"] = torch.ones(BATCH, 1, dtype=torch.long)
        inputs["aspect_ratio_mask"] = torch.ones(BATCH, 1, 1, dtype=torch.long)
    if "padding_mask" in names:  # sound with an axis of channels
        inputs["input_values"] = inputs["input_values"][:, None]
    call = {name: value for name, value in inputs.items() if name in names}
    if not call:
        call["inputs_embeds"] = torch.randn(BATCH, LENGTH, WIDTH, generator=draw)
    if model.config.is_encoder_decoder and "decoder_input_ids" in names:
        call["decoder_input_ids"] = ids.flip(1)
    if "use_cache" in names:
        call["use_cache"] = False
    states = torch.randn(BATCH, ACROSS, WIDTH, generator=draw)
    if across:
        name = "encoder_hidden_states"
        call[name if name in names else "cross_attention_states"] = states
    mask = mask_of(side)
    if "boxes" in call:  # of a page, whose mask is not optional
        call["mask"] = mask_of("ones") if mask is None else mask
        return call
    if mask is not None:
        if not {"input_ids", "inputs_embeds"} & call.keys():
            return None
        if "attention_mask" not in names:
            return None
        call["attention_mask"] = mask
        if "decoder_input_ids" in call and "decoder_attention_mask" in names:
            call["decoder_attention_mask"] = mask
        if "encoder_hidden_states" in call:
            call["encoder_attention_mask"] = mask[:, -ACROSS:]
    return call


def real(result: Any, side: str) -> list[Any]:
    """Return the hidden states of the tokens that are no padding."""
    tensors = [getattr(result, name, None) for name in ("last_hidden_state", "logits")]
    tensors = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
    if not tensors:
        plain = isinstance(result, (torch.Tensor, tuple))
        parts = [result] if plain else list(result.values())
        parts += [x for part in parts if isinstance(part, tuple) for x in part]
        tensors = [x for x in parts if isinstance(x, torch.Tensor)]
        tensors = [x for x in tensors if x.is_floating_point()]
    mask = mask_of(side)
    if mask is None or side == "ones":
        return tensors
    tensors = [x[:, :LENGTH] for x in tensors if x.ndim == 3]  # VideoPrism adds a token
    return [x[mask.bool()] for x in tensors if x.shape[:2] == mask.shape]
