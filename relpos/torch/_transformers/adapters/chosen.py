"""Models that choose a class of attention by the name of an implementation.

Their files have a dict of classes by name, in which "relpos" is not: building a model
by that name would end with a KeyError.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, NoReturn

import torch
from transformers import PreTrainedModel

from relpos.torch._transformers.adapters.table import ADAPTERS
from relpos.torch._transformers.interface.registry import NAME

#: The page that lists what relpos serves.
PAGE = "docs/replace-attention.md"


def refuse_choices() -> None:
    """Let models that choose a class by name say what to do instead, from now on.

    Nothing calls relpos when a class is chosen. When a model begins to be made, an
    entry that raises is added to the dicts of its file.
    """
    original = PreTrainedModel.__init__
    if hasattr(original, "relpos_adds"):
        return

    @functools.wraps(original)
    def adds(self: Any, *args: Any, **keywords: Any) -> None:
        for base in type(self).__mro__:
            if base.__module__.startswith("transformers.models."):
                _add_to(base.__module__)
        original(self, *args, **keywords)

    adds.relpos_adds = True  # type: ignore[attr-defined]
    PreTrainedModel.__init__ = adds


def _add_to(module: str) -> None:
    """Add an entry for "relpos" to the dicts of attention in a file of models."""
    for value in [*vars(sys.modules[module]).values()]:
        if type(value) is not dict:
            continue
        eager = value.get("eager")
        if isinstance(eager, type) and issubclass(eager, torch.nn.Module):
            value.setdefault(NAME, functools.partial(_refuse, eager, [*value]))


def _refuse(eager: type, names: list[str], *args: Any, **keywords: Any) -> NoReturn:
    expected = " or ".join(map(repr, names))
    home = eager.__module__, eager.__name__
    if any(home == (x.home, x.kind) for x in ADAPTERS.values()):
        expected += ", and relpos.torch.replace_attention(model) afterwards"
    else:
        expected += f", as relpos does not serve this attention ({PAGE} lists what it "
        expected += "serves)"
    raise ValueError(
        f"attn_implementation: got {NAME!r} for a model that chooses "
        f"{eager.__name__} by such a name; expected {expected}"
    )
