"""Modules of a model, swapped in place: all of them, or none if one is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from transformers import PreTrainedModel

from relpos.torch._transformers.adapters.base import (
    Asking,
    Attributes,
    Keeping,
    Masked,
    Swapped,
)
from relpos.torch._transformers.adapters.chosen import PAGE, refuse_choices
from relpos.torch._transformers.adapters.table import (
    Match,
    class_of,
    match_of,
)
from relpos.torch._transformers.interface.names import INSTALLED, check_methods
from relpos.torch._transformers.interface.registry import (
    NAME,
    asks_the_registry,
    classes_that_stay,
    look_for_causal,
    register,
)


class Swap(NamedTuple):
    """A module of a model that is to be swapped, with its path there."""

    path: str
    module: torch.nn.Module
    match: Match


def replace(model: torch.nn.Module, keep_positions: bool) -> list[str]:
    """Swap the classes of all modules that have an adapter, and return their names."""
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"model: got a {type(model).__name__}; expected a torch.nn.Module"
        )
    swaps = _swaps(model)
    # what adapters refuse is found before any module is changed
    prepared: list[Attributes] = []
    for _, module, match in swaps:
        check_methods(match.original, match.adapter)
        prepared.append(match.adapter.prepare(module))
    register()
    refuse_choices()
    # Swapped modules that ask for attention need relpos's, and others its masks. Both
    # are set on the model around them.
    asking = _owners_of(model, swaps, Asking)
    masked = _owners_of(model, swaps, Masked)
    owners = [*asking, *masked]
    before = [(owner.config, owner.config._attn_implementation) for owner in owners]
    try:
        for (_, module, match), attributes in zip(swaps, prepared, strict=True):
            module.__class__ = class_of(match.name)
            vars(module).update(attributes)
            if not keep_positions and isinstance(module, Keeping):
                module.keep_positions = False
        for owner in asking:
            _ask_for_relpos(owner)
        for owner in masked:
            owner.config._attn_implementation = NAME
            look_for_causal(owner)
    except BaseException:
        # transformers may refuse an owner when modules are swapped already
        for (_, module, match), attributes in zip(swaps, prepared, strict=True):
            module.__class__ = match.original
            for name in (*attributes, "keep_positions"):
                vars(module).pop(name, None)
        for config, name in before:
            config._attn_implementation = name
        raise
    return [
        path for path, _, match in swaps if match.adapter.attends or match.adapter.picks
    ]


def _ask_for_relpos(owner: Any) -> None:
    """Set a model to attention by relpos, or raise if transformers leaves it as it is.

    It does so for a class without source, and for one with other attention in it.
    """
    owner.set_attn_implementation(NAME)
    name = owner.config._attn_implementation
    if name != NAME:
        raise ValueError(
            f"model: got a {type(owner).__name__} that stays {name!r} in {INSTALLED}; "
            f"expected one that takes the attn_implementation {NAME!r}"
        )


def _swaps(model: torch.nn.Module) -> list[Swap]:
    """Return the modules to swap, or raise if there is none."""
    swaps = []
    for path, module in model.named_modules():
        match = match_of(module)
        if match is None or not match.adapter.fits(module):
            continue
        kind = match.original
        if kind is not type(module):  # what it changes would be left out
            raise ValueError(
                f"model: got {path or 'a module'} of {type(module).__name__}, a "
                f"subclass of {kind.__name__}; expected {kind.__name__} itself, "
                "which is what is replaced"
            )
        if "forward" in vars(module).keys() & vars(match.adapter).keys():
            raise ValueError(
                f"model: got {path or kind.__name__} with a forward of its own; "
                "expected that of its class, which is what is replaced (delete the "
                "attribute, replace attention, and wrap forward then)"
            )
        swaps.append(Swap(path, module, match))
    if swaps:
        return swaps
    name = type(model).__name__
    if any(isinstance(module, Swapped) for module in model.modules()):
        raise ValueError(
            f"model: got a {name} whose attention is already replaced; expected one "
            "that replace_attention has not changed"
        )
    raise ValueError(
        f"model: got a {name} without a module to replace; expected one that {PAGE} or "
        f"`python -m relpos models` lists{_otherwise(model)}"
    )


def _otherwise(model: torch.nn.Module) -> str:
    """Return how a model without a module to replace runs on relpos, if it does."""
    models = [part for part in model.modules() if isinstance(part, PreTrainedModel)]
    asking = [x for x in models if asks_the_registry(x) and not classes_that_stay(x)]
    if asking:
        name = type(asking[0]).__name__
        return (
            f" ({name} asks for its attention by name and needs no replacement: call "
            'relpos.torch.register() and model.set_attn_implementation("relpos"))'
        )
    if any(isinstance(part, torch.nn.MultiheadAttention) for part in model.modules()):
        return (
            " (torch.nn.MultiheadAttention has no positions to replace: put a "
            "relpos.torch.nn.RelativeMultiheadAttention in its place, which has them)"
        )
    return ""


def _owners_of(model: torch.nn.Module, swaps: list[Swap], kind: type) -> list[Any]:
    """Return the innermost models around all modules whose adapter is of a kind."""
    modules = {id(x.module) for x in swaps if issubclass(x.match.adapter, kind)}
    return list(dict.fromkeys(_owners(model, modules)))


def _owners(
    module: torch.nn.Module, wanted: set[int], owner: Any = None
) -> Iterator[Any]:
    """Yield the innermost model around each module of `wanted`, by id."""
    owner = module if isinstance(module, PreTrainedModel) else owner
    if id(module) in wanted and owner is not None:
        yield owner
    for child in module.children():
        yield from _owners(child, wanted, owner)
