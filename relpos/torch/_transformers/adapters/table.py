"""The table of adapters, and the classes made of them and of those of transformers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, TypeVar

import torch
import transformers

from relpos.torch._transformers.adapters.base import Swapped
from relpos.torch._transformers.interface.names import check_methods
from relpos.torch._transformers.interface.registry import register

Adapter = TypeVar("Adapter", bound=type[Swapped])


class Replacement(NamedTuple):
    """An adapter, with the module and the name of the class that it replaces."""

    home: str
    kind: str
    adapter: type[Swapped]


#: By the name under which pickles find the class that is made of each.
ADAPTERS: dict[str, Replacement] = {}

#: Where pickles find these classes.
_PICKLED = "relpos.torch._transformers.adapters"

#: The classes that were made, by name: there is one of each.
_MADE: dict[str, Any] = {}


def replaces(
    *names: str, prefix: str = "", since: tuple[int, int] = (0, 0)
) -> Callable[[Adapter], Adapter]:
    """Note an adapter for classes, each named with its family: "t5.T5Attention".

    A file of another name than its family comes between: "donut.donut_swin.DonutSwin".
    A class gets a prefix where another family has a class of the same name. Before the
    version `since` of transformers, the classes are others or not there.
    """
    is_there = tuple(map(int, transformers.__version__.split(".")[:2])) >= since

    def note(adapter: Adapter) -> Adapter:
        for name in names if is_there else ():
            family, *file, kind = name.split(".")
            last = file[0] if file else family
            home = f"transformers.models.{family}.modeling_{last}"
            ADAPTERS[prefix + kind] = Replacement(home, kind, adapter)
        return adapter

    return note


def class_of(name: str) -> Any:
    """Return the class that replaces one of transformers, made when first needed."""
    if name not in _MADE:
        home, kind, adapter = ADAPTERS[name]
        original = getattr(import_module(home), kind)
        check_methods(original, adapter)
        register()
        members: dict[str, Any] = {"__module__": _PICKLED, "__qualname__": name}
        members |= {"__doc__": adapter.__doc__, **adapter.of_class(original)}
        # another thread may have made it meanwhile
        _MADE.setdefault(name, type(kind, (adapter, original), members))
    return _MADE[name]


class Match(NamedTuple):
    """The class of transformers that a module has, with its adapter, if it has one."""

    original: type
    name: str
    adapter: Any


def match_of(module: torch.nn.Module) -> Match | None:
    """Return what replaces a module; None without an adapter, or if it is swapped."""
    if isinstance(module, Swapped):
        return None
    for base in type(module).__mro__:
        for name, (home, kind, adapter) in ADAPTERS.items():
            # a class of another file may have the same name
            if (base.__module__, base.__name__) == (home, kind):
                return Match(base, name, adapter)
    return None
