"""Attention that never asks the registry, and runs eager whatever is registered."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from transformers import PreTrainedModel

from relpos.torch._transformers.causal import look_for_causal

#: What a class that asks the registry has in its source.
_ASKS = ("ALL_ATTENTION_FUNCTIONS", "AttentionInterface", "attention_interface")


def look_at_models(name: str) -> None:
    """Let models be looked at when they are made, and when they change attention.

    transformers takes any registered name for any model, and makes masks for that name,
    which eager code cannot read. It has no place to look at a model's modules, so the
    two methods after which they are known are wrapped, once.
    """
    for method in ("post_init", "set_attn_implementation"):
        original = getattr(PreTrainedModel, method)
        if not hasattr(original, "relpos_looks"):
            setattr(PreTrainedModel, method, _looking(original, name))


def _looking(method: Any, name: str) -> Any:
    @functools.wraps(method)
    def looks(self: Any, *args: Any, **keywords: Any) -> Any:
        result = method(self, *args, **keywords)
        for model in self.modules():
            if not isinstance(model, PreTrainedModel):
                continue
            if model.config._attn_implementation == name:
                _leave_eager(model)
                look_for_causal(model, asking_modules(model))
        return result

    looks.relpos_looks = True  # type: ignore[attr-defined]
    return looks


def _leave_eager(model: Any) -> None:
    """Set a model back to eager if it is that whatever its configuration says."""
    classes = sorted({type(module).__name__ for module in eager_modules(model)})
    if classes:
        model.config._attn_implementation = "eager"
        warnings.warn(
            f"{type(model).__name__}: {', '.join(classes)} never asks for an "
            "attn_implementation, so that the model stays eager; "
            "relpos.torch.replace_attention(model) swaps it, if it knows it",
            UserWarning,
            stacklevel=4,
        )


def eager_modules(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The attention modules of a model that do not ask the registry.

    Models inside it are left out: they are looked at themselves.
    """
    for module in _own_modules(model):
        inner = [part for part in module.modules() if part is not module]
        kind: Any = type(module)
        leaf = not any("Attention" in type(part).__name__ for part in inner)
        if "Attention" in kind.__name__ and leaf and not _asks(kind):
            yield module


def asking_modules(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The modules that ask the registry, those of models inside it too."""
    for module in model.modules():
        kind: Any = type(module)
        other = kind.__module__.startswith("torch.") or issubclass(
            kind, PreTrainedModel
        )
        if not other and _asks(kind):
            yield module


def _own_modules(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    for child in model.children():
        if not isinstance(child, PreTrainedModel):
            yield child
            yield from _own_modules(child)


@functools.cache
def _asks(kind: type) -> bool:
    """Whether a class, or one that it is made from, asks; yes where no source is."""
    for base in kind.__mro__:
        if base.__module__.startswith("relpos."):
            return True
        if base in (torch.nn.Module, object):
            continue
        try:
            source = inspect.getsource(base)
        except (OSError, TypeError):
            return True
        if any(word in source for word in _ASKS):
            return True
    return False
